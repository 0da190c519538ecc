//! The store in memory, rebuilt from the log after a restart.

use std::{collections::BTreeSet, ops::ControlFlow};

use quorate_core::slot::Slot;
use quorate_replica::service::MetaChange;

use super::{
    Entry, Metadata, Position, Store, Version, Visit,
    table::{Record, Table},
};
use crate::key::Key;

/// Keys in a table, and those with a deadline once more in the order of deadlines.
#[derive(Debug, Default)]
pub struct MemoryStore {
    table: Table,
    deadlines: BTreeSet<(u64, Box<[u8]>)>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn set_deadline(&mut self, key: &[u8], old: Option<u64>, new: Option<u64>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.deadlines.remove(&(old, key.into()));
        }
        if let Some(new) = new {
            self.deadlines.insert((new, key.into()));
        }
    }
}

impl Store for MemoryStore {
    fn get(&self, key: Key<'_>) -> Option<Entry<'_>> {
        let key = key.bytes();
        self.table.get(Position::of(key), key).map(Record::entry)
    }

    fn put(&mut self, key: Key<'_>, value: &[u8], version: Version, deadline: Option<u64>) {
        let key = key.bytes();
        let old = self
            .table
            .put(Position::of(key), key, value, version, deadline);
        self.set_deadline(key, old, deadline);
    }

    fn remove(&mut self, key: Key<'_>) -> bool {
        let key = key.bytes();
        let Some(record) = self.table.remove(Position::of(key), key) else {
            return false;
        };
        self.set_deadline(key, record.deadline(), None);
        true
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn len(&self) -> u64 {
        self.table.len()
    }

    fn prefetch(&self, keys: &[Position]) {
        self.table.touch(keys);
    }

    fn scan(&self, from: Position, visit: &mut Visit<'_>) {
        for (_, record) in self.table.from(from) {
            if visit(record.key(), &record.entry()).is_break() {
                return;
            }
        }
    }

    fn overdue(&self, wall_ms: u64, visit: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) {
        let due = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= wall_ms);
        for (deadline, key) in due {
            if visit(*deadline, key).is_break() {
                return;
            }
        }
    }

    fn commit(&mut self, _applied_to: Slot, _meta: &[MetaChange]) {}

    fn recovered(&mut self) -> (Slot, Metadata) {
        (Slot::FIRST, Vec::new())
    }
}
