//! The tests of `quorate-capi` that stand outside of it: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod c;
#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod fuzz;
mod header;
mod values;
