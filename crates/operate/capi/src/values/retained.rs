//! The retained values: appending, trimming, reading and snapshots.
//!
//! The state depends only on the sequence of commands, so it is equal on every node. A snapshot
//! consists of a first item (format, first slot, next slot) and an item for each value.

use std::{collections::VecDeque, sync::Arc};

use super::command::{Command, Reply, RetainedRange, VALUE_OVERHEAD_BYTES, Values, WhenFull};

/// Version of the format of a snapshot's items.
const SNAPSHOT_FORMAT: u8 = 1;
/// Slot of the first value ever appended.
pub const FIRST_SLOT: u64 = 1;

/// Retained values and their slots.
#[derive(Debug)]
pub struct RetainedValues {
    first_slot: u64,
    values: VecDeque<Arc<[u8]>>,
    bytes: u64,
    snapshot: Option<SnapshotProgress>,
    loading_snapshot: Option<SnapshotLoading>,
}

/// A snapshot in progress.
#[derive(Debug)]
struct SnapshotProgress {
    /// First item of the snapshot; `None` once it has been passed on.
    unsent_head: Option<Vec<u8>>,
    /// Next slot to pass on.
    next_slot: u64,
    end_slot: u64,
    /// Values starting at slot `next_slot` that have been trimmed since the snapshot began.
    trimmed_values: VecDeque<Arc<[u8]>>,
}

#[derive(Debug, Default)]
struct SnapshotLoading {
    /// First slot and next slot, once the first item has arrived.
    range: Option<(u64, u64)>,
    values: VecDeque<Arc<[u8]>>,
    bytes: u64,
}

/// Contents of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotContents {
    /// The slot has this value.
    Value(Arc<[u8]>),
    /// The slot has no value yet.
    NotYetWritten,
    /// The slot was trimmed. Contains the first retained slot, or the next one to be assigned.
    Trimmed(u64),
}

/// Reason for rejecting a snapshot.
pub type SnapshotError = &'static str;

impl Default for RetainedValues {
    fn default() -> Self {
        Self {
            first_slot: FIRST_SLOT,
            values: VecDeque::new(),
            bytes: 0,
            snapshot: None,
            loading_snapshot: None,
        }
    }
}

fn value_cost(value: &[u8]) -> u64 {
    value.len() as u64 + VALUE_OVERHEAD_BYTES
}

impl RetainedValues {
    fn next(&self) -> u64 {
        self.first_slot + self.values.len() as u64
    }

    /// Returns the range of the retained slots.
    pub fn retained_range(&self) -> RetainedRange {
        RetainedRange { first_retained: self.first_slot, next: self.next(), bytes: self.bytes }
    }

    /// Returns the contents of a slot. Returns [`SlotContents::NotYetWritten`] while a snapshot is
    /// being loaded.
    pub fn slot_contents(&self, slot: u64) -> SlotContents {
        if self.loading_snapshot.is_some() {
            return SlotContents::NotYetWritten;
        }
        let Some(index) = slot.checked_sub(self.first_slot) else {
            return SlotContents::Trimmed(self.first_slot);
        };
        let value = usize::try_from(index).ok().and_then(|index| self.values.get(index));
        value.map_or(SlotContents::NotYetWritten, |value| SlotContents::Value(Arc::clone(value)))
    }

    /// Appends the values from `slot` on to `to`: at most `count` values and about `bytes` bytes.
    pub fn from(&self, slot: u64, count: usize, bytes: usize, to: &mut VecDeque<(u64, Arc<[u8]>)>) {
        let index = slot.checked_sub(self.first_slot).map(usize::try_from);
        let Some(Ok(index)) = index else { return };
        if self.loading_snapshot.is_some() || index >= self.values.len() {
            return;
        }
        let mut passed = 0;
        for (slot, value) in (slot..).zip(self.values.range(index..)).take(count) {
            if passed > bytes {
                return;
            }
            passed += value.len();
            to.push_back((slot, Arc::clone(value)));
        }
    }

    /// Executes an encoded command.
    pub fn execute(&mut self, command: &[u8]) -> Reply {
        match Command::decode(command) {
            Some(Command::Append { retained_bytes_max: held_max, when_full, value }) => {
                match self.append_value(held_max, when_full, value) {
                    Some(slot) => Reply::Appended { slot },
                    None => {
                        Reply::Full { first_retained: self.first_slot, retained_bytes: self.bytes }
                    }
                }
            }
            Some(Command::Bundle { retained_bytes_max: held_max, when_full, values }) => {
                self.append_all(held_max, when_full, values)
            }
            Some(Command::Trim { below }) => {
                while self.first_slot < below && self.trim_first() {}
                Reply::Trimmed { first_retained: self.first_slot }
            }
            None => Reply::Malformed,
        }
    }

