//! Integration tests of `quorate-capi`, one program with a module per subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod c;
#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod fuzz;
mod header;
mod values;
