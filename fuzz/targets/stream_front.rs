//! Fuzz target: a client's input to the byte stream front end.
#![no_main]
#![allow(dead_code, reason = "the tests use more of what they share")]

#[path = "../../crates/node/node/tests/suite/check.rs"]
mod check;
#[path = "../../crates/node/node/tests/suite/node.rs"]
mod node;
#[path = "../../crates/node/node/tests/suite/played.rs"]
mod played;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
