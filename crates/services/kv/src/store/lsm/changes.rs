//! In-memory layer above the tree: committed changes not yet written to the tree.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use quorate_replica::service::MetaChange;

use super::{blind::Group, layout::State};
use crate::store::{
    DeadlineKind, Position, Stamp,
    collection::Id,
    table::{Record, Table},
};

/// Approximate memory of an entry in addition to its key and value.
const ENTRY_BYTES: usize = 64;

/// Changed rows of a collection by name. `None` marks a removed row.
pub(super) type ChangedRows = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// Changed deadlines with their keys. `false` marks a removed deadline.
pub(super) type ChangedDeadlines = BTreeMap<(u64, Box<[u8]>), bool>;

/// Changes to the metadata, and to the data of one generation.
#[derive(Debug)]
pub(super) struct Changes {
    /// State of the tree after these changes. Counts too many keys if groups are uncertain.
    pub(super) state: State,
    /// Generation of the keys. During a load, it differs from that of the state.
    pub(super) generation: u64,
    /// Changed keys. [`Stamp::ABSENT`] marks a removed key.
    pub(super) data: Table,
    /// Changed deadlines of keys and of fields.
    pub(super) deadlines: [ChangedDeadlines; 2],
    pub(super) rows: BTreeMap<Id, ChangedRows>,
    /// Collections that no key refers to any more.
    pub(super) dropped_collections: BTreeSet<Id>,
    pub(super) meta: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Blindly set keys; empty until the layer is frozen.
    pub(super) groups: Vec<Arc<Group>>,
    /// Groups of this and lower layers whose keys all count as new in the state.
    pub(super) uncounted_groups: Vec<Arc<Group>>,
    /// True if the layer's generation is indexed; see [`State::indexed`].
    pub(super) indexed: bool,
    /// Approximate number of bytes in memory.
    pub(super) memory_bytes: usize,
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
            dropped_collections: BTreeSet::new(),
            meta: BTreeMap::new(),
            groups: Vec::new(),
            uncounted_groups: Vec::new(),
            indexed: state.indexed,
            memory_bytes: 0,
            written: 0,
        }
    }

    /// Creates a layer for the keys of a load. It does not change the state of the tree.
    pub(super) fn for_load(state: State, generation: u64) -> Self {
        Self { generation, indexed: true, ..Self::new(state) }
    }

    /// Returns the state with the exact number of keys. All groups must have been looked up.
    pub(super) fn exact_state(&self) -> State {
        let replaced = self.uncounted_groups.iter().filter_map(|group| group.replaced_entries());
        let surplus: u64 = replaced.map(|replaced| replaced.keys).sum();
        State { keys: self.state.keys.saturating_sub(surplus), ..self.state }
    }

    /// Returns whether the layer drops collections. All groups must have been looked up.
    pub(super) fn ends_collections(&self) -> bool {
        let mut replaced = self.groups.iter().filter_map(|group| group.replaced_entries());
        !self.dropped_collections.is_empty()
            || replaced.any(|replaced| !replaced.dropped_collections.is_empty())
    }

    /// Adds the memory of a key in a group.
    pub(super) fn add_blind_memory(&mut self, key: &[u8]) {
        self.memory_bytes += ENTRY_BYTES + key.len();
    }

    pub(super) fn put(&mut self, position: Position, key: &[u8], value: &[u8], stamp: Stamp) {
        let bytes = ENTRY_BYTES + key.len() + value.len();
        let held = self.data.get(position, key).map_or(0, Record::bytes);
        self.memory_bytes += bytes.saturating_sub(held);
        self.written += bytes;
        self.data.put(position, key, value, stamp);
    }

    /// Returns whether the layer has no keys and no rows.
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
            self.memory_bytes += bytes.saturating_sub(before);
            *held = value.map(Box::from);
            return;
        }
        self.memory_bytes += bytes;
        rows.insert(name.into(), value.map(Box::from));
    }

    /// Returns a changed row: `None` if not in this layer, `Some(None)` if it is removed.
    pub(super) fn row(&self, id: Id, name: &[u8]) -> Option<Option<&[u8]>> {
        let row = self.rows.get(&id)?.get(name)?;
        Some(row.as_deref())
    }

    /// Drops a collection. Its rows are removed from the tree after this layer is written.
    pub(super) fn end(&mut self, id: Id) {
        self.memory_bytes += ENTRY_BYTES;
        self.written += ENTRY_BYTES;
        self.rows.remove(&id);
        self.dropped_collections.insert(id);
    }

    pub(super) fn set_deadline(
        &mut self,
        of: DeadlineKind,
        key: &[u8],
        deadline: u64,
        present: bool,
    ) {
        self.memory_bytes += ENTRY_BYTES + key.len();
        self.deadlines[of as usize].insert((deadline, key.into()), present);
    }

    /// Ends an atomic unit, with changes of metadata.
    pub(super) fn commit(&mut self, meta: &[MetaChange]) {
        // The replay of a command without changes takes time too.
        self.written += ENTRY_BYTES;
        for change in meta {
            let bytes = change.key.len() + change.value.as_ref().map_or(0, Vec::len);
            self.memory_bytes += bytes;
            self.written += bytes;
            self.meta.insert(change.key.clone(), change.value.clone());
        }
    }

    /// Begins the next generation, which hides the changes of the current one.
    pub(super) fn clear(&mut self) {
        self.data = Table::default();
        self.deadlines = <[ChangedDeadlines; 2]>::default();
        self.rows.clear();
        self.dropped_collections.clear();
        self.indexed = true;
        self.memory_bytes = 0;
    }
}
