//! Messages between nodes. They carry the phase names of the papers.
//!
//! | message | from → to | says |
//! |---|---|---|
//! | `Phase1a` | candidate → acceptor | answer no lower ballot from here on, and report your votes |
//! | `Phase1b` | acceptor → candidate | promised; these are my votes |
//! | `Preempted` | acceptor → any node | I promised more than you ask |
//! | `Phase2a` | leader → acceptor | vote for this value in these slots |
//! | `Phase2b` | acceptor → leader | voted, cumulatively, up to here |
//! | `Lay` | leader → all | votes of this ballot go along this ring |
//! | `RingVote` | member of a ring → the next | these voted, cumulatively, up to here |
//! | `Arm` | leader → member | let your device vote in this ballot |
//! | `Armed` | member → leader | it does, from this slot on |
//! | `Decided` | leader → all | all slots below are decided |
//! | `Heartbeat`, `HeartbeatReply` | leader ↔ all | I lead; what is decided; still promised? |
//! | `PreVote`, `PreVoteReply` | would-be candidate ↔ all | would you promise? |
//! | `Transfer` | leader → follower | lead at once |
//! | `CatchupRequest`, `Learn` | lagging node ↔ node that has it | decided values |
//! | `BelowStart` | asked node → lagging node | my log starts above that: take a snapshot |
//! | `ReadRequest`, `ReadReply` | follower ↔ leader | wait for this slot, then read |
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
    /// The first slot that is not asked about.
    pub to: Slot,
    /// The ballot's prefix sum at `to`, by the votes of the node that asks.
    pub check: u64,
}

/// A vote that an acceptor holds in these slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The slots.
    pub range: SlotRange,
    /// The ballot of the vote; the highest one that this acceptor voted in for these slots.
    pub ballot: Ballot,
    /// The value voted for.
    pub value: Value,
    /// Safety of the vote at its acceptor. A report of a volatile vote is true all the same.
    pub class: Class,
}

/// A promise with the votes that came before it ([p1-3]). One part covers all slots from
/// `max(from, floor)` on: what an acceptor holds is bounded ([p2-3]), so it fits one message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase1b {
    /// The ballot promised.
    pub ballot: Ballot,
    /// Echo of the question.
    pub from: Slot,
    /// Slots below are decided, and their votes forgotten here ([p1-5]).
    pub floor: Slot,
    /// Slots from here to `floor` are served from the log; below, only a snapshot is. Above
    /// `floor`: this acceptor is no source of what it lacks below ([aux-1]).
    pub log_start: Slot,
    /// Slots below are decided, as far as this acceptor knows.
    pub decided_to: Slot,
    /// Every vote from `max(from, floor)` on, in slot order.
    pub extents: Vec<Extent>,
}

impl Phase1b {
    /// Returns whether the extents are what an acceptor can hold: in order, apart, below the
    /// ballot. A plane never invents a message, but decoded messages are checked once more where it
    /// matters.
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
    /// Sum of [`crate::value::range_check`] over all that this ballot proposed before `range`.
    pub prefix: u64,
    /// Decisions ride on the next proposal ([decide-2]).
    pub decided_to: Slot,
    /// The leader's own votes in this ballot are in memory for all slots below this one.
    pub own_volatile_to: Slot,
    /// The leader's votes are on stable storage for all slots below this one. A learner that counts
    /// durable votes counts these and no more.
    pub own_durable_to: Slot,
    /// The bytes should travel along. Without them the receiver looks for its own copy, and asks
    /// for one if it has none.
    pub with_bytes: bool,
}

/// A vote, cumulative over one contiguous run in one ballot ([p2-6]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase2b {
    /// The ballot voted in.
    pub ballot: Ballot,
    /// Start of the run.
    pub from: Slot,
    /// In memory: `from..volatile_to`.
    pub volatile_to: Slot,
    /// On stable storage: `from..durable_to`.
    pub durable_to: Slot,
    /// The ballot's prefix sum at `volatile_to`, by this acceptor's own votes.
    pub check: u64,
}

/// A member's vote on its way around a ring, word for word as that member released it ([ring-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingEntry {
    /// The voter, by name and incarnation ([ring-3]).
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

    /// Returns the equal vote of its own, in the ballot of the ring vote that it came with.
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

    /// Returns the ends of the votes, volatile and durable: the entry that goes further is newer.
    pub const fn ends(&self) -> (Slot, Slot) {
        (self.volatile_to, self.durable_to)
    }
}

/// Votes of one ballot, on their way around its ring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingVote {
    /// The ballot voted in.
    pub ballot: Ballot,
    /// One for each member whose vote was received; at most [`crate::ring::RING_MAX`].
    pub entries: Vec<RingEntry>,
}

/// "I lead", sent every heartbeat interval to all nodes, and for read rounds at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Heartbeat {
    /// The leader's ballot.
    pub ballot: Ballot,
    /// As in [`Phase2a`].
    pub decided_to: Slot,
    /// All proposals below went to this receiver before this heartbeat. An answer that shows
    /// fewer votes means that something was lost, and where to resume.
    pub sent_to: Slot,
    /// Round of read confirmations that this asks for; 0 for none.
    pub read_round: u64,
    /// As [`Held::all`]; slot 0 while it is not known.
    pub held_by_all: Slot,
    /// As [`Held::quorum`]; slot 0 while it is not known. To an auxiliary: what they hold after a
    /// crash of all of them, and know to be decided.
    pub held_by_quorum: Slot,
    /// The lease that this asks for, or gives back ([read-4]).
    pub lease: Lease,
    /// The receiver is an auxiliary in the configuration in force, and is none of those that hold
    /// that.
    pub auxiliary: bool,
    /// Reading of the group's clock, Unix time in milliseconds ([time-3]); 0 while the leader does
    /// not know. The host fills it in; the core has no clock, and does not look.
    pub clock_ms: u64,
    /// Worst recent lateness of the leader's turns, in microseconds ([live-5]).
    pub late_us: u32,
}

