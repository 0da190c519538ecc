//! Paxos in one page, then the reading order of this crate.
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::wildcard_enum_match_arm)]
extern crate alloc;

pub mod acceptor;
pub mod ballot;
pub mod catchup;
pub mod configuration;
pub mod durable;
pub mod effect;
pub mod election;
pub mod extents;
pub mod flow;
pub mod input;
pub mod leader;
pub mod learner;
pub mod message;
pub mod node;
pub mod node_id;
pub mod quorum;
pub mod reads;
pub mod reconfigure;
pub mod record;
pub mod slot;
pub mod time;
pub mod transfer;
pub mod value;
pub mod voted;
pub mod waiting;
