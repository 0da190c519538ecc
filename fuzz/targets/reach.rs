//! Fuzz target: datagrams received while `quorate doctor` tests a multicast group.
#![no_main]

#[path = "../../crates/transport/packets/tests/suite/fuzz/reach.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
