//! Stream bytes by ⟨stream, position⟩, from their arrival until they are applied ([stream-3]).
//!
//! The owner sends the bytes, before or after the descriptors that assign them slots, and the bytes
//! may arrive more than once. Whole units may be placed in the store of streams, so that a record
//! need not contain them ([disk-5]); until that write completes, they support no vote. The number
//! of stored bytes per stream is bounded: only positions within two windows after the last applied
//! one are stored. Bytes that do not fit are treated as lost: the owner offers them again, or they
//! are fetched from a peer.

use std::collections::BTreeMap;
use std::ops::Range;

use quorate_core::value::StreamName;
use quorate_stream::store::Ranges;

use crate::ports::payload::Payload;

/// The available bytes of one stream.
#[derive(Debug, Default)]
struct StreamBuffer {
    /// Bytes in memory by their first position, without overlaps.
    pieces: BTreeMap<u64, Payload>,
    /// First position that has not been applied.
    next: u64,
    /// Positions on stable storage in the store of streams.
    placed_ranges: Ranges,
    /// Positions that are being written to the store of streams.
    placing_ranges: Ranges,
    /// Position up to which bytes were recorded in the log or returned for placing.
    recorded_to: u64,
}

/// One or more whole units that may be placed.
#[derive(Debug)]
pub(crate) struct Units {
    /// Position of the first byte.
    pub(crate) from: u64,
    /// The payload that contains the units; `payload_range` is their range in it.
    pub(crate) payload: Payload,
    pub(crate) payload_range: Range<usize>,
}

impl Units {
    pub(crate) fn positions(&self) -> Range<u64> {
        self.from..self.from + self.payload_range.len() as u64
    }
}

/// Location of available bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BytesLocation {
    /// On stable storage, in the store of streams.
    Placed,
    Memory,
}

impl StreamBuffer {
    /// Returns the piece that contains `position`, and its first position.
    fn piece(&self, position: u64) -> Option<(u64, &Payload)> {
        let (from, payload) = self.pieces.range(..=position).next_back()?;
        (position - from < payload.len() as u64).then_some((*from, payload))
    }

    /// Returns where the byte at `position` is stored, and the end, at most `most`, of the bytes
    /// stored there without a gap. Placed bytes take precedence over bytes in memory.
    fn location_at(&self, position: u64, most: u64) -> Option<(u64, BytesLocation)> {
        let placed = self.placed_ranges.end_of_range_at(position);
        if placed > position {
            return Some((placed.min(most), BytesLocation::Placed));
        }
        let most = self.placed_ranges.first_held_from(position).map_or(most, |next| next.min(most));
        let mut end = position;
        while end < most
            && let Some((from, payload)) = self.piece(end)
        {
            end = from + payload.len() as u64;
        }
        (end > position).then_some((end.min(most), BytesLocation::Memory))
    }

    /// Returns the end, at most `most`, of the contiguous available bytes that start at `position`.
    fn available_end(&self, position: u64, most: u64) -> u64 {
        let mut end = position;
        while end < most
            && let Some((to, _)) = self.location_at(end, most)
        {
            end = to;
        }
        end.min(most)
    }

    /// Returns the end, at most `most`, of the contiguous bytes starting at `position` that a
    /// record may refer to now. It stops before bytes in flight to the store.
    fn held_end(&self, position: u64, most: u64) -> u64 {
        let placing = self.placing_ranges.first_held_from(position);
        self.available_end(position, placing.map_or(most, |placing| placing.min(most)))
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.next == 0 && self.placed_ranges.is_empty()
    }
}

/// Stored bytes of all streams.
#[derive(Debug)]
pub(crate) struct StreamBuffers {
    streams: BTreeMap<StreamName, StreamBuffer>,
    bytes: usize,
    bytes_max: usize,
    window_bytes: u64,
}

impl StreamBuffers {
    /// Creates an empty store of `bytes_max` bytes, with twice the owner's `window` per stream.
    pub(crate) fn new(bytes_max: usize, window: usize) -> Self {
        Self { streams: BTreeMap::new(), bytes: 0, bytes_max, window_bytes: window as u64 }
    }

    /// Returns the number of bytes stored beyond the limit because open slots needed them.
    pub(crate) fn excess_bytes(&self) -> usize {
        self.bytes.saturating_sub(self.bytes_max)
    }

