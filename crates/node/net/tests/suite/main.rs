//! The tests of `quorate-net` that stand outside of it: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod clients;
mod common;
mod datagrams;
mod handle;
mod join;
mod membership;
mod peers;
mod starting;
mod strangers;
