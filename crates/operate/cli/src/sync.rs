//! Synchronization primitives. The race model (`stop_races`) replaces this module by primitives
//! whose scheduler tries all interleavings of threads.

pub(crate) use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
