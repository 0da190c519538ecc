//! Events from an owner: outcomes of requests, and reports from its device.

use alloc::vec::Vec;

use crate::Reason;
use quorate_core::{ballot::Ballot, slot::Slot, value::Value};

/// A slot with its value: a vote, or an assignment by a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotValue {
    pub slot: Slot,
    pub value: Value,
    pub bytes: Vec<u8>,
}

/// Parameters of a coordinator's start ([offload-5]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub ballot: Ballot,
    pub first: Slot,
    /// First slot that the coordinator may not assign.
    pub limit: Slot,
    /// Number of members that form a quorum; any such set does ([offload-10]).
    pub quorum: u8,
    /// Number of positions in the configuration, at most 16.
    pub members: u8,
    /// Set if the group is durable, so that decisions are only hints.
    pub hint: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The acceptor now votes in this ballot.
    Armed { ballot: Ballot },
    /// The request to arm the acceptor failed.
    ArmRefused {
        ballot: Ballot,
        /// Reason for the failure. [`Reason::Range`] if the ballot or the position does not fit
        /// into a frame.
        reason: Reason,
    },
    /// [offload-8] The acceptor no longer votes. Contains all of its votes at or above its floor,
    /// and completes all fences requested until now.
    Fenced {
        /// Ballot with which the acceptor was armed, even if it never acknowledged that. In the
        /// first fence of an owner that has not armed the acceptor, the highest ballot among its
        /// votes. `None` if the acceptor has not been armed since the last fence, so that there is
        /// nothing to import.
        ballot: Option<Ballot>,
        /// All votes in that ballot, in slot order. Empty if they were not read out.
        votes: Vec<SlotValue>,
    },
    /// The coordinator now assigns slots.
    Started { ballot: Ballot, first: Slot },
    /// The coordinator was not started.
    StartRefused {
        ballot: Ballot,
        /// Reason for the failure. [`Reason::Range`] if a parameter does not fit into a frame.
        reason: Reason,
    },
    /// The device's acceptor voted in the armed ballot. Votes usually arrive in slot order and once
    /// each, but neither is guaranteed.
    Voted(SlotValue),
    /// The coordinator assigned a slot to a value. Reported strictly in slot order, starting at the
    /// first slot, without gaps.
    Assigned(SlotValue),
    /// A coordinator counted a quorum of votes in the armed or started ballot, so the value is
    /// decided. Not ordered by slot.
    Decided { ballot: Ballot, slot: Slot, value: Value },
    /// [offload-11] A coordinator counted a quorum in a ballot in which this owner takes no part.
    /// Used by members without a vote ([`crate::owner::Owner::report_all_decisions`]).
    OtherDecided { ballot: Ballot, held: SlotValue },
    /// [offload-12] The coordinator no longer assigns slots. The slots reported by
    /// [`Event::Assigned`], plus `unreported_slots` and `slots_without_value`, are all slots from
    /// the first one up to `next`.
    Withdrawn {
        ballot: Ballot,
        /// One past the last assigned slot.
        next: Slot,
        /// Slots not yet reported by [`Event::Assigned`], in order.
        unreported_slots: Vec<SlotValue>,
        /// Unreported slots without a value. No proposal for them has ever left the device.
        slots_without_value: Vec<Slot>,
    },
    /// The coordinator no longer assigns slots. Its slots were not read.
    Stopped,
    /// [offload-18] The coordinator's next slot, read from the device after the request.
    NextSlot {
        /// Token passed to [`crate::owner::Owner::query_next_slot`].
        token: u64,
        /// `None` if the next slot cannot be determined, in which case a read that needs it fails.
        next: Option<Slot>,
    },
    /// [offload-9] The device lost its memory, or must be treated as if it had. This is the last
    /// event: outstanding requests get no other outcome.
    Lost { why: LossReason },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The device has another boot, or none: it lost its memory, or it is not the intended device.
    Boot {
        /// Boot reported by the device, or 0 if it has none.
        found: u32,
    },
    /// The device did not respond to a repeated call or query.
    NoAnswer,
    /// The device has received higher call numbers, so another process has become its owner.
    OtherOwner,
    /// The progress of its drain cannot be determined, or the drain does not end.
    DrainFailed,
    /// The number of cells or the size of the value area differs from the device's
    /// [`DeviceShape`](crate::port::DeviceShape).
    ShapeMismatch,
    /// Two responses of the device contradict each other.
    Contradiction,
}
