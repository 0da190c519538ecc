//! The packet plane without its sockets: a replica's frames as numbered messages, and the nodes
//! that they reach.
//!
//! TCP connections introduce nodes to each other ([pkt-2]) and carry everything that is not sent as
//! packets. Packets carry whole frames, either to one node on a separate channel, or once to all
//! nodes that receive the multicast group. There is no socket, clock or thread here: equal inputs
//! give equal outputs, in a reactor and in the simulator.
//!
//! Reading order: [`port`] (inputs and outputs), [`packets`] (the plane), [`introduction`] (the
//! frame that introduces a node), [`link`] (one peer, and whether packets reach it), `undecided`
//! (which messages may be dropped), `order` (order between channels), `chain` (order of forwarding
//! nodes), [`predict`] (cost of each path) and `choosing` (choice of the path).

mod chain;
mod choosing;
pub mod introduction;
pub mod link;
mod order;
pub mod packets;
pub mod port;
pub mod predict;
mod undecided;

pub use packets::PacketEngine;
pub use port::{Counters, Event, GroupPath, OutgoingRun, Settings};
pub use predict::Carrier;
