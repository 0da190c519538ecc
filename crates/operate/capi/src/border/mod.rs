//! The border to C: every pointer and length is checked here, and no panic crosses it.
//!
//! Handles are numbers that look like pointers: they are looked up, and never dereferenced. A
//! closed or invalid handle causes an error, not a crash.
#![allow(unsafe_code, reason = "C gives pointers; each is used in one place, with what it must be")]

pub mod calls;
pub mod deliver;
pub mod errors;
pub mod handles;
pub mod paxos;
mod pointers;
mod signals;

pub(crate) use signals::block_signals;
