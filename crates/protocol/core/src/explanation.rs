//! Reasons that leadership began, ended or was not won: for people. Nothing depends on them, and
//! nothing here is remembered by the node: a caller may drop it.

use core::fmt;

use crate::{ballot::Ballot, node_id::NodeId, node_set::NodeSet, slot::Slot};

/// An event of leadership, with its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Explanation {
    /// The leader that this node followed is followed no more: it was silent for `silent_us`.
    LeaderSilent {
        /// The former leader.
        leader: NodeId,
        /// Length of the silence, in microseconds.
        silent_us: u64,
    },
    /// The leader that this node followed is followed no more: the connection to it broke.
    LeaderUnreachable {
        /// The former leader.
        leader: NodeId,
    },
    /// This node is a quorum by itself, and waits for others to connect before it leads ([lie-6]).
    WaitsAlone {
        /// Length of the wait, in microseconds.
        us: u64,
    },
    /// Phase 1 of this ballot began.
    Campaigns {
        /// The ballot.
        ballot: Ballot,
        /// Why.
        why: Campaign,
    },
    /// Phase 1 of this ballot is complete: this node leads in it.
    Leads {
        /// The ballot.
        ballot: Ballot,
    },
    /// Phase 1 of this ballot ended without a quorum.
    NotElected {
        /// The ballot.
        ballot: Ballot,
        /// Why.
        why: End,
    },
    /// Full replicas do not get on by themselves: auxiliaries are sent what is proposed ([aux-2]).
    Engages {
        /// The ballot that this node leads in.
        ballot: Ballot,
    },
    /// Full replicas hold everything: auxiliaries are spared again ([aux-4]).
    Retires {
        /// The ballot that this node leads in.
        ballot: Ballot,
    },
    /// Votes come along a ring from now on, through these nodes.
    RingLaid {
        /// The ballot that this node leads in.
        ballot: Ballot,
        /// Nodes of the ring.
        nodes: NodeSet,
    },
    /// The ring got nowhere: votes come straight again ([ring-7]).
    RingBreaks {
        /// The ballot that this node leads in.
        ballot: Ballot,
        /// The first slot that was not decided.
        slot: Slot,
    },
    /// [offload-5] Devices vote and count in this ballot from now on.
    Offloads {
        /// The ballot that this node leads in.
        ballot: Ballot,
    },
    /// [offload-12] The device assigns slots no more.
    TakesBack {
        /// The ballot that this node leads in.
        ballot: Ballot,
    },
    /// [offload-9] The device of this member does not answer: it promises nothing until that was
    /// read out.
    DeviceLate,
    /// [offload-9] The device of this member forgot votes that counted: it votes no more until it
    /// is started anew.
    DeviceForgot,
    /// This node led in this ballot, and leads no more.
    StepsDown {
        /// The ballot.
        ballot: Ballot,
        /// Why.
        why: End,
    },
}

/// Reason for a node to ask for promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Campaign {
    /// The node is a quorum by itself.
    Alone,
    /// A quorum has no leader either, and would promise ([live-1]).
    PreVotes,
    /// The leader handed over ([live-4]).
    HandedOver {
        /// The former leader.
        by: NodeId,
    },
    /// The node leads, and another node promised a higher ballot ([live-2]).
    Stray {
        /// The higher ballot.
        promised: Ballot,
    },
    /// The node led until now, and its device lost the slots it assigned ([offload-12]).
    DeviceLost,
    /// The node leads, and an era began ([era-8]).
    Era,
    /// The node leads, and no peer delivers the bytes of an inherited value ([value-4]).
    MissingBytes,
    /// The node leads, and no peer teaches the decided slots that a promise left out ([p1-5]).
    Untaught,
    /// A node that was asked before is disconnected, or no member any more ([cast-5]).
    AskedAgain,
}

/// Reason for the end of a node's ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Another node's higher ballot was promised, or followed.
    HigherBallot {
        /// The higher ballot.
        ballot: Ballot,
    },
    /// No quorum answered for longer than a healthy one takes.
    QuorumSilent,
    /// Too few promises came in time.
    TooFewPromises,
    /// Too many promised a higher ballot for this one to go on ([live-2]).
    Strays {
        /// The highest of theirs.
        promised: Ballot,
    },
    /// A slot of this ballot is decided with another value.
    OtherDecision {
        /// The slot.
        slot: Slot,
    },
    /// The node cannot read back what it decided, no peer has it, and the others can decide it anew
    /// ([disk-8]).
    FoundNowhere {
        /// The first slot of that.
        slot: Slot,
    },
    /// A snapshot stands for slots that this node had not decided ([snap-2]).
    Installed {
        /// The snapshot stands for slots below.
        to: Slot,
    },
    /// The log failed ([disk-9]).
    StorageFailed,
    /// The device cannot report the slots it assigned ([offload-12]).
    DeviceLost,
    /// Its device does not answer, and holds what it gave out ([offload-12]).
    DeviceLate,
    /// This node is no member that may lead ([aux-3]), or the ballot's era counts no more.
    NoMember,
    /// A rule was broken: an alarm names it.
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

impl fmt::Display for End {
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
