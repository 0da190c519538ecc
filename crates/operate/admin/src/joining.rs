//! Request of a data folder to join a cluster, and the response.

use serde::{Deserialize, Serialize};

/// Body of `POST /join`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// Identifier of the folder, the same on every retry: 16 hexadecimal digits.
    pub nonce: String,
    /// Peer address of the new node, `HOST:PORT`. The serving node dials it before it assigns an
    /// id.
    pub peer: String,
    /// `voter`, `learner` or `auxiliary`.
    #[serde(rename = "as")]
    pub role: String,
    /// Id reserved for this folder. Without it, the id reserved for its peer address is used, if
    /// there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<u32>,
    /// Address at which the new node reached the serving node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub via: Option<String>,
}

/// Response to `POST /join`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAnswer {
    /// Cluster id, 32 hexadecimal digits.
    pub cluster: String,
    /// Id assigned to the folder.
    pub node: u32,
    /// `durable` or `volatile`.
    pub durability: String,
    /// Store of the cluster's service.
    pub store: String,
    /// Founding members, exactly as recorded at the founding.
    pub founding: Vec<Place>,
    /// Founding members that are auxiliaries.
    pub auxiliaries: Vec<u32>,
    /// Quorum rule: `majority` or `flexible:Q1,Q2`.
    pub quorum: String,
    /// The following lists reflect all slots below this one.
    pub at: u64,
    /// Current nodes with their peer addresses.
    pub peers: Vec<Place>,
    /// Ids of removed nodes.
    pub removed: Vec<u32>,
    /// The new node is a learner.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub learns: bool,
}

/// Peer address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Node id.
    pub node: u32,
    /// `HOST:PORT`
    pub peer: String,
}

/// Error code: the serving node cannot connect to the joining node.
pub const UNREACHABLE_PEER: &str = "unreachable_peer";

/// Error code: the joining node is on another machine, but the serving node listens for peers on
/// loopback only.
pub const LOOPBACK_PEER: &str = "loopback_peer";
