//! Integration tests of `quorate-packets`: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

#[path = "../../../../../fuzz/driver.rs"]
mod driver;
mod ethernet_fuzz;
mod ethernet_samples;
mod ethernet_vectors;
mod fuzz;
mod network;
mod plane;
mod samples;
mod socket;
mod trust;
mod vectors;
mod wire;
mod world;