    /// Stores new bytes that were sent without a request, as far as they fit. Returns whether any
    /// were stored. The next bytes of an `open` stream always fit, since only they let the stream
    /// make progress and free space.
    pub(crate) fn store_new_bytes(
        &mut self,
        stream: StreamName,
        position: u64,
        payload: &Payload,
        open: bool,
    ) -> bool {
        let known = self.streams.get(&stream);
        let next = known.map_or(0, |run| run.next);
        // The owner may learn decisions before this node does, and is ahead of them by at most its
        // window.
        let limit = next.saturating_add(2 * self.window_bytes);
        let full = self.bytes + payload.len() > self.bytes_max;
        if full && !(open && position <= next) {
            return false;
        }
        self.store_below(stream, position, payload, limit)
    }

    /// Stores new bytes that open slots need, after the caller has checked the capacity.
    pub(crate) fn store_needed(&mut self, stream: StreamName, position: u64, payload: &Payload) {
        self.store_below(stream, position, payload, u64::MAX);
    }

    fn store_below(
        &mut self,
        stream: StreamName,
        position: u64,
        payload: &Payload,
        limit: u64,
    ) -> bool {
        let run = self.streams.entry(stream).or_default();
        let end = position.saturating_add(payload.len() as u64).min(limit);
        let mut at = position.max(run.next);
        let mut kept = false;
        while at < end {
            if let Some((from, here)) = run.piece(at) {
                at = from + here.len() as u64;
                continue;
            }
            let behind = run.pieces.range(at..).next();
            let to = behind.map_or(end, |(from, _)| end.min(*from));
            let whole = at == position && to - at == payload.len() as u64;
            let piece = if whole {
                payload.clone()
            } else {
                let part = |at: u64| usize::try_from(at - position).unwrap_or(usize::MAX);
                Payload::new(payload[part(at)..part(to)].to_vec())
            };
            self.bytes += piece.len();
            run.pieces.insert(at, piece);
            kept = true;
            at = to;
        }
        self.forget_if_empty(stream);
        kept
    }

    /// [disk-5] Returns the end, at most `most`, of the stream's contiguous bytes starting at
    /// `position` that a record may refer to: bytes in memory that are not in flight to the store,
    /// and bytes on stable storage in the store.
    pub(crate) fn held_end(&self, stream: StreamName, position: u64, most: u64) -> u64 {
        let run = self.streams.get(&stream);
        run.map_or(position, |run| run.held_end(position, most))
    }

    /// Returns the end, at most `most`, of the stream's contiguous bytes starting at `position`
    /// that are available in memory or in the store.
    pub(crate) fn available_end(&self, stream: StreamName, position: u64, most: u64) -> u64 {
        let run = self.streams.get(&stream);
        run.map_or(position, |run| run.available_end(position, most))
    }

    /// Returns where the first of `positions` is stored, and the end of the bytes stored there;
    /// `None` if it is not available.
    pub(crate) fn first_location(
        &self,
        stream: StreamName,
        positions: &Range<u64>,
    ) -> Option<(u64, BytesLocation)> {
        let run = self.streams.get(&stream)?;
        run.location_at(positions.start, positions.end)
    }

    /// Returns the next whole units of `unit` bytes that are in memory and may be placed because
    /// none of their bytes has been recorded. Each unit is returned once, together with its
    /// neighbours in the same payload and the same `chunk` of the store.
    pub(crate) fn next_units(
        &mut self,
        stream: StreamName,
        unit: u64,
        chunk: u64,
    ) -> Option<Units> {
        let run = self.streams.get_mut(&stream)?;
        let from = run.recorded_to.max(run.next).next_multiple_of(unit);
        let most = (from / chunk + 1) * chunk;
        let most = run.placed_ranges.first_held_from(from).map_or(most, |next| next.min(most));
        let held_to = run.held_end(from, most);
        if held_to < from + unit {
            return None;
        }
        let (begins, payload) = run.piece(from)?;
        let to = (begins + payload.len() as u64).min(held_to);
        let to = to - to % unit;
        if to > from {
            let part = |at: u64| usize::try_from(at - begins).expect("of a piece");
            let units =
                Units { from, payload_range: part(from)..part(to), payload: payload.clone() };
            run.recorded_to = to;
            return Some(units);
        }
        // The unit is split over several pieces.
        run.recorded_to = from + unit;
        let payload = self.get(stream, &(from..from + unit))?;
        Some(Units { from, payload_range: 0..payload.len(), payload })
    }

