//! What a node says about itself, for `status`, `INFO` and the metrics.

use quorate_core::{
    ballot::{Ballot, Era},
    effect::Role,
    node_id::{Member, NodeId},
    record::Class,
    slot::Slot,
};
use quorate_tuner::{Report, Setting};

/// One member or known peer, as seen from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who.
    pub member: Member,
    /// 0 for a learner.
    pub weight: u32,
    /// A member that gets no payload while it is not needed.
    pub auxiliary: bool,
    /// Whether it was heard of lately, or is this node.
    pub connected: bool,
    /// Slots behind the leader; known to the leader only.
    pub lag: Option<u64>,
    /// Where it listens, as far as this node knows.
    pub addresses: Addresses,
}

/// Where a node listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// For peers.
    pub peer: String,
    /// For clients.
    pub client: String,
    /// For operators.
    pub admin: String,
}

/// How commands are batched, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningReport {
    /// What the tuner knows, predicts and chose.
    pub report: Report,
    /// What is in force.
    pub setting: Setting,
    /// Whether that was set from outside.
    pub held: bool,
}

/// A node's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The group that it belongs to.
    pub cluster: u128,
    /// Who it is.
    pub member: Member,
    /// What it is at the moment.
    pub role: Role,
    /// Who leads.
    pub leader: Option<NodeId>,
    /// Number of the configuration in force.
    pub era: Era,
    /// The ballot that it leads or follows.
    pub ballot: Ballot,
    /// Every slot below is decided.
    pub decided_to: Slot,
    /// Every slot below is applied.
    pub applied_to: Slot,
    /// Every slot below is durable here.
    pub durable_to: Slot,
    /// The group's class.
    pub class: Class,
    /// Size of the log on disk.
    pub log_bytes: u64,
    /// Why it does not vote or serve, if it does not.
    pub error: Option<String>,
    /// What somebody should look at, whether or not it serves.
    pub notices: Vec<String>,
    /// Everybody it knows, itself included, in order of ids.
    pub peers: Vec<Peer>,
}
