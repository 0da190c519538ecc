//! Frames of the log service, and what a peer answers when asked what it is.
#![no_main]

#[path = "../../crates/proof/bench/tests/suite/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
