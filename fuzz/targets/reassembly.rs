//! Fuzz target: message fragments in any order, reassembled within bounds.
#![no_main]

#[allow(dead_code, reason = "seeds are made in `cargo test`")]
#[path = "../driver.rs"]
mod driver;

#[path = "../../crates/transport/packets/tests/suite/fuzz/reassembly.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
