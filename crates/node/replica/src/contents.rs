//! Store of payloads and stream bytes by descriptor and slot range: put, pin, fetch, release, read.
//!
//! The protocol orders descriptors; only this file and its submodules know which kinds of bytes
//! exist and where they are stored. A batch is available as a whole or not at all, and is the same
//! in every slot. Content of streams covers a range of slots; only some of them may have their
//! bytes. Each operation then returns the first part of the range with uniform availability. If the
//! table of streams makes content a no-op in any case, its bytes are not needed ([stream-4]).
//! Another kind of value needs one more arm in each operation.

mod fetches;
pub(crate) mod payloads;
pub(crate) mod runs;

use std::ops::Range;

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::{StreamName, Value},
};
use quorate_stream::Table;
use quorate_wire::{Frame, Lane};

use crate::{
    contents::{
        fetches::Fetches,
        payloads::Payloads,
        runs::{BytesLocation, StreamBuffers},
    },
    outbox::Outbox,
    peers::Peers,
    ports::payload::Payload,
};

/// Availability of a value's bytes in some slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ByteAvailability {
    /// The value has no bytes, or they are not needed.
    None,
    /// The bytes are in memory.
    InMemory(Payload),
    /// The bytes are on stable storage, in the store of streams.
    Placed,
    /// The bytes are not in memory.
    Missing,
}

/// Bytes of a value as received in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedBytes<'a> {
    pub(crate) bytes: &'a [u8],
    /// Checksum of the bytes, if it is known.
    pub(crate) checksum: Option<u32>,
    /// The same bytes as a payload, if they can be stored without copying.
    pub(crate) body: Option<&'a Payload>,
}

impl ReceivedBytes<'_> {
    /// Returns whether `self` holds exactly the value's bytes for the slots of `range` ([value-2]).
    /// For a value without bytes, returns whether there are none. Content may be empty, since the
    /// table of streams decides whether its bytes are needed.
    pub(crate) fn holds_bytes_of(&self, value: &Value, range: SlotRange) -> bool {
        match value {
            Value::Batch(name) => payloads::is_batch_content(name, self.bytes, self.checksum),
            Value::Content { .. } => {
                self.bytes.is_empty() || self.bytes.len() as u64 == range.len()
            }
            _ => self.bytes.is_empty(),
        }
    }

    /// Returns the bytes of `part` of the slots; `None` if `self` does not hold the bytes of
    /// `whole`.
    pub(crate) fn part_for(self, whole: SlotRange, part: SlotRange) -> Option<Self> {
        if self.bytes.is_empty() {
            return Some(self);
        }
        let at = |slot: Slot| usize::try_from(slot.0.checked_sub(whole.from.0)?).ok();
        let sound = self.bytes.len() as u64 == whole.len();
        let bytes = self.bytes.get(at(part.from)?..at(part.to)?);
        Some(Self { bytes: bytes.filter(|_| sound)?, checksum: None, body: None })
    }

    /// Converts the bytes to a payload for storing. They are shared if possible, otherwise copied.
    pub(crate) fn to_payload(self) -> Payload {
        match self.body {
            Some(body) => body.clone(),
            None => Payload::new(self.bytes.to_vec()),
        }
    }
}

/// Error returned if received bytes do not match their value. They were not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MismatchedBytes;

/// Bytes of all values that this node may need.
pub(crate) struct Contents {
    payloads: Payloads,
    stream_buffers: StreamBuffers,
    /// Content whose bytes are not needed regardless of the table: either this node voted for it
    /// without bytes before the restart, and the table may be older than the vote; or a full
    /// replica stated that they are not needed ([aux-5]).
    without_bytes: Vec<(SlotRange, Value)>,
    fetches: Fetches,
}

