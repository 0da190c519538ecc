//! Messages between nodes, named after the phases in the papers.
//!
//! | message | from → to | content |
//! |---|---|---|
//! | `Phase1a` | candidate → acceptor | answer no lower ballot from now on, and report your votes |
//! | `Phase1b` | acceptor → candidate | I promise; these are my votes |
//! | `Preempted` | acceptor → any node | I have promised a higher ballot |
//! | `Phase2a` | leader → acceptor | vote for this value in these slots |
//! | `Phase2b` | acceptor → leader | I have voted for all slots up to here |
//! | `Lay` | leader → all | votes of this ballot travel along this ring |
//! | `RingVote` | member of a ring → the next | these members have voted for all slots up to here |
//! | `Arm` | leader → member | let your device vote in this ballot |
//! | `Armed` | member → leader | my device votes, from this slot on |
//! | `Decided` | leader → all | all slots below are decided |
//! | `Heartbeat`, `HeartbeatReply` | leader ↔ all | I lead; all slots below are decided; do you
//! still follow? |
//! | `PreVote`, `PreVoteReply` | would-be candidate ↔ all | would you promise this ballot? |
//! | `Transfer` | leader → follower | take over leadership at once |
//! | `CatchupRequest`, `Learn` | lagging node ↔ any other node | decided values |
//! | `BelowStart` | requested node → lagging node | my log starts above those slots: install a
//! snapshot |
//! | `ReadRequest`, `ReadReply` | follower ↔ leader | the index at which a read may run |
//! | `LastingRequest`, `LastingReply` | any node ↔ member | notify me when everything below is on
//! your disk |
//! | `EarlyRequest`, `EarlyReply` | voter ↔ member | notify me when you have voted for this, on
//! disk or not |
//!
//! A plane may lose, delay, repeat, reorder and merge messages; it never invents one ([model-1]).

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    class::Class,
    lease::Lease,
    node_id::{Member, NodeId},
    slot::{Slot, SlotRange},
    value::Value,
};

/// Request: "Have you voted in this ballot for every slot of your run below `to`, with this sum?"
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EarlyVotesQuery {
    /// Ballot in which the receiver should have voted.
    pub ballot: Ballot,
    /// End of the requested slots, exclusive.
    pub to: Slot,
    /// Prefix sum of the ballot at `to`, by the requesting node's votes.
    pub check: u64,
}

/// A vote that an acceptor has cast in a range of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Slots that share this vote.
    pub range: SlotRange,
    /// The highest ballot in which the acceptor voted for these slots.
    pub ballot: Ballot,
    /// Value voted for in each slot.
    pub value: Value,
    /// Durability of the vote at its acceptor. Volatile votes are reported too.
    pub class: Class,
}

/// A promise with the votes cast before it ([p1-3]). One message covers all slots from `max(from,
/// floor)` onwards. It fits into a frame because the number of an acceptor's votes is bounded
/// ([p2-3]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase1b {
    /// The promised ballot.
    pub ballot: Ballot,
    /// Start of the requested slots, echoed from the request.
    pub from: Slot,
    /// Every slot below this one is decided, and this acceptor has dropped its vote for it
    /// ([p1-5]).
    pub floor: Slot,
    /// Slots from `log_start` to `floor` are available from this acceptor's log. Earlier slots are
    /// available only as a snapshot. If `log_start` is above `floor`, this acceptor cannot supply
    /// the slots that the candidate lacks below it ([aux-1]).
    pub log_start: Slot,
    /// Every slot below this one is decided, as far as this acceptor knows.
    pub decided_to: Slot,
    /// Every vote from `max(from, floor)` onwards, in slot order.
    pub extents: Vec<Extent>,
}

impl Phase1b {
    /// Returns whether the extents could come from an acceptor: in order, disjoint, and valid. A
    /// plane never invents a message, but decoded messages are checked again wherever an invalid
    /// one would do harm.
    pub fn is_well_formed(&self) -> bool {
        let sound = |extent: &Extent| {
            let spans = extent.range.len() == 1 || extent.value.may_span();
            !extent.range.is_empty() && spans && extent.range.to < Slot(u64::MAX)
        };
        let apart = self.extents.windows(2).all(|pair| pair[0].range.to <= pair[1].range.from);
        apart && self.extents.iter().all(sound)
    }
}

