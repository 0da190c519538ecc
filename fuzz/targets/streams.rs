//! Frames between a node and the clients of its byte streams.
#![no_main]

#[path = "../../crates/protocol/wire/tests/suite/streams/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
