//! Fuzz target: the table of users, loaded from a snapshot and changed by log commands.
#![no_main]

#[path = "../../crates/protocol/access/tests/suite/fuzz/tables.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
