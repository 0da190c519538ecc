//! What comes of wishes, and what a device says by itself.

use alloc::vec::Vec;

use crate::Reason;
use quorate_core::{ballot::Ballot, slot::Slot, value::Value};

/// What a slot holds: a vote, or what a coordinator gave it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which slot.
    pub slot: Slot,
    /// Which value.
    pub value: Value,
    /// Its bytes; none if such values have none.
    pub bytes: Vec<u8>,
}

/// What a coordinator is started with ([offload-5]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The leader's.
    pub ballot: Ballot,
    /// One past the leader's last proposal.
    pub first: Slot,
    /// The first slot that it does not give out.
    pub limit: Slot,
    /// Any so many of the members decide ([offload-10]).
    pub quorum: u8,
    /// How many positions there are, at most 16.
    pub members: u8,
    /// Whether its decisions are hints: the group is durable.
    pub hint: bool,
}

/// What a replica is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The acceptor votes in this ballot.
    Armed {
        /// Which it was asked to vote in.
        ballot: Ballot,
    },
    /// It does not.
    ArmRefused {
        /// Which it was asked to vote in.
        ballot: Ballot,
        /// [`Reason::Range`] also for a ballot or a position that fits into no frame.
        reason: Reason,
    },
    /// [offload-8] The acceptor votes no more, and this is all that it voted for from its floor on.
    /// One answers all fences that were asked for before it.
    Fenced {
        /// What it was armed with, answered or not; in the first fence of an owner that did not arm
        /// it, the highest one that it has votes of. `None`: it was not armed since the last fence,
        /// and there is nothing to import.
        ballot: Option<Ballot>,
        /// Every vote in that ballot, in the order of slots; none if it was not read out.
        votes: Vec<Held>,
    },
    /// The coordinator gives out slots.
    Started {
        /// The leader's.
        ballot: Ballot,
        /// The first that it gives out.
        first: Slot,
    },
    /// It does not.
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
        /// What it decides.
        value: Value,
    },
    /// [offload-11] The same, in a ballot that this owner has no part in: who has no vote learns by
    /// it ([`crate::owner::Owner::listen`]).
    Told {
        /// In which it was counted.
        ballot: Ballot,
        /// What it decides.
        held: Held,
    },
    /// [offload-12] The coordinator gives out no slots any more. What was told by [`Event::Given`],
    /// this, and its holes are all slots from its first one to `next`.
    TakenBack {
        /// The leader's.
        ballot: Ballot,
        /// One past the last slot that was given out.
        next: Slot,
        /// Slots that were not told before, in order.
        given: Vec<Held>,
        /// Slots in between that are nobody's: their proposals never left the device.
        holes: Vec<Slot>,
    },
    /// The coordinator gives out no slots any more; nothing was read.
    Stopped,
    /// [offload-18] The next slot of the coordinator, loaded after it was asked for.
    Next {
        /// Whose question it was.
        token: u64,
        /// `None`: it cannot be known, and a read that needs it fails.
        next: Option<Slot>,
    },
    /// [offload-9] The device forgot, or is as good as gone. It is the last event: no wish that is
    /// open comes to another end.
    Lost {
        /// How that is known.
        why: Loss,
    },
}

/// Why a device is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It has another boot, or none (0): it forgot, or never was the one that is meant.
    Boot {
        /// The boot that it has.
        found: u32,
    },
    /// A call was repeated in vain.
    NoAnswer,
    /// Numbers above ours were heard there: another process owns it.
    OtherOwner,
    /// It cannot be known whether it drained.
    Drain,
    /// Cells or rooms are not as many or as long as its shape says.
    Shape,
    /// It said two things that cannot both be true.
    Contradiction,
}
