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
//! | `Heartbeat`, `HeartbeatReply` | leader ↔ all | I lead; all slots below are decided; do you still follow? |
//! | `PreVote`, `PreVoteReply` | would-be candidate ↔ all | would you promise this ballot? |
//! | `Transfer` | leader → follower | take over leadership at once |
//! | `CatchupRequest`, `Learn` | lagging node ↔ any other node | decided values |
//! | `BelowStart` | requested node → lagging node | my log starts above those slots: install a snapshot |
//! | `ReadRequest`, `ReadReply` | follower ↔ leader | the index at which a read may run |
//! | `LastingRequest`, `LastingReply` | any node ↔ member | notify me when everything below is on your disk |
//! | `EarlyRequest`, `EarlyReply` | voter ↔ member | notify me when you have voted for this, on disk or not |
//!
//! A plane may lose, delay, repeat, reorder and merge messages; it never invents one ([model-1]).

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    class::Class,
    lease::Lease,
    node_id::Member,
    slot::{Slot, SlotRange},
    value::Value,
};

/// "Have you voted in this ballot for everything of your run below this slot, with this sum?"
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Question {
    /// The ballot.
    pub ballot: Ballot,
    /// End of the slots in question, exclusive.
    pub to: Slot,
    /// The ballot's prefix sum at `to`, by the requesting node's votes.
    pub check: u64,
}

/// A vote that an acceptor has cast in these slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The slots.
    pub range: SlotRange,
    /// The highest ballot in which the acceptor voted for these slots.
    pub ballot: Ballot,
    /// The value voted for.
    pub value: Value,
    /// Durability of the vote at its acceptor. A volatile vote is reported all the same.
    pub class: Class,
}

/// A promise with the votes cast before it ([p1-3]). One message covers all slots from `max(from,
/// floor)` on; it fits because the number of an acceptor's votes is bounded ([p2-3]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase1b {
    /// The promised ballot.
    pub ballot: Ballot,
    /// Echo of the request.
    pub from: Slot,
    /// Slots below are decided, and this acceptor has dropped their votes ([p1-5]).
    pub floor: Slot,
    /// Slots from here to `floor` are available from this acceptor's log; those below, only as a
    /// snapshot. If above `floor`, this acceptor cannot supply what the candidate lacks below
    /// ([aux-1]).
    pub log_start: Slot,
    /// Slots below are decided, as far as this acceptor knows.
    pub decided_to: Slot,
    /// Every vote from `max(from, floor)` on, in slot order.
    pub extents: Vec<Extent>,
}

impl Phase1b {
    /// Returns whether the extents could come from an acceptor: in order, disjoint, and valid. A
    /// plane never invents a message, but decoded messages are checked again where it matters.
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
    /// The leader's ballot.
    pub ballot: Ballot,
    /// The slots.
    pub range: SlotRange,
    /// The value to vote for in each of them.
    pub value: Value,
    /// Sum of [`crate::value::range_check`] over everything this ballot proposed before `range`.
    pub prefix: u64,
    /// The leader has decided all slots below; decisions travel with the next proposal
    /// ([decide-2]).
    pub decided_to: Slot,
    /// End of the leader's own votes in this ballot in its memory.
    pub own_volatile_to: Slot,
    /// End of the leader's own votes in this ballot on stable storage. A learner that counts
    /// durable votes counts only these.
    pub own_durable_to: Slot,
    /// The value's bytes should be sent along. Otherwise the receiver looks for its own copy, and
    /// requests one if it has none.
    pub with_bytes: bool,
}

/// A vote, cumulative over one contiguous run in one ballot ([p2-6]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase2b {
    /// The ballot voted in.
    pub ballot: Ballot,
    /// Start of the run.
    pub from: Slot,
    /// End of the votes in memory: `from..volatile_to`.
    pub volatile_to: Slot,
    /// End of the votes on stable storage: `from..durable_to`.
    pub durable_to: Slot,
    /// The ballot's prefix sum at `volatile_to`, by this acceptor's own votes.
    pub check: u64,
}

