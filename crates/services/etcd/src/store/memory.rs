//! The store in memory, rebuilt from a snapshot and the log after a restart.

mod image;

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use quorate::{Health, Imaged, LoadError, MetaChange, Metadata, Slot};

use self::image::Image;
use super::{EntryVisitor, Store};

#[derive(Debug, Default)]
pub struct MemoryStore {
    entries: BTreeMap<Box<[u8]>, Bytes>,
    /// Size of all entries in bytes. It determines the memory that an image may use.
    bytes: u64,
    image: Option<Image>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Saves an entry that is about to change, if an image in progress needs it.
    fn save_for_image(&mut self, key: &[u8]) {
        if let Some(image) = &mut self.image
            && !image.save_entry(&self.entries, key)
        {
            self.image = None;
        }
    }

    fn adjust_size(&mut self, key: &[u8], old: Option<&Bytes>, new: Option<&Bytes>) {
        let of = |value: Option<&Bytes>| value.map_or(0, |value| key.len() + value.len()) as u64;
        self.bytes = self.bytes.saturating_sub(of(old)) + of(new);
    }
}

/// Returns the entries from `from` (inclusive) to `to` (exclusive), if `to` comes after `from`.
fn entries_between<'e>(
    entries: &'e BTreeMap<Box<[u8]>, Bytes>,
    from: &[u8],
    to: &[u8],
) -> impl Iterator<Item = (&'e Box<[u8]>, &'e Bytes)> {
    let bounds = (Bound::Included(from), Bound::Excluded(to));
    let range = (from < to).then(|| entries.range::<[u8], _>(bounds));
    range.into_iter().flatten()
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.entries.get(key).cloned()
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut EntryVisitor<'_>) {
        for (key, value) in entries_between(&self.entries, from, to) {
            if visit(key, value).is_break() {
                return;
            }
        }
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.save_for_image(key);
        let new = value.clone();
        let old = match self.entries.get_mut(key) {
            Some(there) => Some(std::mem::replace(there, value)),
            None => self.entries.insert(key.into(), value),
        };
        self.adjust_size(key, old.as_ref(), Some(&new));
    }

    fn remove(&mut self, key: &[u8]) {
        self.save_for_image(key);
        let old = self.entries.remove(key);
        self.adjust_size(key, old.as_ref(), None);
    }

    fn commit(&mut self, _applied_to: Slot, _meta: &[MetaChange]) {}

    fn recovered(&mut self) -> (Slot, Metadata) {
        (Slot::FIRST, Vec::new())
    }

    fn health(&mut self) -> Health {
        if self.image.as_ref().is_some_and(Image::should_advance) {
            Health::Behind
        } else {
            Health::Well
        }
    }

    fn begin_image(&mut self) -> bool {
        self.image = Some(Image::of_store(self.bytes));
        true
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Imaged {
        let Some(image) = &mut self.image else {
            return Imaged::Failed;
        };
        let left = image.next(&self.entries, bytes, each);
        if left == Imaged::End {
            self.image = None;
        }
        left
    }

    fn end_image(&mut self) {
        self.image = None;
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        *self = Self::default();
        Ok(())
    }

    fn load(&mut self, key: &[u8], value: Bytes) -> Result<(), LoadError> {
        self.put(key, value);
        Ok(())
    }

    fn finish_load(&mut self, _at: Slot, _meta: &[MetaChange]) -> Result<(), LoadError> {
        Ok(())
    }
}
