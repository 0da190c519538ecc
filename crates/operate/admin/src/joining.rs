//! Request of a folder that wants to join a cluster, and the answer.

use serde::{Deserialize, Serialize};

/// Body of `POST /join`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// Tells the folder from others: 16 hexadecimal digits, the same each time it asks.
    pub nonce: String,
    /// Its address for peers, `HOST:PORT`. It is dialled there before it gets an id.
    pub peer: String,
    /// `voter`, `learner` or `auxiliary`.
    #[serde(rename = "as")]
    pub role: String,
    /// The id that was reserved for it; else the one that was reserved for its address, if there is
    /// one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<u32>,
    /// The address under which it reached the node that it asks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub via: Option<String>,
}

/// Answer of `POST /join`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAnswer {
    /// The cluster, 32 hexadecimal digits.
    pub cluster: String,
    /// The id of the folder.
    pub node: u32,
    /// `durable` or `volatile`.
    pub durability: String,
    /// The store of the cluster's service.
    pub store: String,
    /// The members at the founding, as every node was told then.
    pub founding: Vec<Place>,
    /// Auxiliaries among them.
    pub auxiliaries: Vec<u32>,
    /// The quorum rule: `majority` or `flexible:Q1,Q2`.
    pub quorum: String,
    /// Every slot below is applied where the lists that follow were made.
    pub at: u64,
    /// Nodes with an id now, and their addresses for peers.
    pub peers: Vec<Place>,
    /// Ids that were removed.
    pub removed: Vec<u32>,
    /// The id was reserved for a learner, or given to one.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub learns: bool,
}

/// Address of a node for peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The node.
    pub node: u32,
    /// `HOST:PORT`
    pub peer: String,
}

/// Code of the refusal of a folder that cannot be dialled.
pub const UNREACHABLE_PEER: &str = "unreachable_peer";

/// Code of the refusal of a folder on another machine by a node that only its own can dial.
pub const LOOPBACK_PEER: &str = "loopback_peer";
