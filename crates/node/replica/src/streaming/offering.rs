//! The leader's side of streams: assigns slots to the bytes that it has ([stream-1]).
//!
//! This module affects only liveness, with one exception: within a ballot, the bytes of a stream
//! are proposed in order, so that the append rule skips none. If a slot in between was lost, the
//! rest is a no-op, and is proposed again once that is known.

use std::collections::BTreeMap;

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::{StreamName, Value},
};
use quorate_stream::Table;
use quorate_wire::frame::STREAM_PIECE_BYTES_MAX;

use crate::{
    contents::runs::{BytesLocation, StreamBuffers},
    round_robin::RoundRobin,
};

/// Maximum length in bytes of a run whose bytes are contained in records.
const RUN_BYTES_MAX: u64 = 64 << 10;

/// Progress of a stream's proposals.
#[derive(Clone, Copy, Debug)]
struct StreamProposal {
    /// End of the positions that have been proposed in this ballot or decided.
    proposed_to: u64,
    /// Slots of the most recently proposed consecutive positions.
    proposed_slots: SlotRange,
}

/// A run of content to be proposed in the next slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextRun {
    pub(crate) stream: StreamName,
    pub(crate) value: Value,
    pub(crate) slot_count: u64,
    position: u64,
}

/// Streams for which this leader proposes bytes.
#[derive(Debug)]
pub(crate) struct StreamProposals {
    by_stream: BTreeMap<StreamName, StreamProposal>,
    /// Streams that may have more bytes to propose.
    ready_streams: RoundRobin<StreamName>,
    /// [p1-6] First slot after the inherited ones. Once all slots below it are applied, the
    /// streams' next positions are known.
    inherited_end: Option<Slot>,
    /// Disconnected owners, each with the start of its absence.
    absent_owners: BTreeMap<NodeId, Time>,
    /// Streams whose close is proposed, each with the slot that follows the close.
    closing_streams: BTreeMap<StreamName, Slot>,
    /// Time in milliseconds after which an absent owner counts as lost.
    owner_lost_ms: u64,
}

impl StreamProposals {
    pub(crate) fn new(lost_ms: u64) -> Self {
        Self {
            by_stream: BTreeMap::new(),
            ready_streams: RoundRobin::new(),
            inherited_end: None,
            absent_owners: BTreeMap::new(),
            closing_streams: BTreeMap::new(),
            owner_lost_ms: lost_ms,
        }
    }

    /// Restarts for a ballot in which this node leads and has proposed everything below `next`
    /// again; `None` if this node does not lead.
    pub(crate) fn restart(&mut self, next: Option<Slot>) {
        self.drop_progress();
        self.inherited_end = next;
    }

    /// Drops the progress because the table was replaced and may not match the proposals.
    pub(crate) fn drop_progress(&mut self) {
        self.by_stream.clear();
        self.closing_streams.clear();
    }

    /// Records that a stream may have more bytes.
    pub(crate) fn mark_ready(&mut self, stream: StreamName) {
        self.ready_streams.insert(stream);
    }

    /// Records that content of a stream was applied in the slots of `range`, and whether some of it
    /// was `skipped`. If so, all later content in this ballot is skipped as well, and proposals
    /// continue at the stream's end.
    pub(crate) fn record_applied(&mut self, stream: StreamName, range: SlotRange, skipped: bool) {
        let own = |offer: &StreamProposal| range.from >= offer.proposed_slots.from;
        if skipped && self.by_stream.get(&stream).is_some_and(own) {
            self.by_stream.remove(&stream);
        }
        self.ready_streams.insert(stream);
    }

    /// Records that a run of this stream was not proposed after all.
    pub(crate) fn record_refusal(&mut self, stream: StreamName) {
        self.by_stream.remove(&stream);
        self.ready_streams.insert(stream);
    }

    pub(crate) fn remove_stream(&mut self, stream: StreamName) {
        self.by_stream.remove(&stream);
        self.ready_streams.remove(&stream);
        self.closing_streams.remove(&stream);
    }

