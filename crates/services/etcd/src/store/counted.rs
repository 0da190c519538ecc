//! A store that counts the size of its entries. The size is part of responses and of the state, so
//! it must not depend on the kind of store. It is stored in its own row, so that a store on disk
//! has it after a restart.

use std::ops::Deref;

use bytes::Bytes;
use quorate::{LoadError, MetaChange, Metadata, Slot};

use super::Store;

/// Key of the row with the size. Part of the snapshot format.
const SIZE_KEY: &[u8] = b"z";

/// Returns whether an entry is a valid row with the size.
pub(crate) fn is_size_row(key: &[u8], value: &[u8]) -> bool {
    key == SIZE_KEY && decode_size(value).is_some()
}

fn decode_size(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.try_into().ok()?))
}

/// A store with the size of its entries. Reads bypass the counting.
pub(crate) struct CountedStore {
    store: Box<dyn Store>,
    /// Size of all keys and values, except for the row with the size.
    bytes: u64,
    /// Size recorded in its row, if there is one.
    recorded_size: Option<u64>,
}

impl Deref for CountedStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl CountedStore {
    pub(crate) fn new(store: Box<dyn Store>) -> Self {
        let mut counted = Self { store, bytes: 0, recorded_size: None };
        counted.read();
        counted
    }

    fn read(&mut self) {
        self.recorded_size = self.store.get(SIZE_KEY).and_then(|bytes| decode_size(&bytes));
        self.bytes = self.recorded_size.unwrap_or(0);
    }

    /// Returns the size of all entries.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the underlying store, for calls that change no entries.
    pub(crate) fn underlying_store(&mut self) -> &mut dyn Store {
        &mut *self.store
    }

    /// Sets a value and adjusts the size.
    pub(crate) fn put(&mut self, key: &[u8], value: Bytes) {
        let old = self.store.get(key);
        self.replace(key, old.as_ref(), Some(value));
    }

    /// Removes an entry, if there is one.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        if let Some(old) = self.store.get(key) {
            self.replace(key, Some(&old), None);
        }
    }

    /// Replaces the value `old`, which the caller has read, without looking it up again.
    pub(crate) fn replace(&mut self, key: &[u8], old: Option<&Bytes>, new: Option<Bytes>) {
        let of = |value: Option<&Bytes>| value.map_or(0, |value| entry_bytes(key, value));
        let less = self.bytes.saturating_sub(of(old));
        self.bytes = less.saturating_add(of(new.as_ref()));
        match new {
            Some(new) => self.store.put(key, new),
            None => self.store.remove(key),
        }
    }

    /// Commits the changes and the size, as [`Store::commit`] does.
    pub(crate) fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        if self.bytes != self.recorded_size.unwrap_or(0) {
            self.recorded_size = Some(self.bytes);
            self.store.put(SIZE_KEY, encode_size(self.bytes));
        }
        self.store.commit(applied_to, meta);
    }

    /// Returns the recovered state, and reads the size.
    pub(crate) fn recovered(&mut self) -> (Slot, Metadata) {
        let recovered = self.store.recovered();
        self.read();
        recovered
    }

    pub(crate) fn begin_load(&mut self) -> Result<(), LoadError> {
        (self.bytes, self.recorded_size) = (0, None);
        self.store.begin_load()
    }

    /// Loads and counts an entry.
    pub(crate) fn load(&mut self, key: &[u8], value: Bytes) -> Result<(), LoadError> {
        match key {
            SIZE_KEY => self.recorded_size = decode_size(&value),
            _ => self.bytes = self.bytes.saturating_add(entry_bytes(key, &value)),
        }
        self.store.load(key, value)
    }

    pub(crate) fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        match self.recorded_size {
            // Nodes that did not load this image continue counting from the same size.
            Some(bytes) => self.bytes = bytes,
            // An image of etcd's data, or of an earlier version, has no size.
            None if self.bytes > 0 => {
                self.recorded_size = Some(self.bytes);
                self.store.load(SIZE_KEY, encode_size(self.bytes))?;
            }
            None => {}
        }
        self.store.finish_load(at, meta)
    }
}

fn entry_bytes(key: &[u8], value: &Bytes) -> u64 {
    (key.len() + value.len()) as u64
}

fn encode_size(bytes: u64) -> Bytes {
    Bytes::copy_from_slice(&bytes.to_be_bytes())
}
