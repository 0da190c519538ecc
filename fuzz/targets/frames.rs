//! Frames of the log service, and a peer's reply when asked for its version.
#![no_main]

#[path = "../../crates/proof/bench/tests/suite/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
