//! Programs that attach to a node over TCP: the protocol, and the sides of the node and the
//! program.

pub mod client;
mod delivery;
pub mod frames;
mod line;
mod pending;
pub mod server;
