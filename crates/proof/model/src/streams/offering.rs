//! Choice of the bytes that a leader gives the next slots, as the replica does it
//! (`streaming/offering.rs` there): of each stream in order within a ballot, and only after
//! everything that was inherited ([p1-6]).

use std::collections::BTreeMap;

use quorate_core::{
    slot::{Slot, SlotRange},
    value::{StreamName, Value},
};
use quorate_stream::Table;

/// Progress of a stream's proposals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Offer {
    /// Positions below are proposed in this ballot, or decided.
    proposed_to: u64,
    /// The slots since its positions follow one another.
    slots: SlotRange,
}

/// Offers of one leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offering {
    offers: BTreeMap<StreamName, Offer>,
    /// Inherited proposals lie below: only after them is it known where each stream goes on.
    wait_for: Option<Slot>,
}

/// A run that is to get the next slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRun {
    /// The stream of the bytes.
    pub stream: StreamName,
    /// The first one.
    pub position: u64,
    /// Number of slots.
    pub slots: u64,
    /// As a value.
    pub value: Value,
}

impl Offering {
    /// Restarts the offers: this node leads in another ballot than before, and has proposed
    /// everything below `next` again; or it does not lead.
    pub fn restart(&mut self, next: Option<Slot>) {
        self.offers.clear();
        self.wait_for = next;
    }

    /// Notes that content of a stream in this slot was applied and `skipped`, or not.
    pub fn applied(&mut self, stream: StreamName, slot: Slot, skipped: bool) {
        let own = |offer: &Offer| slot >= offer.slots.from;
        if skipped && self.offers.get(&stream).is_some_and(own) {
            self.offers.remove(&stream);
        }
    }

    /// Notes that the run was not proposed after all.
    pub fn refused(&mut self, stream: StreamName) {
        self.offers.remove(&stream);
    }

    /// Returns the next run of this stream, up to a given number of bytes; `held_to` returns the
    /// end of the bytes that are here without a gap from a position on.
    pub fn next_run(
        &self,
        stream: StreamName,
        most: u64,
        next_slot: Slot,
        applied_to: Slot,
        streams: &Table,
        held_to: impl Fn(u64, u64) -> u64,
    ) -> Option<NextRun> {
        if self.wait_for.is_none_or(|slot| applied_to < slot) {
            return None;
        }
        let next = streams.next(stream)?;
        // All that was proposed is applied: where that is, the stream goes on, whatever was lost.
        let under_way = |offer: &&Offer| applied_to < offer.slots.to;
        let offer = self.offers.get(&stream).filter(under_way);
        let position = offer.map_or(next, |offer| offer.proposed_to.max(next));
        let end = held_to(position, position + most);
        let offset = next_slot.0.checked_sub(position)?;
        (end > position).then_some(NextRun {
            stream,
            position,
            slots: end - position,
            value: Value::Content { stream, offset },
        })
    }

    /// Notes that the run is proposed in these slots.
    pub fn proposed(&mut self, run: &NextRun, range: SlotRange) {
        let fresh = Offer { proposed_to: run.position, slots: range };
        let offer = self.offers.entry(run.stream).or_insert(fresh);
        if offer.proposed_to != run.position {
            offer.slots.from = range.from;
        }
        offer.slots.to = range.to;
        offer.proposed_to = run.position + range.len();
    }
}