/// Parts of the log that others hold: decided, bytes included, at the class of the group. Input of
/// the trimming policy ([trim-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// Every member but auxiliaries, and every learner known to the leader, holds all slots below.
    pub all: Slot,
    /// Members that are no auxiliaries, and form a phase-2 quorum, hold all slots below.
    pub quorum: Slot,
}

/// The answer; also what keeps a leader leading ([live-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeartbeatReply {
    /// Echo.
    pub ballot: Ballot,
    /// The ballot that this acceptor has promised. Above `ballot`: no read may be confirmed by it.
    pub promised: Ballot,
    /// Slots below are decided and held here, bytes included.
    pub decided_to: Slot,
    /// Slots below are held likewise, at the class of the group.
    pub held_to: Slot,
    /// And these after a crash: their votes are safe, and that they are decided is, too
    /// ([decide-3]).
    pub kept_to: Slot,
    /// Votes of the run in `ballot`, or slot 0 for none.
    pub voted_to: Slot,
    /// Echo.
    pub sent_to: Slot,
    /// Echo.
    pub read_round: u64,
    /// The lease that this grants ([read-4]).
    pub lease: Lease,
    /// This node should not lead: it cannot write its log, or apply what is decided.
    pub unfit: bool,
    /// Reading of the sender's wall clock, likewise.
    pub clock_ms: u64,
    /// The sender's estimate of the group's clock, as [`Heartbeat::clock_ms`].
    pub group_ms: u64,
    /// As [`Heartbeat::late_us`], of the sender.
    pub late_us: u32,
}

/// All messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// "Promise me all slots from here on" ([p1-1]).
    Phase1a {
        /// The candidate's ballot.
        ballot: Ballot,
        /// Its first undecided slot.
        from: Slot,
    },
    /// A promise.
    Phase1b(Phase1b),
    /// Refusal: `ballot` is below `promised`.
    Preempted {
        /// The ballot that was refused.
        ballot: Ballot,
        /// Why.
        promised: Ballot,
    },
    /// A proposal.
    Phase2a(Phase2a),
    /// A vote.
    Phase2b(Phase2b),
    /// Votes of `ballot` go along this ring from now on ([ring-1]); a greater number is a newer
    /// ring.
    Lay {
        /// The leader's ballot.
        ballot: Ballot,
        /// ρ.
        number: u32,
        /// The leader last; empty: straight to the leader.
        members: Vec<Member>,
    },
    /// Votes on their way around a ring.
    RingVote(RingVote),
    /// "Let your device vote in this ballot" ([offload-5]); repeated with heartbeats.
    Arm {
        /// The leader's ballot.
        ballot: Ballot,
        /// A run of votes may begin here.
        slot: Slot,
        /// The ballot's sum before that slot.
        prefix: u64,
    },
    /// The device votes in this ballot. Repeated when its cells begin later ([offload-14]).
    Armed {
        /// The ballot.
        ballot: Ballot,
        /// Upper bound of the first slot with a cell.
        floor: Slot,
    },
    /// Slots below `decided_to` are decided; sent when no proposal is about to carry it.
    Decided {
        /// The leader's ballot ([decide-2]).
        ballot: Ballot,
        /// First slot that is not known to be decided.
        decided_to: Slot,
    },
    /// The leader lives.
    Heartbeat(Heartbeat),
    /// Answer to a heartbeat.
    HeartbeatReply(HeartbeatReply),
    /// Would you promise this ballot? Changes no state ([live-1]).
    PreVote {
        /// The ballot that the node would start.
        ballot: Ballot,
    },
    /// Answer to a pre-vote.
    PreVoteReply {
        /// Echo.
        ballot: Ballot,
        /// The node would promise.
        granted: bool,
        /// The highest promise here, so that the next attempt starts above it.
        promised: Ballot,
    },
    /// Leadership is handed over: campaign now, skip the pre-vote ([live-4]).
    Transfer {
        /// The old leader's ballot.
        ballot: Ballot,
    },
    /// Please send the decided values of these slots, as many as you have ([catch-1]).
    CatchupRequest {
        /// Slots wanted.
        range: SlotRange,
    },
    /// These slots are decided. The value's bytes are sent with the message.
    Learn {
        /// The slots.
        range: SlotRange,
        /// Their value.
        value: Value,
    },
    /// A question for decided values begins below the first slot of the log here ([catch-2]).
    BelowStart {
        /// Only a snapshot has the slots below.
        log_start: Slot,
    },
    /// A follower has reads waiting ([read-3]).
    ReadRequest {
        /// Chosen by the follower; never used twice, restarts included.
        id: u64,
    },
    /// Reads may run once everything below `slot` is applied.
    ReadReply {
        /// Echo.
        id: u64,
        /// The confirmed read index.
        slot: Slot,
    },
    /// "Notify me when everything below is decided at your node, and on stable storage there"
    /// ([last-2]).
    LastingRequest {
        /// The first slot that is not asked about.
        to: Slot,
    },
    /// The slots below are on stable storage. Cumulative, and permanently true of the incarnation
    /// that reports it.
    LastingReply {
        /// The first slot that this does not speak of.
        to: Slot,
    },
    /// "Notify me when you have voted for the same, on stable storage or not" ([less-1]).
    EarlyRequest(Question),
    /// Voted for, in memory at least. No vote: it counts only for the client that waits.
    EarlyReply {
        /// The ballot voted in.
        ballot: Ballot,
        /// Start of the run.
        from: Slot,
        /// As asked: the first slot that this does not speak of.
        to: Slot,
    },
}
