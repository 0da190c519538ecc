//! Integration tests of `quorate-access`.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod fuzz;
