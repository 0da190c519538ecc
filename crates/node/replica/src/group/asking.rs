//! Requests to the group from operators, and from nodes that want to join; and their answers.

use quorate_core::{
    ballot::Era,
    node_id::{Member, NodeId},
    quorum::QuorumRule,
};

use super::{As, Ended, Known};

/// A request to the group, accepted by any node unless noted. Only the leader knows which nodes are
/// alive and how far each one is: it refuses at once a request that has to wait, and continues
/// those that other nodes accepted once they need not wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A folder wants an id, the same one each time it asks ([join-2]).
    Join {
        /// Chosen at random by the folder, durably.
        nonce: u64,
        /// The id that was reserved for it.
        node: Option<NodeId>,
        /// The address where it listens for peers.
        peer: String,
        /// The role it is to take.
        role: As,
    },
    /// An id for a node that comes later.
    Reserve {
        /// The address where it will listen for peers.
        peer: String,
        /// The role it is to take.
        role: As,
    },
    /// Gives the node a vote, if it is caught up.
    Promote(NodeId),
    /// Takes the node's vote away: it becomes a learner.
    Demote(NodeId),
    /// A voter is spared values while the others are enough, or is not any more ([aux-1]).
    Auxiliary(NodeId, bool),
    /// Sets the rule that defines a quorum.
    Quorum(QuorumRule),
    /// Removes the node from the group permanently.
    Remove(NodeId),
    /// Its votes weigh this much.
    Weight(NodeId, u32),
    /// The second takes the place of the first, which leaves.
    Replace {
        /// The node that leaves.
        old: NodeId,
        /// The node that gets its weight.
        new: NodeId,
    },
    /// Leadership goes towards the highest.
    Priority(NodeId, u32),
    /// Changes the address where the node listens for peers.
    Address(NodeId, String),
    /// The group uses the next level ([level-5]). The leader only.
    Raise,
    /// Ends the plan in progress where it is.
    Cancel,
    /// Changes users and their permissions.
    Users(quorate_access::Command),
}

impl Ask {
    /// Returns whether the answer depends on the current members of the group ([read-7]). Other
    /// requests are judged where they are applied.
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

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The change, as text for operators.
    pub change: String,
    /// The weights after it, in order of the ids.
    pub weights: Vec<(Member, u32)>,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This id was assigned, now or before.
    Node(NodeId),
    /// The request is done.
    Done,
    /// Nothing has to be done.
    Already,
    /// These steps are in progress as this plan; `None`: they would be, as only a plan was
    /// requested.
    Planned(Option<u64>, Vec<Step>),
}

/// Why nothing came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// The action to take.
    pub hint: &'static str,
}

impl Refused {
    /// Creates a refusal.
    pub fn new(code: &'static str, message: impl Into<String>, hint: &'static str) -> Self {
        Self { code, message: message.into(), hint }
    }
}

/// Nodes and their addresses, for the code that connects to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerTable {
    /// Every node that has an id, this one included, and where it listens for peers; empty if that
    /// is not known.
    pub peers: Vec<(NodeId, String)>,
    /// Nodes that were removed: they are not let in ([member-1]).
    pub removed: Vec<NodeId>,
}

/// Everything about the members, as this node has applied it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The era that it is.
    pub era: Era,
    /// Nodes that have an id.
    pub nodes: Vec<Listed>,
    /// The plan in progress.
    pub plan: Option<Underway>,
    /// The plan that ended last.
    pub last: Option<LastPlan>,
    /// Nodes that were removed.
    pub removed: Vec<NodeId>,
}

/// A node with an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which.
    pub node: NodeId,
    /// The node's entry in the table.
    pub known: Known,
    /// The incarnation that has weight, or was met last.
    pub member: Member,
    /// 0 for a learner.
    pub weight: u32,
    /// Whether it is an auxiliary in the configuration.
    pub auxiliary: bool,
    /// Whether this node hears from it.
    pub connected: bool,
    /// Slots behind the leader; known to the leader only.
    pub lag: Option<u64>,
}

/// A plan in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underway {
    /// Its number.
    pub id: u64,
    /// The request behind it.
    pub what: String,
    /// Remaining steps, as this node would plan them.
    pub steps: Vec<Step>,
    /// The condition it waits for; known to the leader only.
    pub waits: Option<String>,
}

/// The plan that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPlan {
    /// How.
    pub ended: Ended,
    /// [era-9] Whether full replicas that form a quorum hold everything up to its last step: a node
    /// that left may be switched off, and its data deleted.
    pub settled: bool,
}
