//! Race models of the request queue: runs the production code on primitives whose scheduler decides
//! which thread runs next. A thread that waits forever is a deadlock, which fails the run.
//!
//! Deliberately broken reactors, which do one step too late, show that the model detects faults.

/// Stand-ins for the primitives used in production.
mod sync {
    pub(super) use shuttle::sync::{Arc, mpsc};
}

use crate::races::wake;

// Included by path because it is compiled a second time; `super::sync` then means the module above.
#[path = "asks.rs"]
#[allow(clippy::duplicate_mod, reason = "over other primitives")]
#[allow(unreachable_pub, reason = "the crate exports it, this module does not")]
mod asks;

use std::panic::{self, AssertUnwindSafe};

use shuttle::thread;

use asks::{NotQueued, RequestReceiver, request_queue};
use sync::{
    Arc,
    mpsc::{SyncSender, sync_channel},
};

/// Number of random schedules that are run for each model.
const RUNS: usize = 2000;
const SENDER_COUNT: usize = 3;

type Question = SyncSender<u32>;

/// All threads get their own answers, although there are more threads than places in the queue.
fn check_all_requests_are_answered(turn: impl Fn(&RequestReceiver<Question>) -> Vec<Question>) {
    let (program, reactor) = request_queue::<Question>(SENDER_COUNT - 1).unwrap();
    let program = Arc::new(program);
    let ask = |_| {
        let program = Arc::clone(&program);
        thread::spawn(move || {
            let (reply, answer) = sync_channel(1);
            assert!(program.send_request(reply));
            assert_eq!(answer.recv(), Ok(7));
        })
    };
    let askers: Vec<_> = (0..SENDER_COUNT).map(ask).collect();
    let mut answered = 0;
    while answered < SENDER_COUNT {
        reactor.wake().wait();
        for question in turn(&reactor) {
            question.send(7).unwrap();
            answered += 1;
        }
    }
    for asker in askers {
        asker.join().unwrap();
    }
}

/// Takes all queued requests, as the production front does.
fn take_all_requests(asked: &RequestReceiver<Question>) -> Vec<Question> {
    asked.clear_signal();
    std::iter::from_fn(|| asked.next_request()).collect()
}

/// Clears the signal after taking the requests, and so sleeps through any that arrive in between.
fn clear_signal_after_taking(asked: &RequestReceiver<Question>) -> Vec<Question> {
    let all = std::iter::from_fn(|| asked.next_request()).collect();
    asked.clear_signal();
    all
}

/// Takes only one request, then waits for the next signal.
fn take_one_request(asked: &RequestReceiver<Question>) -> Vec<Question> {
    asked.clear_signal();
    asked.next_request().into_iter().collect()
}

fn fails_in_some_schedule(turn: fn(&RequestReceiver<Question>) -> Vec<Question>) -> bool {
    let model = move || check_all_requests_are_answered(turn);
    let explore = AssertUnwindSafe(|| shuttle::check_random(model, RUNS));
    panic::catch_unwind(explore).is_err()
}

#[test]
fn no_request_is_missed_by_a_sleeping_reactor() {
    shuttle::check_random(|| check_all_requests_are_answered(take_all_requests), RUNS);
    assert!(fails_in_some_schedule(clear_signal_after_taking));
    assert!(fails_in_some_schedule(take_one_request));
}

/// A caller that arrives after the reactor has ended gets an error and does not wait.
#[test]
fn request_after_the_reactor_ended_is_an_error() {
    shuttle::check_random(
        || {
            let (program, reactor) = request_queue::<Question>(1).unwrap();
            let end = thread::spawn(move || drop(reactor));
            let (reply, answer) = sync_channel(1);
            if !program.send_request(reply) {
                assert!(answer.recv().is_err());
            }
            end.join().unwrap();
            assert!(!program.send_request(sync_channel(1).0));
        },
        RUNS,
    );
}

/// A full queue returns the request; queued requests are answered, and no signal is missed.
#[test]
fn try_put_on_a_full_queue_returns_the_request() {
    shuttle::check_random(
        || {
            let (program, reactor) = request_queue::<(bool, Question)>(1).unwrap();
            let asker = thread::spawn(move || {
                let (reply, answer) = sync_channel(3);
                let mut asked = 1;
                for _ in 0..2 {
                    match program.try_put((false, reply.clone())) {
                        Ok(()) => asked += 1,
                        Err(NotQueued::Full((_, back))) => drop(back),
                        Err(NotQueued::Gone(_)) => panic!("the reactor is there"),
                    }
                }
                assert!(program.send_request((true, reply)));
                for _ in 0..asked {
                    assert_eq!(answer.recv(), Ok(7));
                }
                assert!(asked > 1, "the queue was empty");
                assert!(answer.recv().is_err(), "what came back is not answered");
                program
            });
            let mut last = false;
            while !last {
                reactor.wake().wait();
                reactor.clear_signal();
                while let Some((ends, question)) = reactor.next_request() {
                    question.send(7).unwrap();
                    last |= ends;
                }
            }
            let program = asker.join().unwrap();
            drop(reactor);
            let gone = program.try_put((false, sync_channel(1).0));
            assert!(matches!(gone, Err(NotQueued::Gone(_))));
        },
        RUNS,
    );
}
