//! Blind writes: strings that are set without reading the entries they replace ([decision
//! 32](../../../../../../docs/decisions/0032-a-set-reads-nothing.md)).
//!
//! The reply to SET does not depend on the old entry, but the number of keys, the index of
//! deadlines and the rows of a replaced collection do. The writer therefore looks up old entries
//! before it writes the layer that replaces them, or the owner if it needs the exact count.

use std::{
    mem,
    sync::{Arc, OnceLock},
};

use super::layout::{generation_of, parse_data_key};
use crate::store::{DeadlineKind, ReplacedEntry, collection::Id, dead::ExpiredKeyCount};

/// Number of keys in a full group, small enough that looking them up takes a few milliseconds.
const GROUP_KEYS: usize = 512;

/// Data that belongs to an entry but is stored elsewhere in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Deadline of the key, and the earliest deadline of its fields.
    pub(super) deadlines: [Option<u64>; 2],
    /// Id under which its rows are stored.
    pub(super) id: Option<Id>,
}

impl From<ReplacedEntry> for Footprint {
    fn from(old: ReplacedEntry) -> Self {
        Self { deadlines: old.deadlines(), id: old.id }
    }
}

/// Entries that the keys of a group replace.
#[derive(Debug, Default)]
pub(super) struct ReplacedEntries {
    pub(super) keys: u64,
    /// Deadlines of keys and of fields, each with its key.
    pub(super) deadlines: [Vec<(u64, Box<[u8]>)>; 2],
    pub(super) dropped_collections: Vec<Id>,
}

impl ReplacedEntries {
    fn add(&mut self, stored_key: &[u8], old: Footprint) {
        self.keys += 1;
        self.dropped_collections.extend(old.id);
        for (of, deadline) in self.deadlines.iter_mut().zip(old.deadlines) {
            if let Some(deadline) = deadline
                && let Some((_, key)) = parse_data_key(stored_key)
            {
                of.push((deadline, key.into()));
            }
        }
    }
}

/// Group of blindly set keys of one generation, in stored form. No layer contained them when they
/// were set.
///
/// Invariant: the tree's entries for these keys do not change before the group's layer is written.
#[derive(Debug)]
pub(super) struct Group {
    keys: Vec<Vec<u8>>,
    /// See [`Space::indexed`](super::layout::Space::indexed).
    indexed: bool,
    replaced_entries: OnceLock<ReplacedEntries>,
}

impl Group {
    /// Returns the replaced entries. On the first call, `find` looks them up.
    ///
    /// Two threads may look them up at once. The writer has its result before it writes the layer,
    /// so a result that includes entries of the layer itself is the second one and is dropped.
    pub(super) fn look_up_once<E>(
        &self,
        find: impl Fn(&[u8], bool) -> Result<Option<Footprint>, E>,
    ) -> Result<&ReplacedEntries, E> {
        if let Some(replaced) = self.replaced_entries.get() {
            return Ok(replaced);
        }
        let mut replaced = ReplacedEntries::default();
        // Adjacent keys share blocks of the tree.
        let mut keys: Vec<&Vec<u8>> = self.keys.iter().collect();
        keys.sort_unstable();
        for key in keys {
            if let Some(old) = find(key, self.indexed)? {
                replaced.add(key, old);
            }
        }
        Ok(self.replaced_entries.get_or_init(|| replaced))
    }

    /// Returns the generation of the keys.
    pub(super) fn generation(&self) -> Option<u64> {
        self.keys.first().and_then(|key| generation_of(key))
    }

    /// Returns the replaced entries if they have been looked up.
    pub(super) fn replaced_entries(&self) -> Option<&ReplacedEntries> {
        self.replaced_entries.get()
    }
}

/// Blind writes, some of which may not have added a key. They are all in database 0 until they have
/// been counted.
#[derive(Debug, Default)]
pub(super) struct BlindWrites {
    /// Keys of the group being filled.
    open: Vec<Vec<u8>>,
    /// Full groups of the active layer.
    groups: Vec<Arc<Group>>,
    /// Groups of any layer that have not been counted: all their keys still count as new.
    uncounted_groups: Vec<Arc<Group>>,
    /// Number of keys to look up.
    keys_to_look_up: usize,
    /// Number of keys that were counted as new although they existed.
    surplus_keys: u64,
}

impl BlindWrites {
    /// Adds a stored key. Returns the group if it is now full.
    pub(super) fn push(&mut self, key: Vec<u8>, indexed: bool) -> Option<Arc<Group>> {
        self.open.push(key);
        self.keys_to_look_up += 1;
        if self.open.len() < GROUP_KEYS {
            return None;
        }
        self.close(indexed);
        self.groups.last().cloned()
    }

    pub(super) fn close(&mut self, indexed: bool) {
        if self.open.is_empty() {
            return;
        }
        let keys = mem::take(&mut self.open);
        let group = Arc::new(Group { keys, indexed, replaced_entries: OnceLock::new() });
        self.groups.push(Arc::clone(&group));
        self.uncounted_groups.push(group);
    }

    /// Drops the keys of database 0 as its generation ends. Its number of keys is then exact.
    pub(super) fn end_generation(&mut self, generation: u64) {
        let ended = |group: &Arc<Group>| group.generation() == Some(generation);
        self.open.clear();
        self.groups.retain(|group| !ended(group));
        self.uncounted_groups.clear();
        (self.keys_to_look_up, self.surplus_keys) = (0, 0);
    }

    /// Drops the counted groups of another database's generation, which ends.
    pub(super) fn end_counted_groups(&mut self, generation: u64) {
        self.groups.retain(|group| group.generation() != Some(generation));
    }

    /// Takes the groups of the active layer, which is being frozen.
    pub(super) fn take_active_groups(&mut self) -> Vec<Arc<Group>> {
        mem::take(&mut self.groups)
    }

    pub(super) fn uncounted_groups(&self) -> &[Arc<Group>] {
        &self.uncounted_groups
    }

    /// Counts the groups that have been looked up. Expired keys are counted only while no group is
    /// uncertain, so `dead` has counted every replaced deadline up to its time.
    pub(super) fn count(&mut self, dead: &ExpiredKeyCount) {
        let (mut surplus, mut found) = (0, 0);
        self.uncounted_groups.retain(|group| {
            let Some(replaced) = group.replaced_entries() else {
                return true;
            };
            surplus += replaced.keys;
            found += group.keys.len();
            for (deadline, _) in &replaced.deadlines[DeadlineKind::Keys as usize] {
                dead.adjust_for_deadline(Some(*deadline), None);
            }
            false
        });
        self.surplus_keys += surplus;
        self.keys_to_look_up = self.keys_to_look_up.saturating_sub(found);
    }

    pub(super) const fn keys_to_look_up(&self) -> usize {
        self.keys_to_look_up
    }

    pub(super) const fn surplus_keys(&self) -> u64 {
        self.surplus_keys
    }

    pub(super) const fn take_surplus_keys(&mut self) -> u64 {
        mem::replace(&mut self.surplus_keys, 0)
    }
}
