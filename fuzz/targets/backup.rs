//! Fuzz target: the backup file from which a new cluster is created.
#![no_main]

#[path = "../../crates/node/node/tests/suite/fuzz/backup.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
