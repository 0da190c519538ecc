//! Integration tests of `quorate-tls`: one program, with a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod sessions;
