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
    proposal_receivers: ProposalReceivers,
    /// This node's role as last reported by a leader, and the slots that it may forget.
    view: AuxiliaryView,
}

impl Auxiliary {
    pub(super) fn is_unused(&self) -> bool {
        self.proposal_receivers.bypassed_nodes() == NodeSet::default() && self.view.is_unused()
    }

    /// Returns the nodes to which this leader sends no proposals.
    pub(super) fn bypassed_nodes(&self) -> NodeSet {
        self.proposal_receivers.bypassed_nodes()
    }

    /// Returns whether the leader should check again which members are needed, at most once every
    /// `every_ms`.
    pub(super) fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        self.proposal_receivers.is_due(now, every_ms)
    }

    /// Records a leader's report of the end of the decided slots.
    pub(super) fn record_announced(&mut self, decided_to: Slot) {
        self.view.record_announced(decided_to);
    }

    /// Records that the log now starts at `log_start`.
    pub(super) fn record_log_start(&mut self, log_start: Slot) {
        self.view.record_log_start(log_start);
    }

    /// [trim-1] Returns the slot below which full replicas hold everything, as reported to this
    /// auxiliary.
    pub(super) fn quorum_held_to(&self) -> Slot {
        self.view.quorum_held_to()
    }

    /// Returns whether the log is being trimmed because this auxiliary forgets slots.
    pub(super) fn is_trimming(&self) -> bool {
        self.view.is_trimming()
    }
}