    /// [stream-2] Returns the next run of available bytes after the proposed ones, round-robin over
    /// streams, and bounded so that no stream waits for long.
    pub(crate) fn next_run(
        &mut self,
        next_slot: Slot,
        applied_to: Slot,
        streams: &Table,
        runs: &StreamBuffers,
    ) -> Option<NextRun> {
        if self.inherited_end.is_none_or(|slot| applied_to < slot) {
            return None;
        }
        loop {
            let stream = self.ready_streams.take_turn()?;
            let Some(next) = streams.next_position(stream) else {
                // The stream is not open, or not yet. Bytes that arrive later make it ready again.
                self.ready_streams.remove(&stream);
                continue;
            };
            // Once all proposals are applied, the stream continues at its end, whatever was lost.
            let under_way = |offer: &&StreamProposal| applied_to < offer.proposed_slots.to;
            let offer = self.by_stream.get(&stream).filter(under_way);
            let position = offer.map_or(next, |offer| offer.proposed_to.max(next));
            let end = end_of_run(stream, position, runs);
            let offset = next_slot.0.checked_sub(position);
            let Some(offset) = offset.filter(|_| end > position) else {
                self.ready_streams.remove(&stream);
                continue;
            };
            return Some(NextRun {
                stream,
                value: Value::Content { stream, offset },
                slot_count: end - position,
                position,
            });
        }
    }

    pub(crate) fn record_proposed(&mut self, run: &NextRun, range: SlotRange) {
        let offer = self
            .by_stream
            .entry(run.stream)
            .or_insert(StreamProposal { proposed_to: run.position, proposed_slots: range });
        if offer.proposed_to != run.position {
            offer.proposed_slots.from = range.from;
        }
        offer.proposed_slots.to = range.to;
        offer.proposed_to = run.position + range.len();
    }

    /// Returns the next open stream whose owner is lost, unless its close is already proposed.
    /// `boot` returns the boot number of a connected owner.
    pub(crate) fn next_lost(
        &mut self,
        now: Time,
        applied_to: Slot,
        streams: &Table,
        boot: impl Fn(NodeId) -> Option<u32>,
    ) -> Option<StreamName> {
        let wait_for = self.inherited_end?;
        if applied_to < wait_for {
            return None;
        }
        self.absent_owners.retain(|owner, _| boot(*owner).is_none());
        self.closing_streams.retain(|_, behind| *behind > applied_to);
        for stream in streams.open_streams() {
            let lost = match boot(stream.owner) {
                // The owner's process has ended, and another one has replaced it.
                Some(boot) => boot != stream.boot,
                None => {
                    let since = *self.absent_owners.entry(stream.owner).or_insert(now);
                    now >= since.plus_ms(self.owner_lost_ms)
                }
            };
            if lost && !self.closing_streams.contains_key(&stream) {
                return Some(stream);
            }
        }
        None
    }

    pub(crate) fn record_closing(&mut self, stream: StreamName, slot: Slot) {
        self.closing_streams.insert(stream, slot.next());
    }

    /// Returns the time at which the next absent owner counts as lost.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        self.inherited_end?;
        let lost = self.absent_owners.values().map(|since| since.plus_ms(self.owner_lost_ms));
        lost.filter(|at| *at > now).min()
    }
}

/// Returns the end of the run of available bytes that begins at `position`. A run of placed bytes
/// may be long, since they need little space in a record. Bytes that are only in memory must not
/// delay other streams ([stream-2]).
fn end_of_run(stream: StreamName, position: u64, runs: &StreamBuffers) -> u64 {
    let boundary = |bytes: u64| (position / bytes + 1).saturating_mul(bytes);
    let long = boundary(STREAM_PIECE_BYTES_MAX as u64);
    match runs.first_location(stream, &(position..long)) {
        Some((end, BytesLocation::Placed)) => end,
        _ => runs.held_end(stream, position, boundary(RUN_BYTES_MAX)),
    }
}
