//! Everything that a node can do to the world.

use alloc::vec::Vec;
use core::fmt;

use crate::{
    ballot::Ballot,
    device::Order,
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

/// Present role of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Votes, and follows a leader or waits for one.
    #[default]
    Follower,
    /// Asks for promises.
    Candidate,
    /// Proposes.
    Leader,
    /// Has no weight in the configuration: learns, does not vote.
    Learner,
    /// Promises, and votes for what it is sent, which is nothing while others are enough; never
    /// leads ([aux-1], [aux-3]).
    Auxiliary,
}

/// Reason for refusing a proposal, a read or a transfer. Nothing was proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// This node does not lead.
    NotLeader,
    /// The limit of proposals in flight is reached.
    Busy,
    /// Leadership is being handed over.
    Transferring,
    /// The change is invalid here and now ([era-4], [era-8], [member-1]).
    InvalidChange,
    /// Too few members are known to hold what is older than the era in force ([era-12]). To be
    /// asked again when they have caught up.
    NotHeld,
    /// No such follower, or it is this node.
    NoTarget,
    /// The target did not get level in time; this node keeps leading.
    TimedOut,
}

/// Something that can only happen if a rule was broken somewhere: a person must look now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    /// [count-1] A vote was cast for other values than those proposed in its ballot.
    ConflictingVotes {
        /// The node that reported it.
        from: NodeId,
        /// The ballot.
        ballot: Ballot,
        /// The slots below which the sums differ.
        to: Slot,
    },
    /// [ballot-2] Two values for one slot in one ballot.
    ConflictingProposals {
        /// The ballot.
        ballot: Ballot,
        /// The slot.
        slot: Slot,
    },
    /// A peer has applied other values than this node, or the same ones with other replies. Found
    /// by the layer that applies values, not by the core.
    DifferentHistory {
        /// The peer.
        with: NodeId,
        /// The slots below which the two differ.
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

/// One thing to do. The caller has no ordering duties, but two: records are appended in the order
/// given, and sends of one step leave before or while the records of the step are written; the
/// core releases statements only when their records are safe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send to these peers, the same to each. To any that it cannot be sent to it may be dropped.
    Send {
        /// Receivers; never empty.
        to: NodeSet,
        /// What.
        message: Message,
    },
    /// Append to the log; report with `Input::Persisted`.
    Persist {
        /// Its number; consecutive.
        seq: RecordSeq,
        /// The record to persist.
        record: Record,
    },
    /// These slots are decided. In slot order, each slot once per process, without gaps: except for
    /// slots that the log of a damaged node holds after a range that it lost ([disk-8]), and those
    /// that an installed snapshot stands for ([snap-2]).
    Decided {
        /// The slots.
        range: SlotRange,
        /// Their value.
        value: Value,
    },
    /// Find the bytes of this value, first here, then at `from`, then anywhere; keep them while the
    /// slots are open, and report with `Input::Held`, all at once or from the first slot on.
    Fetch {
        /// A node that should have the bytes.
        from: NodeId,
        /// The value whose bytes are missing.
        value: Value,
        /// The slots that it was proposed in.
        range: SlotRange,
    },
    /// Send `Learn` messages for these decided slots to a peer, from the log, within a budget.
    Serve {
        /// The receiver.
        to: NodeId,
        /// Which slots; all of them are decided here.
        range: SlotRange,
    },
    /// A peer's log no longer has what this node lacks: get a snapshot, of this peer or of any, and
    /// report with `Input::Installed` ([catch-2]). Repeated while that is so.
    NeedSnapshot {
        /// The peer that reported it.
        from: NodeId,
        /// Start of that peer's log.
        log_start: Slot,
    },
    /// [trim-1] An auxiliary needs nothing of its log below this slot any more: make the log start
    /// there, durably, with a note that nothing stands for what was below, and report with
    /// `Input::Forgotten`. Void once it starts there or later for another reason.
    Forget {
        /// The first slot that is kept.
        to: Slot,
    },
    /// The read may run once everything below `slot` is applied.
    ReadReady {
        /// Which.
        token: ReadToken,
        /// The index.
        slot: Slot,
    },
    /// The read could not be confirmed; it may be asked again.
    ReadFailed {
        /// Which.
        token: ReadToken,
    },
    /// Everything below is on stable storage at a phase-2 quorum, for clients that wait for that
    /// ([class-2]). Grows.
    Lasts {
        /// The first slot that this does not speak of.
        to: Slot,
    },
    /// A phase-2 quorum has voted for everything below in this ballot, on stable storage or not,
    /// for clients that wait for that ([class-2]). Nothing is decided by that: it will be, unless
    /// one of those loses its memory before its disk has it ([less-4]). Grows within a ballot.
    InMemory {
        /// The ballot.
        ballot: Ballot,
        /// The first slot that this does not speak of.
        to: Slot,
    },
    /// An order for the device of this node. There is none before [`crate::input::Input::Offload`].
    Device(Order),
    /// A proposal was not taken.
    Refused {
        /// Which.
        value: Value,
        /// Why.
        why: Refusal,
    },
    /// A transfer ended: `Ok` names the new leader.
    TransferEnded(Result<NodeId, Refusal>),
    /// Role or known leader changed, or the leader moved to another ballot of its own: what was
    /// proposed in the ballot before may have lost its slot.
    Role {
        /// The new role of this node.
        role: Role,
        /// The ballot of the node that leads, as far as this one knows.
        leader: Option<Ballot>,
    },
    /// Reason that leadership began, ended or was not won; for people.
    Explain(Explanation),
    /// Call `step` with `Input::Tick` no later than this. The last one given counts.
    WakeAt(Time),
    /// A rule was broken. The node has stopped counting what is in doubt.
    Alarm(Alarm),
}

