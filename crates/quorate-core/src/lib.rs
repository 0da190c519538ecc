//! Paxos in one page, then the reading order of this crate.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod ballot;
pub mod configuration;
pub mod durable;
pub mod effect;
pub mod input;
pub mod message;
pub mod node;
pub mod node_id;
pub mod quorum;
pub mod record;
pub mod slot;
pub mod time;
pub mod value;
