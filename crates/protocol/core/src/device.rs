//! Interface between a node and its device: the node sends [`DeviceOrder`]s, the device sends
//! [`DeviceReport`]s ([offload-5]–[offload-19]).
//!
//! A device votes, assigns slots and counts votes in one ballot, outside the node and faster.
//! Leadership, promises and the order of decisions remain with the node. A device may be withdrawn
//! at any moment.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    slot::{Slot, SlotRange},
    value::Value,
};

/// An order to the device. The device carries out orders in sequence, and responds even to an order
/// that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceOrder {
    /// Start voting in `ballot`, and in no other, from slot `floor` onwards. Response:
    /// [`DeviceReport::Armed`].
    Arm {
        /// The only ballot in which the device may vote.
        ballot: Ballot,
        /// This member's position in the configuration of the ballot's era.
        position: u8,
        /// First slot in which the device may vote.
        floor: Slot,
    },
    /// [offload-8] Stop voting. Once no vote is in flight, read out all votes. Response:
    /// [`DeviceReport::Fenced`].
    Fence {
        /// The ballot in which the device was armed.
        ballot: Ballot,
        /// [offload-10] The group is durable, so the device's votes are only hints and need not be
        /// read out.
        hint: bool,
    },
    /// [offload-14] Votes below `floor` are no longer needed.
    RaiseFloor {
        /// The lowest slot that the device retains.
        floor: Slot,
    },
    /// [offload-5] Start assigning slots in this ballot and counting votes. Response:
    /// [`DeviceReport::Started`] or [`DeviceReport::Stopped`].
    Start {
        /// The ballot in which this node leads.
        ballot: Ballot,
        /// First slot that the device assigns.
        first: Slot,
        /// First slot that the device may not assign yet.
        limit: Slot,
        /// Number of members that form a quorum. Any members will do.
        quorum: u8,
        /// Number of members in the configuration.
        members: u8,
        /// The devices' votes are weaker than the group's class, so the count is only a hint
        /// ([offload-10]).
        hint: bool,
    },
    /// [offload-14] Allow assigning slots below `limit`, and release proposals below `floor`.
    AllowSlots {
        /// The lowest slot that the device retains.
        floor: Slot,
        /// First slot that the device may not assign yet.
        limit: Slot,
    },
    /// [offload-12] Stop assigning slots. Once no assignment is in flight, read out the assigned
    /// slots. Response: [`DeviceReport::TakenBack`].
    TakeBack {
        /// The ballot in which the device was started.
        ballot: Ballot,
    },
    /// Stop assigning slots without reading them out. Response: [`DeviceReport::Stopped`].
    Stop {
        /// The ballot in which the device was started.
        ballot: Ballot,
    },
    /// Assign the next slot to this value, whose bytes are present.
    Submit {
        /// Value to propose.
        value: Value,
    },
    /// [offload-18] Report the slot that the device assigns next. Response:
    /// [`DeviceReport::NextSlot`].
    QueryNextSlot,
}

/// A report from the device. The bytes of every value in it are present.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceReport {
    /// The device votes in this ballot, and in no other.
    Armed {
        /// Ballot in which the device now votes.
        ballot: Ballot,
    },
    /// The device voted. Slots may be reported in any order, each at most once. A fence reads out
    /// all votes.
    Voted {
        /// Ballot in which the device voted.
        ballot: Ballot,
        /// Slot for which the device voted.
        slot: Slot,
        /// The value voted for.
        value: Value,
    },
    /// The device no longer votes and nothing is in flight. `votes` holds all votes that it cast in
    /// this ballot, starting at its floor.
    Fenced {
        /// Ballot in which the device was armed.
        ballot: Ballot,
        /// Votes in slot order, possibly with gaps. If votes are only hints, this may be just some
        /// of them.
        votes: Vec<(Slot, Value)>,
    },
    /// The device assigns slots of this ballot.
    Started {
        /// Ballot in which the device was started.
        ballot: Ballot,
    },
    /// The device assigned a slot to this value. Each slot is reported once and in order, starting
    /// with the first.
    Assigned {
        /// Ballot in which the slot was assigned.
        ballot: Ballot,
        /// The assigned slot.
        slot: Slot,
        /// The proposed value.
        value: Value,
    },
    /// A quorum voted for each of these slots in this ballot. The votes were counted by this node's
    /// device, or by another device that the ballot's leader started.
    Counted {
        /// Ballot of the counted votes.
        ballot: Ballot,
        /// Slots that have a quorum.
        range: SlotRange,
    },
    /// [offload-11] A quorum voted for this value in one slot. Sent to a node that has no vote.
    CountedValue {
        /// Ballot of the counted votes.
        ballot: Ballot,
        /// Slot that has a quorum.
        slot: Slot,
        /// Value that the quorum voted for.
        value: Value,
    },
    /// The device no longer assigns slots and nothing is in flight. `assigned` holds all the slots
    /// that it assigned from `from` onwards. `from` is at or below the first unreported slot.
    TakenBack {
        /// Ballot in which the device was started.
        ballot: Ballot,
        /// Slot of the first entry.
        from: Slot,
        /// Assigned values, one entry per slot; `None` where no proposal was sent.
        assigned: Vec<Option<Value>>,
    },
    /// The device no longer assigns slots, and nothing is in flight.
    Stopped {
        /// Ballot in which the device was started.
        ballot: Ballot,
    },
    /// The slot that the device assigns next, read after the order arrived.
    NextSlot {
        /// The next slot; `None` if it is unknown.
        slot: Option<Slot>,
    },
    /// The device does not respond at the moment, but may still have its state. It must not be used
    /// until it responds. Only then does it carry out its orders ([offload-9]).
    Late,
    /// The device has lost its state or cannot be read ([offload-9]).
    Lost,
}
