//! Requests from operators and joining nodes to the group, and the answers.

use quorate_core::{
    ballot::Era,
    node_id::{Member, NodeId},
    quorum::QuorumRule,
};

use super::{MemberRole, NodeEntry, PlanEnd};

/// A request to the group, accepted by any node unless noted. Only the leader knows which nodes are
/// alive and how far they lag. It immediately refuses a request that would have to wait, and
/// continues requests that other nodes accepted once they can proceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRequest {
    /// Assigns the id `node`, or a new one, to the folder that chose `nonce`. A repeated request
    /// returns the same id ([join-2]).
    Join { nonce: u64, node: Option<NodeId>, peer: String, role: MemberRole },
    /// Reserves an id for a node that joins later.
    Reserve { peer: String, role: MemberRole },
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

impl GroupRequest {
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
pub enum GroupAnswer {
    /// Id of the node, assigned now or earlier.
    Node(NodeId),
    Done,
    /// The request had no effect because its result was already in place.
    AlreadyDone,
    /// Steps of the plan with this id, which is now in progress; without an id in a dry run.
    Planned(Option<u64>, Vec<PlanStep>),
}

/// Reason for refusing a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRefusal {
    /// Machine-readable code.
    pub code: &'static str,
    /// Human-readable message.
    pub message: String,
    /// Suggested action.
    pub hint: &'static str,
}

impl GroupRefusal {
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
    pub removed_nodes: Vec<NodeId>,
}

/// The group's members as applied by this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberList {
    pub era: Era,
    pub nodes: Vec<ListedNode>,
    pub plan: Option<PlanInProgress>,
    pub last_plan: Option<LastPlan>,
    pub removed_nodes: Vec<NodeId>,
}

/// A node with an id, in a list of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedNode {
    pub node: NodeId,
    pub entry: NodeEntry,
    /// The node's incarnation that has weight; if none has, the one seen last.
    pub member: Member,
    /// Weight of its votes; 0 for a learner.
    pub weight: u32,
    /// The node is an auxiliary according to the configuration.
    pub is_auxiliary: bool,
    /// The node that answers is in contact with the listed node.
    pub is_connected: bool,
    /// Number of slots by which the node lags behind the leader; known only to the leader.
    pub lag_slots: Option<u64>,
}

/// A plan in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanInProgress {
    /// Id of the plan: the slot of the command that made it.
    pub id: u64,
    /// The operator's request.
    pub description: String,
    /// Remaining steps, as planned by the node that answers.
    pub remaining_steps: Vec<PlanStep>,
    /// Condition that holds up the plan; known only to the leader.
    pub wait_reason: Option<String>,
}

/// The plan that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPlan {
    /// Outcome of the plan, and the slot in which it ended.
    pub end: PlanEnd,
    /// [era-9] A quorum of full replicas has everything up to the plan's last step, so removed
    /// nodes may be switched off and their data deleted.
    pub is_settled: bool,
}
