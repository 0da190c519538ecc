//! The retained values: appending, trimming, reading and snapshots.
//!
//! The state depends only on the sequence of commands, so it is equal on every node. A snapshot
//! consists of a first item (format, first slot, next slot) and an item for each value.

use std::{collections::VecDeque, sync::Arc};

use super::command::{Command, Held, Reply, VALUE_OVERHEAD, Values, WhenFull};

/// Version of the format of a snapshot's items.
const FORMAT: u8 = 1;
/// Slot of the first value ever appended.
pub const FIRST: u64 = 1;

/// Retained values and their slots.
#[derive(Debug)]
pub struct Retained {
    first: u64,
    values: VecDeque<Arc<[u8]>>,
    bytes: u64,
    image: Option<Image>,
    loading: Option<Loading>,
}

/// A snapshot in progress.
#[derive(Debug)]
struct Image {
    /// First item of the snapshot; `None` once it has been passed on.
    head: Option<Vec<u8>>,
    /// Next slot to pass on.
    at: u64,
    end: u64,
    /// Values starting at slot `at` that have been trimmed since the snapshot began.
    kept: VecDeque<Arc<[u8]>>,
}

#[derive(Debug, Default)]
struct Loading {
    /// First slot and next slot, once the first item has arrived.
    range: Option<(u64, u64)>,
    values: VecDeque<Arc<[u8]>>,
    bytes: u64,
}

/// Contents of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// The slot has this value.
    Value(Arc<[u8]>),
    /// The slot has no value yet.
    Ahead,
    /// The slot was trimmed. Contains the first retained slot, or the next one to be assigned.
    Forgotten(u64),
}

/// Reason for rejecting a snapshot.
pub type Malformed = &'static str;

impl Default for Retained {
    fn default() -> Self {
        Self { first: FIRST, values: VecDeque::new(), bytes: 0, image: None, loading: None }
    }
}

fn cost(value: &[u8]) -> u64 {
    value.len() as u64 + VALUE_OVERHEAD
}

impl Retained {
    fn next(&self) -> u64 {
        self.first + self.values.len() as u64
    }

    /// Returns the range of the retained slots.
    pub fn held(&self) -> Held {
        Held { first: self.first, next: self.next(), bytes: self.bytes }
    }

    /// Returns the contents of a slot. Returns [`At::Ahead`] while a snapshot is being loaded.
    pub fn at(&self, slot: u64) -> At {
        if self.loading.is_some() {
            return At::Ahead;
        }
        let Some(index) = slot.checked_sub(self.first) else {
            return At::Forgotten(self.first);
        };
        let value = usize::try_from(index).ok().and_then(|index| self.values.get(index));
        value.map_or(At::Ahead, |value| At::Value(Arc::clone(value)))
    }

    /// Appends the values from `slot` on to `to`: at most `count` values and about `bytes` bytes.
    pub fn from(&self, slot: u64, count: usize, bytes: usize, to: &mut VecDeque<(u64, Arc<[u8]>)>) {
        let index = slot.checked_sub(self.first).map(usize::try_from);
        let Some(Ok(index)) = index else { return };
        if self.loading.is_some() || index >= self.values.len() {
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
            Some(Command::Append { held_max, when_full, value }) => {
                match self.append(held_max, when_full, value) {
                    Some(slot) => Reply::Appended { slot },
                    None => Reply::Full { first: self.first, held: self.bytes },
                }
            }
            Some(Command::Bundle { held_max, when_full, values }) => {
                self.append_all(held_max, when_full, values)
            }
            Some(Command::Trim { below }) => {
                while self.first < below && self.forget_first() {}
                Reply::Trimmed { first: self.first }
            }
            None => Reply::Malformed,
        }
    }

    /// Appends a value and returns its slot, or `None` if the value does not fit.
    fn append(&mut self, held_max: u64, when_full: WhenFull, value: &[u8]) -> Option<u64> {
        let cost = cost(value);
        let fits = |held: u64| held.saturating_add(cost) <= held_max;
        while when_full == WhenFull::ForgetOldest && !fits(self.bytes) && fits(0) {
            self.forget_first();
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
            if self.append(held_max, when_full, value).is_none() {
                break;
            }
        }
        Reply::Bundled { slot, count: self.next() - slot, first: self.first, held: self.bytes }
    }

    /// Trims the first value. Returns `false` if there is none.
    fn forget_first(&mut self) -> bool {
        let Some(value) = self.values.pop_front() else {
            return false;
        };
        self.bytes -= cost(&value);
        if let Some(image) = &mut self.image
            && (image.at..image.end).contains(&self.first)
        {
            image.kept.push_back(value);
        }
        self.first += 1;
        true
    }

    /// Begins a snapshot of the current values. It keeps values that are trimmed before it ends,
    /// although they no longer count towards the limit. Returns `false` while a snapshot is being
    /// loaded.
    pub fn begin_image(&mut self) -> bool {
        if self.loading.is_some() {
            return false;
        }
        let mut head = vec![FORMAT];
        head.extend(self.first.to_le_bytes());
        head.extend(self.next().to_le_bytes());
        self.image = Some(Image {
            head: Some(head),
            at: self.first,
            end: self.next(),
            kept: VecDeque::new(),
        });
        true
    }

