//! Outcomes of requests, and spontaneous messages of a device.

use alloc::vec::Vec;

use crate::Reason;
use quorate_core::{ballot::Ballot, slot::Slot, value::Value};

/// Contents of a slot: a vote, or a value that a coordinator assigned to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which slot.
    pub slot: Slot,
    /// Which value.
    pub value: Value,
    /// Its bytes; none if such values have none.
    pub bytes: Vec<u8>,
}

/// Parameters of a coordinator's start ([offload-5]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The leader's.
    pub ballot: Ballot,
    /// One past the leader's last proposal.
    pub first: Slot,
    /// The first slot that it does not assign.
    pub limit: Slot,
    /// Any quorum of this many members decides ([offload-10]).
    pub quorum: u8,
    /// Number of positions, at most 16.
    pub members: u8,
    /// Decisions are hints: the group is durable.
    pub hint: bool,
}

/// Event for a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The acceptor votes in this ballot.
    Armed {
        /// Which it was asked to vote in.
        ballot: Ballot,
    },
    /// The acceptor does not vote in this ballot.
    ArmRefused {
        /// Which it was asked to vote in.
        ballot: Ballot,
        /// [`Reason::Range`] also for a ballot or a position that fits into no frame.
        reason: Reason,
    },
    /// [offload-8] The acceptor votes no more, and this is all that it voted for from its floor on.
    /// One answers all fences that were asked for before it.
    Fenced {
        /// Ballot that it was armed with, answered or not; in the first fence of an owner that did
        /// not arm it, the highest one that it has votes of. `None`: it was not armed since the
        /// last fence, and there is nothing to import.
        ballot: Option<Ballot>,
        /// Every vote in that ballot, in the order of slots; none if it was not read out.
        votes: Vec<Held>,
    },
    /// The coordinator assigns slots.
    Started {
        /// The leader's.
        ballot: Ballot,
        /// The first slot that it assigns.
        first: Slot,
    },
    /// The coordinator does not start.
    StartRefused {
        /// The leader's.
        ballot: Ballot,
        /// [`Reason::Range`] also for what fits into no frame.
        reason: Reason,
    },
    /// The own acceptor voted in the armed ballot. In any order, mostly that of slots; each mostly
    /// once.
    Voted(Held),
    /// The coordinator gave a slot to a value. Strictly in the order of slots, from the first one
    /// on, without gaps.
    Given(Held),
    /// A coordinator counted a quorum whose votes count as decided, in the armed or started ballot.
    /// In any order.
    Decided {
        /// In which it was counted.
        ballot: Ballot,
        /// Which slot.
        slot: Slot,
        /// Decided value.
        value: Value,
    },
    /// [offload-11] The same, in a ballot that this owner has no part in: who has no vote learns by
    /// it ([`crate::owner::Owner::listen`]).
    Told {
        /// In which it was counted.
        ballot: Ballot,
        /// Decided slot and value.
        held: Held,
    },
    /// [offload-12] The coordinator assigns no slots any more. The slots reported by
    /// [`Event::Given`], these, and the holes are all slots from its first one to `next`.
    TakenBack {
        /// The leader's.
        ballot: Ballot,
        /// One past the last assigned slot.
        next: Slot,
        /// Slots that were not reported before, in order.
        given: Vec<Held>,
        /// Slots in between without a value: their proposals never left the device.
        holes: Vec<Slot>,
    },
    /// The coordinator assigns no slots any more; nothing was read.
    Stopped,
    /// [offload-18] The next slot of the coordinator, loaded after it was asked for.
    Next {
        /// Token of the question.
        token: u64,
        /// `None`: it cannot be known, and a read that needs it fails.
        next: Option<Slot>,
    },
    /// [offload-9] The device forgot, or is as good as gone. It is the last event: no wish that is
    /// open comes to another end.
    Lost {
        /// Cause of the loss.
        why: Loss,
    },
}

/// Why a device is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The device has another boot, or none (0): it forgot, or never was the intended one.
    Boot {
        /// The boot that it has.
        found: u32,
    },
    /// A call was repeated in vain.
    NoAnswer,
    /// Numbers above ours were received there: another process owns it.
    OtherOwner,
    /// The state of its drain cannot be known.
    Drain,
    /// Cells or rooms are not as many or as long as its shape says.
    Shape,
    /// Two of its answers contradict each other.
    Contradiction,
}
