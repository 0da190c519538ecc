//! Race models of the reactor's mailbox: runs the production code on primitives whose scheduler
//! decides which thread runs next. A thread that waits forever is a deadlock, which fails the run.
//!
//! Deliberately broken reactors, which do a step late or never, show that each model finds faults.

/// Stand-ins for production's primitives, without timeouts, which would hide a lost wake-up.
mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use shuttle::sync::{Arc, Mutex, MutexGuard, mpsc};
}

use crate::races::wake;

// Included by path because it is compiled a second time; `super::sync` then means the module above.
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

/// Number of random schedules that are run for each model.
const RUNS: usize = 2000;
const UNUSED_TIMEOUT: Duration = Duration::from_secs(3600);

type TestMailbox = Mailbox<SyncSender<u32>, u32>;

/// Returns whether a model fails in some schedule.
fn fails_in_some_schedule(model: impl Fn() + Send + Sync + 'static) -> bool {
    let explore = AssertUnwindSafe(|| shuttle::check_random(model, RUNS));
    panic::catch_unwind(explore).is_err()
}

/// A reactor that answers 7 to every question until both notification and stop have arrived.
fn run_reactor(mailbox: &TestMailbox, late: impl Fn(&TestMailbox)) {
    let (mut stop, mut heard) = (false, 0);
    while !stop || heard == 0 {
        mailbox.wake().wait();
        let mail = mailbox.take_mail();
        late(mailbox);
        for question in mail.questions {
            let _ = question.try_send(7);
        }
        heard += mail.notifications.iter().sum::<u32>();
        stop |= mail.stop;
    }
}

/// Two threads ask, one sends a look-up result and one stops, in any order; all of them finish.
fn check_every_caller_is_answered(reactor: impl Fn(&TestMailbox)) {
    let mailbox = Mailbox::new(1).unwrap();
    let start = |work: fn(&TestMailbox)| {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || work(&mailbox))
    };
    let ask: fn(&TestMailbox) = |mailbox| {
        let answer = mailbox.send_question(UNUSED_TIMEOUT, |reply| reply);
        let known = [Ok(7), Err(Unanswered::Stopped), Err(Unanswered::Busy)];
        assert!(known.contains(&answer), "{answer:?}");
    };
    let threads = [
        start(ask),
        start(ask),
        start(|mailbox| mailbox.send_notification(1)),
        start(|mailbox| mailbox.stop()),
    ];
    reactor(&mailbox);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(mailbox.send_question(UNUSED_TIMEOUT, |reply| reply), Err(Unanswered::Stopped));
}

#[test]
fn every_caller_gets_an_answer_or_an_error() {
    shuttle::check_random(
        || {
            check_every_caller_is_answered(|mailbox| {
                run_reactor(mailbox, |_| ());
                mailbox.close_mailbox();
            });
        },
        RUNS,
    );
}

/// Detects a reactor that clears the signal after taking the mail, and so misses mail in between.
#[test]
fn clearing_the_signal_too_late_is_detected() {
    assert!(fails_in_some_schedule(|| {
        check_every_caller_is_answered(|mailbox| {
            run_reactor(mailbox, |mailbox| mailbox.wake().drain());
            mailbox.close_mailbox();
        });
    }));
}

/// Detects a reactor that ends without closing the mailbox: a caller waits forever.
#[test]
fn ending_without_closing_the_mailbox_is_detected() {
    assert!(fails_in_some_schedule(|| check_every_caller_is_answered(|mailbox| run_reactor(
        mailbox,
        |_| ()
    ))));
}
