//! Fuzz target: frames received from a peer.
#![no_main]

#[path = "../../crates/protocol/wire/tests/suite/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