/// A proposal ([p2-4]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase2a {
    /// Ballot in which the leader proposes.
    pub ballot: Ballot,
    /// Slots in which the value is proposed.
    pub range: SlotRange,
    /// Value to vote for in each of these slots.
    pub value: Value,
    /// Sum of [`crate::value::range_check`] over all earlier proposals of this ballot.
    pub prefix: u64,
    /// The leader has decided every slot below this one. Decisions travel with the next proposal
    /// ([decide-2]).
    pub decided_to: Slot,
    /// End of the leader's own votes in this ballot, in memory.
    pub own_volatile_to: Slot,
    /// End of the leader's own votes in this ballot, on stable storage. A learner that counts
    /// durable votes counts only these.
    pub own_durable_to: Slot,
    /// The value's bytes are to be sent along. Otherwise the receiver looks for its own copy, and
    /// requests one if it has none.
    pub with_bytes: bool,
}

/// A vote, cumulative over one contiguous run in one ballot ([p2-6]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase2b {
    /// Ballot in which the acceptor voted.
    pub ballot: Ballot,
    /// First slot of the run.
    pub from: Slot,
    /// End of the votes in memory, which cover `from..volatile_to`.
    pub volatile_to: Slot,
    /// End of the votes on stable storage, which cover `from..durable_to`.
    pub durable_to: Slot,
    /// Prefix sum of the ballot at `volatile_to`, by this acceptor's own votes.
    pub check: u64,
}

/// A member's vote as it travels along a ring, unchanged since that member released it ([ring-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingEntry {
    /// The member that voted, in its current incarnation ([ring-3]).
    pub member: Member,
    /// First slot of the run, as in [`Phase2b::from`].
    pub from: Slot,
    /// End of the votes in memory, as in [`Phase2b::volatile_to`].
    pub volatile_to: Slot,
    /// End of the votes on stable storage, as in [`Phase2b::durable_to`].
    pub durable_to: Slot,
    /// Prefix sum at `volatile_to`, as in [`Phase2b::check`].
    pub check: u64,
}

impl RingEntry {
    /// Creates the ring entry for this member's vote.
    pub const fn of(member: Member, vote: &Phase2b) -> Self {
        Self {
            member,
            from: vote.from,
            volatile_to: vote.volatile_to,
            durable_to: vote.durable_to,
            check: vote.check,
        }
    }

    /// Returns the entry as a separate vote, in the ballot of the ring vote that contained it.
    pub const fn vote(&self, ballot: Ballot) -> Phase2b {
        Phase2b {
            ballot,
            from: self.from,
            volatile_to: self.volatile_to,
            durable_to: self.durable_to,
            check: self.check,
        }
    }

    /// Returns the end of the votes that have this class.
    pub const fn to(&self, class: Class) -> Slot {
        match class {
            Class::Volatile => self.volatile_to,
            Class::Durable => self.durable_to,
        }
    }

    /// Returns the ends of the volatile and the durable votes. Of two entries, the one with the
    /// higher ends is newer.
    pub const fn ends(&self) -> (Slot, Slot) {
        (self.volatile_to, self.durable_to)
    }
}

/// Votes of one ballot as they travel along its ring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingVote {
    /// Ballot in which the members voted.
    pub ballot: Ballot,
    /// One entry per member whose vote was received, at most [`crate::ring::RING_MAX`].
    pub entries: Vec<RingEntry>,
}

