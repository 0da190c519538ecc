//! Records that a node must not forget.

pub use crate::class::Class;
use crate::{
    ballot::Ballot,
    slot::{Slot, SlotRange},
    value::Value,
};

/// A record to persist, appended in the order in which the core emits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    /// This node uses this ballot of its own, and never again after a restart ([ballot-2]). Not a
    /// promise: a leader that prepares its next ballot still votes in the old one ([cast-2]).
    Round {
        /// The ballot.
        ballot: Ballot,
    },
    /// No vote and no promise below this ballot from now on.
    Promise {
        /// The ballot.
        ballot: Ballot,
    },
    /// A vote, which is also a promise. The value's bytes are in the same log write, or were
    /// already durable ([disk-5]).
    Vote {
        /// The ballot.
        ballot: Ballot,
        /// The slots.
        range: SlotRange,
        /// The value.
        value: Value,
    },
    /// These slots were learned from a peer as decided. Overrides any votes in them.
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

/// State that every log write restates ([disk-1]), so that the effect of damage in the middle of
/// the log is known.
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
