//! The bytes of values: those that are here, and those that are asked of peers.

pub(crate) mod fetches;
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

/// What is known of a value's bytes.
pub(crate) enum Bytes<'a> {
    /// It has none.
    None,
    /// These.
    Here(&'a Payload),
    /// They are not in memory.
    Missing,
}

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

    /// Whether these are the bytes of the value ([value-2]); if it has none, whether there are none.
    /// `check` is their checksum, if it is known.
    pub(crate) fn matches(value: &Value, bytes: &[u8], check: Option<u32>) -> bool {
        match value {
            Value::Batch(name) => payloads::matches(name, bytes, check),
            _ => bytes.is_empty(),
        }
    }

    /// Whether open slots may need `more` bytes.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.payloads.has_room(more)
    }

    /// The same for slots that have to wait for others.
    pub(crate) fn has_room_ahead(&self, more: usize) -> bool {
        self.payloads.has_room_ahead(more)
    }

    /// Whether the value has bytes, and they are here.
    pub(crate) fn holds(&self, value: &Value) -> bool {
        matches!(value, Value::Batch(name) if self.payloads.holds(name))
    }

    /// The value's bytes.
    pub(crate) fn bytes(&self, value: &Value) -> Bytes<'_> {
        match value {
            Value::Batch(name) => match self.payloads.get(name) {
                Some(payload) => Bytes::Here(payload),
                None => Bytes::Missing,
            },
            _ => Bytes::None,
        }
    }

    /// Keeps bytes that are known to be the value's.
    pub(crate) fn insert(&mut self, value: &Value, payload: Payload) {
        if let Value::Batch(name) = value {
            self.payloads.insert(*name, payload);
        }
    }

    /// An open slot may need the value's bytes: they stay until it is decided and applied.
    pub(crate) fn pin(&mut self, slot: Slot, value: &Value) {
        if let Value::Batch(name) = value {
            self.payloads.pin(slot, *name);
        }
    }

    /// This is decided in these slots: they need no other bytes any more.
    pub(crate) fn decided(&mut self, range: SlotRange, value: &Value) {
        match value {
            Value::Batch(name) => self.payloads.decided(range.from, Some(*name)),
            _ if range.len() == 1 => self.payloads.decided(range.from, None),
            // A wide range of no-ops: what is pinned there goes when it is applied.
            _ => {}
        }
        self.fetches.forget_below(range.to);
    }

    /// Slots below are applied, or will be applied from the log.
    pub(crate) fn release_below(&mut self, slot: Slot) {
        self.payloads.unpin_below(slot);
    }

    /// An open slot needs bytes that `from` should have. `true`: they are here, and stay.
    pub(crate) fn fetch(&mut self, now: Time, value: &Value, slot: Slot, from: NodeId) -> bool {
        let Value::Batch(name) = value else {
            return false;
        };
        if self.payloads.holds(name) {
            self.payloads.pin(slot, *name);
            return true;
        }
        self.fetches.start(now, *name, from, slot);
        false
    }

    /// The value's bytes are here now. Whether they were looked for; then they stay for their slot.
    pub(crate) fn found(&mut self, value: &Value) -> bool {
        let Value::Batch(name) = value else {
            return false;
        };
        match self.fetches.found(name) {
            Some(slot) => {
                self.payloads.pin(slot, *name);
                true
            }
            None => false,
        }
    }

    /// Whether the value's bytes are looked for.
    pub(crate) fn wants(&self, value: &Value) -> bool {
        matches!(value, Value::Batch(name) if self.fetches.wants(name))
    }

    /// One of `peers` that was asked does not have them.
    pub(crate) fn not_there(&mut self, now: Time, value: &Value, peers: usize) {
        if let Value::Batch(name) = value {
            self.fetches.not_there(now, name, peers);
        }
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
                slot: question.slot,
            };
            out.send(question.to, Lane::Control, &frame);
        }
    }

    /// When the next question is due.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.fetches.wake_at()
    }
}
