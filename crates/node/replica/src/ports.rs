//! Ports of a replica: the traits that its driver, services and front ends implement or call, and
//! the plain data that passes through them. A port imports no part of the replica.

pub mod device;
pub mod frame_clients;
pub mod front;
pub mod latencies;
pub mod outcome;
pub mod payload;
pub mod plane;
pub mod scrub_report;
pub mod service;
pub mod status;
pub mod stream_front;
