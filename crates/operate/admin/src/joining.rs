//! Request with which a new node's data folder joins a cluster, and the response.

use serde::{Deserialize, Serialize};

/// Body of `POST /join`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// Random number of the folder, 16 hexadecimal digits. It is the same on every retry.
    pub nonce: String,
    /// Peer address of the new node, `HOST:PORT`. The serving node dials it before assigning an id.
    pub peer: String,
    /// Requested role: `voter`, `learner` or `auxiliary`.
    #[serde(rename = "as")]
    pub role: String,
    /// Id reserved for this folder, else the one reserved for the peer address, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<u32>,
    /// Address of the serving node as the new node dialled it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub via: Option<String>,
}

/// Response to `POST /join`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAnswer {
    /// Cluster id, 32 hexadecimal digits.
    pub cluster: String,
    /// Id that was assigned to the folder.
    pub node: u32,
    /// Durability class: `durable` or `volatile`.
    pub durability: String,
    /// Store of the cluster's service.
    pub store: String,
    /// Founding members as recorded when the cluster was founded.
    pub founding: Vec<Place>,
    /// Founding members that are auxiliaries.
    pub auxiliaries: Vec<u32>,
    /// Quorum rule: `majority` or `flexible:Q1,Q2`.
    pub quorum: String,
    /// Slot up to which the following lists are current. They reflect all slots below it.
    pub at: u64,
    /// Current nodes, with their peer addresses.
    pub peers: Vec<Place>,
    pub removed: Vec<u32>,
    /// Set if the new node joins as a learner.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub learns: bool,
}

/// Peer address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub node: u32,
    /// `HOST:PORT`
    pub peer: String,
}

/// Error code for a joining node that the serving node cannot connect to.
pub const UNREACHABLE_PEER_CODE: &str = "unreachable_peer";

/// Error code for a node on another machine if the serving node listens on loopback only.
pub const LOOPBACK_PEER_CODE: &str = "loopback_peer";
