//! Fuzz target: slots of a receive ring and the frames in them.
#![no_main]

#[allow(dead_code, reason = "seeds are made in `cargo test`")]
#[path = "../driver.rs"]
mod driver;

#[path = "../../crates/transport/packets/tests/suite/ethernet_fuzz/slots.rs"]
mod slots;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slots::check(bytes));
