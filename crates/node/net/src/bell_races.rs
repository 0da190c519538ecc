//! Race models of the bell: runs the production code on primitives whose scheduler decides which
//! thread runs next. A thread that sleeps forever is a deadlock, which fails the run.
//!
//! Deliberately broken sleepers show that the models find faults.

/// Stand-ins for production's primitives.
mod sync {
    pub(super) use shuttle::sync::atomic::{AtomicBool, Ordering, fence};
}

use crate::races::wake;

// Included by path because it is compiled a second time; `super::sync` then means the module above.
#[path = "bell.rs"]
#[allow(clippy::duplicate_mod, reason = "over other primitives")]
#[allow(dead_code, reason = "the models use a part")]
mod bell;

use std::{
    collections::VecDeque,
    panic::{self, AssertUnwindSafe},
};

use shuttle::{
    sync::{Arc, Mutex},
    thread,
};

use bell::{Bell, SpaceRequest};

/// Number of random schedules that are run for each model.
const RUNS: usize = 2000;
const RECORD_COUNT: u32 = 6;
/// Capacity of the ring, which rings for space once half of it is free.
const CAPACITY: usize = 2;

/// A ring between two threads, with a bell for each.
struct Shared {
    ring: Mutex<VecDeque<u32>>,
    space_request: SpaceRequest,
    producer_bell: Bell,
    consumer_bell: Bell,
}

impl Shared {
    fn length(&self) -> usize {
        self.ring.lock().unwrap().len()
    }

    fn push(&self, record: u32) -> bool {
        let mut ring = self.ring.lock().unwrap();
        let fits = ring.len() < CAPACITY;
        if fits {
            ring.push_back(record);
        }
        fits
    }
}

fn sleep(bell: &Bell, has_work: impl FnOnce() -> bool) {
    if bell.may_sleep(has_work) {
        bell.wake().wait();
        bell.wake().drain();
    }
    bell.mark_awake();
}

fn produce(shared: &Shared, looks_again: bool) {
    for record in 0..RECORD_COUNT {
        while !shared.push(record) {
            shared.space_request.request_space();
            sleep(&shared.producer_bell, || looks_again && shared.length() <= CAPACITY / 2);
        }
        shared.consumer_bell.wake_consumer();
    }
}

fn consume(shared: &Shared, looks_again: bool) {
    let mut next = 0;
    while next < RECORD_COUNT {
        let taken = shared.ring.lock().unwrap().pop_front();
        match taken {
            Some(record) => {
                assert_eq!(record, next);
                next += 1;
                if shared.space_request.should_ring(|| shared.length() <= CAPACITY / 2) {
                    shared.producer_bell.wake_consumer();
                }
            }
            None => sleep(&shared.consumer_bell, || looks_again && shared.length() > 0),
        }
    }
}

/// All records arrive, in whatever order the threads sleep.
fn run(producer_looks: bool, consumer_looks: bool) {
    let shared = Arc::new(Shared {
        ring: Mutex::new(VecDeque::new()),
        space_request: SpaceRequest::default(),
        producer_bell: Bell::new().unwrap(),
        consumer_bell: Bell::new().unwrap(),
    });
    let far = Arc::clone(&shared);
    let thread = thread::spawn(move || produce(&far, producer_looks));
    consume(&shared, consumer_looks);
    thread.join().unwrap();
}

fn fails_in_some_schedule(producer_looks: bool, consumer_looks: bool) -> bool {
    let model = move || run(producer_looks, consumer_looks);
    panic::catch_unwind(AssertUnwindSafe(|| shuttle::check_random(model, RUNS))).is_err()
}

/// [io-10] [io-11] No wake-up is lost in any interleaving.
#[test]
fn no_wake_up_is_lost() {
    shuttle::check_random(|| run(true, true), RUNS);
}

#[test]
fn sleeping_without_rechecking_loses_wake_ups() {
    assert!(fails_in_some_schedule(true, false), "the consumer misses a record");
    assert!(fails_in_some_schedule(false, true), "the producer misses the room");
}
