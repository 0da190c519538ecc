//! Effects: actions that a node requests from its caller.

use alloc::vec::Vec;
use core::fmt;

use crate::{
    ballot::Ballot,
    device::DeviceOrder,
    durable::statement::{Durable, Statement},
    explanation::Explanation,
    input::ReadToken,
    message::{Message, RingEntry, RingVote},
    node_id::{Member, NodeId},
    node_set::NodeSet,
    record::{Record, RecordSeq},
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};

/// Current role of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Votes, and follows a leader or waits for one.
    #[default]
    Follower,
    /// Requests promises (phase 1).
    Candidate,
    /// Proposes values.
    Leader,
    /// Has no weight in the configuration. It learns decisions but does not vote.
    Learner,
    /// Makes promises, votes for the proposals that it receives (none while the full replicas
    /// suffice), and never leads ([aux-1], [aux-3]).
    Auxiliary,
}

/// Reason for refusing a proposal, a read or a transfer. Nothing has been proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// This node is not the leader.
    NotLeader,
    /// The limit of proposals in flight is reached.
    Busy,
    /// Leadership is being handed over.
    Transferring,
    /// The change is invalid in the current configuration ([era-4], [era-8], [member-1]).
    InvalidChange,
    /// Too few members are known to hold the slots before the era in force ([era-12]). The caller
    /// should retry after they have caught up.
    SlotsNotHeld,
    /// The target is not a connected follower that may lead.
    InvalidTarget,
    /// The target did not catch up in time, so this node remains leader.
    TimedOut,
}

/// Violation of a protocol rule. It should never occur, and an operator must investigate it at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// [count-1] A vote was cast for values other than those proposed in its ballot.
    ConflictingVotes {
        /// Node that reported the vote.
        from: NodeId,
        /// Ballot of the conflicting vote.
        ballot: Ballot,
        /// Slot below which the prefix sums differ.
        to: Slot,
    },
    /// [ballot-2] Two values were proposed for one slot in the same ballot.
    ConflictingProposals {
        /// Ballot of both proposals.
        ballot: Ballot,
        /// Slot of both proposals.
        slot: Slot,
    },
    /// A peer has applied different values than this node, or the same values with different
    /// replies. Detected by the layer that applies values, not by the core.
    DifferentHistory {
        /// The peer whose history differs.
        with: NodeId,
        /// Slot below which the histories differ.
        to: Slot,
    },
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConflictingVotes { from, ballot, to } => write!(
                f,
                "node {from} voted in ballot {ballot} for other values than were proposed below slot {to}"
            ),
            Self::ConflictingProposals { ballot, slot } => {
                write!(f, "ballot {ballot} proposed two values for slot {slot}")
            }
            Self::DifferentHistory { with, to } => {
                write!(f, "node {with} has applied something else than this node below slot {to}")
            }
        }
    }
}

/// An action for the caller to carry out. The caller has two ordering duties: it appends records in
/// the order given, and it sends the messages of a step before or while it writes the step's
/// records. The core releases statements only when their records are safe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send the same message to these peers. It may be dropped for a peer that cannot be reached.
    Send {
        /// Nodes that receive the message. Never empty.
        to: NodeSet,
        /// The same message for every node in `to`.
        message: Message,
    },
    /// Append a record to the log, and report with `Input::Persisted` once it is on stable storage.
    Persist {
        /// Number of the record. Numbers are consecutive.
        seq: RecordSeq,
        /// The record to append.
        record: Record,
    },
    /// These slots are decided. Slots are reported in order, without gaps, and each at most once
    /// per process. Exceptions: slots that the log of a damaged node holds after a lost range
    /// ([disk-8]), and slots covered by an installed snapshot ([snap-2]).
    Decided {
        /// The decided slots.
        range: SlotRange,
        /// Value decided in all of these slots.
        value: Value,
    },
    /// Find the bytes of this value, first locally, then at `from`, then at any peer. Retain them
    /// while the slots are undecided, and report with `Input::BytesHeld`, either all at once or in
    /// parts in slot order.
    Fetch {
        /// A node that should have the bytes.
        from: NodeId,
        /// The value whose bytes are missing.
        value: Value,
        /// Slots in which the value was proposed.
        range: SlotRange,
    },
    /// Send `Learn` messages for these decided slots from the log to a peer, within a budget.
    ServeDecided {
        /// Node that receives the messages.
        to: NodeId,
        /// Slots to send, all of which are decided on this node.
        range: SlotRange,
    },
    /// A peer's log no longer contains the slots that this node lacks. Fetch a snapshot from this
    /// peer or any other, and report with `Input::Installed` ([catch-2]). Repeated while the node
    /// needs a snapshot.
    NeedSnapshot {
        /// The peer that reported its log start.
        from: NodeId,
        /// First slot that the peer's log still contains.
        log_start: Slot,
    },
    /// [trim-1] An auxiliary no longer needs its log below this slot. Make the log start there,
    /// durably, with a note that no snapshot covers the slots below, and report with
    /// `Input::Forgotten`. Do nothing if the log already starts there or later.
    Forget {
        /// The first slot to retain.
        to: Slot,
    },
    /// The read may run once everything below `slot` is applied.
    ReadReady {
        /// Token of the read, from `Input::Read`.
        token: ReadToken,
        /// Read index, exclusive.
        slot: Slot,
    },
    /// The read could not be confirmed. The caller may retry it.
    ReadFailed {
        /// Token of the read, from `Input::Read`.
        token: ReadToken,
    },
    /// Everything below `to` is on stable storage at a phase-2 quorum, so notify clients that wait
    /// for durability ([class-2]). `to` only grows.
    DurableInGroup {
        /// End of the slots, exclusive.
        to: Slot,
    },
    /// A phase-2 quorum has voted for everything below `to` in this ballot, whether or not on
    /// stable storage, so notify clients that wait for in-memory votes ([class-2]). The slots are
    /// not decided yet. They will be, unless one of those members loses its memory before its disk
    /// has the votes ([less-4]). `to` only grows within a ballot.
    VotedInMemory {
        /// Ballot in which the quorum voted.
        ballot: Ballot,
        /// End of the slots, exclusive.
        to: Slot,
    },
    /// An order for this node's device. None is issued before [`crate::input::Input::Offload`].
    Device(DeviceOrder),
    /// A proposal was refused.
    Refused {
        /// The refused value.
        value: Value,
        /// Reason for the refusal.
        why: Refusal,
    },
    /// A transfer of leadership ended. `Ok` holds the new leader.
    TransferEnded(Result<NodeId, Refusal>),
    /// The role or the known leader changed, or the leader moved to another ballot of its own.
    /// Proposals of the previous ballot may have lost their slots.
    Role {
        /// Current role of this node.
        role: Role,
        /// Ballot of the leader, if this node knows one.
        leader: Option<Ballot>,
    },
    /// Reason for the start or end of this node's leadership, or for a lost election. For logs.
    Explain(Explanation),
    /// Call `step` with `Input::Tick` no later than this. Replaces the time of earlier such
    /// effects.
    WakeAt(Time),
    /// A protocol rule was violated. The node has stopped counting the votes or values in doubt.
    Alarm(Alarm),
}

