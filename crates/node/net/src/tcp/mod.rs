//! The TCP plane: one connection per peer and lane; the node with the higher id dials.
//!
//! It assumes nothing of the network beyond what TCP gives, and uses none of it for safety: each
//! message may be lost, for a connection may break. What it costs: one read and one write per peer
//! and lane and turn, however many messages; a follower that is slow or dead costs the bytes of its
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
