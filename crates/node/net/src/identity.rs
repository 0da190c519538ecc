//! Who a node is, and where others are.

use quorate_core::node_id::{Member, NodeId};
use quorate_replica::status::Addresses;

/// Who this node is, as it tells others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The group.
    pub cluster: u128,
    /// The node, in its present life.
    pub member: Member,
    /// Its process start.
    pub boot: u32,
    /// Where others find it.
    pub addresses: Addresses,
}

/// Where a node of the group listens for peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The node.
    pub node: NodeId,
    /// `HOST:PORT`.
    pub address: String,
}
