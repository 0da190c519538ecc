//! Writes a layer to the tree as one atomic batch, in the order of the tree where possible.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use fjall::OwnedWriteBatch;

use super::{APART_BYTES, Access, Failure, Tree};
use crate::store::{
    DeadlineKind, Position,
    lsm::{
        blind::ReplacedEntries,
        changes::Changes,
        layout::{
            INDEXED_KEY, NEWEST_KEY, STATE_KEY, apart_header_key, data_key, deadline_key,
            dropped_collection_key, header_of, kind, row_key, stored_value,
        },
    },
};

impl Tree {
    /// Writes a layer, and removes what is left of the entries that its blind writes replace.
    pub(in crate::store::lsm) fn write(&self, changes: &Changes) -> Result<(), Failure> {
        // Looked up first, because the batch overwrites the old entries.
        for group in changes.groups.iter().chain(&changes.uncounted_groups) {
            self.look_up_group(group)?;
        }
        self.disk.allows(Access::Write)?;
        if changes.deadlines.iter().any(|deadlines| !deadlines.is_empty()) {
            self.entry_kinds.deadlines.store(true, Ordering::Release);
        }
        if !changes.rows.is_empty() {
            self.entry_kinds.rows.store(true, Ordering::Release);
        }
        let mut batch = self.database.batch();
        self.put_state(&mut batch, changes);
        self.put_deadlines(&mut batch, changes);
        self.put_data(&mut batch, changes);
        self.put_rows(&mut batch, changes);
        Ok(batch.commit()?)
    }

    fn put_state(&self, batch: &mut OwnedWriteBatch, changes: &Changes) {
        let state = changes.exact_state();
        batch.insert(&self.keyspace, STATE_KEY, state.to_bytes());
        if changes.generation != state.generation {
            let newest = changes.generation.to_le_bytes();
            batch.insert(&self.keyspace, NEWEST_KEY, newest);
        }
        if state.indexed && self.entry_kinds.deadlines.load(Ordering::Acquire) {
            batch.insert(&self.keyspace, INDEXED_KEY, state.to_bytes());
        }
        for (key, value) in &changes.meta {
            let key = [&[kind::META], &**key].concat();
            match value {
                Some(value) => batch.insert(&self.keyspace, key, &**value),
                None => batch.remove(&self.keyspace, key),
            }
        }
    }

    fn put_deadlines(&self, batch: &mut OwnedWriteBatch, changes: &Changes) {
        for of in DeadlineKind::BOTH {
            let changed = &changes.deadlines[of as usize];
            for ((deadline, key), present) in changed {
                let key = deadline_key(changes.generation, of, *deadline, key);
                if *present {
                    batch.insert(&self.keyspace, key, []);
                } else {
                    batch.remove(&self.keyspace, key);
                }
            }
            let replaced =
                replaced_entries(changes).flat_map(|replaced| &replaced.deadlines[of as usize]);
            // The layer may contain the same deadline again.
            for old in replaced.filter(|old| !changed.contains_key(old)) {
                let key = deadline_key(changes.generation, of, old.0, &old.1);
                batch.remove(&self.keyspace, key);
            }
        }
    }

    fn put_data(&self, batch: &mut OwnedWriteBatch, changes: &Changes) {
        let had_deadlines = match changes.indexed {
            true => had_deadlines(changes),
            false => BTreeSet::new(),
        };
        for (position, record) in changes.data.from(Position::START) {
            let key = data_key(changes.generation, position, record.key());
            let stored = (!record.is_absent()).then(|| stored_value(&record.entry()));
            match &stored {
                Some(stored)
                    if changes.indexed
                        && record.deadline().is_some()
                        && stored.len() >= APART_BYTES as usize =>
                {
                    batch.insert(&self.keyspace, apart_header_key(&key), header_of(stored));
                }
                _ if had_deadlines.contains(record.key()) => {
                    batch.remove(&self.keyspace, apart_header_key(&key));
                }
                _ => {}
            }
            match stored {
                Some(stored) => batch.insert(&self.keyspace, key, stored),
                None => batch.remove(&self.keyspace, key),
            }
        }
    }

    fn put_rows(&self, batch: &mut OwnedWriteBatch, changes: &Changes) {
        for (id, rows) in &changes.rows {
            for (name, value) in rows {
                let key = row_key(changes.generation, *id, name);
                match value {
                    Some(value) => batch.insert(&self.keyspace, key, &**value),
                    None => batch.remove(&self.keyspace, key),
                }
            }
        }
        let replaced = replaced_entries(changes).flat_map(|replaced| &replaced.dropped_collections);
        let ended = replaced.filter(|id| !changes.dropped_collections.contains(id));
        for id in changes.dropped_collections.iter().chain(ended) {
            batch.insert(&self.keyspace, dropped_collection_key(changes.generation, *id), []);
        }
    }
}

fn replaced_entries(changes: &Changes) -> impl Iterator<Item = &ReplacedEntries> {
    changes.groups.iter().filter_map(|group| group.replaced_entries())
}

/// Returns the keys that have lost a deadline. They may have another one now.
fn had_deadlines(changes: &Changes) -> BTreeSet<&[u8]> {
    let keys = DeadlineKind::Keys as usize;
    let lost = changes.deadlines[keys].iter().filter(|(_, present)| !**present);
    let lost = lost.map(|((_, key), _)| &**key);
    let old = replaced_entries(changes).flat_map(|replaced| &replaced.deadlines[keys]);
    lost.chain(old.map(|(_, key)| &**key)).collect()
}
