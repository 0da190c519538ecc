//! Identity of a node, and the addresses of its peers.

use quorate_core::node_id::{Member, NodeId};
use quorate_replica::status::Addresses;

/// Identity of this node, as sent to peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Id of the cluster that the group belongs to.
    pub cluster: u128,
    /// This node and its incarnation.
    pub member: Member,
    /// Boot number of this process.
    pub boot: u32,
    /// Addresses at which peers and clients reach this node.
    pub addresses: Addresses,
}

/// Address at which a node of the group accepts peer connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    pub node: NodeId,
    /// `HOST:PORT`.
    pub address: String,
}
