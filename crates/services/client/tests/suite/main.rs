//! The integration tests of `quorate-client`: one program, one module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod faults;
mod streams;
