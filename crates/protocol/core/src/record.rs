//! Records that a node must not forget.

pub use crate::class::Class;
use crate::{
    ballot::Ballot,
    slot::{Slot, SlotRange},
    value::Value,
};

/// A record to persist. Appended in the order in which the core emits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    /// This node will speak in this ballot of its own; never again in it after a restart
    /// ([ballot-2]). Not a promise: a leader that prepares its next ballot still votes in the old
    /// one ([cast-2]).
    Round {
        /// The ballot.
        ballot: Ballot,
    },
    /// No vote and no promise below this ballot any more.
    Promise {
        /// The ballot.
        ballot: Ballot,
    },
    /// A vote, which is a promise too. The bytes of the value lie in the same batch of the log, or
    /// were durable before ([disk-5]).
    Vote {
        /// The ballot.
        ballot: Ballot,
        /// The slots.
        range: SlotRange,
        /// The value.
        value: Value,
    },
    /// Learned from a peer: these slots are decided. Overrides whatever was voted for there.
    Decided {
        /// The slots.
        range: SlotRange,
        /// The value.
        value: Value,
    },
}

/// Number of a record since the node's process started; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordSeq(pub u64);

/// State that every batch of the log restates ([disk-1]), so that damage in the middle can be
/// judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HardState {
    /// The highest ballot of its own that the node has recorded ([`Record::Round`]).
    pub spoken: Ballot,
    /// The highest promise.
    pub promised: Ballot,
    /// Slots below are decided; a lower bound after a restart ([decide-3]).
    pub decided_to: Slot,
    /// One past the highest slot voted for.
    pub voted_to: Slot,
}
