//! Identity of a node, and addresses of the others.

use quorate_core::node_id::{Member, NodeId};
use quorate_replica::status::Addresses;

/// Identity of this node, as sent to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The group.
    pub cluster: u128,
    /// The node, in its present life.
    pub member: Member,
    /// Its process start.
    pub boot: u32,
    /// Addresses where others reach it.
    pub addresses: Addresses,
}

/// Address where a node of the group listens for peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The node.
    pub node: NodeId,
    /// `HOST:PORT`.
    pub address: String,
}