/// A leader's heartbeat. Sent to all nodes once per heartbeat interval, and at once for read
/// rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Heartbeat {
    /// Ballot in which the sender leads.
    pub ballot: Ballot,
    /// The leader has decided every slot below this one, as in [`Phase2a::decided_to`].
    pub decided_to: Slot,
    /// All proposals below this slot were sent to the receiver before this heartbeat. A reply that
    /// shows fewer votes means that a proposal was lost, and shows where to resume.
    pub sent_to: Slot,
    /// Round of read confirmations that this heartbeat requests; 0 for none.
    pub read_round: u64,
    /// Slots that all nodes hold, as in [`HeldSlots::all`]; slot 0 while unknown.
    pub held_by_all: Slot,
    /// Slots that a quorum holds, as in [`HeldSlots::quorum`]; slot 0 while unknown. In a heartbeat
    /// to an auxiliary, only slots that a quorum of full replicas would still hold, and know to be
    /// decided, if all of them crashed.
    pub held_by_quorum: Slot,
    /// The lease that this heartbeat requests or releases ([read-4]).
    pub lease: Lease,
    /// The receiver is an auxiliary in the configuration in force, and does not count towards
    /// `held_by_quorum`.
    pub auxiliary: bool,
    /// Reading of the group's clock, as Unix time in milliseconds ([time-3]); 0 while the leader
    /// does not know it. Filled in by the host; the core has no clock and ignores the field.
    pub clock_ms: u64,
    /// Worst recent lateness of the leader's event loop turns, in microseconds ([live-5]).
    pub late_us: u32,
    /// A member whose full disk keeps the group from taking more data ([room-2]). Filled in by the
    /// host; the core ignores the field.
    pub full_disk: Option<NodeId>,
}

/// Extent of the log that other nodes hold, decided and with its bytes, at the group's class. Input
/// to the trimming policy ([trim-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldSlots {
    /// Every full replica, and every learner known to the leader, holds all slots below this one.
    pub all: Slot,
    /// Full replicas that form a phase-2 quorum hold all slots below this one.
    pub quorum: Slot,
}

/// Reply to a heartbeat. The leader steps down if a quorum does not reply ([live-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeartbeatReply {
    /// Ballot of the heartbeat, echoed.
    pub ballot: Ballot,
    /// Highest ballot that this acceptor has promised. If it is above `ballot`, the reply confirms
    /// no read.
    pub promised: Ballot,
    /// This node has decided and stored all slots below this one, bytes included.
    pub decided_to: Slot,
    /// This node has decided and stored all slots below this one at the group's class, bytes
    /// included.
    pub held_to: Slot,
    /// After a crash this node would still have all slots below this one, and know that they are
    /// decided ([decide-3]).
    pub kept_to: Slot,
    /// End of this node's run of votes in `ballot`; slot 0 if it has none.
    pub voted_to: Slot,
    /// End of the proposals sent to this node, echoed from the heartbeat.
    pub sent_to: Slot,
    /// Round of read confirmations, echoed from the heartbeat.
    pub read_round: u64,
    /// The lease that this node grants ([read-4]).
    pub lease: Lease,
    /// This node should not lead, because it cannot write its log or apply decided slots.
    pub unfit: bool,
    /// Reading of the sender's wall clock, as Unix time in milliseconds.
    pub clock_ms: u64,
    /// The sender's estimate of the group's clock, as in [`Heartbeat::clock_ms`].
    pub group_ms: u64,
    /// Worst recent lateness of the sender's event loop turns, in microseconds.
    pub late_us: u32,
    /// The sender's disk is full but for its reserve ([room-1]). Filled in by the host.
    pub disk_full: bool,
}

