//! The file that says whose folder it is.
#![no_main]

#[path = "../../crates/node/node/tests/suite/fuzz/identity.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
