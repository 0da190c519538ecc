//! One replica: core, log, plane and service joined.
#![forbid(unsafe_code)]

mod batch;
mod completions;
pub mod counters;
pub mod front;
mod gather;
pub mod limits;
mod origin;
mod payloads;
pub mod plane;
mod reads;
pub mod service;
pub mod sessions;
pub mod status;
