//! Primitives shared by threads, in one place: the models of races (`mailbox_races`, `asks_races`)
//! substitute other kinds of the same primitives, and then try every order in which the threads can
//! run.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
