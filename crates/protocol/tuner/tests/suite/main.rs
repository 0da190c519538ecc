//! Integration tests of `quorate-tuner`: one program, with a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod plant;
