//! Parts of messages, in any order and under bounds.
#![no_main]

#[allow(dead_code, reason = "seeds are made in `cargo test`")]
#[path = "../driver.rs"]
mod driver;

#[path = "../../crates/transport/packets/tests/suite/fuzz/reassembly.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
