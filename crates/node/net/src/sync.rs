//! Synchronization primitives, in one place: the models of races (`mailbox_races`, `asks_races`)
//! substitute their own versions, and then explore the orders in which threads can run.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