    /// Appends a value and returns its slot, or `None` if the value does not fit.
    fn append_value(&mut self, held_max: u64, when_full: WhenFull, value: &[u8]) -> Option<u64> {
        let cost = value_cost(value);
        let fits = |held: u64| held.saturating_add(cost) <= held_max;
        while when_full == WhenFull::ForgetOldest && !fits(self.bytes) && fits(0) {
            self.trim_first();
        }
        if !fits(self.bytes) {
            return None;
        }
        let slot = self.next();
        self.values.push_back(value.into());
        self.bytes += cost;
        Some(slot)
    }

    /// Appends values up to the first one that does not fit. Refused values are therefore always at
    /// the end of a bundle, which preserves the order.
    fn append_all(&mut self, held_max: u64, when_full: WhenFull, values: Values<'_>) -> Reply {
        let slot = self.next();
        for value in values {
            if self.append_value(held_max, when_full, value).is_none() {
                break;
            }
        }
        Reply::Bundled {
            first_slot: slot,
            appended_count: self.next() - slot,
            first_retained: self.first_slot,
            retained_bytes: self.bytes,
        }
    }

    /// Trims the first value. Returns `false` if there is none.
    fn trim_first(&mut self) -> bool {
        let Some(value) = self.values.pop_front() else {
            return false;
        };
        self.bytes -= value_cost(&value);
        if let Some(image) = &mut self.snapshot
            && (image.next_slot..image.end_slot).contains(&self.first_slot)
        {
            image.trimmed_values.push_back(value);
        }
        self.first_slot += 1;
        true
    }

    /// Begins a snapshot of the current values. It keeps values that are trimmed before it ends,
    /// although they no longer count towards the limit. Returns `false` while a snapshot is being
    /// loaded.
    pub fn begin_snapshot(&mut self) -> bool {
        if self.loading_snapshot.is_some() {
            return false;
        }
        let mut head = vec![SNAPSHOT_FORMAT];
        head.extend(self.first_slot.to_le_bytes());
        head.extend(self.next().to_le_bytes());
        self.snapshot = Some(SnapshotProgress {
            unsent_head: Some(head),
            next_slot: self.first_slot,
            end_slot: self.next(),
            trimmed_values: VecDeque::new(),
        });
        true
    }

    /// Passes about `bytes` bytes of the snapshot to `each`. Returns whether any items are left, or
    /// `None` if no snapshot is in progress.
    pub fn next_snapshot_part(
        &mut self,
        bytes: usize,
        each: &mut dyn FnMut(&[u8]),
    ) -> Option<bool> {
        let image = self.snapshot.as_mut()?;
        let mut passed = 0;
        if let Some(head) = image.unsent_head.take() {
            each(&head);
            passed += head.len();
        }
        while image.next_slot < image.end_slot && passed < bytes.max(1) {
            let value = image.trimmed_values.pop_front().or_else(|| {
                let index = usize::try_from(image.next_slot.checked_sub(self.first_slot)?).ok()?;
                self.values.get(index).map(Arc::clone)
            })?;
            each(&value);
            passed = passed.saturating_add(value.len() + VALUE_OVERHEAD_BYTES as usize);
            image.next_slot += 1;
        }
        if image.next_slot < image.end_slot {
            return Some(true);
        }
        self.snapshot = None;
        Some(false)
    }

    /// Ends the snapshot in progress.
    pub fn end_snapshot(&mut self) {
        self.snapshot = None;
    }

    /// Discards the state and begins to load a snapshot.
    pub fn begin_load(&mut self) {
        *self = Self { loading_snapshot: Some(SnapshotLoading::default()), ..Self::default() };
    }

    /// Loads an item. Returns `None` if no load is in progress.
    pub fn load_item(&mut self, item: &[u8]) -> Option<Result<(), SnapshotError>> {
        let loading = self.loading_snapshot.as_mut()?;
        let loaded = loading.add_item(item);
        if loaded.is_err() {
            self.loading_snapshot = Some(SnapshotLoading::default());
        }
        Some(loaded)
    }

    /// Finishes the load. Returns `None` if no load is in progress.
    pub fn finish_load(&mut self) -> Option<Result<(), SnapshotError>> {
        let loading = self.loading_snapshot.take()?;
        let (first, next) = loading.range.unwrap_or((FIRST_SLOT, FIRST_SLOT));
        if next - first != loading.values.len() as u64 {
            self.loading_snapshot = Some(SnapshotLoading::default());
            return Some(Err("values are missing"));
        }
        self.first_slot = first;
        self.values = loading.values;
        self.bytes = loading.bytes;
        Some(Ok(()))
    }
}

