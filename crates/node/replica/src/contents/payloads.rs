//! Payloads by batch name: those of undecided slots, and a bounded amount for slow followers.
//!
//! Each slot that has not been applied pins the payloads proposed or decided in it. Unpinned
//! payloads may be dropped at any time, oldest first; the log still has those that were voted for.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

use quorate_core::{slot::Slot, value::BatchName};

use crate::ports::payload::Payload;

/// Returns whether `bytes` are the batch `name` ([value-2]). `check` is their checksum, if known.
pub(crate) fn is_batch_content(name: &BatchName, bytes: &[u8], check: Option<u32>) -> bool {
    usize::try_from(name.length) == Ok(bytes.len())
        && name.checksum == check.unwrap_or_else(|| quorate_wire::checksum(bytes))
}

struct HeldPayload {
    payload: Payload,
    pin_count: u32,
    /// Key in `by_recency`; meaningful only while `pin_count` is 0.
    recency: u64,
}

/// Payloads of batches, pinned or recent.
pub(crate) struct Payloads {
    by_name: HashMap<BatchName, HeldPayload>,
    /// Batches pinned by each slot: one for each value that a ballot proposed there, so few.
    pins_by_slot: BTreeMap<Slot, Vec<BatchName>>,
    by_recency: BTreeMap<u64, BatchName>,
    last_recency: u64,
    pinned_bytes: usize,
    recent_bytes: usize,
    pinned_bytes_max: usize,
    recent_bytes_max: usize,
}

