//! Synchronization primitives, in one place. The race models (`mailbox_races`, `asks_races`)
//! substitute their own versions to explore the orders in which threads can run.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
