//! The plane of packets without its sockets: a replica's frames as numbered messages, and whom they
//! reach.
//!
//! Connections by TCP introduce nodes to each other ([pkt-2]) and carry whatever does not go by
//! packets. What does is a frame, whole: to one node on a channel of its own, or to all that hear
//! the group, once. No socket, no clock, no thread: equal inputs give equal outputs, in a reactor
//! and in the simulator.
//!
//! Reading order: [`packets`] (the plane), [`introduction`] (what a connection says of packets),
//! [`link`] (one peer, and whether packets reach it), `undecided` (what may be forgotten), `order`
//! (what waits for what), `chain` (who hands on to whom), [`predict`] (what each way would cost)
//! and `choosing` (which one is taken).

mod chain;
mod choosing;
pub mod introduction;
pub mod link;
mod order;
pub mod packets;
pub mod predict;
mod undecided;

pub use packets::{Counters, Event, Outgoing, Packets, Reach, Settings};
pub use predict::Carrier;
