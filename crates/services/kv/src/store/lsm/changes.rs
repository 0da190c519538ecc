//! In-memory layer above the tree: committed changes not yet written to the tree.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use quorate_replica::service::MetaChange;

use super::{
    blind::Group,
    layout::{Space, State},
};
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

/// Changes to the metadata, and to the data of the databases.
#[derive(Debug)]
pub(super) struct Changes {
    /// State of the tree after these changes. Counts too many keys if groups are uncertain. During
    /// a load, it is the state before the load.
    pub(super) state: State,
    /// Changed data, in the order of the generations.
    parts: Vec<Part>,
    pub(super) meta: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Blindly set keys; empty until the layer is frozen.
    pub(super) groups: Vec<Arc<Group>>,
    /// Groups of this and lower layers whose keys all count as new in the state.
    pub(super) uncounted_groups: Vec<Arc<Group>>,
    /// Approximate number of bytes of metadata in memory.
    meta_bytes: usize,
    /// Number of bytes written in addition to those of the parts.
    written: usize,
}

/// Changes to the data of one generation.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) generation: u64,
    /// True if the generation is indexed; see [`Space::indexed`].
    pub(super) indexed: bool,
    /// Changed keys. [`Stamp::ABSENT`] marks a removed key.
    pub(super) data: Table,
    /// Changed deadlines of keys and of fields.
    pub(super) deadlines: [ChangedDeadlines; 2],
    pub(super) rows: BTreeMap<Id, ChangedRows>,
    /// Collections that no key refers to any more.
    pub(super) dropped_collections: BTreeSet<Id>,
    /// Approximate number of bytes in memory.
    memory_bytes: usize,
    /// Number of bytes written, including those overwritten since.
    written: usize,
}

impl Changes {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            parts: Vec::new(),
            meta: BTreeMap::new(),
            groups: Vec::new(),
            uncounted_groups: Vec::new(),
            meta_bytes: 0,
            written: 0,
        }
    }

    /// Returns the state with the exact number of keys. All groups must have been looked up.
    pub(super) fn exact_state(&self) -> State {
        let mut state = self.state;
        for group in &self.uncounted_groups {
            let mut spaces = state.spaces.iter_mut().flatten();
            if let Some(space) = spaces.find(|space| Some(space.generation) == group.generation())
                && let Some(replaced) = group.replaced_entries()
            {
                space.keys = space.keys.saturating_sub(replaced.keys);
            }
        }
        state
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the changes of a generation, if there are any.
    pub(super) fn part(&self, generation: u64) -> Option<&Part> {
        self.parts.iter().find(|part| part.generation == generation)
    }

    pub(super) fn part_mut(&mut self, space: Space) -> &mut Part {
        let Space { generation, indexed, .. } = space;
        let at = self.parts.partition_point(|part| part.generation < generation);
        if self.parts.get(at).is_none_or(|part| part.generation != generation) {
            self.parts.insert(at, Part::new(generation, indexed));
        }
        &mut self.parts[at]
    }

    /// Returns the highest generation with changes.
    pub(super) fn highest_generation(&self) -> Option<u64> {
        self.parts.last().map(|part| part.generation)
    }

    /// Returns whether the layer drops collections. All groups must have been looked up.
    pub(super) fn ends_collections(&self) -> bool {
        let mut replaced = self.groups.iter().filter_map(|group| group.replaced_entries());
        self.parts.iter().any(|part| !part.dropped_collections.is_empty())
            || replaced.any(|replaced| !replaced.dropped_collections.is_empty())
    }

    /// Returns whether the layer has no keys and no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.data.len() == 0 && part.rows.is_empty())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.parts.iter().fold(self.meta_bytes, |sum, part| sum + part.memory_bytes)
    }

    /// Returns the number of bytes written, including those overwritten since.
    pub(super) fn written(&self) -> usize {
        self.parts.iter().fold(self.written, |sum, part| sum + part.written)
    }

    /// Ends an atomic unit, with changes of metadata.
    pub(super) fn commit(&mut self, meta: &[MetaChange]) {
        // The replay of a command without changes takes time too.
        self.written += ENTRY_BYTES;
        for change in meta {
            let bytes = change.key.len() + change.value.as_ref().map_or(0, Vec::len);
            self.meta_bytes += bytes;
            self.written += bytes;
            self.meta.insert(change.key.clone(), change.value.clone());
        }
    }

    /// Drops the changes of a generation that has ended.
    pub(super) fn end_generation(&mut self, generation: u64) {
        for ended in self.parts.extract_if(.., |part| part.generation == generation) {
            self.written += ended.written;
        }
        if self.parts.is_empty() {
            self.meta_bytes = 0;
        }
    }
}

impl Part {
    fn new(generation: u64, indexed: bool) -> Self {
        Self {
            generation,
            indexed,
            data: Table::default(),
            deadlines: <[ChangedDeadlines; 2]>::default(),
            rows: BTreeMap::new(),
            dropped_collections: BTreeSet::new(),
            memory_bytes: 0,
            written: 0,
        }
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
}
