//! Integration tests of `quorate-wire`: one program, with a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod common;
mod decode;
mod documented;
#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod frozen;
mod fuzz;
mod streams;
mod vectors;