/// Counters of events that never occur in a healthy steady state. A test asserts that they remain
/// zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlowPaths {
    /// Number of times that phase 1 was started.
    pub campaigns: u64,
    /// Number of votes that replaced older votes instead of following them.
    pub vote_rewrites: u64,
    /// Number of proposals that arrived before their predecessors.
    pub proposal_gaps: u64,
    /// Number of proposals refused because a buffer was full.
    pub busy_refusals: u64,
    /// Number of proposals that arrived without their bytes.
    pub missing_bytes: u64,
    /// Number of times that a leader resent proposals to a follower that had missed them.
    pub rewinds: u64,
    /// Number of requests to peers for decided values.
    pub catchups: u64,
    /// Number of times that a snapshot was needed.
    pub snapshots: u64,
}

/// Effects of a step, filled by `step` and drained by the caller. Reused, so that the hot path does
/// not allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effects {
    list: Vec<Effect>,
    /// Counters of slow paths. They are kept outside the node, whose state must not depend on its
    /// history.
    pub slow: SlowPaths,
}

impl Effects {
    /// Creates an empty list with capacity for `capacity` effects.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { list: Vec::with_capacity(capacity), slow: SlowPaths::default() }
    }

    /// Removes and returns all effects, in order.
    pub fn drain(&mut self) -> alloc::vec::Drain<'_, Effect> {
        self.list.drain(..)
    }

    /// Returns the effects in order.
    pub fn as_slice(&self) -> &[Effect] {
        &self.list
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.list.push(effect);
    }

    pub(crate) fn explain(&mut self, explanation: Explanation) {
        self.list.push(Effect::Explain(explanation));
    }

    /// Sends a message other than a promise or a vote. Those are sent as [`Durable`] statements,
    /// which prove that their record is safe.
    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        self.push_send(NodeSet::one(to), message);
    }

    /// Sends one message to each node in `nodes`, as one effect, or as several if the nodes do not
    /// fit into one set.
    pub(crate) fn send_all(&mut self, nodes: impl Iterator<Item = NodeId>, message: &Message) {
        let mut to = NodeSet::default();
        for node in nodes {
            if !to.insert(node) {
                self.push_send(to, message.clone());
                to = NodeSet::one(node);
            }
        }
        if !to.is_empty() {
            self.push_send(to, message.clone());
        }
    }

    fn push_send(&mut self, to: NodeSet, message: Message) {
        assert!(
            !matches!(message, Message::Phase1b(_) | Message::Phase2b(_) | Message::RingVote(_)),
            "promises and votes leave through `speak`"
        );
        self.list.push(Effect::Send { to, message });
    }

    /// Sends a statement. Invariant 4 of the design: no promise or vote leaves before its record
    /// has the class that it claims.
    pub(crate) fn send_statement(&mut self, to: NodeId, statement: Durable<Statement>) {
        let message = match statement.into_inner() {
            Statement::Promise(promise) => Message::Phase1b(promise),
            Statement::Vote(vote) => Message::Phase2b(vote),
        };
        let to = NodeSet::one(to);
        self.list.push(Effect::Send { to, message });
    }

    /// [ring-2] Forwards other members' votes unchanged, and adds this node's released vote.
    pub(crate) fn send_ring_vote(
        &mut self,
        to: NodeId,
        mut others: RingVote,
        own: Member,
        statement: Option<Durable<Statement>>,
    ) {
        if let Some(Statement::Vote(vote)) = statement.map(Durable::into_inner)
            && vote.ballot == others.ballot
        {
            others.entries.push(RingEntry::of(own, &vote));
        }
        if !others.entries.is_empty() {
            self.forward_ring_vote(to, others);
        }
    }

    /// [ring-2] Forwards other members' votes unchanged.
    pub(crate) fn forward_ring_vote(&mut self, to: NodeId, others: RingVote) {
        let to = NodeSet::one(to);
        let message = Message::RingVote(others);
        self.list.push(Effect::Send { to, message });
    }
}
