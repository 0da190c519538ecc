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

/// The leader's choice of receivers, and this node's own state as an auxiliary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Auxiliary {
    /// Members to which this leader sends no proposals.
    engaging: ProposalReceivers,
    /// This node's role as last reported by a leader, and the slots that it may forget.
    spared: AuxiliaryView,
    /// A promise that waits until this node has decided the reconfiguration that began the ballot's
    /// era.
    entry: Option<Entry>,
}

impl Auxiliary {
    /// Returns the nodes to which this leader sends no proposals.
    pub(super) fn idle(&self) -> NodeSet {
        self.engaging.idle()
    }

    /// Returns whether the leader should check again which members are needed, at most once every
    /// `every_ms`.
    pub(super) fn is_due(&mut self, now: Time, every_ms: u64) -> bool {
        self.engaging.is_due(now, every_ms)
    }

    /// Records a leader's report of the end of the decided slots.
    pub(super) fn announce(&mut self, decided_to: Slot) {
        self.spared.announce(decided_to);
    }

    /// Records that the log now starts at `log_start`.
    pub(super) fn begins_at(&mut self, log_start: Slot) {
        self.spared.begins_at(log_start);
    }

    /// Returns whether the log is being trimmed because this node forgets slots.
    pub(super) fn is_forgetting(&self) -> bool {
        self.spared.is_forgetting()
    }
}

/// A requested promise that waits for this node to catch up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    ballot: Ballot,
    /// The candidate has decided every slot below this one.
    from: Slot,
}
