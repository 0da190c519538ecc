//! Fuzz target: datagrams received by a packet plane.
#![no_main]

#[path = "../../crates/transport/packets/tests/suite/fuzz/datagrams.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
