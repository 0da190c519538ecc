//! Integration tests of `quorate-device`: one program with a module per subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod kernel;
mod software;
