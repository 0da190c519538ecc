//! Integration tests of `quorate-core`: one program, with a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod configurations;
mod rounds;
mod stage;
mod steady_state;
mod transcripts;
