//! Auxiliaries: members that a leader bypasses while full replicas suffice ([aux-1]–[aux-4]).

mod engaging;
mod sparing;

use crate::{
    auxiliaries::{AuxiliaryView, ProposalReceivers},
    node_set::NodeSet,
    slot::Slot,
    time::Time,
};

/// The leader's choice of receivers, and this node's own state as an auxiliary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Auxiliary {
    /// Members to which this leader sends no proposals.
    engaging: ProposalReceivers,
    /// This node's role as last reported by a leader, and the slots that it may forget.
    spared: AuxiliaryView,
}

impl Auxiliary {
    pub(super) fn is_unused(&self) -> bool {
        self.engaging.without_proposals() == NodeSet::default() && self.spared.is_unused()
    }

    /// Returns the nodes to which this leader sends no proposals.
    pub(super) fn without_proposals(&self) -> NodeSet {
        self.engaging.without_proposals()
    }

    /// Returns whether the leader should check again which members are needed, at most once every
    /// `every_ms`.
    pub(super) fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        self.engaging.is_due(now, every_ms)
    }

    /// Records a leader's report of the end of the decided slots.
    pub(super) fn record_announced(&mut self, decided_to: Slot) {
        self.spared.record_announced(decided_to);
    }

    /// Records that the log now starts at `log_start`.
    pub(super) fn begins_at(&mut self, log_start: Slot) {
        self.spared.begins_at(log_start);
    }

    /// [trim-1] Returns the slot below which full replicas hold everything, as reported to this
    /// auxiliary.
    pub(super) fn held_to(&self) -> Slot {
        self.spared.held_to()
    }

    /// Returns whether the log is being trimmed because this auxiliary forgets slots.
    pub(super) fn is_forgetting(&self) -> bool {
        self.spared.is_forgetting()
    }
}
