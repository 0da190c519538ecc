//! Fuzz target: the address book, the file of peers' addresses.
#![no_main]

#[path = "../../crates/node/node/tests/suite/fuzz/book.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