impl Contents {
    /// Creates an empty store with room for `pinned_bytes_max` bytes of open slots and for
    /// `recent_bytes_max` more that are retained for peers. An unanswered request is repeated after
    /// `retry_ms`.
    pub(crate) fn new(
        pinned_bytes_max: usize,
        recent_bytes_max: usize,
        runs: StreamBuffers,
        retry_ms: u64,
    ) -> Self {
        Self {
            payloads: Payloads::new(pinned_bytes_max, recent_bytes_max),
            stream_buffers: runs,
            without_bytes: Vec::new(),
            fetches: Fetches::new(retry_ms),
        }
    }

    pub(crate) fn stream_buffers(&self) -> &StreamBuffers {
        &self.stream_buffers
    }

    pub(crate) fn stream_buffers_mut(&mut self) -> &mut StreamBuffers {
        &mut self.stream_buffers
    }

    /// Returns whether open slots have capacity for `more` bytes.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.payloads.has_room(more + self.stream_buffers.excess_bytes())
    }

    /// Returns whether slots after a gap have capacity for `more` bytes.
    pub(crate) fn has_room_ahead(&self, more: usize) -> bool {
        self.payloads.has_room_ahead(more + self.stream_buffers.excess_bytes())
    }

    /// Returns the first part of these slots for which the value's bytes are available or not
    /// needed: all of them for a value without bytes. The two cases of content are separate parts,
    /// since they are recorded separately.
    pub(crate) fn held_range(&self, value: &Value, range: SlotRange, streams: &Table) -> SlotRange {
        let to = match *value {
            Value::Batch(ref name) if !self.payloads.holds(name) => range.from,
            Value::Content { stream, offset } => {
                let needless = self.needless_part(value, range, streams);
                if !needless.is_empty() {
                    return needless;
                }
                let positions = stream_positions(offset, range);
                let to = self.stream_buffers.held_end(stream, positions.start, positions.end);
                range.from.plus(to - positions.start)
            }
            _ => range.to,
        };
        SlotRange::new(range.from, to)
    }

    /// Returns whether the value's bytes are available or not needed in all of these slots.
    pub(crate) fn holds_all(&self, value: &Value, range: SlotRange, streams: &Table) -> bool {
        self.held_range(value, range, streams) == range
    }

    /// Returns the availability of the value's bytes, and the longest first part of `range` that
    /// shares it.
    pub(crate) fn first_part(
        &self,
        value: &Value,
        range: SlotRange,
        streams: &Table,
    ) -> (SlotRange, ByteAvailability) {
        match *value {
            Value::Batch(ref name) => match self.payloads.get(name) {
                Some(payload) => (range, ByteAvailability::InMemory(payload.clone())),
                None => (range, ByteAvailability::Missing),
            },
            Value::Content { stream, offset } => {
                let needless = self.needless_part(value, range, streams);
                if !needless.is_empty() {
                    return (needless, ByteAvailability::None);
                }
                let mut positions = stream_positions(offset, range);
                let Some((end, whereabouts)) =
                    self.stream_buffers.first_location(stream, &positions)
                else {
                    return (range, ByteAvailability::Missing);
                };
                positions.end = end;
                let part = SlotRange::new(range.from, range.from.plus(end - positions.start));
                match whereabouts {
                    BytesLocation::Placed => (part, ByteAvailability::Placed),
                    BytesLocation::Memory => match self.stream_buffers.get(stream, &positions) {
                        Some(payload) => (part, ByteAvailability::InMemory(payload)),
                        None => (range, ByteAvailability::Missing),
                    },
                }
            }
            _ => (range, ByteAvailability::None),
        }
    }

    /// Returns the value's bytes in the slots of `range` for a peer; `None` if they are not in
    /// memory. The peer may need bytes that this node no longer needs.
    pub(crate) fn bytes_for_peer(&self, value: &Value, range: SlotRange) -> Option<Payload> {
        match *value {
            Value::Batch(ref name) => self.payloads.get(name).cloned(),
            Value::Content { stream, offset } => {
                self.stream_buffers.get(stream, &stream_positions(offset, range))
            }
            _ => None,
        }
    }

    /// Returns whether [`Contents::first_part`] would find missing bytes.
    pub(crate) fn lacks_any(&self, value: &Value, range: SlotRange, streams: &Table) -> bool {
        match *value {
            Value::Batch(ref name) => !self.payloads.holds(name),
            Value::Content { stream, offset } => {
                let positions = stream_positions(offset, range);
                let end = positions.end;
                !streams.appendable(stream, offset, range).is_empty()
                    && self.stream_buffers.available_end(stream, positions.start, end) < end
            }
            _ => false,
        }
    }

    /// Stores the bytes of a batch that has no slot yet.
    pub(crate) fn store_offered(&mut self, value: &Value, payload: Payload) {
        if let Value::Batch(name) = *value {
            self.payloads.insert(name, payload);
        }
    }

    /// Stores bytes that are known to match the value. The bytes of a batch are valid in any slot.
    pub(crate) fn insert(&mut self, value: &Value, range: SlotRange, payload: Payload) {
        match *value {
            Value::Batch(name) => self.payloads.insert(name, payload),
            Value::Content { stream, offset } if !payload.is_empty() => {
                let position = stream_positions(offset, range).start;
                self.stream_buffers.store_needed(stream, position, &payload);
            }
            _ => {}
        }
    }

    /// Stores bytes that a peer sent, if they match the value and were missing.
    pub(crate) fn store_bytes(
        &mut self,
        value: &Value,
        range: SlotRange,
        brought: ReceivedBytes<'_>,
    ) -> Result<(), MismatchedBytes> {
        if !brought.holds_bytes_of(value, range) {
            return Err(MismatchedBytes);
        }
        self.insert(value, range, brought.to_payload());
        Ok(())
    }

    /// [stream-4] Returns the first part of `range` whose content is not needed, according to the
    /// table or an earlier vote.
    pub(crate) fn needless_part(
        &self,
        value: &Value,
        range: SlotRange,
        streams: &Table,
    ) -> SlotRange {
        let Value::Content { stream, offset } = *value else {
            return SlotRange::new(range.from, range.from);
        };
        let positions = stream_positions(offset, range);
        let needed = streams.appendable(stream, offset, range);
        let mut to = range.from.plus(needed.start.min(positions.end) - positions.start);
        let bare = |to: Slot| {
            let mut bare = self.without_bytes.iter();
            bare.find(|(known, of)| of == value && known.contains(to))
        };
        while to < range.to
            && let Some((known, _)) = bare(to)
        {
            to = known.to.min(range.to);
        }
        SlotRange::new(range.from, to)
    }

    /// [aux-5] Records a full replica's statement that this stream's content below position `below`
    /// is not needed in slots at or after `from`. Returns the requested content that this settles,
    /// even if only its first part is settled.
    pub(crate) fn record_not_needed(
        &mut self,
        stream: StreamName,
        below: u64,
        from: Slot,
    ) -> Vec<Value> {
        let mut settled = self.fetches.values_of_stream(stream);
        settled.retain(|value| {
            let Value::Content { offset, .. } = *value else {
                return false;
            };
            let wanted = self.fetches.fetching_range(value).filter(|wanted| wanted.from >= from);
            let Some(SlotRange { from, to }) = wanted else {
                return false;
            };
            // A slot below the offset has no position, so no content of the stream is in it.
            let to = to.min(Slot(offset.saturating_add(below)));
            if from < to {
                self.without_bytes.push((SlotRange::new(from, to), *value));
            }
            from < to
        });
        settled
    }

    /// Stores bytes of open slots that were read back from the log.
    pub(crate) fn restore_bytes(&mut self, value: &Value, range: SlotRange, bytes: Vec<u8>) {
        if bytes.is_empty() && matches!(value, Value::Content { .. }) {
            self.without_bytes.push((range, *value));
            return;
        }
        self.insert(value, range, Payload::new(bytes));
        self.pin_bytes(value, range);
    }

    /// [disk-5] Records that these open slots have their bytes in the store of streams.
    pub(crate) fn restore_placed(&mut self, value: &Value, range: SlotRange) {
        if let Value::Content { stream, offset } = *value {
            self.stream_buffers.mark_placed(stream, stream_positions(offset, range));
        }
    }

    /// Pins the value's bytes for the open slots in `range`. Available bytes are retained until the
    /// slots are released or another value is decided in them.
    pub(crate) fn pin_bytes(&mut self, value: &Value, range: SlotRange) {
        if let Value::Batch(name) = value {
            self.payloads.pin_batch(range.from, *name);
        }
    }

    /// Records that the value is decided in the slots of `range`. Its bytes are retained, and the
    /// bytes of other values proposed there are unpinned.
    pub(crate) fn record_decided(&mut self, value: &Value, range: SlotRange) {
        match value {
            Value::Batch(name) => self.payloads.record_decided(range.from, Some(*name)),
            _ if range.len() == 1 => self.payloads.record_decided(range.from, None),
            // No-ops may cover a wide range: pinned bytes in it are dropped when it is applied.
            _ => {}
        }
        self.fetches.forget_below(range.to);
    }

    /// Releases the bytes of slots below `slot`, applied or to be applied from the log.
    pub(crate) fn release_below(&mut self, slot: Slot) {
        self.payloads.unpin_below(slot);
        self.without_bytes.retain(|(range, _)| range.to > slot);
    }

    /// Fetches the value's bytes for open slots from peers, starting with `from`, which should have
    /// them. With `patience`, requests for bytes of streams are delayed, because the bytes may be
    /// in flight. Pins and returns the part that is already available.
    pub(crate) fn start_fetch(
        &mut self,
        now: Time,
        value: &Value,
        range: SlotRange,
        from: NodeId,
        streams: &Table,
        patience: bool,
    ) -> SlotRange {
        let held = self.held_range(value, range, streams);
        if !held.is_empty() {
            self.pin_bytes(value, held);
        }
        let missing = SlotRange::new(held.to, range.to);
        if !missing.is_empty() {
            // The owner of the stream sends its bytes, or has already sent them.
            let patience = patience && matches!(value, Value::Content { .. });
            self.fetches.start_fetch(now, *value, missing, from, patience);
        }
        held
    }

    /// Records that more of the value's bytes are available. Returns the first part of the fetched
    /// slots that is now complete, if any, after pinning its bytes.
    pub(crate) fn record_available(
        &mut self,
        now: Time,
        value: &Value,
        streams: &Table,
    ) -> Option<SlotRange> {
        let wanted = self.fetches.fetching_range(value)?;
        let held = self.held_range(value, wanted, streams);
        if held.is_empty() {
            return None;
        }
        self.fetches.record_available(now, value, held.to);
        self.pin_bytes(value, held);
        Some(held)
    }

    /// Returns all content whose bytes are being fetched.
    pub(crate) fn fetching_content(&self) -> Vec<Value> {
        self.fetches.fetching_content()
    }

    /// Returns the content of this stream whose bytes are being fetched.
    pub(crate) fn fetching_of_stream(&self, stream: StreamName) -> Vec<Value> {
        self.fetches.values_of_stream(stream)
    }

    /// Returns the slots for which the value's bytes are being fetched, if any.
    pub(crate) fn fetching_range(&self, value: &Value) -> Option<SlotRange> {
        self.fetches.fetching_range(value)
    }

    /// Records that one of `peers` connected peers does not have the requested bytes.
    pub(crate) fn on_unavailable(&mut self, now: Time, value: &Value, peers: usize) {
        self.fetches.on_unavailable(now, value, peers);
    }

    pub(crate) fn send_requests(&mut self, now: Time, peers: &Peers, out: &mut Outbox<'_>) {
        if self.fetches.wake_at().is_none_or(|at| at > now) {
            return;
        }
        let mut questions = Vec::new();
        self.fetches.append_due_requests(now, &peers.connected_nodes(), &mut questions);
        for question in questions {
            let frame = Frame::FetchRequest { value: question.value, slot: question.range.from };
            out.send(question.to, Lane::Control, &frame);
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.fetches.wake_at()
    }
}

