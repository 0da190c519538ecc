//! Parts of messages, in any order and under bounds.
#![no_main]

#[path = "../../crates/network/packets/tests/fuzz/reassembly.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
