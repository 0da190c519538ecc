//! Fuzz target: Redis requests from a client.
#![no_main]

#[path = "../../crates/services/kv/tests/suite/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
