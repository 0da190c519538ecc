//! Layer above the tree: committed changes that have not been written to it yet.

use std::collections::{BTreeMap, BTreeSet};

use quorate_replica::service::MetaChange;

use super::layout::State;
use crate::store::{
    DeadlineKind, Position, Stamp,
    collection::Id,
    table::{Record, Table},
};

/// Approximate overhead of an entry in bytes, in addition to its key and value.
const ENTRY_BYTES: usize = 64;

/// Changed rows of a collection by name; `None` for a removed row.
pub(super) type ChangedRows = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// Changed deadlines with their keys; `false` for a removed deadline.
pub(super) type ChangedDeadlines = BTreeMap<(u64, Box<[u8]>), bool>;

/// Changes to the data of one generation and to the metadata.
#[derive(Debug)]
pub(super) struct Changes {
    /// State of the tree once these changes have been written.
    pub(super) state: State,
    /// Generation of the keys. During a load it differs from the generation in the state.
    pub(super) generation: u64,
    /// Changed keys. A record with [`Version::ABSENT`] stands for a removed key.
    pub(super) data: Table,
    /// Changed deadlines of keys and of fields.
    pub(super) deadlines: [ChangedDeadlines; 2],
    pub(super) rows: BTreeMap<Id, ChangedRows>,
    /// Dropped collections, whose ids are no longer used by any key.
    pub(super) ended: BTreeSet<Id>,
    pub(super) meta: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Approximate memory that the changes take, in bytes.
    pub(super) held: usize,
    /// Number of bytes written, including those overwritten since.
    pub(super) written: usize,
}

impl Changes {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            generation: state.generation,
            data: Table::default(),
            deadlines: <[ChangedDeadlines; 2]>::default(),
            rows: BTreeMap::new(),
            ended: BTreeSet::new(),
            meta: BTreeMap::new(),
            held: 0,
            written: 0,
        }
    }

    /// Creates a layer for the keys of a load, which does not change the tree's state.
    pub(super) fn of_load(state: State, generation: u64) -> Self {
        Self { generation, ..Self::new(state) }
    }

    pub(super) fn put(&mut self, position: Position, key: &[u8], value: &[u8], stamp: Stamp) {
        let bytes = ENTRY_BYTES + key.len() + value.len();
        let held = self.data.get(position, key).map_or(0, Record::bytes);
        self.held += bytes.saturating_sub(held);
        self.written += bytes;
        self.data.put(position, key, value, stamp);
    }

    /// Returns whether the layer contains no keys or rows.
    pub(super) fn is_empty(&self) -> bool {
        self.data.len() == 0 && self.rows.is_empty()
    }

    /// Sets a row, or removes it if `value` is `None`.
    pub(super) fn set_row(&mut self, id: Id, name: &[u8], value: Option<&[u8]>) {
        let bytes = ENTRY_BYTES + name.len() + value.map_or(0, <[u8]>::len);
        self.written += bytes;
        let rows = self.rows.entry(id).or_default();
        if let Some(held) = rows.get_mut(name) {
            let before = ENTRY_BYTES + name.len() + held.as_ref().map_or(0, |held| held.len());
            self.held += bytes.saturating_sub(before);
            *held = value.map(Box::from);
            return;
        }
        self.held += bytes;
        rows.insert(name.into(), value.map(Box::from));
    }

    /// Returns a changed row. The outer `None` means that this layer does not contain the row, the
    /// inner one that the row was removed.
    pub(super) fn row(&self, id: Id, name: &[u8]) -> Option<Option<&[u8]>> {
        let row = self.rows.get(&id)?.get(name)?;
        Some(row.as_deref())
    }

    /// Drops a collection. Its rows are removed from the tree after this layer has been written.
    pub(super) fn end(&mut self, id: Id) {
        self.held += ENTRY_BYTES;
        self.written += ENTRY_BYTES;
        self.rows.remove(&id);
        self.ended.insert(id);
    }

    pub(super) fn set_deadline(
        &mut self,
        of: DeadlineKind,
        key: &[u8],
        deadline: u64,
        present: bool,
    ) {
        self.held += ENTRY_BYTES + key.len();
        self.deadlines[of as usize].insert((deadline, key.into()), present);
    }

    /// Ends an atomic unit with the metadata changes `meta`.
    pub(super) fn commit(&mut self, meta: &[MetaChange]) {
        // Commands without changes also take time when the log replays them.
        self.written += ENTRY_BYTES;
        for change in meta {
            let bytes = change.key.len() + change.value.as_ref().map_or(0, Vec::len);
            self.held += bytes;
            self.written += bytes;
            self.meta.insert(change.key.clone(), change.value.clone());
        }
    }

    /// Starts the next generation, which hides the changes of the current one.
    pub(super) fn clear(&mut self) {
        self.data = Table::default();
        self.deadlines = <[ChangedDeadlines; 2]>::default();
        self.rows.clear();
        self.ended.clear();
        self.held = 0;
    }
}
