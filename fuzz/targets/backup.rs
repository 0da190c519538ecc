//! The file that a new cluster is made of.
#![no_main]

#[path = "../../crates/node/node/tests/suite/fuzz/backup.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