impl Payloads {
    pub(crate) fn new(pinned_bytes_max: usize, recent_bytes_max: usize) -> Self {
        Self {
            by_name: HashMap::new(),
            pins_by_slot: BTreeMap::new(),
            by_recency: BTreeMap::new(),
            last_recency: 0,
            pinned_bytes: 0,
            recent_bytes: 0,
            pinned_bytes_max,
            recent_bytes_max,
        }
    }

    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.pinned_bytes == 0 || self.pinned_bytes.saturating_add(more) <= self.pinned_bytes_max
    }

    /// Returns whether `more` bytes fit for slots after a gap, which may use half of the total.
    pub(crate) fn has_room_ahead(&self, more: usize) -> bool {
        self.pinned_bytes == 0
            || self.pinned_bytes.saturating_add(more) <= self.pinned_bytes_max / 2
    }

    pub(crate) fn get(&self, name: &BatchName) -> Option<&Payload> {
        self.by_name.get(name).map(|held| &held.payload)
    }

    pub(crate) fn holds(&self, name: &BatchName) -> bool {
        self.by_name.contains_key(name)
    }

    /// Stores a payload that was checked against its name. The newest unpinned payload is never
    /// dropped, however large, because the caller is about to vote for it.
    pub(crate) fn insert(&mut self, name: BatchName, payload: Payload) {
        let Entry::Vacant(vacant) = self.by_name.entry(name) else {
            return;
        };
        self.last_recency += 1;
        let stamp = self.last_recency;
        self.recent_bytes += payload.len();
        self.by_recency.insert(stamp, name);
        vacant.insert(HeldPayload { payload, pin_count: 0, recency: stamp });
        self.drop_oldest();
    }

    /// Pins a batch that was proposed in an open slot. Has no effect if the payload is not stored.
    pub(crate) fn pin_batch(&mut self, slot: Slot, name: BatchName) {
        // This runs two or three times per slot, and looking at the pins is cheapest.
        let pinned = self.pins_by_slot.get(&slot);
        if pinned.is_some_and(|pinned| pinned.contains(&name)) {
            return;
        }
        let Some(held) = self.by_name.get_mut(&name) else {
            return;
        };
        self.pins_by_slot.entry(slot).or_default().push(name);
        if held.pin_count == 0 {
            self.by_recency.remove(&held.recency);
            self.recent_bytes -= held.payload.len();
            self.pinned_bytes += held.payload.len();
        }
        held.pin_count += 1;
    }

    /// Handles a decision on batch `name`, or on another value if `name` is `None`. The slot no
    /// longer pins other payloads.
    pub(crate) fn record_decided(&mut self, slot: Slot, name: Option<BatchName>) {
        if self.pins_by_slot.get(&slot).map(Vec::as_slice)
            == name.as_ref().map(std::slice::from_ref)
        {
            return;
        }
        for other in self.pins_by_slot.remove(&slot).unwrap_or_default() {
            if Some(other) == name {
                self.pins_by_slot.insert(slot, vec![other]);
            } else {
                self.release_pin(other);
            }
        }
        if let Some(name) = name {
            self.pin_batch(slot, name);
        }
    }

    /// Unpins the payloads of slots below `slot`, all of which have been applied.
    pub(crate) fn unpin_below(&mut self, slot: Slot) {
        while let Some(first) = self.pins_by_slot.first_entry()
            && *first.key() < slot
        {
            for name in first.remove() {
                self.release_pin(name);
            }
        }
    }

    fn release_pin(&mut self, name: BatchName) {
        let stamp = self.next_recency();
        let held = self.by_name.get_mut(&name).expect("a pinned payload is held");
        held.pin_count -= 1;
        if held.pin_count == 0 {
            held.recency = stamp;
            self.pinned_bytes -= held.payload.len();
            self.recent_bytes += held.payload.len();
            self.by_recency.insert(stamp, name);
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        while self.recent_bytes > self.recent_bytes_max
            && self.by_recency.len() > 1
            && let Some((_, name)) = self.by_recency.pop_first()
            && let Some(held) = self.by_name.remove(&name)
        {
            self.recent_bytes -= held.payload.len();
        }
    }

    fn next_recency(&mut self) -> u64 {
        self.last_recency += 1;
        self.last_recency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(counter: u64, bytes: &[u8]) -> BatchName {
        BatchName {
            counter,
            length: u32::try_from(bytes.len()).unwrap(),
            checksum: quorate_wire::checksum(bytes),
            ..BatchName::default()
        }
    }

    fn store(payloads: &mut Payloads, counter: u64, length: usize) -> BatchName {
        let bytes = vec![u8::try_from(counter).unwrap(); length];
        let name = name(counter, &bytes);
        payloads.insert(name, Payload::new(bytes));
        name
    }

    /// [value-2] Bytes of another length or with another checksum do not match a name.
    #[test]
    fn bytes_must_match_length_and_checksum() {
        let honest = name(1, b"abc");
        assert!(is_batch_content(&honest, b"abc", None));
        assert!(!is_batch_content(&honest, b"abd", None));
        assert!(!is_batch_content(&honest, b"abcd", None));
        assert!(!is_batch_content(&BatchName { length: 4, ..honest }, b"abc", None));
        assert!(is_batch_content(&honest, b"abc", Some(honest.checksum)));
        assert!(!is_batch_content(&honest, b"abc", Some(honest.checksum ^ 1)));
    }

    #[test]
    fn pinned_payload_outlives_any_number_of_others() {
        let mut payloads = Payloads::new(100, 20);
        let kept = store(&mut payloads, 1, 10);
        payloads.pin_batch(Slot(5), kept);
        for counter in 2..20 {
            store(&mut payloads, counter, 10);
        }
        assert!(payloads.holds(&kept));
        assert!(payloads.recent_bytes <= 20);
        assert_eq!(payloads.by_name.len(), 3);
    }

    #[test]
    fn applied_payload_is_cached_until_newer_ones_evict_it() {
        let mut payloads = Payloads::new(100, 20);
        let first = store(&mut payloads, 1, 10);
        payloads.pin_batch(Slot(5), first);
        payloads.unpin_below(Slot(6));
        assert!(payloads.holds(&first));
        store(&mut payloads, 2, 10);
        store(&mut payloads, 3, 10);
        assert!(!payloads.holds(&first));
        assert_eq!((payloads.pinned_bytes, payloads.recent_bytes), (0, 20));
    }

    /// Until a value is decided in a slot, the slot pins every batch that a ballot proposed there.
    #[test]
    fn slot_pins_all_proposed_batches_until_one_is_decided() {
        let mut payloads = Payloads::new(100, 0);
        let older = store(&mut payloads, 1, 10);
        payloads.pin_batch(Slot(5), older);
        payloads.pin_batch(Slot(6), older);
        let newer = store(&mut payloads, 2, 10);
        payloads.pin_batch(Slot(5), newer);
        payloads.pin_batch(Slot(5), newer);
        payloads.record_decided(Slot(5), Some(newer));
        store(&mut payloads, 3, 1);
        assert!(payloads.holds(&older), "slot 6 still needs it");
        payloads.record_decided(Slot(6), None);
        store(&mut payloads, 4, 1);
        assert!(!payloads.holds(&older));
        assert_eq!(payloads.pinned_bytes, 10);
        payloads.unpin_below(Slot(6));
        store(&mut payloads, 5, 1);
        assert!(!payloads.holds(&newer));
        assert_eq!(payloads.pinned_bytes, 0);
    }

    #[test]
    fn capacity_is_limited_by_bytes_of_open_slots() {
        let mut payloads = Payloads::new(20, 100);
        assert!(payloads.has_room(1000), "one payload always fits");
        let first = store(&mut payloads, 1, 15);
        payloads.pin_batch(Slot(1), first);
        assert!(payloads.has_room(5));
        assert!(!payloads.has_room(6));
        payloads.unpin_below(Slot(2));
        assert!(payloads.has_room(6));
    }

    /// Proposals after a gap must not use up the capacity for the proposals that fill the gap.
    /// Otherwise a follower far behind that received too many proposals would never catch up.
    #[test]
    fn slots_after_a_gap_use_at_most_half_of_the_capacity() {
        let mut payloads = Payloads::new(20, 100);
        assert!(payloads.has_room_ahead(1000), "one payload always fits");
        let ahead = store(&mut payloads, 1, 10);
        payloads.pin_batch(Slot(9), ahead);
        assert!(!payloads.has_room_ahead(1));
        assert!(payloads.has_room(10));
    }
}
