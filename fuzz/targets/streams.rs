//! Fuzz target: frames between a node and its byte stream clients.
#![no_main]

#[path = "../../crates/protocol/wire/tests/suite/streams/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
