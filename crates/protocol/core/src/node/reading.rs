//! Linearizable reads in progress, at the leader and at a follower ([read-1]–[read-3]).

mod confirming;

use crate::{
    input::ReadToken,
    node_id::Member,
    reads::{ReadRequests, Reader, Reads},
    slot::Slot,
    time::Time,
};

/// Reads in progress, both as leader and as follower.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    /// Reads that this leader confirms with a round of heartbeats.
    reads: Reads,
    /// Reads that wait for a read index from this node's leader.
    read_index_requests: ReadRequests,
}

impl Reading {
    /// Creates the state of a node whose request ids begin after `last`, so that a reply to an
    /// earlier process matches no request.
    pub(super) fn starting_at(last: u64) -> Self {
        Self { reads: Reads::default(), read_index_requests: ReadRequests::starting_at(last) }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.reads == Reads::default() && self.read_index_requests.is_empty()
    }

    /// Returns the round of read confirmations that heartbeats carry; 0 for none.
    pub(super) fn confirmation_round(&self) -> u64 {
        self.reads.round()
    }

    /// Records that a member has replied in round `round`.
    pub(super) fn confirm(&mut self, round: u64, by: Member) {
        self.reads.confirm(round, by);
    }

    /// Adds a read that may run once everything below `slot` is applied. Returns `false` if too
    /// many reads wait.
    pub(super) fn add_read(&mut self, reader: Reader, slot: Slot) -> bool {
        self.reads.add_read(reader, slot)
    }

    /// Restarts waiting reads in a new ballot of this node, whose first free slot is `slot`.
    pub(super) fn restart(&mut self, slot: Slot) {
        self.reads.restart(slot);
    }

    /// Removes the reads of a leader that steps down, and returns them so that they can be failed.
    pub(super) fn fail(&mut self) -> impl Iterator<Item = Reader> + '_ {
        self.reads.fail()
    }

    /// Removes the requests to a leader that has been replaced, and returns them so that they can
    /// be failed.
    pub(super) fn fail_requests(&mut self) -> impl Iterator<Item = ReadToken> + '_ {
        self.read_index_requests.fail()
    }

    /// Removes and returns a request that has been without a reply for `patience_us`.
    pub(super) fn take_overdue(&mut self, now: Time, patience_us: u64) -> Option<ReadToken> {
        self.read_index_requests.take_overdue(now, patience_us)
    }

    /// Returns the time at which the next request becomes overdue.
    pub(super) fn wake_at(&self, patience_us: u64) -> Option<Time> {
        self.read_index_requests.wake_at(patience_us)
    }
}
