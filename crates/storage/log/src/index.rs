//! Index from slots to the log writes with their latest records. It is sparse: an entry covers a
//! run of slots and a run of log writes.

use std::ops::Range;

use quorate_core::slot::{Slot, SlotRange};

use crate::place::{Place, Segment};
use crate::range_map::RangeMap;

/// Maximum size of the log writes that an entry covers, so that reading one slot remains cheap.
const SPAN_BYTES_MAX: u64 = 256 << 10;

/// Returns the part of a range that is at or above `start`.
pub(crate) fn clipped_to_start(range: SlotRange, start: Slot) -> SlotRange {
    SlotRange::new(range.from.max(start), range.to.max(start))
}

/// Consecutive log writes of one segment. If they contain several records of a slot, the last one
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) place: Place,
    pub(crate) bytes: u64,
}

/// Map from slots to the log writes with their latest records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    spans: RangeMap<Span>,
    /// First indexed slot ([snap-3]).
    start: Slot,
}

impl Index {
    /// Creates an empty index for slots at or above `start`.
    pub(crate) fn new(start: Slot) -> Self {
        Self { spans: RangeMap::default(), start }
    }

    pub(crate) fn start(&self) -> Slot {
        self.start
    }

    /// Drops all slots below `start`, which are not indexed again.
    pub(crate) fn trim(&mut self, start: Slot) {
        self.start = start;
        self.spans.remove(SlotRange::new(Slot(0), start));
    }

    /// Records that the log writes in `write` contain the latest records of the slots in `range`.
    pub(crate) fn insert(&mut self, range: SlotRange, write: Span) {
        let range = clipped_to_start(range, self.start);
        if range.is_empty() {
            return;
        }
        if let Some((to, span)) = self.spans.ending_at_mut(range.from) {
            let same = span.place == write.place;
            let end = span.place.offset + span.bytes;
            let next = span.place.segment == write.place.segment && end == write.place.offset;
            let grown = span.bytes + write.bytes;
            if same || (next && grown <= SPAN_BYTES_MAX) {
                let (from, widened) =
                    (*to, if same { *span } else { Span { bytes: grown, ..*span } });
                // Entries that the run overlaps are replaced. The run then grows over their slots.
                self.spans.remove(range);
                if let Some((to, span)) = self.spans.ending_at_mut(from) {
                    (*to, *span) = (range.to, widened);
                }
                return;
            }
        }
        self.spans.insert(range, write);
    }

    pub(crate) fn remove(&mut self, range: SlotRange) {
        self.spans.remove(range);
    }

    /// Removes the log writes at `at`, which turned out to be unreadable. Returns the slots of
    /// `range` that are not indexed elsewhere.
    pub(crate) fn remove_unreadable(&mut self, range: SlotRange, at: Place) -> Vec<SlotRange> {
        let there = |(_, span): &(SlotRange, &Span)| span.place == at;
        let runs = self.spans.within(range).filter(there);
        let runs: Vec<SlotRange> = runs.map(|(run, _)| run.intersect(range)).collect();
        for run in &runs {
            self.spans.remove(*run);
        }
        runs
    }

    /// Returns the log writes with the latest record of `slot`, and all slots that the same entry
    /// covers.
    pub(crate) fn find(&self, slot: Slot) -> Option<(SlotRange, Span)> {
        self.spans.find(slot).map(|(range, span)| (range, *span))
    }

    /// Returns the approximate place of the first indexed slot at or after `slot`.
    pub(crate) fn first_place_from(&self, slot: Slot) -> Option<Place> {
        let (range, span) = self.spans.within(SlotRange::new(slot, Slot(u64::MAX))).next()?;
        let into = slot.0.saturating_sub(range.from.0);
        let bytes = u128::from(span.bytes) * u128::from(into) / u128::from(range.len().max(1));
        let bytes = u64::try_from(bytes).unwrap_or(span.bytes);
        Some(Place { offset: span.place.offset + bytes, ..span.place })
    }

    /// Returns the slots of each entry whose log writes overlap this part of a segment.
    pub(crate) fn slots_in(&self, segment: Segment, part: Range<u64>) -> Vec<SlotRange> {
        let there = |(_, span): &(SlotRange, &Span)| {
            let from = span.place.offset;
            span.place.segment == segment && from < part.end && part.start < from + span.bytes
        };
        let found = self.spans.iter().filter(there);
        found.map(|(range, _)| range).collect()
    }

    /// Returns the slots of `range` that are not indexed.
    pub(crate) fn unindexed(&self, range: SlotRange) -> Vec<SlotRange> {
        self.spans.gaps(range)
    }

    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.spans.iter().count()
    }
}

/// The contiguous runs of slots in a log write, in order of appearance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    list: Vec<SlotRange>,
    slots_end: Slot,
}

impl Runs {
    /// Adds a range. Usually it extends the last run.
    pub(crate) fn push(&mut self, range: SlotRange) {
        self.slots_end = self.slots_end.max(range.to);
        match self.list.last_mut() {
            Some(last) if last.to == range.from => last.to = range.to,
            Some(last) if last.from <= range.from && range.to <= last.to => {}
            _ => self.list.push(range),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = SlotRange> {
        self.list.iter().copied()
    }

    /// Returns the upper bound (exclusive) of all runs.
    pub(crate) fn slots_end(&self) -> Slot {
        self.slots_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64) -> Span {
        Span { place: Place { segment: Segment(1), offset }, bytes: 4096 }
    }

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    #[test]
    fn consecutive_writes_share_an_entry() {
        let mut index = Index::default();
        for count in 0..64 {
            index.insert(slots(1 + count * 10, 11 + count * 10), write(count * 4096));
        }
        assert_eq!(index.entries(), 1);
        index.insert(slots(641, 651), write(64 * 4096));
        assert_eq!(index.entries(), 2, "an entry is bounded in bytes");
        assert_eq!(index.find(Slot(640)).unwrap().1.bytes, 256 << 10);
        assert_eq!(index.find(Slot(651)), None);
    }

    /// [snap-3] Slots below the start are not indexed.
    #[test]
    fn trimmed_slots_are_not_indexed() {
        let mut index = Index::new(Slot(5));
        index.insert(slots(1, 4), write(0));
        index.insert(slots(4, 9), write(4096));
        assert_eq!(index.find(Slot(4)), None);
        assert_eq!(index.find(Slot(5)).unwrap().0, slots(5, 9));
        index.trim(Slot(7));
        index.insert(slots(1, 7), write(8192));
        assert_eq!((index.entries(), index.find(Slot(6))), (1, None));
        assert_eq!(index.find(Slot(7)).unwrap().0, slots(7, 9));
    }

    #[test]
    fn a_later_vote_replaces_an_earlier_one() {
        let mut index = Index::default();
        index.insert(slots(1, 10), write(0));
        index.insert(slots(10, 20), write(4096));
        index.insert(slots(5, 7), write(8192));
        index.insert(slots(7, 12), write(12288));
        assert_eq!(index.find(Slot(4)).unwrap().1.bytes, 8192);
        assert_eq!(index.find(Slot(6)).unwrap().1.place.offset, 8192);
        assert_eq!(
            index.find(Slot(11)).unwrap(),
            (slots(5, 12), Span { bytes: 8192, ..write(8192) })
        );
        assert_eq!(index.find(Slot(12)).unwrap().1.place.offset, 0);
        assert_eq!(index.unindexed(slots(0, 25)), [slots(0, 1), slots(20, 25)]);
    }
}
