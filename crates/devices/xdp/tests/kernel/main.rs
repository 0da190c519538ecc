//! Devices in this machine's kernel; skipped in print where programs may not be loaded.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod at_once;
mod desk;
mod interfaces;
mod owner;
mod wires;
