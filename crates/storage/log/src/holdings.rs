//! The contents of each segment, which determine the first segment still needed ([trim-3]).

use std::collections::{BTreeMap, VecDeque};

use quorate_core::slot::Slot;

use crate::{
    base::Anchor,
    mutant::{Mutant, planted},
    place::{Place, Segment, SegmentFile},
};

/// Contents written to a segment under its current number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentContents {
    /// Anchor at the segment's first intact log write, at which the log can begin.
    first_anchor: Option<Anchor>,
    /// Upper bound (exclusive) of the slots of all vote and decided records in the segment.
    slots_to: Slot,
    /// Offset of the end of its last complete log write.
    complete_bytes: u64,
}

impl SegmentContents {
    /// Records a log write that contains records of slots below `slots_to`. `first` is the anchor
    /// at the log write if it is the segment's first one.
    pub(crate) fn record_begun(&mut self, first: Option<Anchor>, slots_to: Slot) {
        self.first_anchor = self.first_anchor.or(first);
        self.slots_to = self.slots_to.max(slots_to);
    }

    /// Records that the log write that ends at `end` is complete.
    pub(crate) fn record_complete(&mut self, end: u64) {
        self.complete_bytes = self.complete_bytes.max(end);
    }
}

/// Segments that are still needed, in order of their numbers.
#[derive(Debug)]
pub(crate) struct Holdings {
    anchor: Anchor,
    segments: VecDeque<(SegmentFile, SegmentContents)>,
    /// Segment of the last complete log write, whose header restates the hard state.
    last_complete_segment: Option<Segment>,
    bytes: u64,
}

impl Holdings {
    /// Creates the list. `files` excludes segments that were never written to; `complete` is the
    /// segment of the last complete log write.
    pub(crate) fn new(
        anchor: Anchor,
        files: impl Iterator<Item = SegmentFile>,
        held: &BTreeMap<Segment, SegmentContents>,
        complete: Option<Segment>,
    ) -> Self {
        let held = |file: SegmentFile| {
            let held = held.get(&file.segment).copied().unwrap_or_default();
            (file, held)
        };
        let segments: VecDeque<_> = files.map(held).collect();
        Self {
            anchor,
            bytes: segments.iter().map(|(file, _)| file.bytes).sum(),
            segments,
            last_complete_segment: complete,
        }
    }

    /// Adds a segment, to which all further log writes go.
    pub(crate) fn add_segment(&mut self, file: SegmentFile) {
        self.bytes += file.bytes;
        self.segments.push_back((file, SegmentContents::default()));
    }

    /// Records that a log write to the current segment has begun.
    pub(crate) fn record_begun(&mut self, at: Anchor, slots_to: Slot) {
        if let Some((_, held)) = self.segments.back_mut() {
            held.record_begun(Some(at), slots_to);
        }
    }

    /// Records that the log write that ends at `end` in `segment`, and all before it, are complete.
    pub(crate) fn record_complete(&mut self, segment: Segment, end: u64) {
        self.last_complete_segment = Some(segment);
        let mut newest = self.segments.iter_mut().rev();
        if let Some((_, held)) = newest.find(|(file, _)| file.segment == segment) {
            held.record_complete(end);
        }
    }

    /// Returns the end of the last complete log write.
    pub(crate) fn written_to(&self) -> Option<Place> {
        let mut newest = self.segments.iter().rev();
        let (file, held) = newest.find(|(_, held)| held.complete_bytes > 0)?;
        Some(Place { segment: file.segment, offset: held.complete_bytes })
    }

    /// Finds the first complete log writes at or after `at` and before `until`. Returns where they
    /// begin, and their length up to the end of the segment's complete writes. Skips damage and
    /// writes that were cut off.
    pub(crate) fn written_from(&self, at: Place, until: Place) -> Option<(Place, u64)> {
        self.segments.iter().find_map(|(file, held)| {
            let segment = file.segment;
            let end = match segment == until.segment {
                true => held.complete_bytes.min(until.offset),
                false if segment < until.segment => held.complete_bytes,
                false => 0,
            };
            let offset = match segment == at.segment {
                true => at.offset,
                false => 0,
            };
            let left = end.checked_sub(offset).filter(|left| *left > 0)?;
            (segment >= at.segment).then_some((Place { segment, offset }, left))
        })
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.segments.iter().map(|(_, held)| held.complete_bytes).sum()
    }

    /// Returns the total size of the complete log writes before a place, in bytes.
    pub(crate) fn bytes_before(&self, place: Place) -> u64 {
        let before = self.segments.iter().take_while(|(file, _)| file.segment <= place.segment);
        let bytes = before.map(|(file, held)| match file.segment == place.segment {
            true => held.complete_bytes.min(place.offset),
            false => held.complete_bytes,
        });
        bytes.sum()
    }

