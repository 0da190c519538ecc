//! The table of users, from a snapshot and by commands of the log.
#![no_main]

#[path = "../../crates/protocol/access/tests/suite/fuzz/tables.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
