//! The TCP plane: one connection per peer and lane, which the node with the higher id dials.
//!
//! The plane assumes nothing about the network beyond TCP, and safety does not depend even on that.
//! A connection may break, so any message may be lost. Each turn costs one read and one write per
//! peer and lane, however many messages there are. A slow or dead follower costs no more than the
//! bytes of its bounded queue.

pub(crate) mod foreign;
pub mod handshake;
pub(crate) mod inbox;
pub(crate) mod outbox;
pub mod peers;
pub mod resolve;
mod secured;
pub(crate) mod share;
pub(crate) mod socket;
