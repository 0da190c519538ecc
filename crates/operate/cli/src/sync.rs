//! Primitives shared between threads. The models of races (`stop_races`) replace this module by
//! other primitives and try all interleavings of threads.

pub(crate) use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
