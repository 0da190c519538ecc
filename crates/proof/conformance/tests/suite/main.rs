//! The tests of `quorate-conformance` that stand outside of it: one program, a module for each
//! subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod coverage;
mod devices;
#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod fuzz;
mod group;
mod rooms;
