//! Numbered datagrams: trust, fragments, loss and repair, rate.
#![forbid(unsafe_code)]

pub mod body;
pub mod buffer;
pub mod endpoint;
mod envelope;
pub mod header;
mod kept;
pub mod limits;
pub mod rate;
pub mod receive;
pub mod send;
pub mod spans;
pub mod trust;
