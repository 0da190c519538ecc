//! Races at the reactor's mailbox, explored: the same lines as in production, over primitives of a
//! scheduler that decides who runs when. A thread that waits for what never comes is a deadlock,
//! which ends a run.
//!
//! Each model is shown to work by a reactor that does one thing too late, or not at all.

/// The same things as in production; nothing of them ever times out, so that no time-out hides a
/// wake-up that was lost.
mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use shuttle::sync::{Arc, Mutex, MutexGuard, mpsc};
}

use crate::races::wake;

// By its path, since it is compiled a second time: `super::sync` is the one above here.
#[path = "mailbox.rs"]
#[allow(clippy::duplicate_mod, reason = "over other primitives")]
#[allow(unreachable_pub, reason = "the crate exports it, this module does not")]
mod mailbox;

use std::{
    panic::{self, AssertUnwindSafe},
    time::Duration,
};

use shuttle::{sync::mpsc::SyncSender, thread};

use mailbox::{Mailbox, Unanswered};
use sync::Arc;

/// Random schedules per model.
const RUNS: usize = 2000;
const NOT_USED: Duration = Duration::from_secs(3600);

type Box = Mailbox<SyncSender<u32>, u32>;

/// Returns whether a model fails in some schedule.
fn fails(model: impl Fn() + Send + Sync + 'static) -> bool {
    let explore = AssertUnwindSafe(|| shuttle::check_random(model, RUNS));
    panic::catch_unwind(explore).is_err()
}

/// A reactor that answers 7 to everything until it was asked to stop and has received the news.
fn react(mailbox: &Box, late: impl Fn(&Box)) {
    let (mut stop, mut heard) = (false, 0);
    while !stop || heard == 0 {
        mailbox.wake().wait();
        let mail = mailbox.take();
        late(mailbox);
        for question in mail.questions {
            let _ = question.try_send(7);
        }
        heard += mail.news.iter().sum::<u32>();
        stop |= mail.stop;
    }
}

/// Two threads ask, one looks up a name, one wishes that it stops, at any moments.
fn everybody_hears(reactor: impl Fn(&Box)) {
    let mailbox = Mailbox::new(1).unwrap();
    let start = |work: fn(&Box)| {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || work(&mailbox))
    };
    let ask: fn(&Box) = |mailbox| {
        let answer = mailbox.ask(NOT_USED, |reply| reply);
        let known = [Ok(7), Err(Unanswered::Stopped), Err(Unanswered::Busy)];
        assert!(known.contains(&answer), "{answer:?}");
    };
    let threads =
        [start(ask), start(ask), start(|mailbox| mailbox.tell(1)), start(|mailbox| mailbox.stop())];
    reactor(&mailbox);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(mailbox.ask(NOT_USED, |reply| reply), Err(Unanswered::Stopped));
}

#[test]
fn everybody_who_asks_is_answered_or_told_that_it_is_over() {
    shuttle::check_random(
        || {
            everybody_hears(|mailbox| {
                react(mailbox, |_| ());
                mailbox.end();
            });
        },
        RUNS,
    );
}

/// The descriptor is made unreadable after everything was taken: what came in between is slept
/// through.
#[test]
fn a_reactor_that_drains_late_is_found() {
    assert!(fails(|| {
        everybody_hears(|mailbox| {
            react(mailbox, |mailbox| mailbox.wake().drain());
            mailbox.end();
        });
    }));
}

/// A caller that asks while the reactor ends without a reply waits forever.
#[test]
fn a_reactor_that_ends_without_a_word_is_found() {
    assert!(fails(|| everybody_hears(|mailbox| react(mailbox, |_| ()))));
}
