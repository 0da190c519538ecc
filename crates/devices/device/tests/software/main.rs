//! Devices of a group as threads, with their owners, over memory and over UDP.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod alone;
mod group;
mod over_memory;
mod over_udp;
