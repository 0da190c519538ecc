//! Explores races between a signal and the start of the node. The production code is compiled with
//! the primitives of a scheduler that tries all interleavings.
//!
//! A deliberately faulty start, which checks for the stop request first, shows that the model finds
//! races.

/// Replacements for the synchronization primitives that production code uses.
mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use shuttle::sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    };
}

// Included by path because the file is compiled a second time. Its `super::sync` is the module
// above.
#[path = "stop.rs"]
#[allow(clippy::duplicate_mod, reason = "over other primitives")]
mod stop;

use std::panic::{self, AssertUnwindSafe};

use shuttle::{sync::atomic::AtomicU32, thread};

use stop::StopRequest;
use sync::{Arc, Ordering};

type Reactor = Box<dyn Fn() + Send>;

/// Checks that the reactor is notified of a signal that arrives at any moment of the start.
fn check_no_signal_is_lost(tell: impl Fn(&StopRequest<Reactor>, Reactor)) {
    let stop = StopRequest::<Reactor>::new();
    let signals = stop.clone();
    let signals = thread::spawn(move || signals.request_stop());
    let stopped = Arc::new(AtomicU32::new(0));
    let reactor = Arc::clone(&stopped);
    tell(
        &stop,
        Box::new(move || {
            reactor.fetch_add(1, Ordering::SeqCst);
        }),
    );
    signals.join().unwrap();
    assert!(stopped.load(Ordering::SeqCst) > 0, "it runs forever");
}

#[test]
fn signal_during_the_start_stops_the_node() {
    shuttle::check_dfs(|| check_no_signal_is_lost(StopRequest::set_stopper), None);
    // A faulty start that checks for a stop request and only then registers the reactor.
    let looks_first = |stop: &StopRequest<Reactor>, reactor: Reactor| {
        if stop.is_stop_requested() {
            reactor();
        }
    };
    let model = move || check_no_signal_is_lost(looks_first);
    let explore = AssertUnwindSafe(|| shuttle::check_dfs(model, None));
    assert!(panic::catch_unwind(explore).is_err());
}