/// Returns the stream positions of content in `range`: its slots minus `offset`.
pub(crate) fn stream_positions(offset: u64, range: SlotRange) -> Range<u64> {
    let at = |slot: Slot| slot.0.saturating_sub(offset);
    at(range.from)..at(range.to)
}

#[cfg(test)]
mod tests {
    use quorate_core::value::{BatchName, StreamName};

    use super::*;

    fn brought(bytes: &[u8]) -> ReceivedBytes<'_> {
        ReceivedBytes { bytes, checksum: None, body: None }
    }

    const CONTENT: Value =
        Value::Content { stream: StreamName { owner: NodeId(1), boot: 1, number: 1 }, offset: 0 };

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    fn batch(bytes: &[u8]) -> Value {
        Value::Batch(BatchName {
            length: u32::try_from(bytes.len()).unwrap(),
            checksum: quorate_wire::checksum(bytes),
            ..BatchName::default()
        })
    }

    /// Creates a store for `pinned` bytes of open slots, and only the newest other bytes.
    fn contents(pinned: usize) -> Contents {
        Contents::new(pinned, 0, StreamBuffers::new(100, 50), 10)
    }

    fn bytes_of(
        contents: &Contents,
        value: &Value,
        range: SlotRange,
        streams: &Table,
    ) -> ByteAvailability {
        let (part, bytes) = contents.first_part(value, range, streams);
        assert_eq!(part, range);
        bytes
    }

    #[test]
    fn held_part_of_a_range_is_its_first_slots() {
        let mut contents = contents(100);
        let streams = Table::default();
        let (none, all) = (slots(5, 5), slots(5, 9));
        assert_eq!(contents.held_range(&Value::NoOp, all, &streams), all);
        assert_eq!(contents.held_range(&CONTENT, all, &streams), none);
        let value = batch(b"abc");
        assert_eq!(contents.held_range(&value, slots(5, 6), &streams), none);
        let missing = bytes_of(&contents, &value, slots(5, 6), &streams);
        assert_eq!(missing, ByteAvailability::Missing);
        contents.insert(&value, slots(5, 6), Payload::new(b"abc".to_vec()));
        for slot in [5, 8] {
            let range = SlotRange::one(Slot(slot));
            let everywhere = contents.holds_all(&value, range, &streams);
            assert!(everywhere, "the same in every slot");
            let ByteAvailability::InMemory(payload) = bytes_of(&contents, &value, range, &streams)
            else {
                panic!("just kept");
            };
            assert_eq!(payload[..], b"abc"[..]);
        }
        let nothing = bytes_of(&contents, &Value::NoOp, all, &streams);
        assert_eq!(nothing, ByteAvailability::None);
    }

    /// [stream-4] Needless content is reported separately from available content, because one vote
    /// for both would be partly wrong. In this test, positions equal slots.
    #[test]
    fn needless_content_is_reported_separately() {
        let mut contents = contents(1000);
        let mut streams = Table::default();
        let Value::Content { stream, .. } = CONTENT else {
            unreachable!("it is content");
        };
        let open = quorate_stream::Command::Open {
            name: "s".parse().unwrap(),
            mode: quorate_stream::OpenMode::Create,
            writer: quorate_stream::Writer(1),
            stream,
            now_ms: 0,
        };
        streams.execute(Slot(1), &open.encode()).unwrap();
        streams.append(stream, 0, slots(0, 6));
        assert_eq!(contents.held_range(&CONTENT, slots(2, 10), &streams), slots(2, 6));
        assert_eq!(bytes_of(&contents, &CONTENT, slots(2, 6), &streams), ByteAvailability::None);
        let (now, from) = (Time(0), NodeId(2));
        let held = contents.start_fetch(now, &CONTENT, slots(2, 10), from, &streams, true);
        assert_eq!((held, contents.fetching_range(&CONTENT)), (slots(2, 6), Some(slots(6, 10))));
        assert!(contents.lacks_any(&CONTENT, slots(6, 10), &streams));
        contents.insert(&CONTENT, slots(6, 8), Payload::new(vec![6, 7]));
        assert_eq!(contents.record_available(now, &CONTENT, &streams), Some(slots(6, 8)));
        assert_eq!(contents.record_available(now, &CONTENT, &streams), None);
        contents.insert(&CONTENT, slots(8, 10), Payload::new(vec![8, 9]));
        assert_eq!(contents.record_available(now, &CONTENT, &streams), Some(slots(8, 10)));
        let ByteAvailability::InMemory(bytes) =
            bytes_of(&contents, &CONTENT, slots(7, 9), &streams)
        else {
            panic!("both are here");
        };
        assert_eq!(bytes[..], [7, 8]);
        contents.restore_bytes(&CONTENT, slots(20, 30), Vec::new());
        let bare = bytes_of(&contents, &CONTENT, slots(22, 30), &streams);
        assert_eq!(bare, ByteAvailability::None, "it was voted for without bytes");
        assert!(contents.holds_all(&CONTENT, slots(22, 30), &streams));
        assert!(!contents.holds_all(&CONTENT, slots(22, 31), &streams));
        // The next position is 6, where the part that the table settles and the earlier vote meet.
        contents.restore_bytes(&CONTENT, slots(6, 7), Vec::new());
        let needless = contents.needless_part(&CONTENT, slots(2, 9), &streams);
        assert_eq!(needless, slots(2, 7));
        let rest = bytes_of(&contents, &CONTENT, slots(7, 9), &streams);
        assert!(matches!(rest, ByteAvailability::InMemory(_)), "{rest:?}");
        let first = contents.first_part(&CONTENT, slots(2, 9), &streams);
        assert_eq!(first, (slots(2, 7), ByteAvailability::None), "a part of it is needed");
        contents.release_below(Slot(30));
        assert!(!contents.holds_all(&CONTENT, slots(22, 30), &streams));
        streams.close_inner(stream);
        let rest = contents.held_range(&CONTENT, slots(8, 99), &streams);
        assert_eq!(rest, slots(8, 99), "closed: no peer needs it");
        assert_eq!(
            contents.bytes_for_peer(&CONTENT, slots(7, 9)).unwrap()[..],
            [7, 8],
            "a peer may"
        );
    }

    /// [aux-5] An auxiliary knows no streams. A full replica's statement settles only the content
    /// that the auxiliary fetches for this stream, below the position, and in the given slots.
    #[test]
    fn content_needless_on_a_full_replica_is_not_fetched() {
        let streams = Table::default();
        let now = Time(0);
        let looking = |range| {
            let mut contents = contents(100);
            contents.start_fetch(now, &CONTENT, range, NodeId(2), &streams, false);
            contents
        };
        let Value::Content { stream, .. } = CONTENT else { unreachable!() };
        let other = StreamName { number: 2, ..stream };
        let mut nothing = looking(slots(20, 30));
        for (stream, below, from) in [(other, u64::MAX, 1), (stream, 20, 1), (stream, u64::MAX, 21)]
        {
            assert_eq!(nothing.record_not_needed(stream, below, Slot(from)), []);
            assert_eq!(nothing.record_available(now, &CONTENT, &streams), None);
        }
        let mut all = looking(slots(20, 30));
        assert_eq!(all.record_not_needed(stream, u64::MAX, Slot(20)), [CONTENT]);
        let found = all.record_available(now, &CONTENT, &streams);
        assert_eq!((found, all.fetching_range(&CONTENT)), (Some(slots(20, 30)), None));
        let bytes = bytes_of(&all, &CONTENT, slots(20, 30), &streams);
        assert_eq!(bytes, ByteAvailability::None, "its record has none");
        assert_eq!(all.record_not_needed(stream, u64::MAX, Slot(20)), [], "said again");
        all.release_below(Slot(30));
        assert!(all.without_bytes.is_empty());
        let mut part = looking(slots(20, 30));
        assert_eq!(part.record_not_needed(stream, 25, Slot(3)), [CONTENT]);
        assert_eq!(part.record_available(now, &CONTENT, &streams), Some(slots(20, 25)));
        assert_eq!(part.fetching_range(&CONTENT), Some(slots(25, 30)));
    }

    /// [value-2] Bytes that do not match their value are not stored.
    #[test]
    fn bytes_that_do_not_match_the_value_are_not_stored() {
        let mut contents = contents(100);
        let (value, range) = (batch(b"abc"), slots(5, 6));
        assert_eq!(contents.store_bytes(&value, range, brought(b"abd")), Err(MismatchedBytes));
        assert_eq!(
            contents.store_bytes(&CONTENT, slots(5, 9), brought(b"abc")),
            Err(MismatchedBytes)
        );
        assert!(!contents.holds_all(&value, range, &Table::default()));
        assert_eq!(contents.store_bytes(&value, range, brought(b"abc")), Ok(()));
        assert!(contents.holds_all(&value, range, &Table::default()));
    }

    /// Each pin ends exactly once, by a release or because another value is decided in the slot.
    #[test]
    fn pinned_bytes_stay_until_all_their_slots_are_released() {
        let mut contents = contents(3);
        let (value, other) = (batch(b"abc"), batch(b"other"));
        contents.restore_bytes(&value, slots(5, 6), b"abc".to_vec());
        contents.pin_bytes(&value, slots(5, 6));
        contents.pin_bytes(&value, slots(7, 8));
        contents.pin_bytes(&CONTENT, slots(8, 20));
        let pinned = |contents: &mut Contents| {
            // Unpinned bytes are dropped to store the newest.
            contents.insert(&other, slots(5, 6), Payload::new(b"other".to_vec()));
            contents.insert(&batch(b"newest"), slots(5, 6), Payload::new(b"newest".to_vec()));
            assert!(!contents.holds_all(&other, slots(1, 2), &Table::default()));
            contents.holds_all(&value, slots(5, 6), &Table::default()) && !contents.has_room(1)
        };
        assert!(pinned(&mut contents));
        contents.record_decided(&Value::NoOp, slots(5, 6));
        assert!(pinned(&mut contents), "slot 7 needs it");
        contents.release_below(Slot(7));
        assert!(pinned(&mut contents));
        contents.release_below(Slot(8));
        assert!(contents.has_room(1));
        assert!(!pinned(&mut contents));
        contents.release_below(Slot(8));
    }

    /// [value-4] Only missing bytes are fetched, and fetched bytes are retained.
    #[test]
    fn only_missing_bytes_are_fetched_and_retained() {
        let mut contents = contents(3);
        let (value, range) = (batch(b"abc"), slots(5, 6));
        let fetch = |contents: &mut Contents, value: &Value, range| {
            contents.start_fetch(Time(0), value, range, NodeId(2), &Table::default(), false)
        };
        assert!(fetch(&mut contents, &value, range).is_empty());
        assert_eq!(contents.fetching_range(&value), Some(range));
        assert_eq!(
            contents.record_available(Time(0), &value, &Table::default()),
            None,
            "not here yet"
        );
        contents.insert(&value, slots(5, 6), Payload::new(b"abc".to_vec()));
        assert_eq!(contents.record_available(Time(0), &value, &Table::default()), Some(range));
        assert!(!contents.has_room(1), "it is pinned");
        assert_eq!(
            (
                contents.record_available(Time(0), &value, &Table::default()),
                contents.fetching_range(&value)
            ),
            (None, None)
        );
        assert_eq!(fetch(&mut contents, &value, slots(7, 8)), slots(7, 8));
        assert_eq!(fetch(&mut contents, &Value::NoOp, slots(8, 20)), slots(8, 20));
        assert_eq!(contents.wake_at(), None, "no peer is asked for what is here");
        contents.release_below(Slot(6));
        assert!(!contents.has_room(1), "slot 7 needs it too");
        contents.release_below(Slot(8));
        assert!(contents.has_room(1));
    }
}