    /// Passes about `bytes` bytes of the snapshot to `each`. Returns whether any items are left, or
    /// `None` if no snapshot is in progress.
    pub fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Option<bool> {
        let image = self.image.as_mut()?;
        let mut passed = 0;
        if let Some(head) = image.head.take() {
            each(&head);
            passed += head.len();
        }
        while image.at < image.end && passed < bytes.max(1) {
            let value = image.kept.pop_front().or_else(|| {
                let index = usize::try_from(image.at.checked_sub(self.first)?).ok()?;
                self.values.get(index).map(Arc::clone)
            })?;
            each(&value);
            passed = passed.saturating_add(value.len() + VALUE_OVERHEAD as usize);
            image.at += 1;
        }
        if image.at < image.end {
            return Some(true);
        }
        self.image = None;
        Some(false)
    }

    /// Ends the snapshot in progress.
    pub fn end_image(&mut self) {
        self.image = None;
    }

    /// Discards the state and begins to load a snapshot.
    pub fn begin_load(&mut self) {
        *self = Self { loading: Some(Loading::default()), ..Self::default() };
    }

    /// Loads an item. Returns `None` if no load is in progress.
    pub fn load(&mut self, item: &[u8]) -> Option<Result<(), Malformed>> {
        let loading = self.loading.as_mut()?;
        let loaded = loading.item(item);
        if loaded.is_err() {
            self.loading = Some(Loading::default());
        }
        Some(loaded)
    }

    /// Finishes the load. Returns `None` if no load is in progress.
    pub fn finish_load(&mut self) -> Option<Result<(), Malformed>> {
        let loading = self.loading.take()?;
        let (first, next) = loading.range.unwrap_or((FIRST, FIRST));
        if next - first != loading.values.len() as u64 {
            self.loading = Some(Loading::default());
            return Some(Err("values are missing"));
        }
        self.first = first;
        self.values = loading.values;
        self.bytes = loading.bytes;
        Some(Ok(()))
    }
}

impl Loading {
    fn item(&mut self, item: &[u8]) -> Result<(), Malformed> {
        let Some((first, next)) = self.range else {
            self.range = Some(head(item).ok_or("it does not begin as an image of values does")?);
            return Ok(());
        };
        if self.values.len() as u64 == next - first {
            return Err("there are more values than it says");
        }
        self.values.push_back(item.into());
        self.bytes += cost(item);
        Ok(())
    }
}

