//! Fuzz target: event sequences for the reference programs and the switch's programs.
#![no_main]

#[allow(dead_code, reason = "seeds are made in `cargo test`")]
#[path = "../driver.rs"]
mod driver;

#[path = "../../crates/proof/conformance/tests/suite/fuzz/devices.rs"]
mod devices;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| devices::check(bytes));
