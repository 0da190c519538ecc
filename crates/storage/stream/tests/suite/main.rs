//! Integration tests of `quorate-stream`: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod fuzz;
mod store;
