//! Primitives shared between threads, in one place: the models of races (`stop_races`) substitute
//! other kinds of the same things here, and then try every order in which the threads can run.

pub(crate) use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
