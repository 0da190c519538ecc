//! Slots of a receive ring, and the frames in them.
#![no_main]

#[path = "../../crates/network/ethernet/tests/fuzz/slots.rs"]
mod slots;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slots::check(bytes));
