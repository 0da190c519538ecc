//! What threads share, in one place: the models of races (`races_tests`) put other kinds of the
//! same things here, and then try every order in which the threads can run.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
