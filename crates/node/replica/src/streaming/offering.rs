//! The leader's side of streams: assigns the next slots to the bytes that it holds ([stream-1]).
//!
//! Liveness, with one exception: in a ballot the bytes of a stream are proposed in their order, so
//! that nothing is skipped by the rule that appends. Where a slot was lost in between, the rest is
//! a no-op, and is proposed again once that is known.

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
    contents::runs::{Runs, Whereabouts},
    round_robin::RoundRobin,
};

/// Maximum length of a run whose bytes go into records.
const SLICE_BYTES: u64 = 64 << 10;

/// Progress of a stream's proposals.
#[derive(Clone, Copy, Debug)]
struct Offer {
    /// Positions below are proposed in this ballot, or decided.
    proposed_to: u64,
    /// The slots since its positions follow one another: first, and one past the last.
    slots: SlotRange,
}

/// A run that gets the next slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextRun {
    pub(crate) stream: StreamName,
    pub(crate) value: Value,
    pub(crate) slots: u64,
    position: u64,
}

/// Streams that this leader proposes.
#[derive(Debug)]
pub(crate) struct Offering {
    offers: BTreeMap<StreamName, Offer>,
    /// Streams of which there may be more to propose.
    ready: RoundRobin<StreamName>,
    /// [p1-6] Inherited slots are below: the next position of each stream is known only after them.
    wait_for: Option<Slot>,
    /// Owners that cannot be talked to, and since when.
    away: BTreeMap<NodeId, Time>,
    /// Streams that are being closed, with the slot of the close.
    closing: BTreeMap<StreamName, Slot>,
    /// Time after which an absent owner is lost.
    lost_ms: u64,
}

impl Offering {
    /// Owners that were away for `lost_ms` are lost ([stream-6]).
    pub(crate) fn new(lost_ms: u64) -> Self {
        Self {
            offers: BTreeMap::new(),
            ready: RoundRobin::new(),
            wait_for: None,
            away: BTreeMap::new(),
            closing: BTreeMap::new(),
            lost_ms,
        }
    }

    /// Restarts: this node leads in another ballot than before, and has proposed everything below
    /// `next` again; or it does not lead.
    pub(crate) fn restart(&mut self, next: Option<Slot>) {
        self.forget();
        self.wait_for = next;
    }

    /// Drops the progress, as the table was replaced: the earlier proposals may not follow it.
    pub(crate) fn forget(&mut self) {
        self.offers.clear();
        self.closing.clear();
    }

    /// Records that there may be more of this stream.
    pub(crate) fn arrived(&mut self, stream: StreamName) {
        self.ready.insert(stream);
    }

    /// Records that content of it was applied in these slots, and some `skipped`: the content after
    /// it in this ballot will be skipped, too, so proposals continue at the stream's end.
    pub(crate) fn applied(&mut self, stream: StreamName, range: SlotRange, skipped: bool) {
        let own = |offer: &Offer| range.from >= offer.slots.from;
        if skipped && self.offers.get(&stream).is_some_and(own) {
            self.offers.remove(&stream);
        }
        self.ready.insert(stream);
    }

    /// Records that the run was not proposed after all.
    pub(crate) fn refused(&mut self, stream: StreamName) {
        self.offers.remove(&stream);
        self.ready.insert(stream);
    }

    /// Stops proposals of this stream.
    pub(crate) fn closed(&mut self, stream: StreamName) {
        self.offers.remove(&stream);
        self.ready.remove(&stream);
        self.closing.remove(&stream);
    }

    /// [stream-2] Returns the next run, round-robin over streams: the available bytes after the
    /// proposed ones, limited so that no stream waits long.
    pub(crate) fn next_run(
        &mut self,
        next_slot: Slot,
        applied_to: Slot,
        streams: &Table,
        runs: &Runs,
    ) -> Option<NextRun> {
        if self.wait_for.is_none_or(|slot| applied_to < slot) {
            return None;
        }
        loop {
            let stream = self.ready.turn()?;
            let Some(next) = streams.next(stream) else {
                // Not open, or not yet: bytes that arrive later make it ready again.
                self.ready.remove(&stream);
                continue;
            };
            // All that was proposed is applied: where that is, the stream goes on, whatever was
            // lost.
            let under_way = |offer: &&Offer| applied_to < offer.slots.to;
            let offer = self.offers.get(&stream).filter(under_way);
            let position = offer.map_or(next, |offer| offer.proposed_to.max(next));
            let end = end_of_run(stream, position, runs);
            let offset = next_slot.0.checked_sub(position);
            let Some(offset) = offset.filter(|_| end > position) else {
                self.ready.remove(&stream);
                continue;
            };
            return Some(NextRun {
                stream,
                value: Value::Content { stream, offset },
                slots: end - position,
                position,
            });
        }
    }

    /// Records that the run is proposed in these slots.
    pub(crate) fn proposed(&mut self, run: &NextRun, range: SlotRange) {
        let offer = self
            .offers
            .entry(run.stream)
            .or_insert(Offer { proposed_to: run.position, slots: range });
        if offer.proposed_to != run.position {
            offer.slots.from = range.from;
        }
        offer.slots.to = range.to;
        offer.proposed_to = run.position + range.len();
    }

    /// Returns the streams whose owners are lost, each once until that is decided or undone: `boot`
    /// returns the process of a connected owner.
    pub(crate) fn next_lost(
        &mut self,
        now: Time,
        applied_to: Slot,
        streams: &Table,
        boot: impl Fn(NodeId) -> Option<u32>,
    ) -> Option<StreamName> {
        let wait_for = self.wait_for?;
        if applied_to < wait_for {
            return None;
        }
        self.away.retain(|owner, _| boot(*owner).is_none());
        self.closing.retain(|_, behind| *behind > applied_to);
        for stream in streams.open() {
            let lost = match boot(stream.owner) {
                // Its process ended, and another one runs.
                Some(boot) => boot != stream.boot,
                None => {
                    let since = *self.away.entry(stream.owner).or_insert(now);
                    now >= since.plus_ms(self.lost_ms)
                }
            };
            if lost && !self.closing.contains_key(&stream) {
                return Some(stream);
            }
        }
        None
    }

    /// Records that its close is proposed in this slot.
    pub(crate) fn closing(&mut self, stream: StreamName, slot: Slot) {
        self.closing.insert(stream, slot.next());
    }

    /// Returns the time at which an absent owner is lost.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        self.wait_for?;
        let lost = self.away.values().map(|since| since.plus_ms(self.lost_ms));
        lost.filter(|at| *at > now).min()
    }
}

/// Returns the end of a run that begins at this position, as far as its bytes are here. Placed
/// bytes need but a few bytes of a record, so that the run may be long; bytes that are in memory
/// only would keep others waiting ([stream-2]).
fn end_of_run(stream: StreamName, position: u64, runs: &Runs) -> u64 {
    let boundary = |bytes: u64| (position / bytes + 1).saturating_mul(bytes);
    let long = boundary(STREAM_PIECE_BYTES_MAX as u64);
    match runs.first(stream, &(position..long)) {
        Some((end, Whereabouts::Placed)) => end,
        _ => runs.held_to(stream, position, boundary(SLICE_BYTES)),
    }
}