/// Counts what a healthy steady state never does; a test holds all of it at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlowPaths {
    /// Phase 1 started.
    pub campaigns: u64,
    /// A vote replaced older ones instead of following them.
    pub rewrites: u64,
    /// A proposal came before what precedes it.
    pub gaps: u64,
    /// A proposal was refused for lack of room.
    pub busy: u64,
    /// A proposal came without its bytes.
    pub missing_bytes: u64,
    /// A leader went back to send proposals again.
    pub rewinds: u64,
    /// Decided values were asked for.
    pub catchups: u64,
    /// A snapshot was needed.
    pub snapshots: u64,
}

/// The list that `step` fills and the caller drains; reused, so that the hot path allocates
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effects {
    list: Vec<Effect>,
    /// Counted here, not in the node, whose state stays free of history.
    pub slow: SlowPaths,
}

impl Effects {
    /// Creates an empty list with room for a busy step.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { list: Vec::with_capacity(capacity), slow: SlowPaths::default() }
    }

    /// Takes everything out, in order.
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

    /// Sends anything but a promise or a vote: those need proof that their record is safe.
    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        self.push_send(NodeSet::one(to), message);
    }

    /// Sends the same to each of these nodes, as one effect; as several if there are more than a
    /// set holds.
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
    /// has the class it claims.
    pub(crate) fn speak(&mut self, to: NodeId, statement: Durable<Statement>) {
        let message = match statement.into_inner() {
            Statement::Promise(promise) => Message::Phase1b(promise),
            Statement::Vote(vote) => Message::Phase2b(vote),
        };
        let to = NodeSet::one(to);
        self.list.push(Effect::Send { to, message });
    }

    /// [ring-2] Votes of others go on as they came, and with them the own one, as it was released.
    pub(crate) fn speak_along(
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
            self.pass_on(to, others);
        }
    }

    /// [ring-2] Votes of others go on as they came.
    pub(crate) fn pass_on(&mut self, to: NodeId, others: RingVote) {
        let to = NodeSet::one(to);
        let message = Message::RingVote(others);
        self.list.push(Effect::Send { to, message });
    }
}
