//! Interface between a node and its device: [`Order`]s go out, [`Word`]s come in
//! ([offload-5]–[offload-19]).
//!
//! A device votes, assigns slots and counts in one ballot, outside of this node and faster.
//! Everything else stays here: leadership, promises, and the order of decisions. A device may be
//! withdrawn at any moment.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    slot::{Slot, SlotRange},
    value::Value,
};

/// An order to the device. Orders are carried out in the order given; an order that changes nothing
/// any more is answered in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Vote in this ballot, and in no other, from this slot on. Answer: [`Word::Armed`].
    Arm {
        /// The ballot.
        ballot: Ballot,
        /// This member's place in the configuration of the ballot's era.
        position: u8,
        /// The first slot.
        floor: Slot,
    },
    /// [offload-8] Vote no more; when nothing runs any more that began before, read out. Answer:
    /// [`Word::Fenced`].
    Fence {
        /// The ballot that it was armed with.
        ballot: Ballot,
        /// [offload-10] Whether its votes are hints: the group is durable. Then nothing need be
        /// read out.
        hint: bool,
    },
    /// [offload-14] Votes below have served.
    Floor {
        /// The lowest slot that is kept.
        to: Slot,
    },
    /// [offload-5] Assign slots of this ballot, and count. Answer: [`Word::Started`] or
    /// [`Word::Stopped`].
    Start {
        /// The ballot, which this node leads in.
        ballot: Ballot,
        /// The first slot.
        first: Slot,
        /// The first slot that may not be assigned yet.
        limit: Slot,
        /// Number of members that decide, whichever they are.
        quorum: u8,
        /// Number of members.
        members: u8,
        /// Votes of devices are weaker than the group's class: the count is only a hint
        /// ([offload-10]).
        hint: bool,
    },
    /// [offload-14] Slots below this limit may be assigned, and proposals below the floor are not
    /// needed any more.
    Allow {
        /// The lowest slot that is kept.
        floor: Slot,
        /// The first slot that may not be assigned yet.
        limit: Slot,
    },
    /// [offload-12] Assign no more; when no step that began before is in flight any more, read out.
    /// Answer: [`Word::TakenBack`].
    TakeBack {
        /// The ballot that it was started with.
        ballot: Ballot,
    },
    /// Stop likewise, where the assigned slots are not needed. Answer: [`Word::Stopped`].
    Stop {
        /// The ballot that it was started with.
        ballot: Ballot,
    },
    /// Give this value a slot. Its bytes are at hand.
    Submit {
        /// The value.
        value: Value,
    },
    /// [offload-18] Report the slot that comes next. Answer: [`Word::Next`].
    LookNext,
}

/// A report from the device. Bytes of values that it names are at hand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// The device votes in this ballot, and in no other.
    Armed {
        /// The ballot.
        ballot: Ballot,
    },
    /// The device voted. Reported once for each slot, in any order, or never: a fence reads out all
    /// votes.
    Voted {
        /// The ballot.
        ballot: Ballot,
        /// The slot.
        slot: Slot,
        /// The value voted for.
        value: Value,
    },
    /// The device no longer votes, nothing is in flight, and these are all votes that it cast in
    /// this ballot from its floor on.
    Fenced {
        /// The ballot.
        ballot: Ballot,
        /// In slot order, perhaps with holes; where votes are hints, those that were read out.
        votes: Vec<(Slot, Value)>,
    },
    /// The device assigns slots of this ballot.
    Started {
        /// The ballot.
        ballot: Ballot,
    },
    /// The device assigned a slot to this value: in slot order from the first on, each slot once.
    Given {
        /// The ballot.
        ballot: Ballot,
        /// The slot.
        slot: Slot,
        /// The proposed value.
        value: Value,
    },
    /// Each of these slots has votes of a quorum in this ballot, counted by this node's device or
    /// another one that this ballot's leader started.
    Counted {
        /// The ballot.
        ballot: Ballot,
        /// The slots.
        range: SlotRange,
    },
    /// [offload-11] The same of one slot and the value it decides, at a node without a vote.
    Told {
        /// The ballot.
        ballot: Ballot,
        /// The slot.
        slot: Slot,
        /// The counted value.
        value: Value,
    },
    /// The device no longer assigns slots, nothing is in flight, and this is everything that it
    /// assigned from a slot on that is not below the first unreported one.
    TakenBack {
        /// The ballot.
        ballot: Ballot,
        /// The slot of the first entry.
        from: Slot,
        /// One for each slot; nothing ever left of an empty one.
        rest: Vec<Option<Value>>,
    },
    /// The device no longer assigns slots, and nothing is in flight.
    Stopped {
        /// The ballot.
        ballot: Ballot,
    },
    /// The slot that the device assigns next, read after the question; `None`: it cannot be known.
    Next {
        /// The slot.
        slot: Option<Slot>,
    },
    /// The device does not answer for now, and may still have its state; it is not to be used until
    /// it answers ([offload-9]). Orders are carried out when it answers.
    Late,
    /// The device has lost its state, or cannot be read ([offload-9]).
    Lost,
}
