//! Client sessions with the byte stream front end, which uses a fake replica.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod access;
mod check;
mod doors;
#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod fuzz;
mod hostile;
mod node;
mod played;
mod raw;
mod reading;
mod writing;
