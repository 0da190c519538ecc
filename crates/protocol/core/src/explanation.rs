//! Causes of leadership changes and lost elections, for logs. A caller may drop them, because
//! nothing depends on them and the node does not remember them.

use core::fmt;

use crate::{ballot::Ballot, node_id::NodeId, node_set::NodeSet, slot::Slot};

/// A leadership event with its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Explanation {
    /// This node stopped following its leader, which had sent nothing for `silent_us`.
    LeaderSilent {
        /// The former leader.
        leader: NodeId,
        /// Length of the silence, in microseconds.
        silent_us: u64,
    },
    /// This node stopped following its leader because the connection to it broke.
    LeaderUnreachable {
        /// The former leader.
        leader: NodeId,
    },
    /// This node is a quorum by itself, but waits for other nodes to connect before it leads
    /// ([lie-6]).
    WaitsAlone {
        /// Length of the wait, in microseconds.
        us: u64,
    },
    /// Phase 1 of this ballot started.
    Campaigns {
        /// Ballot that this node tries to lead in.
        ballot: Ballot,
        /// Reason for the campaign.
        why: Campaign,
    },
    /// Phase 1 of this ballot is complete, and this node leads in it.
    Leads {
        /// Ballot in which this node now leads.
        ballot: Ballot,
    },
    /// Phase 1 of this ballot ended without a quorum.
    NotElected {
        /// Ballot of the failed campaign.
        ballot: Ballot,
        /// Reason for the failure.
        why: BallotEnd,
    },
    /// The full replicas make no progress by themselves, so the auxiliaries are activated
    /// ([aux-2]).
    Engages {
        /// The ballot in which this node leads.
        ballot: Ballot,
    },
    /// The full replicas hold everything again, so the auxiliaries are bypassed ([aux-4]).
    Retires {
        /// The ballot in which this node leads.
        ballot: Ballot,
    },
    /// The leader set up a ring, and votes now travel along its nodes.
    RingLaid {
        /// The ballot in which this node leads.
        ballot: Ballot,
        /// Nodes along which votes now travel.
        nodes: NodeSet,
    },
    /// The ring made no progress, so votes are sent directly to the leader again ([ring-7]).
    RingBreaks {
        /// The ballot in which this node leads.
        ballot: Ballot,
        /// The first undecided slot.
        slot: Slot,
    },
    /// [offload-5] Devices now vote, and count votes, in this ballot.
    Offloads {
        /// The ballot in which this node leads.
        ballot: Ballot,
    },
    /// [offload-12] The device no longer assigns slots.
    TakesBack {
        /// The ballot in which this node leads.
        ballot: Ballot,
    },
    /// [offload-9] This member's device does not respond. The member makes no promises until the
    /// device has been read out.
    DeviceLate,
    /// [offload-9] This member's device lost votes that counted. The member does not vote again
    /// until it is restarted.
    DeviceForgot,
    /// This node was the leader in this ballot and stepped down.
    StepsDown {
        /// Ballot in which this node was the leader.
        ballot: Ballot,
        /// Reason for stepping down.
        why: BallotEnd,
    },
}

/// Reason for starting phase 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Campaign {
    /// The node is a quorum by itself.
    Alone,
    /// A quorum has no leader either, and would promise this ballot ([live-1]).
    PreVotes,
    /// The leader handed over its leadership ([live-4]).
    HandedOver {
        /// The former leader.
        by: NodeId,
    },
    /// This node leads, but a member promised a higher ballot ([live-2]).
    Stray {
        /// The higher ballot that the member promised.
        promised: Ballot,
    },
    /// This node was leader, and its device lost the slots it had assigned ([offload-12]).
    DeviceLost,
    /// This node leads, and a new era began ([era-8]).
    Era,
    /// This node leads, but no peer delivers the bytes of an inherited value ([value-4]).
    MissingBytes,
    /// This node leads, but no peer delivers decided slots that a promise left out ([p1-5]).
    Untaught,
    /// A node whose promise was requested has disconnected or is no longer a member ([cast-5]).
    AskedAgain,
}

/// Reason for the end of a node's ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BallotEnd {
    /// This node promised or followed a higher ballot of another node.
    HigherBallot {
        /// The ballot that was promised or followed.
        ballot: Ballot,
    },
    /// No quorum replied for longer than a healthy quorum takes.
    QuorumSilent,
    /// Too few promises arrived in time.
    TooFewPromises,
    /// Too many members promised a higher ballot for this one to continue ([live-2]).
    Strays {
        /// The highest of those ballots.
        promised: Ballot,
    },
    /// A slot of this ballot was decided with another value.
    OtherDecision {
        /// Slot that was decided with another value.
        slot: Slot,
    },
    /// This node cannot read back a value that it decided, no peer has it, and the other members
    /// can decide it again ([disk-8]).
    FoundNowhere {
        /// First slot whose value cannot be found.
        slot: Slot,
    },
    /// A snapshot was installed that covers slots undecided on this node ([snap-2]).
    Installed {
        /// End of the slots covered by the snapshot, exclusive.
        to: Slot,
    },
    /// The log failed ([disk-9]).
    StorageFailed,
    /// This leader's device cannot report the slots it assigned ([offload-12]).
    DeviceLost,
    /// This leader's device does not respond, and the slots it assigned are unknown ([offload-12]).
    DeviceLate,
    /// This node is not a member that may lead ([aux-3]), or votes of the ballot's era no longer
    /// count.
    NoMember,
    /// A protocol rule was violated; an [`crate::effect::Alarm`] names the rule.
    Alarm,
}

impl fmt::Display for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("this node is a quorum by itself"),
            Self::PreVotes => f.write_str("a quorum sees no leader"),
            Self::HandedOver { by } => write!(f, "node {by} hands its leadership over"),
            Self::Stray { promised } => write!(f, "a member promised ballot {promised}"),
            Self::DeviceLost => f.write_str("this leader lost its device"),
            Self::Era => f.write_str("an era began"),
            Self::MissingBytes => f.write_str("no node delivers the bytes of an earlier value"),
            Self::Untaught => f.write_str("no node sends decided slots that a promise left out"),
            Self::AskedAgain => f.write_str("the members that were asked before are not there"),
        }
    }
}

impl fmt::Display for BallotEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HigherBallot { ballot } => {
                write!(f, "node {} has the higher ballot {ballot}", ballot.node)
            }
            Self::QuorumSilent => f.write_str("lost contact with the quorum"),
            Self::TooFewPromises => f.write_str("too few promises came in time"),
            Self::Strays { promised } => {
                write!(f, "too many nodes promised ballot {promised} of node {}", promised.node)
            }
            Self::OtherDecision { slot } => {
                write!(f, "slot {slot} is decided with another value")
            }
            Self::FoundNowhere { slot } => {
                write!(f, "no member can read slot {slot}, which the others can decide anew")
            }
            Self::Installed { to } => {
                write!(f, "a snapshot of everything below slot {to} was installed")
            }
            Self::StorageFailed => f.write_str("the log failed"),
            Self::DeviceLost => f.write_str("this leader's device cannot tell what it proposed"),
            Self::DeviceLate => f.write_str("this leader's device does not answer"),
            Self::NoMember => f.write_str("this node is not a member that may lead"),
            Self::Alarm => f.write_str("a rule of the protocol was broken"),
        }
    }
}
