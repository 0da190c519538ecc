//! The integration tests of `quorate-net`: one program, one module for each subject.

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
mod tls;
