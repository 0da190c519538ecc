//! The store on disk: all entries are rows of one collection in the engine of the key-value
//! service. The engine orders the rows, commits atomically with the slot, and handles images,
//! loads, syncing, and full or failing disks ([`quorate_kv::store::lsm`]). This file only maps keys
//! to row names.

use bytes::Bytes;
use quorate::{Health, Imaged, LoadError, MetaChange, Metadata, Scrubbed, Slot};
use quorate_kv::{
    key::Key,
    store::{
        Span, Stamp, Store as _, Version,
        collection::{Header, Id, Kind, NAME_BYTES_MAX},
        image::ImagePart,
        lsm::LsmStore as Engine,
    },
};

use super::{EntryVisitor, Store};
use crate::mvcc::STORE_KEY_BYTES_MAX;

// Every entry fits: a longer name would fail an assertion in the tree.
const _: () = assert!(STORE_KEY_BYTES_MAX <= NAME_BYTES_MAX);

/// The engine's only key, which owns all rows in images and loads.
const COLLECTION_KEY: &[u8; 4] = b"etcd";
const COLLECTION_VERSION: Version = Version { slot: 1, index: 0 };
const COLLECTION_ID: Id = Id { version: COLLECTION_VERSION, number: 0 };
/// Header of the collection. Its number of rows is not maintained.
const COLLECTION_HEADER: Header =
    Header { id: COLLECTION_ID, count: 1, bytes: 0, first: 0, field_deadlines: None, log: None };
const COLLECTION_STAMP: Stamp =
    Stamp { version: COLLECTION_VERSION, deadline: None, kind: Kind::Hash };

#[derive(Debug)]
pub struct LsmStore {
    engine: Engine,
    /// Set once the collection's key has been created.
    has_key: bool,
}

impl LsmStore {
    /// Creates a store in an engine that nothing else uses.
    pub const fn new(engine: Engine) -> Self {
        Self { engine, has_key: false }
    }

    fn ensure_key(&mut self) {
        if !self.has_key {
            self.has_key = true;
            if !self.engine.contains(Key::from(COLLECTION_KEY)) {
                self.engine.set(
                    Key::from(COLLECTION_KEY),
                    &COLLECTION_HEADER.to_bytes(),
                    COLLECTION_STAMP,
                );
            }
        }
    }
}

impl Store for LsmStore {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        // Clients may request keys that are longer than any existing one.
        if key.len() > NAME_BYTES_MAX {
            return None;
        }
        let row = self.engine.row(COLLECTION_ID, key)?;
        Some(Bytes::copy_from_slice(&row))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut EntryVisitor<'_>) {
        let span = Span { from, to: Some(to), is_backward: false };
        self.engine.rows(COLLECTION_ID, span, &mut |key, value| {
            visit(key, &Bytes::copy_from_slice(value))
        });
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.ensure_key();
        self.engine.put_row(COLLECTION_ID, key, &value);
    }

    fn remove(&mut self, key: &[u8]) {
        self.engine.remove_row(COLLECTION_ID, key);
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        self.engine.commit(applied_to, meta);
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        self.has_key = false;
        self.engine.recovered()
    }

    fn health(&mut self) -> Health {
        self.engine.health()
    }

    fn has_failed(&self) -> bool {
        self.engine.has_failed()
    }

    fn logged(&mut self, to: Slot) {
        self.engine.logged(to);
    }

    fn begin_image(&mut self) -> bool {
        self.engine.begin_image().is_some()
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Imaged {
        self.engine.next_image(bytes, &mut |part| {
            if let ImagePart::Row(key, value) = part {
                each(key, value);
            }
        })
    }

    fn end_image(&mut self) {
        self.engine.end_image();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.engine.begin_load()?;
        self.has_key = true;
        let header = COLLECTION_HEADER.to_bytes();
        self.engine.load(Key::from(COLLECTION_KEY), &header, COLLECTION_STAMP)
    }

    fn load(&mut self, key: &[u8], value: Bytes) -> Result<(), LoadError> {
        self.engine.load_row(COLLECTION_ID, key, &value)
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        self.engine.finish_load(at, meta)
    }

    fn synced_to(&mut self) -> Option<Slot> {
        self.engine.synced_to()
    }

    fn start_sync(&mut self) {
        self.engine.start_sync();
    }

    fn start_scrub(&mut self, bytes_per_second: u64) {
        self.engine.start_scrub(bytes_per_second);
    }

    fn take_scrubbed(&mut self) -> Scrubbed {
        self.engine.take_scrubbed()
    }

    fn wants_scrub(&mut self) -> bool {
        self.engine.wants_scrub()
    }

    fn kept_bytes(&self) -> u64 {
        self.engine.kept_bytes()
    }

    fn renew(&mut self) -> Result<(), String> {
        self.engine.renew()
    }
}