impl SnapshotLoading {
    fn add_item(&mut self, item: &[u8]) -> Result<(), SnapshotError> {
        let Some((first, next)) = self.range else {
            self.range =
                Some(parse_head(item).ok_or("it does not begin as an image of values does")?);
            return Ok(());
        };
        if self.values.len() as u64 == next - first {
            return Err("there are more values than it says");
        }
        self.values.push_back(item.into());
        self.bytes += value_cost(item);
        Ok(())
    }
}

/// Parses the first item into the first slot and the next slot.
fn parse_head(item: &[u8]) -> Option<(u64, u64)> {
    let (format, rest) = item.split_first()?;
    let (first, rest) = rest.split_first_chunk()?;
    let (first, next) = (u64::from_le_bytes(*first), u64::from_le_bytes(rest.try_into().ok()?));
    (*format == SNAPSHOT_FORMAT && first >= FIRST_SLOT && next >= first).then_some((first, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: u64 = 1 << 20;

    fn append(log: &mut RetainedValues, value: &[u8]) -> Reply {
        bounded(log, value, MUCH, WhenFull::Refuse)
    }

    fn bounded(
        log: &mut RetainedValues,
        value: &[u8],
        held_max: u64,
        when_full: WhenFull,
    ) -> Reply {
        let command = Command::Append { retained_bytes_max: held_max, when_full, value };
        log.execute(&command.encode())
    }

    fn trim(log: &mut RetainedValues, below: u64) -> Reply {
        log.execute(&Command::Trim { below }.encode())
    }

    fn value(bytes: &[u8]) -> SlotContents {
        SlotContents::Value(bytes.into())
    }

    #[test]
    fn slots_have_no_gaps_and_trimmed_ones_are_reported() {
        let mut log = RetainedValues::default();
        assert_eq!(log.slot_contents(0), SlotContents::Trimmed(1));
        assert_eq!(log.slot_contents(1), SlotContents::NotYetWritten);
        assert_eq!(append(&mut log, b"a"), Reply::Appended { slot: 1 });
        assert_eq!(append(&mut log, b""), Reply::Appended { slot: 2 });
        assert_eq!(append(&mut log, b"c"), Reply::Appended { slot: 3 });
        assert_eq!(trim(&mut log, 2), Reply::Trimmed { first_retained: 2 });
        assert_eq!(trim(&mut log, 1), Reply::Trimmed { first_retained: 2 }, "never back");
        assert_eq!(
            (
                log.slot_contents(1),
                log.slot_contents(2),
                log.slot_contents(3),
                log.slot_contents(4)
            ),
            (SlotContents::Trimmed(2), value(b""), value(b"c"), SlotContents::NotYetWritten)
        );
        assert_eq!(trim(&mut log, u64::MAX), Reply::Trimmed { first_retained: 4 });
        assert_eq!(log.retained_range(), RetainedRange { first_retained: 4, next: 4, bytes: 0 });
        assert_eq!(append(&mut log, b"d"), Reply::Appended { slot: 4 });
        assert_eq!(log.slot_contents(u64::MAX), SlotContents::NotYetWritten);
    }

    #[test]
    fn retained_bytes_are_bounded_as_the_command_says() {
        let mut log = RetainedValues::default();
        let two = 2 * (VALUE_OVERHEAD_BYTES + 1);
        let put = |log: &mut RetainedValues, full| bounded(log, b"x", two, full);
        put(&mut log, WhenFull::Refuse);
        put(&mut log, WhenFull::Refuse);
        let full = Reply::Full { first_retained: 1, retained_bytes: two };
        assert_eq!(put(&mut log, WhenFull::Refuse), full);
        let reply = put(&mut log, WhenFull::ForgetOldest);
        assert_eq!(reply, Reply::Appended { slot: 3 });
        assert_eq!(log.retained_range(), RetainedRange { first_retained: 2, next: 4, bytes: two });
        let large = bounded(&mut log, &[0; 200], two, WhenFull::ForgetOldest);
        assert_eq!(
            large,
            Reply::Full { first_retained: 2, retained_bytes: two },
            "fits nowhere, and forgets nothing"
        );
        assert_eq!(log.execute(b"?"), Reply::Malformed);
    }

    #[test]
    fn bundle_is_appended_up_to_the_first_value_that_does_not_fit() {
        let mut log = RetainedValues::default();
        append(&mut log, b"before");
        let mut bytes = Vec::new();
        for value in [&[1; 10][..], &[2; 200], &[3; 10], &[]] {
            Values::push(value, &mut bytes);
        }
        let mut put = |held_max, when_full| {
            let values = Values::parse(&bytes, 200).unwrap();
            let bundle = Command::Bundle { retained_bytes_max: held_max, when_full, values };
            log.execute(&bundle.encode())
        };
        let held = 3 * VALUE_OVERHEAD_BYTES + 26;
        let some = Reply::Bundled {
            first_slot: 2,
            appended_count: 1,
            first_retained: 1,
            retained_bytes: held - VALUE_OVERHEAD_BYTES - 10,
        };
        assert_eq!(put(held, WhenFull::Refuse), some, "the second is too large");
        let bundled = |slot, count, first, held| Reply::Bundled {
            first_slot: slot,
            appended_count: count,
            first_retained: first,
            retained_bytes: held,
        };
        let much = put(MUCH, WhenFull::Refuse);
        let all = held - VALUE_OVERHEAD_BYTES - 10 + 4 * VALUE_OVERHEAD_BYTES + 220;
        assert_eq!(much, bundled(3, 4, 1, all));
        // The oldest values are trimmed, including those of the same bundle.
        let one = 200 + VALUE_OVERHEAD_BYTES;
        let two = 10 + 2 * VALUE_OVERHEAD_BYTES;
        assert_eq!(put(one, WhenFull::ForgetOldest), bundled(7, 4, 9, two));
        assert_eq!(log.slot_contents(10), value(b""));
        // A value that can never fit does not cause other values to be trimmed.
        let least = 10 + VALUE_OVERHEAD_BYTES;
        let values = Values::parse(&bytes, 200).unwrap();
        let reply = log.execute(
            &Command::Bundle {
                retained_bytes_max: least,
                when_full: WhenFull::ForgetOldest,
                values,
            }
            .encode(),
        );
        assert_eq!(reply, bundled(11, 1, 11, least));
    }

    fn take_all(log: &mut RetainedValues) -> Vec<Vec<u8>> {
        let mut items = Vec::new();
        while log.next_snapshot_part(1, &mut |item| items.push(item.to_vec())) == Some(true) {}
        items
    }

    #[test]
    fn image_has_the_values_at_its_beginning() {
        let mut log = RetainedValues::default();
        for value in [b"a", b"b", b"c", b"d"] {
            append(&mut log, value);
        }
        trim(&mut log, 2);
        assert!(log.begin_snapshot());
        let quiet = take_all(&mut log);
        assert!(log.begin_snapshot());
        let mut items = Vec::new();
        log.next_snapshot_part(1, &mut |item| items.push(item.to_vec()));
        trim(&mut log, 4);
        append(&mut log, b"e");
        log.next_snapshot_part(1, &mut |item| items.push(item.to_vec()));
        trim(&mut log, 6);
        items.extend(take_all(&mut log));
        assert_eq!(items, quiet, "the same, whatever was trimmed meanwhile");
        assert_eq!(items[1..], [b"b", b"c", b"d"]);
        assert_eq!(log.next_snapshot_part(1, &mut |_| {}), None, "it is over");

        let mut other = RetainedValues::default();
        append(&mut other, b"lost");
        other.begin_load();
        assert_eq!(
            other.slot_contents(1),
            SlotContents::NotYetWritten,
            "nothing is known meanwhile"
        );
        for item in &items {
            assert_eq!(other.load_item(item), Some(Ok(())));
        }
        assert_eq!(other.load_item(b"more").map(|loaded| loaded.is_err()), Some(true));
        assert_eq!(other.finish_load().map(|loaded| loaded.is_ok()), Some(true), "empty");
        other.begin_load();
        for item in &items[..3] {
            other.load_item(item);
        }
        assert_eq!(other.finish_load().map(|loaded| loaded.is_err()), Some(true), "one is missing");
        other.begin_load();
        for item in &items {
            other.load_item(item);
        }
        assert_eq!(other.finish_load(), Some(Ok(())));
        assert_eq!(
            (other.slot_contents(1), other.slot_contents(2)),
            (SlotContents::Trimmed(2), value(b"b"))
        );
        assert_eq!(append(&mut other, b"e"), Reply::Appended { slot: 5 });
        assert_eq!(other.load_item(b""), None);
        assert_eq!(other.finish_load(), None);
    }

    #[test]
    fn invalid_image_is_refused() {
        let head = |format: u8, first: u64, next: u64| {
            let mut item = vec![format];
            item.extend(first.to_le_bytes());
            item.extend(next.to_le_bytes());
            item
        };
        for item in [
            Vec::new(),
            vec![SNAPSHOT_FORMAT],
            head(9, 1, 1),
            head(SNAPSHOT_FORMAT, 0, 1),
            head(SNAPSHOT_FORMAT, 2, 1),
        ] {
            let mut log = RetainedValues::default();
            log.begin_load();
            assert_eq!(log.load_item(&item).map(|loaded| loaded.is_err()), Some(true), "{item:?}");
        }
    }
}
