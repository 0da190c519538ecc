//! Integration tests of `quorate-conformance`: one program with a module per subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod coverage;
mod devices;
#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod fuzz;
mod group;
mod p4;
mod rooms;
