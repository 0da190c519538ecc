//! Synchronization primitives. The race model (`stop_races`) replaces this module with primitives
//! whose scheduler tries all interleavings of threads.

pub(crate) use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
