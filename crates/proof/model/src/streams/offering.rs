//! Choice of the bytes that a leader proposes next, as in the replica (`streaming/offering.rs`
//! there). Bytes are proposed in order within a stream and a ballot, and only after all inherited
//! proposals ([p1-6]).

use std::collections::BTreeMap;

use quorate_core::{
    slot::{Slot, SlotRange},
    value::{StreamName, Value},
};
use quorate_stream::Table;

/// Progress of the proposals of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StreamProgress {
    /// Every position below this one has been proposed in this ballot or is decided.
    proposed_to: u64,
    /// Slots of the proposals since the position last jumped.
    proposed_slots: SlotRange,
}

/// Progress of one leader's proposals for all streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaderOffering {
    stream_progress: BTreeMap<StreamName, StreamProgress>,
    /// End of the inherited proposals. Until they are applied, the positions at which streams
    /// continue are unknown.
    inherited_end: Option<Slot>,
}

/// A run to be proposed in the next slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRun {
    pub stream: StreamName,
    pub position: u64,
    /// Number of slots that the run covers.
    pub slot_count: u64,
    pub value: Value,
}

impl LeaderOffering {
    /// Discards all progress after a change of leadership. If this node leads in a new ballot,
    /// `next` is the end of the inherited proposals, all of which have been proposed. Pass `None`
    /// if this node does not lead.
    pub fn restart(&mut self, next: Option<Slot>) {
        self.stream_progress.clear();
        self.inherited_end = next;
    }

    /// Records that a stream's content in `slot` was applied or `skipped`.
    pub fn record_applied(&mut self, stream: StreamName, slot: Slot, skipped: bool) {
        let own = |offer: &StreamProgress| slot >= offer.proposed_slots.from;
        if skipped && self.stream_progress.get(&stream).is_some_and(own) {
            self.stream_progress.remove(&stream);
        }
    }

    /// Records that the run of this stream was not proposed after all.
    pub fn undo_proposal(&mut self, stream: StreamName) {
        self.stream_progress.remove(&stream);
    }

    /// Returns the next run of this stream to propose, of at most `most` bytes. Given a position,
    /// `held_to` returns the end of the contiguous bytes in memory that start there.
    pub fn next_run(
        &self,
        stream: StreamName,
        most: u64,
        next_slot: Slot,
        applied_to: Slot,
        streams: &Table,
        held_to: impl Fn(u64, u64) -> u64,
    ) -> Option<NextRun> {
        if self.inherited_end.is_none_or(|slot| applied_to < slot) {
            return None;
        }
        let next = streams.next_position(stream)?;
        // Once all proposals have been applied, the stream continues at the end in the table,
        // whatever was lost.
        let under_way = |offer: &&StreamProgress| applied_to < offer.proposed_slots.to;
        let offer = self.stream_progress.get(&stream).filter(under_way);
        let position = offer.map_or(next, |offer| offer.proposed_to.max(next));
        let end = held_to(position, position + most);
        let offset = next_slot.0.checked_sub(position)?;
        (end > position).then_some(NextRun {
            stream,
            position,
            slot_count: end - position,
            value: Value::Content { stream, offset },
        })
    }

    /// Records that the run is proposed in the slots of `range`.
    pub fn record_proposed(&mut self, run: &NextRun, range: SlotRange) {
        let fresh = StreamProgress { proposed_to: run.position, proposed_slots: range };
        let offer = self.stream_progress.entry(run.stream).or_insert(fresh);
        if offer.proposed_to != run.position {
            offer.proposed_slots.from = range.from;
        }
        offer.proposed_slots.to = range.to;
        offer.proposed_to = run.position + range.len();
    }
}
