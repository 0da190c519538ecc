//! Fuzz target: messages from LibPaxos3 programs.
#![no_main]

#[path = "../../crates/operate/capi/tests/suite/fuzz/libpaxos/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
