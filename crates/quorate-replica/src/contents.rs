//! The port for values' bytes, by descriptor and slot range: hold, pin, fetch, release, read back.
//!
//! The protocol orders descriptors; only this file and those below know what kinds of bytes there are
//! and where they lie. A batch has all its bytes or none, the same in every slot. A kind whose values
//! cover ranges of slots, with some of their bytes here and some not, is one more arm in each operation:
//! what is here of a range is told as its first part.

mod fetches;
pub(crate) mod payloads;

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_wire::{Frame, Lane};

use crate::{
    contents::{fetches::Fetches, payloads::Payloads},
    outbox::Outbox,
    payload::Payload,
    peers::Peers,
};

/// What is known of a value's bytes in some slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes<'a> {
    /// It has none.
    None,
    /// These.
    Here(&'a Payload),
    /// They are not in memory.
    Missing,
}

/// The bytes of a value, as a frame brought them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brought<'a> {
    pub(crate) bytes: &'a [u8],
    /// Their checksum, if it is known.
    pub(crate) check: Option<u32>,
    /// The same bytes, if they can be kept without a copy.
    pub(crate) body: Option<&'a Payload>,
}

impl Brought<'_> {
    /// Whether these are the bytes of the value ([value-2]); if it has none, whether there are none.
    pub(crate) fn is_of(&self, value: &Value) -> bool {
        match value {
            Value::Batch(name) => payloads::matches(name, self.bytes, self.check),
            _ => self.bytes.is_empty(),
        }
    }

    /// To be kept: shared if they can be, else copied.
    pub(crate) fn to_payload(self) -> Payload {
        match self.body {
            Some(body) => body.clone(),
            None => Payload::new(self.bytes.to_vec()),
        }
    }
}

/// Why bytes that came from elsewhere were not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatched;

/// The bytes of all values that this node may need.
pub(crate) struct Contents {
    payloads: Payloads,
    fetches: Fetches,
}

impl Contents {
    /// Open slots may need `pinned_bytes_max`; `recent_bytes_max` more are kept for peers. A question
    /// that nobody answered is asked again after `retry_ms`.
    pub(crate) fn new(pinned_bytes_max: usize, recent_bytes_max: usize, retry_ms: u64) -> Self {
        Self {
            payloads: Payloads::new(pinned_bytes_max, recent_bytes_max),
            fetches: Fetches::new(retry_ms),
        }
    }

    /// Whether this version can hold the value's bytes, if it has any.
    pub(crate) fn serves(value: &Value) -> bool {
        // Streams are not served by this version: there is nobody to hold their bytes.
        !matches!(value, Value::Content { .. })
    }

