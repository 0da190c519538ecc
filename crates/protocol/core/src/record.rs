//! Log records, which a node must never lose.

pub use crate::class::Class;
use crate::{
    ballot::Ballot,
    slot::{Slot, SlotRange},
    value::Value,
};

/// A record to persist, appended in the order in which the core emits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    /// This node uses this ballot of its own, and never uses it again after a restart ([ballot-2]).
    /// The record is not a promise: a leader that prepares its next ballot still votes in the old
    /// one ([cast-2]).
    Round {
        /// Ballot that this node starts.
        ballot: Ballot,
    },
    /// This node casts no vote and makes no promise below this ballot from now on.
    Promise {
        /// Ballot that was promised.
        ballot: Ballot,
    },
    /// A vote, which is also a promise. The value's bytes are in the same log write, or were
    /// already durable ([disk-5]).
    Vote {
        /// Ballot in which this node voted.
        ballot: Ballot,
        /// Slots for which this node voted.
        range: SlotRange,
        /// Value voted for in each slot.
        value: Value,
    },
    /// These slots were learned from a peer as decided. The record overrides any votes in these
    /// slots.
    Decided {
        /// The decided slots.
        range: SlotRange,
        /// Value decided in each slot.
        value: Value,
    },
}

/// Number of a record since the start of the node's process. The first record is number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordSeq(pub u64);

/// State that every log write restates ([disk-1]), so that the effect of damage in the middle of
/// the log is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HardState {
    /// Highest of the node's own ballots that has been recorded ([`Record::Round`]).
    pub last_used_ballot: Ballot,
    /// Highest ballot that the node has promised.
    pub promised: Ballot,
    /// Every slot below this one is decided. It is a lower bound after a restart ([decide-3]).
    pub decided_to: Slot,
    /// One past the highest slot voted for.
    pub voted_to: Slot,
}
