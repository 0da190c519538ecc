//! Fuzz target: the stream store's catalogue on disk.
#![no_main]

#[path = "../../crates/storage/stream/tests/suite/fuzz/catalogues.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
