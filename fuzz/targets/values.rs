//! Fuzz target: frames between a node and attached programs, commands, and images of values.
#![no_main]

#[path = "../../crates/operate/capi/tests/suite/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
