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

use super::{Store, Visit};
use crate::mvcc::PLACE_BYTES_MAX;

// Every entry fits: a longer name would fail an assertion in the tree.
const _: () = assert!(PLACE_BYTES_MAX <= NAME_BYTES_MAX);

/// The engine's only key, which owns all rows in images and loads.
const KEY: &[u8; 4] = b"etcd";
const VERSION: Version = Version { slot: 1, index: 0 };
const ROWS: Id = Id { version: VERSION, number: 0 };
/// Header of the collection. Its number of rows is not maintained.
const HEADER: Header =
    Header { id: ROWS, count: 1, bytes: 0, first: 0, field_deadlines: None, log: None };
const STAMP: Stamp = Stamp { version: VERSION, deadline: None, kind: Kind::Hash };

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

    fn need_key(&mut self) {
        if !self.has_key {
            self.has_key = true;
            if !self.engine.contains(Key::from(KEY)) {
                self.engine.set(Key::from(KEY), &HEADER.to_bytes(), STAMP);
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
        let row = self.engine.row(ROWS, key)?;
        Some(Bytes::copy_from_slice(&row))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) {
        let span = Span { from, to: Some(to), is_backward: false };
        self.engine.rows(ROWS, span, &mut |key, value| visit(key, &Bytes::copy_from_slice(value)));
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.need_key();
        self.engine.put_row(ROWS, key, &value);
    }

    fn remove(&mut self, key: &[u8]) {
        self.engine.remove_row(ROWS, key);
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
        let header = HEADER.to_bytes();
        self.engine.load(Key::from(KEY), &header, STAMP)
    }

    fn load(&mut self, key: &[u8], value: Bytes) -> Result<(), LoadError> {
        self.engine.load_row(ROWS, key, &value)
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
