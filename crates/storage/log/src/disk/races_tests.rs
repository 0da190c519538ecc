//! Explores races between the log and the threads of its disk: the production code, over the
//! primitives of a scheduler that decides which thread runs. A thread that waits for something that
//! never happens is a deadlock, which ends a run.
//!
//! Each model is validated by a twin of the code with one line in the wrong place.

/// The primitives used in production, but without time-outs, so that no time-out hides a lost
/// wake-up.
mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard, mpsc};
}

mod event {
    use super::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(super) struct Event {
        signalled: Mutex<bool>,
        changed: Condvar,
    }

    impl Event {
        pub(super) fn signal(&self) {
            *self.signalled.lock().unwrap() = true;
            self.changed.notify_all();
        }

        pub(super) fn drain(&self) -> bool {
            std::mem::take(&mut *self.signalled.lock().unwrap())
        }

        /// Waits as epoll does.
        pub(super) fn wait(&self) {
            let mut signalled = self.signalled.lock().unwrap();
            while !*signalled {
                signalled = self.changed.wait(signalled).unwrap();
            }
        }
    }
}

// By path, because the file is compiled a second time: `super::sync` is the module above.
#[path = "mailbox.rs"]
#[allow(clippy::duplicate_mod, reason = "over other primitives")]
mod mailbox;
#[path = "pace.rs"]
#[allow(clippy::duplicate_mod, reason = "over other primitives")]
#[allow(dead_code, reason = "the models use the part that threads share")]
mod pace;

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Duration,
};

use shuttle::thread;

use event::Event;
use mailbox::{Inbox, Mailbox};
use pace::Pace;

/// Number of random schedules per model; all models together take about a second.
const RUNS: usize = 2000;
const NOT_USED: Duration = Duration::from_secs(3600);

/// Returns whether a model fails in some schedule.
fn fails(model: impl Fn() + Send + Sync + 'static) -> bool {
    let explore = AssertUnwindSafe(|| shuttle::check_random(model, RUNS));
    panic::catch_unwind(explore).is_err()
}

// Results of threads reach the log.

/// Two threads send two results each. The log takes them, and sleeps when there are none.
fn all_arrives(take_all: impl Fn(&Inbox<u32>, &Event) -> Vec<u32>) {
    let event = Arc::new(Event::default());
    let (mailbox, inbox) = Mailbox::new(&event);
    for thread in [0, 10] {
        let mailbox = mailbox.clone();
        thread::spawn(move || (1..=2).for_each(|thing| mailbox.send_result(thread + thing)));
    }
    let mut taken = Vec::new();
    while taken.len() < 4 {
        event.wait();
        taken.extend(take_all(&inbox, &event));
    }
    taken.sort_unstable();
    assert_eq!(taken, [1, 2, 11, 12]);
}

/// Receives as the thread engine does.
fn takes(inbox: &Inbox<u32>, _: &Event) -> Vec<u32> {
    std::iter::from_fn(|| inbox.next_result()).collect()
}

/// Receives as the ring engine does, whose event the kernel signals as well.
fn drains_and_looks(inbox: &Inbox<u32>, event: &Event) -> Vec<u32> {
    let next = || {
        event.drain();
        inbox.try_receive()
    };
    std::iter::from_fn(next).collect()
}

/// Drains after the last check: results that arrived in between are not signalled again.
fn looks_and_drains(inbox: &Inbox<u32>, event: &Event) -> Vec<u32> {
    let things = std::iter::from_fn(|| inbox.try_receive()).collect();
    event.drain();
    things
}

#[test]
fn no_completion_is_missed_by_a_sleeper() {
    shuttle::check_random(|| all_arrives(takes), RUNS);
    shuttle::check_random(|| all_arrives(drains_and_looks), RUNS);
    assert!(fails(|| all_arrives(looks_and_drains)));
}

/// A sender that signals before it sends the result.
struct EarlySignal(mpsc_of_shuttle::Sender<u32>, Arc<Event>);

use shuttle::sync::mpsc as mpsc_of_shuttle;

impl EarlySignal {
    fn put(&self, thing: u32) {
        self.1.signal();
        self.0.send(thing).unwrap();
    }
}

#[test]
fn signalling_before_sending_is_detected() {
    assert!(fails(|| {
        let event = Arc::new(Event::default());
        let (sender, things) = mpsc_of_shuttle::channel();
        let mailbox = EarlySignal(sender, Arc::clone(&event));
        thread::spawn(move || (1..=2).for_each(|thing| mailbox.put(thing)));
        let mut taken = 0;
        while taken < 2 {
            event.wait();
            event.drain();
            taken += std::iter::from_fn(|| things.try_recv().ok()).count();
        }
    }));
}

// The thread that creates segments pauses and is woken.

/// Creates a segment of three pieces, and pauses after each.
fn make(pace: &Pace) {
    (1..=3).for_each(|made| pace.pause_until_due(made, NOT_USED));
}

/// Lets the log advance, and then wait for the segment.
fn check_pauses_end_after(hurry: impl Fn(&Pace)) {
    let pace = Arc::new(Pace::default());
    let maker = Arc::clone(&pace);
    let maker = thread::spawn(move || make(&maker));
    pace.note_write(2);
    hurry(&pace);
    maker.join().unwrap();
}

/// A disk is dropped while a segment is being created and another one is requested.
fn check_drop_ends_the_creating_thread() {
    let pace = Arc::new(Pace::default());
    let (jobs, asked) = mpsc_of_shuttle::channel();
    let maker = Arc::clone(&pace);
    let maker = thread::spawn(move || {
        while asked.recv().is_ok() {
            make(&maker);
        }
    });
    for _ in 0..2 {
        pace.relax();
        jobs.send(()).unwrap();
    }
    drop(jobs);
    pace.end_pauses();
    maker.join().unwrap();
}

#[test]
fn no_pause_outlasts_a_request_to_hurry() {
    shuttle::check_random(|| check_pauses_end_after(Pace::end_pauses), RUNS);
    shuttle::check_random(check_drop_ends_the_creating_thread, RUNS);
    // Requests everything without a wake-up, as a write does: pauses continue.
    let silent = |pace: &Pace| pace.note_write(u64::MAX);
    assert!(fails(move || check_pauses_end_after(silent)));
}
