//! The TCP plane: one connection per peer and lane; the node with the higher id dials.
//!
//! It assumes nothing about the network beyond TCP, and safety does not depend even on that: a
//! connection may break, so each message may be lost. Cost: one read and one write per peer, lane
//! and turn, however many messages there are. A slow or dead follower costs the bytes of its
//! bounded queue and nothing else.

pub(crate) mod foreign;
pub mod handshake;
pub(crate) mod inbox;
mod moved;
pub(crate) mod outbox;
pub mod peers;
pub mod resolve;
mod secured;
pub(crate) mod share;
pub(crate) mod socket;
