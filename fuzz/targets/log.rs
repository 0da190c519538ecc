//! Fuzz target: log segments read from a disk.
#![no_main]

#[path = "../../crates/storage/log/tests/suite/fuzz/segments.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
