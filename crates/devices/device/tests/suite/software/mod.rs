//! Tests of a group of devices in threads, with their owners, over memory and UDP.

mod alone;
mod group;
mod over_memory;
mod over_udp;
