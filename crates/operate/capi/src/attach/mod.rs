//! Attachment of programs to a node over TCP: the protocol, the node's side and the program's side.

pub mod client;
mod delivery;
pub mod frames;
mod line;
mod pending;
pub mod server;
