//! Blind writes: strings that are set without reading the entries they replace ([decision
//! 32](../../../../../../docs/decisions/0032-a-set-reads-nothing.md)).
//!
//! The reply to a SET does not depend on the old entry, but the number of keys, the index of
//! deadlines and the rows of a replaced collection do. The writer looks old entries up before it
//! writes the layer that replaces them, or the owner when it needs the exact number of keys.

use std::{
    mem,
    sync::{Arc, OnceLock},
};

use super::layout::parse_data_key;
use crate::store::{DeadlineKind, Old, collection::Id, dead::Dead};

/// Keys of a full group, so few that a look-up takes some milliseconds.
const GROUP_KEYS: usize = 512;

/// Data that an entry has outside of its own place in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Deadline of the key, and the earliest one of its fields.
    pub(super) deadlines: [Option<u64>; 2],
    /// Id of its rows.
    pub(super) id: Option<Id>,
}

impl From<Old> for Footprint {
    fn from(old: Old) -> Self {
        Self { deadlines: old.deadlines(), id: old.id }
    }
}

/// Entries that the keys of a group replace.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    pub(super) keys: u64,
    /// Deadlines of keys and of fields, with their keys.
    pub(super) deadlines: [Vec<(u64, Box<[u8]>)>; 2],
    pub(super) ended: Vec<Id>,
}

impl Replaced {
    fn add(&mut self, stored_key: &[u8], old: Footprint) {
        self.keys += 1;
        self.ended.extend(old.id);
        for (of, deadline) in self.deadlines.iter_mut().zip(old.deadlines) {
            if let Some(deadline) = deadline
                && let Some((_, key)) = parse_data_key(stored_key)
            {
                of.push((deadline, key.into()));
            }
        }
    }
}

/// Keys, in their stored form, that no layer contained when they were set.
///
/// Invariant: the tree's entries of these keys do not change before the group's layer is written.
#[derive(Debug)]
pub(super) struct Group {
    keys: Vec<Vec<u8>>,
    /// See [`State::indexed`](super::layout::State::indexed).
    indexed: bool,
    replaced: OnceLock<Replaced>,
}

impl Group {
    /// Returns the replaced entries. If that has not been done, `find` looks them up by their keys.
    ///
    /// Two threads may do so at once. The writer has a result before it writes the layer, so one
    /// that includes entries of the layer itself comes second and is dropped.
    pub(super) fn look_up<E>(
        &self,
        find: impl Fn(&[u8], bool) -> Result<Option<Footprint>, E>,
    ) -> Result<&Replaced, E> {
        if let Some(replaced) = self.replaced.get() {
            return Ok(replaced);
        }
        let mut replaced = Replaced::default();
        // Neighbours share blocks of the tree.
        let mut keys: Vec<&Vec<u8>> = self.keys.iter().collect();
        keys.sort_unstable();
        for key in keys {
            if let Some(old) = find(key, self.indexed)? {
                replaced.add(key, old);
            }
        }
        Ok(self.replaced.get_or_init(|| replaced))
    }

    /// Returns the replaced entries if they have been looked up.
    pub(super) fn replaced(&self) -> Option<&Replaced> {
        self.replaced.get()
    }
}

/// Blind writes whose number of new keys is not known yet.
#[derive(Debug, Default)]
pub(super) struct Blind {
    /// Keys of the group being filled.
    open: Vec<Vec<u8>>,
    /// Full groups of the active layer.
    groups: Vec<Arc<Group>>,
    /// Groups of any layer whose keys are all counted as new.
    uncertain: Vec<Arc<Group>>,
    /// Keys that have not been looked up.
    pending: usize,
    /// Number of keys that were counted as new and were not.
    surplus: u64,
}

impl Blind {
    /// Adds a stored key. Returns its group if that is full.
    pub(super) fn push(&mut self, key: Vec<u8>, indexed: bool) -> Option<Arc<Group>> {
        self.open.push(key);
        self.pending += 1;
        if self.open.len() < GROUP_KEYS {
            return None;
        }
        self.close(indexed);
        self.groups.last().cloned()
    }

    /// Closes the group being filled.
    pub(super) fn close(&mut self, indexed: bool) {
        if self.open.is_empty() {
            return;
        }
        let keys = mem::take(&mut self.open);
        let group = Arc::new(Group { keys, indexed, replaced: OnceLock::new() });
        self.groups.push(Arc::clone(&group));
        self.uncertain.push(group);
    }

    /// Returns the groups of the active layer, which is frozen.
    pub(super) fn take_groups(&mut self) -> Vec<Arc<Group>> {
        mem::take(&mut self.groups)
    }

    pub(super) fn uncertain(&self) -> &[Arc<Group>] {
        &self.uncertain
    }

    /// Counts the groups that have been looked up. Expired keys are counted only while no group is
    /// uncertain, so `dead` has every replaced deadline that it has passed.
    pub(super) fn count(&mut self, dead: &Dead) {
        let (mut surplus, mut found) = (0, 0);
        self.uncertain.retain(|group| {
            let Some(replaced) = group.replaced() else {
                return true;
            };
            surplus += replaced.keys;
            found += group.keys.len();
            for (deadline, _) in &replaced.deadlines[DeadlineKind::Keys as usize] {
                dead.moved(Some(*deadline), None);
            }
            false
        });
        self.surplus += surplus;
        self.pending = self.pending.saturating_sub(found);
    }

    pub(super) const fn pending(&self) -> usize {
        self.pending
    }

    pub(super) const fn surplus(&self) -> u64 {
        self.surplus
    }

    pub(super) const fn take_surplus(&mut self) -> u64 {
        mem::replace(&mut self.surplus, 0)
    }
}