/// A member's vote as it travels along a ring, unchanged since that member released it ([ring-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingEntry {
    /// The voter, with its incarnation ([ring-3]).
    pub member: Member,
    /// As in [`Phase2b`].
    pub from: Slot,
    /// As in [`Phase2b`].
    pub volatile_to: Slot,
    /// As in [`Phase2b`].
    pub durable_to: Slot,
    /// As in [`Phase2b`].
    pub check: u64,
}

impl RingEntry {
    /// Creates the entry of this member's vote.
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

    /// Returns the end of the votes at this class.
    pub const fn to(&self, class: Class) -> Slot {
        match class {
            Class::Volatile => self.volatile_to,
            Class::Durable => self.durable_to,
        }
    }

    /// Returns the ends of the votes, volatile and durable. Of two entries the one that goes
    /// further is newer.
    pub const fn ends(&self) -> (Slot, Slot) {
        (self.volatile_to, self.durable_to)
    }
}

/// Votes of one ballot as they travel along its ring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingVote {
    /// The ballot voted in.
    pub ballot: Ballot,
    /// One entry per member whose vote was received; at most [`crate::ring::RING_MAX`].
    pub entries: Vec<RingEntry>,
}

/// "I lead": sent to all nodes once per heartbeat interval, and at once for read rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Heartbeat {
    /// The leader's ballot.
    pub ballot: Ballot,
    /// As in [`Phase2a`].
    pub decided_to: Slot,
    /// All proposals below were sent to this receiver before this heartbeat. A reply that shows
    /// fewer votes means that a proposal was lost, and shows where to resume.
    pub sent_to: Slot,
    /// Round of read confirmations that this requests; 0 for none.
    pub read_round: u64,
    /// As [`Held::all`]; slot 0 while unknown.
    pub held_by_all: Slot,
    /// As [`Held::quorum`]; slot 0 while unknown. To an auxiliary: the prefix that a quorum of full
    /// replicas would still hold and know to be decided after all of them crashed.
    pub held_by_quorum: Slot,
    /// The lease that this requests or releases ([read-4]).
    pub lease: Lease,
    /// The receiver is an auxiliary in the configuration in force, and does not count towards
    /// `held_by_quorum`.
    pub auxiliary: bool,
    /// Reading of the group's clock, Unix time in milliseconds ([time-3]); 0 while the leader does
    /// not know it. Filled in by the host; the core has no clock and ignores the field.
    pub clock_ms: u64,
    /// Worst recent lateness of the leader's turns, in microseconds ([live-5]).
    pub late_us: u32,
}

/// Parts of the log that other nodes hold: decided, bytes included, at the group's class. Input to
/// the trimming policy ([trim-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// Every full replica, and every learner known to the leader, holds all slots below.
    pub all: Slot,
    /// Full replicas that form a phase-2 quorum hold all slots below.
    pub quorum: Slot,
}

/// Reply to a heartbeat; it also keeps the leader in office ([live-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeartbeatReply {
    /// Echo of the heartbeat's ballot.
    pub ballot: Ballot,
    /// The highest ballot that this acceptor has promised. If above `ballot`, the reply confirms no
    /// read.
    pub promised: Ballot,
    /// This node has decided and stored all slots below, bytes included.
    pub decided_to: Slot,
    /// This node has decided and stored all slots below at the group's class, bytes included.
    pub held_to: Slot,
    /// After a crash this node would still have the slots below, and know that they are decided
    /// ([decide-3]).
    pub kept_to: Slot,
    /// End of this node's run of votes in `ballot`; slot 0 for none.
    pub voted_to: Slot,
    /// Echo of the heartbeat.
    pub sent_to: Slot,
    /// Echo of the heartbeat.
    pub read_round: u64,
    /// The granted lease ([read-4]).
    pub lease: Lease,
    /// This node should not lead: it cannot write its log, or apply what is decided.
    pub unfit: bool,
    /// Reading of the sender's wall clock, Unix time in milliseconds.
    pub clock_ms: u64,
    /// The sender's estimate of the group's clock, as [`Heartbeat::clock_ms`].
    pub group_ms: u64,
    /// Worst recent lateness of the sender's turns, in microseconds.
    pub late_us: u32,
}