    /// Marks bytes as in flight to the store.
    pub(crate) fn mark_placing(&mut self, stream: StreamName, positions: Range<u64>) {
        if let Some(run) = self.streams.get_mut(&stream) {
            run.placing_ranges.insert(positions);
        }
    }

    /// Marks bytes as on stable storage in the store.
    pub(crate) fn mark_placed(&mut self, stream: StreamName, positions: Range<u64>) {
        let run = self.streams.entry(stream).or_default();
        let from = positions.start.max(run.next);
        if from < positions.end {
            run.placing_ranges.remove(from..positions.end);
            run.placed_ranges.insert(from..positions.end);
        }
        self.forget_if_empty(stream);
    }

    /// Marks bytes as no longer in the store.
    pub(crate) fn mark_unplaced(&mut self, stream: StreamName, positions: Range<u64>) {
        if let Some(run) = self.streams.get_mut(&stream) {
            run.placed_ranges.remove(positions);
        }
        self.forget_if_empty(stream);
    }

    /// Clears all marks of bytes in flight to the store, so that votes no longer wait for them.
    /// Returns the streams that had such marks.
    pub(crate) fn clear_placing(&mut self) -> Vec<StreamName> {
        let placing = self.streams.iter_mut();
        let placing = placing.filter(|(_, run)| !run.placing_ranges.is_empty());
        let nothing = |(stream, run): (&StreamName, &mut StreamBuffer)| {
            run.placing_ranges = Ranges::default();
            *stream
        };
        placing.map(nothing).collect()
    }

    /// Records that the log contains the bytes at positions below `position`.
    pub(crate) fn mark_recorded(&mut self, stream: StreamName, position: u64) {
        if let Some(run) = self.streams.get_mut(&stream) {
            run.recorded_to = run.recorded_to.max(position);
        }
    }

