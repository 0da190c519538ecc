//! Auxiliaries: members that a leader bypasses while full replicas suffice ([aux-1]–[aux-4]), and
//! the admission of a node to an era, for which an auxiliary has a rule of its own ([ballot-5]).

mod engaging;
mod entering;
mod sparing;

use crate::{
    auxiliaries::{AuxiliaryView, ProposalReceivers},
    ballot::Ballot,
    node_set::NodeSet,
    slot::Slot,
    time::Time,
};

/// The leader's choice of receivers, and this node's own part as an auxiliary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Auxiliary {
    /// Members that this leader sends no proposals to.
    engaging: ProposalReceivers,
    /// The leader's last word on this node's role, and slots that it may forget.
    spared: AuxiliaryView,
    /// A promise that waits until this node has decided what began the ballot's era.
    entry: Option<Entry>,
}

impl Auxiliary {
    /// Returns the members that this leader sends no proposals to.
    pub(super) fn idle(&self) -> NodeSet {
        self.engaging.idle()
    }

    /// Returns whether the leader is to check again who is needed.
    pub(super) fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        self.engaging.is_due(now, every_ms)
    }

    /// Notes the end of the decided slots, by the leader.
    pub(super) fn announce(&mut self, decided_to: Slot) {
        self.spared.announce(decided_to);
    }

    /// Notes that the log begins here now.
    pub(super) fn begins_at(&mut self, log_start: Slot) {
        self.spared.begins_at(log_start);
    }

    /// Returns whether slots are being forgotten.
    pub(super) fn is_forgetting(&self) -> bool {
        self.spared.is_forgetting()
    }
}

/// A requested promise that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    ballot: Ballot,
    /// The candidate has decided everything below.
    from: Slot,
}
