//! Devices of a group as threads, with their owners, over memory and over UDP.

mod alone;
mod group;
mod over_memory;
mod over_udp;
