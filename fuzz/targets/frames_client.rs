//! Frames of devices, and answers of nodes, for a client that speaks frames.
#![no_main]

#[path = "../../crates/services/client/tests/suite/fuzz/events.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
