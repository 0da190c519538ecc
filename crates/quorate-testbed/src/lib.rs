//! What tests and measurements share: node processes, small clients, what processes use of the machine.
//!
//! It knows the command line and the first line of `quorate start`, and nothing else of a node.
#![forbid(unsafe_code)]

pub mod process;
pub mod resp;
pub mod usage;
