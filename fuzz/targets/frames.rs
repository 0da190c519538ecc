//! Fuzz target: frames of the log service, and replies to the query of a server's properties.
#![no_main]

#[path = "../../crates/proof/bench/tests/suite/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
