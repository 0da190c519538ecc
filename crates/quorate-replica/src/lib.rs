//! One replica: core, log, plane and service joined.
#![forbid(unsafe_code)]

pub mod front;
pub mod service;
pub mod status;
