//! Integration tests of `quorate-client`.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod faults;
mod streams;
