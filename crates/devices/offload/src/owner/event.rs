//! Outcomes of requests, and reports of a device.

use alloc::vec::Vec;

use crate::Reason;
use quorate_core::{ballot::Ballot, slot::Slot, value::Value};

/// Contents of a slot: a vote, or a value that a coordinator assigned to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotValue {
    pub slot: Slot,
    pub value: Value,
    /// Bytes of the value; empty if such values have none.
    pub bytes: Vec<u8>,
}

/// Parameters of a coordinator's start ([offload-5]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Ballot of the leader.
    pub ballot: Ballot,
    /// One past the leader's last proposal.
    pub first: Slot,
    /// First slot that the coordinator may not assign.
    pub limit: Slot,
    /// Number of members that form a quorum; any of them will do ([offload-10]).
    pub quorum: u8,
    /// Number of positions, at most 16.
    pub members: u8,
    /// Decisions are hints, because the group is durable.
    pub hint: bool,
}

/// Event for a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The acceptor votes in this ballot.
    Armed {
        /// Ballot requested.
        ballot: Ballot,
    },
    /// The acceptor does not vote in this ballot.
    ArmRefused {
        /// Ballot requested.
        ballot: Ballot,
        /// Reason; [`Reason::Range`] also for a ballot or a position that does not fit into a
        /// frame.
        reason: Reason,
    },
    /// [offload-8] The acceptor no longer votes; contains all its votes from its floor on. Answers
    /// all fences requested before it.
    Fenced {
        /// Ballot that it was armed with, acknowledged or not; in the first fence of an owner that
        /// did not arm it, the highest ballot of its votes. `None`: it was not armed since the last
        /// fence, and there is nothing to import.
        ballot: Option<Ballot>,
        /// Every vote in that ballot, in slot order; empty if they were not read out.
        votes: Vec<SlotValue>,
    },
    /// The coordinator assigns slots.
    Started {
        /// Ballot of the leader.
        ballot: Ballot,
        /// First slot that it assigns.
        first: Slot,
    },
    /// The coordinator does not start.
    StartRefused {
        /// Ballot of the leader.
        ballot: Ballot,
        /// Reason; [`Reason::Range`] also for a parameter that does not fit into a frame.
        reason: Reason,
    },
    /// This device's acceptor voted in the armed ballot. Mostly, but not always, in slot order and
    /// once.
    Voted(SlotValue),
    /// The coordinator assigned a slot to a value. Strictly in slot order, from the first one on,
    /// without gaps.
    Assigned(SlotValue),
    /// A coordinator counted a quorum whose votes count as decided, in the armed or started ballot.
    /// In any order.
    Decided {
        /// Ballot of the votes.
        ballot: Ballot,
        /// Decided slot.
        slot: Slot,
        /// Decided value.
        value: Value,
    },
    /// [offload-11] A coordinator counted a quorum in a ballot in which this owner has no part.
    /// Informs members without a vote ([`crate::owner::Owner::listen`]).
    OtherDecided {
        /// Ballot of the votes.
        ballot: Ballot,
        /// Decided slot and value.
        held: SlotValue,
    },
    /// [offload-12] The coordinator no longer assigns slots. The slots reported by
    /// [`Event::Assigned`], these, and the holes are all slots from its first one to `next`.
    Withdrawn {
        /// Ballot of the leader.
        ballot: Ballot,
        /// One past the last assigned slot.
        next: Slot,
        /// Slots that were not reported before, in order.
        given: Vec<SlotValue>,
        /// Slots in between without a value: their proposals never left the device.
        holes: Vec<Slot>,
    },
    /// The coordinator no longer assigns slots; nothing was read.
    Stopped,
    /// [offload-18] The next slot of the coordinator, loaded after the query arrived.
    Next {
        /// Token of the query.
        token: u64,
        /// `None` if it cannot be known, so that a read that needs it fails.
        next: Option<Slot>,
    },
    /// [offload-9] The device lost its memory, or must be treated as gone. The last event:
    /// outstanding requests have no other outcome.
    Lost {
        /// Cause of the loss.
        why: Loss,
    },
}

/// The reason that a device is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The device has another boot, or none (0): it lost its memory, or never was the intended one.
    Boot {
        /// Boot of the device.
        found: u32,
    },
    /// A call was repeated without an answer.
    NoAnswer,
    /// The device received higher numbers than ours: another process owns it.
    OtherOwner,
    /// The state of its drain cannot be known.
    Drain,
    /// The number of cells or the size of the value area differs from its shape.
    Shape,
    /// Two of its answers contradict each other.
    Contradiction,
}
