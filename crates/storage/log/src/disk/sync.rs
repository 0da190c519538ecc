//! Synchronisation primitives, imported through this module so that the race models (`races_tests`)
//! can substitute their own and explore thread interleavings.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