    /// Whether open slots may need `more` bytes.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.payloads.has_room(more)
    }

    /// The same for slots that have to wait for others.
    pub(crate) fn has_room_ahead(&self, more: usize) -> bool {
        self.payloads.has_room_ahead(more)
    }

    /// The first part of these slots for which the value's bytes are here: all, if it has none.
    pub(crate) fn held(&self, value: &Value, range: SlotRange) -> SlotRange {
        let here = match value {
            Value::Batch(name) => self.payloads.holds(name),
            Value::Content { .. } => false,
            _ => true,
        };
        SlotRange::new(range.from, if here { range.to } else { range.from })
    }

    /// Whether nothing is missing in these slots.
    pub(crate) fn holds(&self, value: &Value, range: SlotRange) -> bool {
        self.held(value, range) == range
    }

    /// The value's bytes in these slots.
    pub(crate) fn bytes(&self, value: &Value, _range: SlotRange) -> Bytes<'_> {
        match value {
            Value::Batch(name) => match self.payloads.get(name) {
                Some(payload) => Bytes::Here(payload),
                None => Bytes::Missing,
            },
            Value::Content { .. } => Bytes::Missing,
            _ => Bytes::None,
        }
    }

    /// Keeps bytes that are known to be the value's, in whichever slots it may get.
    pub(crate) fn insert(&mut self, value: &Value, payload: Payload) {
        if let Value::Batch(name) = value {
            self.payloads.insert(*name, payload);
        }
    }

    /// Keeps bytes that a peer sent for these slots, if they are the value's.
    pub(crate) fn keep(
        &mut self,
        value: &Value,
        range: SlotRange,
        brought: Brought<'_>,
    ) -> Result<(), Mismatched> {
        if self.holds(value, range) {
            return Ok(());
        }
        if !brought.is_of(value) {
            return Err(Mismatched);
        }
        self.insert(value, brought.to_payload());
        Ok(())
    }

    /// Bytes that were read back from the log, of slots that are still open: they stay.
    pub(crate) fn restore(&mut self, value: &Value, range: SlotRange, bytes: Vec<u8>) {
        self.insert(value, Payload::new(bytes));
        self.pin(value, range);
    }

    /// Open slots may need the value's bytes: those that are here stay until the slots are decided
    /// without them, or released.
    pub(crate) fn pin(&mut self, value: &Value, range: SlotRange) {
        if let Value::Batch(name) = value {
            self.payloads.pin(range.from, *name);
        }
    }

    /// The value is decided in these slots: its bytes stay, and they need no others any more.
    pub(crate) fn decided(&mut self, value: &Value, range: SlotRange) {
        match value {
            Value::Batch(name) => self.payloads.decided(range.from, Some(*name)),
            _ if range.len() == 1 => self.payloads.decided(range.from, None),
            // A wide range of no-ops: what is pinned there goes when it is applied.
            _ => {}
        }
        self.fetches.forget_below(range.to);
    }

    /// Slots below are applied, or will be applied from the log: they need no bytes any more.
    pub(crate) fn release_below(&mut self, slot: Slot) {
        self.payloads.unpin_below(slot);
    }

    /// Open slots need the value's bytes, which `from` should have. Gives the part that is here, and
    /// stays; peers are asked for the rest.
    pub(crate) fn fetch(
        &mut self,
        now: Time,
        value: &Value,
        range: SlotRange,
        from: NodeId,
    ) -> SlotRange {
        let held = self.held(value, range);
        if !held.is_empty() {
            self.pin(value, held);
        }
        let missing = SlotRange::new(held.to, range.to);
        if !missing.is_empty() && Self::serves(value) {
            self.fetches.start(now, *value, missing, from);
        }
        held
    }

    /// More of the value's bytes are here. Gives the slots in which they were looked for, if they were:
    /// there they stay.
    pub(crate) fn found(&mut self, value: &Value) -> Option<SlotRange> {
        let wanted = self.fetches.wanted(value)?;
        let held = self.held(value, wanted);
        if held.is_empty() {
            return None;
        }
        self.fetches.found(value, held.to);
        self.pin(value, held);
        Some(held)
    }

    /// The slots of the value in which its bytes are looked for, if they are.
    pub(crate) fn wanted(&self, value: &Value) -> Option<SlotRange> {
        self.fetches.wanted(value)
    }

    /// One of `peers` that was asked does not have them.
    pub(crate) fn not_there(&mut self, now: Time, value: &Value, peers: usize) {
        self.fetches.not_there(now, value, peers);
    }

    /// Asks peers for what is due.
    pub(crate) fn ask(&mut self, now: Time, peers: &Peers, out: &mut Outbox<'_>) {
        if self.fetches.wake_at().is_none_or(|at| at > now) {
            return;
        }
        let mut questions = Vec::new();
        self.fetches.due(now, &peers.ids(), &mut questions);
        for question in questions {
            let frame = Frame::FetchRequest {
                value: question.value,
                slot: question.range.from,
            };
            out.send(question.to, Lane::Control, &frame);
        }
    }

    /// When the next question is due.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.fetches.wake_at()
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::value::{BatchName, StreamName};

    use super::*;

    fn brought(bytes: &[u8]) -> Brought<'_> {
        Brought {
            bytes,
            check: None,
            body: None,
        }
    }

    const CONTENT: Value = Value::Content {
        stream: StreamName {
            owner: NodeId(1),
            boot: 1,
            number: 1,
        },
        offset: 0,
    };

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

    /// Room for `pinned` bytes of open slots, and for the newest of others.
    fn contents(pinned: usize) -> Contents {
        Contents::new(pinned, 0, 10)
    }

    #[test]
    fn what_is_here_of_a_range_is_its_first_part() {
        let mut contents = contents(100);
        let (none, all) = (slots(5, 5), slots(5, 9));
        assert_eq!(contents.held(&Value::NoOp, all), all);
        assert_eq!(contents.held(&CONTENT, all), none);
        let value = batch(b"abc");
        assert_eq!(contents.held(&value, slots(5, 6)), none);
        assert_eq!(contents.bytes(&value, slots(5, 6)), Bytes::Missing);
        contents.insert(&value, Payload::new(b"abc".to_vec()));
        for slot in [5, 8] {
            let range = SlotRange::one(Slot(slot));
            assert!(contents.holds(&value, range), "the same in every slot");
            let Bytes::Here(payload) = contents.bytes(&value, range) else {
                panic!("just kept");
            };
            assert_eq!(payload[..], b"abc"[..]);
        }
        assert_eq!(contents.bytes(&Value::NoOp, all), Bytes::None);
    }

    /// [value-2]
    #[test]
    fn bytes_of_another_value_are_not_kept() {
        let mut contents = contents(100);
        let (value, range) = (batch(b"abc"), slots(5, 6));
        assert_eq!(
            contents.keep(&value, range, brought(b"abd")),
            Err(Mismatched)
        );
        assert_eq!(
            contents.keep(&CONTENT, range, brought(b"abc")),
            Err(Mismatched)
        );
        assert!(!contents.holds(&value, range));
        assert_eq!(contents.keep(&value, range, brought(b"abc")), Ok(()));
        assert!(contents.holds(&value, range));
    }

    /// Each pin ends once: by a release, or because something else is decided there.
    #[test]
    fn what_is_pinned_stays_until_each_of_its_slots_is_released() {
        let mut contents = contents(3);
        let (value, other) = (batch(b"abc"), batch(b"other"));
        contents.restore(&value, slots(5, 6), b"abc".to_vec());
        contents.pin(&value, slots(5, 6));
        contents.pin(&value, slots(7, 8));
        contents.pin(&CONTENT, slots(8, 20));
        let pinned = |contents: &mut Contents| {
            // Whatever is not pinned makes way for the newest.
            contents.insert(&other, Payload::new(b"other".to_vec()));
            contents.insert(&batch(b"newest"), Payload::new(b"newest".to_vec()));
            assert!(!contents.holds(&other, slots(1, 2)));
            contents.holds(&value, slots(5, 6)) && !contents.has_room(1)
        };
        assert!(pinned(&mut contents));
        contents.decided(&Value::NoOp, slots(5, 6));
        assert!(pinned(&mut contents), "slot 7 needs it");
        contents.release_below(Slot(7));
        assert!(pinned(&mut contents));
        contents.release_below(Slot(8));
        assert!(contents.has_room(1));
        assert!(!pinned(&mut contents));
        contents.release_below(Slot(8));
    }

    /// [value-4]
    #[test]
    fn only_what_is_missing_is_fetched_and_it_stays() {
        let mut contents = contents(3);
        let (value, range) = (batch(b"abc"), slots(5, 6));
        let fetch = |contents: &mut Contents, value: &Value, range| {
            contents.fetch(Time(0), value, range, NodeId(2))
        };
        assert!(fetch(&mut contents, &value, range).is_empty());
        assert_eq!(contents.wanted(&value), Some(range));
        assert_eq!(contents.found(&value), None, "not here yet");
        contents.insert(&value, Payload::new(b"abc".to_vec()));
        assert_eq!(contents.found(&value), Some(range));
        assert!(!contents.has_room(1), "it is pinned");
        assert_eq!(
            (contents.found(&value), contents.wanted(&value)),
            (None, None)
        );
        assert_eq!(fetch(&mut contents, &value, slots(7, 8)), slots(7, 8));
        assert_eq!(
            fetch(&mut contents, &Value::NoOp, slots(8, 20)),
            slots(8, 20)
        );
        assert!(fetch(&mut contents, &CONTENT, slots(8, 20)).is_empty());
        assert_eq!(contents.wake_at(), None, "nobody is asked for what is here");
        contents.release_below(Slot(6));
        assert!(!contents.has_room(1), "slot 7 needs it too");
        contents.release_below(Slot(8));
        assert!(contents.has_room(1));
    }
}
