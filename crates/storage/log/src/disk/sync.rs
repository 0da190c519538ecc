//! Synchronisation primitives in one place: the models of races (`races_tests`) substitute their
//! own, and then try every order in which the threads can run.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
