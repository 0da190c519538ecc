//! The C interface. It checks every pointer and length, and never lets a panic cross into C.
//!
//! Handles are numbers in the form of pointers. They are looked up in a table and never
//! dereferenced, so a closed or invalid handle causes an error, not undefined behaviour.
#![allow(unsafe_code, reason = "C gives pointers; each is used in one place, with what it must be")]

pub mod calls;
pub mod deliver;
pub mod errors;
pub mod handles;
pub mod paxos;
mod pointers;
mod signals;

pub(crate) use signals::block_signals;
