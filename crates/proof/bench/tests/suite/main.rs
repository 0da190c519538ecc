//! Integration tests of `quorate-bench`: one program, one module per subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod fuzz;
mod golden;
mod sockets;
mod streams;
mod virtual_time;