/// Parses the first item into the first slot and the next slot.
fn head(item: &[u8]) -> Option<(u64, u64)> {
    let (format, rest) = item.split_first()?;
    let (first, rest) = rest.split_first_chunk()?;
    let (first, next) = (u64::from_le_bytes(*first), u64::from_le_bytes(rest.try_into().ok()?));
    (*format == FORMAT && first >= FIRST && next >= first).then_some((first, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: u64 = 1 << 20;

    fn append(log: &mut Retained, value: &[u8]) -> Reply {
        bounded(log, value, MUCH, WhenFull::Refuse)
    }

    fn bounded(log: &mut Retained, value: &[u8], held_max: u64, when_full: WhenFull) -> Reply {
        let command = Command::Append { held_max, when_full, value };
        log.execute(&command.encode())
    }

    fn trim(log: &mut Retained, below: u64) -> Reply {
        log.execute(&Command::Trim { below }.encode())
    }

    fn value(bytes: &[u8]) -> At {
        At::Value(bytes.into())
    }

    #[test]
    fn slots_have_no_gaps_and_trimmed_ones_are_reported() {
        let mut log = Retained::default();
        assert_eq!(log.at(0), At::Forgotten(1));
        assert_eq!(log.at(1), At::Ahead);
        assert_eq!(append(&mut log, b"a"), Reply::Appended { slot: 1 });
        assert_eq!(append(&mut log, b""), Reply::Appended { slot: 2 });
        assert_eq!(append(&mut log, b"c"), Reply::Appended { slot: 3 });
        assert_eq!(trim(&mut log, 2), Reply::Trimmed { first: 2 });
        assert_eq!(trim(&mut log, 1), Reply::Trimmed { first: 2 }, "never back");
        assert_eq!(
            (log.at(1), log.at(2), log.at(3), log.at(4)),
            (At::Forgotten(2), value(b""), value(b"c"), At::Ahead)
        );
        assert_eq!(trim(&mut log, u64::MAX), Reply::Trimmed { first: 4 });
        assert_eq!(log.held(), Held { first: 4, next: 4, bytes: 0 });
        assert_eq!(append(&mut log, b"d"), Reply::Appended { slot: 4 });
        assert_eq!(log.at(u64::MAX), At::Ahead);
    }

    #[test]
    fn retained_bytes_are_bounded_as_the_command_says() {
        let mut log = Retained::default();
        let two = 2 * (VALUE_OVERHEAD + 1);
        let put = |log: &mut Retained, full| bounded(log, b"x", two, full);
        put(&mut log, WhenFull::Refuse);
        put(&mut log, WhenFull::Refuse);
        let full = Reply::Full { first: 1, held: two };
        assert_eq!(put(&mut log, WhenFull::Refuse), full);
        let reply = put(&mut log, WhenFull::ForgetOldest);
        assert_eq!(reply, Reply::Appended { slot: 3 });
        assert_eq!(log.held(), Held { first: 2, next: 4, bytes: two });
        let large = bounded(&mut log, &[0; 200], two, WhenFull::ForgetOldest);
        assert_eq!(large, Reply::Full { first: 2, held: two }, "fits nowhere, and forgets nothing");
        assert_eq!(log.execute(b"?"), Reply::Malformed);
    }

    #[test]
    fn bundle_is_appended_up_to_the_first_value_that_does_not_fit() {
        let mut log = Retained::default();
        append(&mut log, b"before");
        let mut bytes = Vec::new();
        for value in [&[1; 10][..], &[2; 200], &[3; 10], &[]] {
            Values::push(value, &mut bytes);
        }
        let mut put = |held_max, when_full| {
            let values = Values::parse(&bytes, 200).unwrap();
            let bundle = Command::Bundle { held_max, when_full, values };
            log.execute(&bundle.encode())
        };
        let held = 3 * VALUE_OVERHEAD + 26;
        let some = Reply::Bundled { slot: 2, count: 1, first: 1, held: held - VALUE_OVERHEAD - 10 };
        assert_eq!(put(held, WhenFull::Refuse), some, "the second is too large");
        let bundled = |slot, count, first, held| Reply::Bundled { slot, count, first, held };
        let much = put(MUCH, WhenFull::Refuse);
        let all = held - VALUE_OVERHEAD - 10 + 4 * VALUE_OVERHEAD + 220;
        assert_eq!(much, bundled(3, 4, 1, all));
        // The oldest values are trimmed, including those of the same bundle.
        let one = 200 + VALUE_OVERHEAD;
        let two = 10 + 2 * VALUE_OVERHEAD;
        assert_eq!(put(one, WhenFull::ForgetOldest), bundled(7, 4, 9, two));
        assert_eq!(log.at(10), value(b""));
        // A value that can never fit does not cause other values to be trimmed.
        let least = 10 + VALUE_OVERHEAD;
        let values = Values::parse(&bytes, 200).unwrap();
        let reply = log.execute(
            &Command::Bundle { held_max: least, when_full: WhenFull::ForgetOldest, values }
                .encode(),
        );
        assert_eq!(reply, bundled(11, 1, 11, least));
    }

    fn take_all(log: &mut Retained) -> Vec<Vec<u8>> {
        let mut items = Vec::new();
        while log.next_image(1, &mut |item| items.push(item.to_vec())) == Some(true) {}
        items
    }

    #[test]
    fn image_has_the_values_at_its_beginning() {
        let mut log = Retained::default();
        for value in [b"a", b"b", b"c", b"d"] {
            append(&mut log, value);
        }
        trim(&mut log, 2);
        assert!(log.begin_image());
        let quiet = take_all(&mut log);
        assert!(log.begin_image());
        let mut items = Vec::new();
        log.next_image(1, &mut |item| items.push(item.to_vec()));
        trim(&mut log, 4);
        append(&mut log, b"e");
        log.next_image(1, &mut |item| items.push(item.to_vec()));
        trim(&mut log, 6);
        items.extend(take_all(&mut log));
        assert_eq!(items, quiet, "the same, whatever was trimmed meanwhile");
        assert_eq!(items[1..], [b"b", b"c", b"d"]);
        assert_eq!(log.next_image(1, &mut |_| {}), None, "it is over");

        let mut other = Retained::default();
        append(&mut other, b"lost");
        other.begin_load();
        assert_eq!(other.at(1), At::Ahead, "nothing is known meanwhile");
        for item in &items {
            assert_eq!(other.load(item), Some(Ok(())));
        }
        assert_eq!(other.load(b"more").map(|loaded| loaded.is_err()), Some(true));
        assert_eq!(other.finish_load().map(|loaded| loaded.is_ok()), Some(true), "empty");
        other.begin_load();
        for item in &items[..3] {
            other.load(item);
        }
        assert_eq!(other.finish_load().map(|loaded| loaded.is_err()), Some(true), "one is missing");
        other.begin_load();
        for item in &items {
            other.load(item);
        }
        assert_eq!(other.finish_load(), Some(Ok(())));
        assert_eq!((other.at(1), other.at(2)), (At::Forgotten(2), value(b"b")));
        assert_eq!(append(&mut other, b"e"), Reply::Appended { slot: 5 });
        assert_eq!(other.load(b""), None);
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
        for item in
            [Vec::new(), vec![FORMAT], head(9, 1, 1), head(FORMAT, 0, 1), head(FORMAT, 2, 1)]
        {
            let mut log = Retained::default();
            log.begin_load();
            assert_eq!(log.load(&item).map(|loaded| loaded.is_err()), Some(true), "{item:?}");
        }
    }
}
