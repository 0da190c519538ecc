//! Programs that attach to a node over TCP: what they speak, the node's side, the program's side.

pub mod client;
pub mod frames;
mod pending;
pub mod server;