    /// Returns the bytes at `positions` if all are in memory, without copying if they are one
    /// piece.
    pub(crate) fn get(&self, stream: StreamName, positions: &Range<u64>) -> Option<Payload> {
        let run = self.streams.get(&stream)?;
        let (from, payload) = run.piece(positions.start)?;
        let length = positions.end - positions.start;
        if from == positions.start && payload.len() as u64 == length {
            return Some(payload.clone());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).ok()?);
        let mut at = positions.start;
        while at < positions.end {
            let (from, payload) = run.piece(at)?;
            let piece_end = from + payload.len() as u64;
            let part = |at: u64| usize::try_from(at - from).unwrap_or(usize::MAX);
            bytes.extend_from_slice(&payload[part(at)..part(piece_end.min(positions.end))]);
            at = piece_end;
        }
        Some(Payload::new(bytes))
    }

    /// Returns the bytes from `position` to the end of the piece that contains it.
    pub(crate) fn piece(&self, stream: StreamName, position: u64) -> Option<Payload> {
        let (from, payload) = self.streams.get(&stream)?.piece(position)?;
        if from == position {
            return Some(payload.clone());
        }
        let part = usize::try_from(position - from).ok()?;
        Some(Payload::new(payload[part..].to_vec()))
    }

    /// Records that positions below `next` are applied, and drops their bytes.
    pub(crate) fn drop_applied(&mut self, stream: StreamName, next: u64) {
        let run = self.streams.entry(stream).or_default();
        run.next = run.next.max(next);
        run.placed_ranges.remove(0..next);
        run.placing_ranges.remove(0..next);
        while let Some(first) = run.pieces.first_entry()
            && *first.key() + first.get().len() as u64 <= next
        {
            self.bytes -= first.remove().len();
        }
    }

    /// Drops bytes below `position`, which are in the log, while this node applies nothing.
    pub(crate) fn drop_below(&mut self, stream: StreamName, position: u64) {
        let Some(run) = self.streams.get_mut(&stream) else {
            return;
        };
        while let Some(first) = run.pieces.first_entry()
            && *first.key() + first.get().len() as u64 <= position
        {
            self.bytes -= first.remove().len();
        }
        self.forget_if_empty(stream);
    }

    /// Drops a stream that accepts no more bytes.
    pub(crate) fn drop_stream(&mut self, stream: StreamName) {
        if let Some(run) = self.streams.remove(&stream) {
            self.bytes -= run.pieces.values().map(|piece| piece.len()).sum::<usize>();
        }
    }

    pub(crate) fn retain_streams(&mut self, keep: impl Fn(StreamName) -> bool) {
        let gone: Vec<_> = self.streams.keys().copied().filter(|s| !keep(*s)).collect();
        for stream in gone {
            self.drop_stream(stream);
        }
    }

    fn forget_if_empty(&mut self, stream: StreamName) {
        if self.streams.get(&stream).is_some_and(StreamBuffer::is_empty) {
            self.streams.remove(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;
    use quorate_core::node_id::NodeId;

    use super::*;

    const S: StreamName = StreamName { owner: NodeId(1), boot: 1, number: 1 };

    /// Returns a test byte that depends on its position, so that misplaced bytes are detected.
    fn byte(position: u64) -> u8 {
        u8::try_from(position % 251).unwrap()
    }

    fn piece(from: u64, to: u64) -> Payload {
        Payload::new((from..to).map(byte).collect())
    }

    #[test]
    fn bytes_are_found_by_position_for_any_order_of_arrival() {
        for seed in 0..500 {
            let mut dice = Dice::new(seed);
            let mut runs = StreamBuffers::new(1000, 100);
            let mut here = std::collections::BTreeSet::new();
            let mut next = 0;
            for _ in 0..40 {
                let from = next + dice.below(60);
                let to = from + 1 + dice.below(40);
                runs.store_new_bytes(S, from, &piece(from, to), true);
                here.extend((from..to).filter(|at| *at >= next && *at < next + 200));
                if dice.chance(1, 8) {
                    next += dice.below(30);
                    runs.drop_applied(S, next);
                }
                let at = next + dice.below(100);
                let end = runs.held_end(S, at, at + 50);
                let expected = (at..at + 50).take_while(|at| here.contains(at)).count() as u64;
                assert_eq!(end - at, expected, "seed {seed}");
                if end > at {
                    let bytes = runs.get(S, &(at..end)).unwrap();
                    assert_eq!(bytes, piece(at, end), "seed {seed}");
                }
                assert_eq!(
                    runs.get(S, &(at..end + 1)).is_some(),
                    here.contains(&end) && (at..end).all(|at| here.contains(&at))
                );
                if let Some(piece) = runs.piece(S, at) {
                    assert_eq!(piece[0], byte(at));
                }
            }
            runs.drop_stream(S);
            assert_eq!(runs.bytes, 0, "seed {seed}");
        }
    }

    #[test]
    fn bytes_beyond_the_capacity_are_not_stored() {
        let mut runs = StreamBuffers::new(100, 25);
        assert!(runs.store_new_bytes(S, 0, &piece(0, 60), true), "as far as the window goes");
        assert_eq!((runs.bytes, runs.held_end(S, 0, 99)), (50, 50));
        assert!(!runs.store_new_bytes(S, 50, &piece(50, 60), true));
        let other = StreamName { number: 2, ..S };
        let third = StreamName { number: 3, ..S };
        assert!(runs.store_new_bytes(other, 0, &piece(0, 50), true));
        assert!(!runs.store_new_bytes(third, 1, &piece(1, 2), true), "100 in all");
        assert!(!runs.streams.contains_key(&third), "it leaves no trace");
        assert!(!runs.store_new_bytes(third, 0, &piece(0, 1), false), "it is not open");
        assert!(runs.store_new_bytes(third, 0, &piece(0, 1), true), "what is next always fits");
        runs.drop_applied(S, 50);
        assert!(runs.store_new_bytes(third, 1, &piece(1, 2), true));
        assert!(!runs.store_new_bytes(S, 20, &piece(20, 40), true), "applied");
        assert!(runs.store_new_bytes(S, 40, &piece(40, 60), true));
        assert_eq!(runs.held_end(S, 50, 99), 60);
        runs.store_needed(third, 500, &piece(500, 600));
        assert_eq!(runs.held_end(third, 500, 999), 600, "open slots need it");
        runs.retain_streams(|stream| stream == other);
        assert_eq!(runs.bytes, 50);
    }
}
