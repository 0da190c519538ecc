//! Races between a signal and the start of the node, explored: the same lines as in production,
//! over primitives of a scheduler that decides which thread runs when.
//!
//! The model is shown to work by a start that checks for the request first.

/// The same primitives as in production.
mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use shuttle::sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    };
}

// By its path, since it is compiled a second time: `super::sync` is the one above here.
#[path = "stop.rs"]
#[allow(clippy::duplicate_mod, reason = "over other primitives")]
mod stop;

use std::panic::{self, AssertUnwindSafe};

use shuttle::{sync::atomic::AtomicU32, thread};

use stop::Stop;
use sync::{Arc, Ordering};

type Reactor = Box<dyn Fn() + Send>;

/// A signal arrives at some moment of the start; the reactor is notified.
fn a_signal_is_never_lost(tell: impl Fn(&Stop<Reactor>, Reactor)) {
    let stop = Stop::<Reactor>::new();
    let signals = stop.clone();
    let signals = thread::spawn(move || signals.ask());
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
fn a_signal_while_the_node_starts_stops_it() {
    shuttle::check_dfs(|| a_signal_is_never_lost(Stop::tell), None);
    // A start that checks for a request to stop, and registers no reactor if there was none.
    let looks_first = |stop: &Stop<Reactor>, reactor: Reactor| {
        if stop.is_asked() {
            reactor();
        }
    };
    let model = move || a_signal_is_never_lost(looks_first);
    let explore = AssertUnwindSafe(|| shuttle::check_dfs(model, None));
    assert!(panic::catch_unwind(explore).is_err());
}