/// A message between nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Request to promise `ballot` for all slots from `from` onwards ([p1-1]).
    Phase1a {
        /// Ballot that the candidate tries to lead in.
        ballot: Ballot,
        /// First undecided slot of the candidate.
        from: Slot,
    },
    /// A promise.
    Phase1b(Phase1b),
    /// A refusal, because `ballot` is below the sender's promise.
    Preempted {
        /// The refused ballot.
        ballot: Ballot,
        /// The higher ballot that the sender has promised.
        promised: Ballot,
    },
    /// A proposal.
    Phase2a(Phase2a),
    /// A vote.
    Phase2b(Phase2b),
    /// Votes of `ballot` travel along this ring from now on ([ring-1]). Of two rings, the one with
    /// the higher number is newer.
    Lay {
        /// Ballot whose votes travel along the ring.
        ballot: Ballot,
        /// Number of the ring within the ballot.
        number: u32,
        /// Members of the ring, the leader last; empty if votes go directly to the leader.
        members: Vec<Member>,
    },
    /// Votes that travel along a ring.
    RingVote(RingVote),
    /// Request to let the member's device vote in this ballot ([offload-5]). Repeated with
    /// heartbeats.
    Arm {
        /// Ballot in which the member's device is to vote.
        ballot: Ballot,
        /// Slot at which a run of votes may begin.
        slot: Slot,
        /// Prefix sum of the ballot before `slot`.
        prefix: u64,
    },
    /// The sender's device votes in this ballot. Sent again when the first cell of the device moves
    /// ([offload-14]).
    Armed {
        /// Ballot in which the device votes.
        ballot: Ballot,
        /// Upper bound for the first slot that has a cell on the device.
        floor: Slot,
    },
    /// Slots below `decided_to` are decided. Sent when no proposal that could carry the number
    /// follows soon.
    Decided {
        /// Ballot of the leader ([decide-2]).
        ballot: Ballot,
        /// First slot not known to be decided.
        decided_to: Slot,
    },
    /// A leader is alive, and reports its progress.
    Heartbeat(Heartbeat),
    /// A follower confirms a heartbeat, and reports its own progress.
    HeartbeatReply(HeartbeatReply),
    /// Request: "Would you promise this ballot?" It changes no state ([live-1]).
    PreVote {
        /// Ballot that the requesting node would start.
        ballot: Ballot,
    },
    /// Response to a pre-vote, which promises nothing.
    PreVoteReply {
        /// Ballot of the pre-vote, echoed.
        ballot: Ballot,
        /// The sender would promise the ballot.
        granted: bool,
        /// The sender's highest promise, above which the next attempt must start.
        promised: Ballot,
    },
    /// The leader hands over leadership. The receiver should campaign now, without a pre-vote
    /// ([live-4]).
    Transfer {
        /// Ballot of the old leader.
        ballot: Ballot,
    },
    /// Request for the decided values of these slots, as many as the receiver has ([catch-1]).
    CatchupRequest {
        /// The requested slots.
        range: SlotRange,
    },
    /// These slots are decided with this value, whose bytes are sent along.
    Learn {
        /// The decided slots.
        range: SlotRange,
        /// Value decided in each of these slots.
        value: Value,
    },
    /// A catch-up request begins below the first slot of this node's log ([catch-2]).
    BelowStart {
        /// First slot of the log. The slots below are available only as a snapshot.
        log_start: Slot,
    },
    /// A follower with waiting reads requests a read index ([read-3]).
    ReadRequest {
        /// Id chosen by the follower, never used twice, even across restarts.
        id: u64,
    },
    /// Reply to a read request. The reads may run once everything below `slot` is applied.
    ReadReply {
        /// Id of the request, echoed.
        id: u64,
        /// The confirmed read index.
        slot: Slot,
    },
    /// Request to notify the sender when everything below `to` is decided at the receiver, and on
    /// stable storage there ([last-2]).
    LastingRequest {
        /// End of the slots, exclusive.
        to: Slot,
    },
    /// Every slot below `to` is on stable storage at the sender. Cumulative, and permanently true
    /// for the incarnation that reports it.
    LastingReply {
        /// End of the slots, exclusive.
        to: Slot,
    },
    /// Request to notify the sender when the receiver has cast the same votes, whether or not on
    /// stable storage ([less-1]).
    EarlyRequest(EarlyVotesQuery),
    /// The sender has voted for these slots, at least in memory. This is not a vote and counts only
    /// for the waiting client.
    EarlyReply {
        /// Ballot in which the sender voted.
        ballot: Ballot,
        /// First slot of the run of votes.
        from: Slot,
        /// End of the requested slots, exclusive.
        to: Slot,
    },
}
