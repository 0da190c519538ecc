//! Integration tests of `quorate-offload`: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod port;
mod programs;
