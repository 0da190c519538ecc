//! Fuzz target: the file with the identity of the node that owns a data folder.
#![no_main]

#[path = "../../crates/node/node/tests/suite/fuzz/identity.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
