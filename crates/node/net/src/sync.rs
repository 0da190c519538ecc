//! What threads share, in one place: the models of races (`mailbox_races`, `asks_races`) put other
//! kinds of the same things here, and then try every order in which the threads can run.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
