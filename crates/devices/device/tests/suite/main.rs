//! The tests of `quorate-device` that stand outside of it: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod committed;
mod hostile;
mod kernel;
mod language;
mod software;
