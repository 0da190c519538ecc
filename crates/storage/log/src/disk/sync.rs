//! Synchronisation primitives in one place, so that the race models (`races_tests`) can substitute
//! their own and then try every order in which the threads can run.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
