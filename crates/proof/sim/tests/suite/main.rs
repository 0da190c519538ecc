//! Integration tests of `quorate-sim`: one program, one module per subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod auxiliaries;
mod classes;
mod clocks;
mod devices;
mod disks;
mod levels;
mod lies;
mod packets;
mod pauses;
mod rings;
mod scenarios;
mod scrubs;
mod seeds;
mod stories;
mod streams;
mod users;
mod years;
