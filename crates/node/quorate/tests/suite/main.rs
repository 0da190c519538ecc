//! The integration tests of `quorate`: one program, one module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod asking;
mod embedded;
