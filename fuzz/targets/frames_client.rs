//! Fuzz target: device frames and node replies received by a frame client.
#![no_main]

#[path = "../../crates/services/frame-client/tests/suite/fuzz/events.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
