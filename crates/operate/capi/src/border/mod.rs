//! The border to C: every pointer and length is looked at here, and no panic goes through.
//!
//! Handles are numbers that look like pointers: they are looked up, and never followed. One that
//! was closed, or never was, is an error and no crash.
#![allow(unsafe_code, reason = "C gives pointers; each is used in one place, with what it must be")]

pub mod calls;
pub mod deliver;
pub mod errors;
pub mod handles;
pub mod paxos;
mod pointers;
mod signals;

pub(crate) use signals::block_signals;
