//! Integration tests of `quorate-replica`: one program, with a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod anticipation;
mod cluster;
mod early;
mod frame_clients;
mod hostile;
mod lasting;
mod levels;
mod members;
mod operators;
mod played_peers;
mod reads;
mod snapshots;
mod stage;
mod streams;
mod trouble;