    /// Returns the latest anchor that retains the last complete log write and every record of slots
    /// at or above `start`.
    pub(crate) fn anchor_to_retain(&self, start: Slot) -> Anchor {
        let Some(complete) = self.last_complete_segment else {
            return self.anchor;
        };
        let mut anchor = self.anchor;
        for (file, held) in &self.segments {
            anchor = held.first_anchor.unwrap_or(anchor);
            let last = file.segment >= complete && !planted(Mutant::HardStateTrimmed);
            if last || held.slots_to > start {
                break;
            }
        }
        anchor
    }

    /// Returns how many bytes of segments would be freed if the log began at `start`.
    pub(crate) fn bytes_freed_by(&self, start: Slot) -> u64 {
        let anchor = self.anchor_to_retain(start);
        let files = self.segments.iter().map(|(file, _)| file);
        let free = files.take_while(|file| file.segment < anchor.segment);
        free.map(|file| file.bytes).sum()
    }

    /// Makes the log begin at `anchor`. Returns the segments before it, which are free.
    pub(crate) fn trim(&mut self, anchor: Anchor) -> impl Iterator<Item = SegmentFile> {
        self.anchor = anchor;
        let kept = |(file, _): &(SegmentFile, SegmentContents)| file.segment >= anchor.segment;
        let free = self.segments.iter().position(kept);
        let free = free.unwrap_or(self.segments.len());
        let free: Vec<_> = self.segments.drain(..free).map(|(file, _)| file).collect();
        self.bytes -= free.iter().map(|file| file.bytes).sum::<u64>();
        free.into_iter()
    }

    /// Returns the total size of the segments, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> SegmentFile {
        SegmentFile { segment: Segment(number), bytes: 100 }
    }

    fn first(number: u64) -> Anchor {
        Anchor { segment: Segment(number), seq: number * 10, previous_checksum: 7 }
    }

    /// Returns segments 1 to 5, with slots below 10, 20, 15, 40 and 50.
    fn five() -> Holdings {
        let mut held = BTreeMap::new();
        for (number, slots_to) in [(1, 10), (2, 20), (3, 15), (4, 40)] {
            let mut of = SegmentContents::default();
            of.record_begun(Some(first(number)), Slot(slots_to));
            held.insert(Segment(number), of);
        }
        let files = (1..=4).map(file);
        let complete = Some(Segment(4));
        let mut holdings = Holdings::new(Anchor::FIRST, files, &held, complete);
        holdings.add_segment(file(5));
        holdings.record_begun(first(5), Slot(50));
        holdings
    }

    #[test]
    fn segment_is_needed_while_it_or_an_earlier_slot_is() {
        let holdings = five();
        let begins = |start| holdings.anchor_to_retain(Slot(start)).segment.0;
        let found = [1, 9, 10, 19, 20, 39].map(begins);
        assert_eq!(found, [1, 1, 2, 2, 4, 4], "segment 3 waits for segment 2");
    }

    #[test]
    fn last_complete_write_is_retained() {
        let mut holdings = five();
        assert_eq!(holdings.anchor_to_retain(Slot(1000)), first(4));
        holdings.record_complete(Segment(5), 60);
        assert_eq!(holdings.anchor_to_retain(Slot(1000)), first(5));
        let free: Vec<_> = holdings.trim(first(4)).collect();
        assert_eq!(free, [file(1), file(2), file(3)]);
        assert_eq!(holdings.bytes(), 200);
        assert_eq!(holdings.anchor_to_retain(Slot(1)), first(4));
        assert_eq!(holdings.trim(first(4)).count(), 0);
    }

    #[test]
    fn log_begins_with_a_complete_write() {
        let mut held = BTreeMap::new();
        for number in 1..=4 {
            let mut of = SegmentContents::default();
            let whole = number != 3;
            of.record_begun(whole.then_some(first(number)), Slot(number * 10));
            held.insert(Segment(number), of);
        }
        let complete = Some(Segment(4));
        let holdings = Holdings::new(first(1), (1..=4).map(file), &held, complete);
        assert_eq!(holdings.anchor_to_retain(Slot(20)), first(2), "not with the third");
        assert_eq!(holdings.anchor_to_retain(Slot(30)), first(4));
        let empty = Holdings::new(Anchor::FIRST, std::iter::empty(), &held, None);
        assert_eq!(empty.anchor_to_retain(Slot(9)), Anchor::FIRST);
    }
}