/// A message between nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// "Promise me all slots from here on" ([p1-1]).
    Phase1a {
        /// The candidate's ballot.
        ballot: Ballot,
        /// The candidate's first undecided slot.
        from: Slot,
    },
    /// A promise.
    Phase1b(Phase1b),
    /// Refusal: `ballot` is below `promised`.
    Preempted {
        /// The ballot that was refused.
        ballot: Ballot,
        /// The higher ballot promised.
        promised: Ballot,
    },
    /// A proposal.
    Phase2a(Phase2a),
    /// A vote.
    Phase2b(Phase2b),
    /// Votes of `ballot` travel along this ring from now on ([ring-1]); a higher number is a newer
    /// ring.
    Lay {
        /// The leader's ballot.
        ballot: Ballot,
        /// The number of the ring.
        number: u32,
        /// Members of the ring, the leader last; empty if votes go directly to the leader.
        members: Vec<Member>,
    },
    /// Votes that travel along a ring.
    RingVote(RingVote),
    /// "Let your device vote in this ballot" ([offload-5]); repeated with heartbeats.
    Arm {
        /// The leader's ballot.
        ballot: Ballot,
        /// Slot at which a run of votes may begin.
        slot: Slot,
        /// The ballot's prefix sum before that slot.
        prefix: u64,
    },
    /// The device votes in this ballot. Sent again when its first cell moves ([offload-14]).
    Armed {
        /// The ballot.
        ballot: Ballot,
        /// Upper bound of the first slot with a cell.
        floor: Slot,
    },
    /// Slots below `decided_to` are decided. Sent when no proposal follows soon to carry it.
    Decided {
        /// The leader's ballot ([decide-2]).
        ballot: Ballot,
        /// First slot not known to be decided.
        decided_to: Slot,
    },
    /// Heartbeat of the leader.
    Heartbeat(Heartbeat),
    /// Reply to a heartbeat.
    HeartbeatReply(HeartbeatReply),
    /// "Would you promise this ballot?" Changes no state ([live-1]).
    PreVote {
        /// The ballot that the node would start.
        ballot: Ballot,
    },
    /// Reply to a pre-vote.
    PreVoteReply {
        /// Echo of the requested ballot.
        ballot: Ballot,
        /// The sender would promise the ballot.
        granted: bool,
        /// The sender's highest promise, so that the next attempt starts above it.
        promised: Ballot,
    },
    /// The leader hands over: the receiver should campaign now, without a pre-vote ([live-4]).
    Transfer {
        /// The old leader's ballot.
        ballot: Ballot,
    },
    /// Request for the decided values of these slots, as many as the receiver has ([catch-1]).
    CatchupRequest {
        /// The requested slots.
        range: SlotRange,
    },
    /// These slots are decided. The value's bytes are sent along.
    Learn {
        /// The slots.
        range: SlotRange,
        /// Their value.
        value: Value,
    },
    /// A catch-up request begins below the first slot of this node's log ([catch-2]).
    BelowStart {
        /// First slot of the log. The slots below are available only as a snapshot.
        log_start: Slot,
    },
    /// Request for a read index by a follower with waiting reads ([read-3]).
    ReadRequest {
        /// Chosen by the follower, and never used twice, even across restarts.
        id: u64,
    },
    /// The reads may run once everything below `slot` is applied.
    ReadReply {
        /// Echo of the request.
        id: u64,
        /// The confirmed read index.
        slot: Slot,
    },
    /// "Notify me when everything below is decided at your node, and on stable storage there"
    /// ([last-2]).
    LastingRequest {
        /// End of the slots, exclusive.
        to: Slot,
    },
    /// The slots below are on stable storage at the sender. Cumulative, and permanently true for
    /// the incarnation that reports it.
    LastingReply {
        /// End of the slots, exclusive.
        to: Slot,
    },
    /// "Notify me when you have voted as I did, whether or not on stable storage" ([less-1]).
    EarlyRequest(Question),
    /// The sender has voted for these slots, at least in memory. This is not a vote: it counts only
    /// for the waiting client.
    EarlyReply {
        /// The ballot voted in.
        ballot: Ballot,
        /// Start of the run.
        from: Slot,
        /// End of the requested slots, exclusive.
        to: Slot,
    },
}
