//! What operators ask of the group, and nodes that want to join it; and what they hear.

use quorate_core::{
    ballot::Era,
    node_id::{Member, NodeId},
    quorum::QuorumRule,
};

use super::{As, Ended, Known};

/// What somebody wants, of any node unless it says more. Only the leader knows who lives and how
/// far everybody is: it refuses at once what has to wait, and goes on with what others took when it
/// need not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A folder wants an id, the same one each time it asks ([join-2]).
    Join {
        /// Chosen at random by the folder, durably.
        nonce: u64,
        /// The id that was reserved for it.
        node: Option<NodeId>,
        /// Where it listens for peers.
        peer: String,
        /// What it is to become.
        role: As,
    },
    /// An id for a node that comes later.
    Reserve {
        /// Where it will listen for peers.
        peer: String,
        /// What it is to become.
        role: As,
    },
    /// It gets a vote, if it is caught up.
    Promote(NodeId),
    /// It has no vote any more, and learns.
    Demote(NodeId),
    /// A voter is spared values while the others are enough, or is not any more ([aux-1]).
    Auxiliary(NodeId, bool),
    /// What a quorum is.
    Quorum(QuorumRule),
    /// It leaves the group, for good.
    Remove(NodeId),
    /// Its votes weigh this much.
    Weight(NodeId, u32),
    /// The second takes the place of the first, which leaves.
    Replace {
        /// Who leaves.
        old: NodeId,
        /// Who gets its weight.
        new: NodeId,
    },
    /// Leadership goes towards the highest.
    Priority(NodeId, u32),
    /// It listens for peers elsewhere.
    Address(NodeId, String),
    /// The group uses the next level ([level-5]). The leader only.
    Raise,
    /// The plan under way ends where it is.
    Cancel,
    /// Users change, and what they may do.
    Users(quorate_access::Command),
}

impl Ask {
    /// Returns whether the answer hangs on who belongs to the group now ([read-7]). The rest is
    /// judged where it is applied.
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
pub struct Step {
    /// What changes, for people.
    pub change: String,
    /// The weights behind it, in order of the ids.
    pub weights: Vec<(Member, u32)>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This id was given out, now or before.
    Node(NodeId),
    /// It is done.
    Done,
    /// Nothing has to be done.
    Already,
    /// These steps are under way as this plan; `None`: they would be, it was only asked for.
    Planned(Option<u64>, Vec<Step>),
}

/// Why nothing came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// What to do.
    pub hint: &'static str,
}

impl Refused {
    /// Nothing came of it.
    pub fn new(code: &'static str, message: impl Into<String>, hint: &'static str) -> Self {
        Self { code, message: message.into(), hint }
    }
}

/// Which nodes there are and where, for who dials them.
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
    /// The plan under way.
    pub plan: Option<Underway>,
    /// The plan that ended last.
    pub last: Option<LastPlan>,
    /// Nodes that were removed.
    pub removed: Vec<NodeId>,
}

/// One node with an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which.
    pub node: NodeId,
    /// What the table says.
    pub known: Known,
    /// The incarnation that has weight, or was met last.
    pub member: Member,
    /// 0 for a learner.
    pub weight: u32,
    /// Whether it has an auxiliary's part in the configuration.
    pub auxiliary: bool,
    /// Whether this node hears of it.
    pub connected: bool,
    /// Slots behind the leader; known to the leader only.
    pub lag: Option<u64>,
}

/// A plan under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underway {
    /// Its number.
    pub id: u64,
    /// What was asked for.
    pub what: String,
    /// What is left of it, as this node would go.
    pub steps: Vec<Step>,
    /// What it waits for; known to the leader only.
    pub waits: Option<String>,
}

/// The plan that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastPlan {
    /// How.
    pub ended: Ended,
    /// [era-9] Whether full replicas that form a quorum hold everything up to its last step: who
    /// left may be switched off, and its data deleted.
    pub settled: bool,
}
