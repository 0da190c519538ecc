//! Hostile streams of events against the reference programs and the switch's.
#![no_main]

#[path = "../../crates/devices/conformance/tests/fuzz/devices.rs"]
mod devices;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| devices::check(bytes));
