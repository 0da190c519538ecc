//! Acknowledgements at a durability other than the group's class: earlier, once a quorum has a
//! command in memory, or later, once a quorum has it on disk ([class-2]).

mod early;
mod lasting;

use crate::{
    ballot::Ballot, early::EarlyVotes, lasting::DurablePrefix, node_id::NodeId, slot::Slot,
    time::Time,
};

/// Clients and peers that wait for an acknowledgement at a level other than the group's class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Acks {
    early_votes: EarlyVotes,
    durable_prefix: DurablePrefix,
}

impl Acks {
    /// Records that clients of this node wait until slots below `to` are on stable storage at a
    /// quorum.
    pub(super) fn await_durable(&mut self, to: Slot) {
        self.durable_prefix.await_durable(to);
    }

    /// Records that clients of this node wait until a quorum has slots below `to` in memory, by
    /// votes in `ballot`.
    pub(super) fn await_early(&mut self, ballot: Ballot, to: Slot) {
        self.early_votes.await_votes(ballot, to);
    }

    /// Drops a disconnected node's requests and reports.
    pub(super) fn disconnect(&mut self, node: NodeId) {
        self.durable_prefix.disconnect(node);
        self.early_votes.disconnect(node);
    }

    /// Returns the time at which a request to other nodes is repeated.
    pub(super) fn wake_at(&self, retry_us: u64) -> Option<Time> {
        let early = self.early_votes.wake_at(retry_us);
        self.durable_prefix.wake_at(retry_us).into_iter().chain(early).min()
    }
}
