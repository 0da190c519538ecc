//! Image of the store in memory, taken while commands continue. An entry that the image has not
//! reached is saved before it changes; nothing else is copied.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use quorate::Imaged;

const SAVED_BYTES_MAX: usize = 256 << 20;
/// Divisor of the store's size that gives the maximum number of saved bytes, within the other
/// limits.
const SAVED_BYTES_DIVISOR: u64 = 4;
/// Minimum limit on saved bytes, about as much as a few batches write.
const SAVED_BYTES_MIN: usize = 16 << 20;
/// Approximate overhead of a saved entry, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 96;

type Entries = BTreeMap<Box<[u8]>, Bytes>;

#[derive(Debug)]
pub(super) struct Image {
    /// Last key that the image has passed.
    last_passed: Option<Box<[u8]>>,
    /// Original values of changed entries ahead of the image; `None` for one that did not exist.
    saved_entries: BTreeMap<Box<[u8]>, Option<Bytes>>,
    saved_bytes: usize,
    bytes_max: usize,
}

impl Image {
    /// Starts an image of a store of `bytes` bytes.
    pub(super) fn of_store(bytes: u64) -> Self {
        let part = usize::try_from(bytes / SAVED_BYTES_DIVISOR).unwrap_or(usize::MAX);
        Self::with_limit(part.clamp(SAVED_BYTES_MIN, SAVED_BYTES_MAX))
    }

    pub(super) const fn with_limit(bytes_max: usize) -> Self {
        Self { last_passed: None, saved_entries: BTreeMap::new(), saved_bytes: 0, bytes_max }
    }

    fn saved_entry_bytes(key: &[u8], value: Option<&Bytes>) -> usize {
        ENTRY_OVERHEAD_BYTES + key.len() + value.map_or(0, Bytes::len)
    }

    /// Saves an entry before it changes. Returns `false` if that exceeds the limit, in which case
    /// the image is abandoned.
    pub(super) fn save_entry(&mut self, entries: &Entries, key: &[u8]) -> bool {
        let has_passed = self.last_passed.as_deref().is_some_and(|passed| key <= passed);
        if has_passed || self.saved_entries.contains_key(key) {
            return true;
        }
        let value = entries.get(key);
        self.saved_bytes += Self::saved_entry_bytes(key, value);
        if self.saved_bytes > self.bytes_max {
            return false;
        }
        self.saved_entries.insert(key.into(), value.cloned());
        true
    }

    /// Returns whether the image must advance before more is saved. Half of the limit is reserved
    /// for the next batch of commands.
    pub(super) const fn should_advance(&self) -> bool {
        self.saved_bytes > self.bytes_max / 2
    }

    /// Returns the next entries of the image, given the store's current ones.
    pub(super) fn next(
        &mut self,
        entries: &Entries,
        bytes: usize,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Imaged {
        let from = self.last_passed.take();
        let after = match &from {
            Some(passed) => Bound::Excluded(&**passed),
            None => Bound::Unbounded,
        };
        let mut now = entries.range::<[u8], _>((after, Bound::Unbounded)).peekable();
        let mut given = 0;
        let mut last = None;
        while given < bytes.max(1) {
            let kept = self.saved_entries.first_key_value().map(|(key, _)| &**key);
            let here = now.peek().map(|(key, _)| &***key);
            // A saved entry takes precedence over the current one.
            let from_kept = match (kept, here) {
                (None, None) => return Imaged::End,
                (Some(kept), Some(here)) => {
                    if kept == here {
                        now.next();
                    }
                    kept <= here
                }
                (kept, _) => kept.is_some(),
            };
            if from_kept {
                let Some((key, value)) = self.saved_entries.pop_first() else {
                    return Imaged::End;
                };
                self.saved_bytes -= Self::saved_entry_bytes(&key, value.as_ref());
                if let Some(value) = &value {
                    each(&key, value);
                    given += key.len() + value.len();
                }
                last = Some(key);
            } else if let Some((key, value)) = now.next() {
                each(key, value);
                given += key.len() + value.len();
                last = Some(key.clone());
            }
        }
        self.last_passed = last.or(from);
        Imaged::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store as _, memory::MemoryStore};
    use quorate::Health;

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    fn filled(keys: u32) -> MemoryStore {
        let mut store = MemoryStore::new();
        for number in 0..keys {
            store.put(&key(number), Bytes::from(vec![1; 1000]));
        }
        store
    }

    /// Writes before or after the position of the image do not change it.
    #[test]
    fn an_image_is_the_store_as_it_was() {
        let mut store = filled(2000);
        assert!(store.begin_image());
        let (mut seen, mut turn) = (Vec::new(), 0_u32);
        while store.next_image(5000, &mut |key, value| {
            seen.push((key.to_vec(), Bytes::copy_from_slice(value)))
        }) == Imaged::More
        {
            turn += 1;
            for step in 0..20 {
                let at = (turn * 7919 + step * 104_729) % 2500;
                match step % 3 {
                    0 => store.remove(&key(at)),
                    1 => store.put(&key(at), Bytes::from_static(b"new")),
                    _ => store.put(&[&key(at)[..], b"x"].concat(), Bytes::from_static(b"new")),
                }
            }
        }
        let was: Vec<_> =
            (0..2000).map(|number| (key(number).to_vec(), Bytes::from(vec![1; 1000]))).collect();
        assert_eq!(seen, was);
        assert!(store.image.is_none());
    }

    #[test]
    fn image_reports_lag_and_fails_when_too_much_is_overwritten() {
        let mut store = filled(400);
        store.image = Some(Image::with_limit(200_000));
        for number in (200..320).rev() {
            store.remove(&key(number));
        }
        assert_eq!(store.health(), Health::Behind);
        let mut passed = 0;
        while store.health() == Health::Behind {
            assert_eq!(store.next_image(50_000, &mut |_, _| passed += 1), Imaged::More);
        }
        assert!(passed > 200, "{passed}");
        store.image = Some(Image::with_limit(50_000));
        for number in 0..100 {
            store.remove(&key(number));
        }
        assert_eq!(store.next_image(1, &mut |_, _| {}), Imaged::Failed);
        assert_eq!(store.health(), Health::Well, "nothing holds it back any more");
    }

    #[test]
    fn bytes_are_counted() {
        let mut store = MemoryStore::new();
        store.put(b"a", Bytes::from_static(b"123"));
        store.put(b"b", Bytes::from_static(b"4"));
        store.put(b"a", Bytes::from_static(b"1"));
        assert_eq!(store.bytes, 4);
        store.remove(b"a");
        store.remove(b"a");
        assert_eq!(store.bytes, 2);
    }
}
