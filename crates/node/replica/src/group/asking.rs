//! Requests from operators and joining nodes to the group, and the answers.

use quorate_core::{
    ballot::Era,
    node_id::{Member, NodeId},
    quorum::QuorumRule,
};

use super::{As, Ended, NodeEntry};

/// A request to the group, accepted by any node unless noted. Only the leader knows which nodes are
/// alive and how far they lag. It immediately refuses a request that would have to wait, and
/// continues requests that other nodes accepted once they can proceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Assigns the id `node`, or a new one, to the folder that chose `nonce`. A repeated request
    /// returns the same id ([join-2]).
    Join { nonce: u64, node: Option<NodeId>, peer: String, role: As },
    /// Reserves an id for a node that joins later.
    Reserve { peer: String, role: As },
    /// Makes the node a voter, if it is caught up.
    Promote(NodeId),
    /// Makes a voter a learner.
    Demote(NodeId),
    /// Makes a voter an auxiliary (`true`) or a full replica again (`false`). An auxiliary receives
    /// no values while the other voters suffice ([aux-1]).
    Auxiliary(NodeId, bool),
    /// Sets the quorum rule.
    Quorum(QuorumRule),
    /// Removes the node from the group permanently.
    Remove(NodeId),
    /// Sets the weight of the node's votes.
    Weight(NodeId, u32),
    /// Replaces one node with another, in one plan.
    Replace { old: NodeId, new: NodeId },
    /// Sets the node's priority as leader. Leadership moves to the node with the highest priority.
    Priority(NodeId, u32),
    /// Changes a node's peer address.
    Address(NodeId, String),
    /// Raises the group to the next level ([level-5]). Only the leader accepts this request.
    Raise,
    /// Cancels the plan in progress. Finished steps are not undone.
    Cancel,
    /// Changes users and their permissions.
    Users(quorate_access::Command),
}

impl Ask {
    /// Returns whether answering the request needs the current member table ([read-7]). Other
    /// requests are checked when they are applied.
    pub(crate) fn needs_table(&self) -> bool {
        !matches!(
            self,
            Self::Join { .. }
                | Self::Reserve { .. }
                | Self::Priority(..)
                | Self::Address(..)
                | Self::Users(_)
        )
    }
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// Change made by the step, as text for operators.
    pub change: String,
    /// Weights after the step, in order of the ids.
    pub weights: Vec<(Member, u32)>,
}

/// Outcome of a request to the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Id of the node, assigned now or earlier.
    Node(NodeId),
    Done,
    /// The request had no effect because its result was already in place.
    Already,
    /// Steps of the plan with this id, which is now in progress; without an id in a dry run.
    Planned(Option<u64>, Vec<PlanStep>),
}

/// Reason for refusing a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Machine-readable code.
    pub code: &'static str,
    /// Human-readable message.
    pub message: String,
    /// Suggested action.
    pub hint: &'static str,
}

impl Refused {
    pub fn new(code: &'static str, message: impl Into<String>, hint: &'static str) -> Self {
        Self { code, message: message.into(), hint }
    }
}

/// Nodes and their addresses, for the code that connects to peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerTable {
    /// All nodes that have an id, with their peer addresses; empty if unknown.
    pub peers: Vec<(NodeId, String)>,
    /// Removed nodes. They may not connect ([member-1]).
    pub removed: Vec<NodeId>,
}

/// The group's members as applied by this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    pub era: Era,
    pub nodes: Vec<Listed>,
    pub plan: Option<Underway>,
    pub last: Option<LastPlan>,
    pub removed: Vec<NodeId>,
}

/// A node with an id, in a list of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub node: NodeId,
    pub known: NodeEntry,
    /// The node's incarnation that has weight; if none has, the one seen last.
    pub member: Member,
    /// Weight of its votes; 0 for a learner.
    pub weight: u32,
    /// The node is an auxiliary according to the configuration.
    pub auxiliary: bool,
    /// The node that answers is in contact with the listed node.
    pub connected: bool,
    /// Number of slots by which the node lags behind the leader; known only to the leader.
    pub lag: Option<u64>,
}

/// A plan in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underway {
    /// Id of the plan: the slot of the command that made it.
    pub id: u64,
    /// The operator's request.
    pub what: String,
    /// Remaining steps, as planned by the node that answers.
    pub steps: Vec<PlanStep>,
    /// Condition that holds up the plan; known only to the leader.
    pub waits: Option<String>,
}

/// The plan that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPlan {
    /// Outcome of the plan, and the slot in which it ended.
    pub ended: Ended,
    /// [era-9] A quorum of full replicas has everything up to the plan's last step, so removed
    /// nodes may be switched off and their data deleted.
    pub settled: bool,
}
