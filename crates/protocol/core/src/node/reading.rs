//! Linearizable reads in progress, as the leader and at a follower ([read-1]–[read-3]).

mod confirming;

use crate::{
    input::ReadToken,
    node_id::Member,
    reads::{ReadRequests, Reader, Reads},
    slot::Slot,
    time::Time,
};

/// Reads in progress, on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    /// Reads that this leader confirms by a round of heartbeats.
    reads: Reads,
    /// Reads for which this node requested an index from its leader.
    asked: ReadRequests,
}

impl Reading {
    /// Request ids begin after `last`, so that an answer to an earlier process matches none.
    pub(super) fn starting_at(last: u64) -> Self {
        Self { reads: Reads::default(), asked: ReadRequests::starting_at(last) }
    }

    /// Returns the round that heartbeats carry; 0 for none.
    pub(super) fn round(&self) -> u64 {
        self.reads.round()
    }

    /// Notes that a member has answered in this round.
    pub(super) fn confirm(&mut self, round: u64, by: Member) {
        self.reads.confirm(round, by);
    }

    /// Adds a read that may run once everything below `slot` is applied. Returns whether there
    /// was room.
    pub(super) fn gather(&mut self, reader: Reader, slot: Slot) -> bool {
        self.reads.gather(reader, slot)
    }

    /// Begins a new ballot of this node, whose first free slot is `slot`.
    pub(super) fn restart(&mut self, slot: Slot) {
        self.reads.restart(slot);
    }

    /// Ends the reads of a leader that steps down.
    pub(super) fn fail(&mut self) -> impl Iterator<Item = Reader> + '_ {
        self.reads.fail()
    }

    /// Ends the requests to a leader that has been replaced.
    pub(super) fn fail_requests(&mut self) -> impl Iterator<Item = ReadToken> + '_ {
        self.asked.fail()
    }

    /// Ends a request without an answer for `patience_us`.
    pub(super) fn overdue(&mut self, now: Time, patience_us: u64) -> Option<ReadToken> {
        self.asked.overdue(now, patience_us)
    }

    /// Returns when the next request is overdue.
    pub(super) fn wake_at(&self, patience_us: u64) -> Option<Time> {
        self.asked.wake_at(patience_us)
    }
}
