//! Writes a layer to the tree as one atomic batch, in the order of the tree where possible.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use fjall::OwnedWriteBatch;

use super::{APART_BYTES, Access, Failure, Tree};
use crate::store::{
    DeadlineKind, Position,
    lsm::{
        blind::ReplacedEntries,
        changes::{Changes, Part},
        databases,
        layout::{
            DATABASES_KEY, INDEXED_KEY, NEWEST_KEY, STATE_KEY, apart_header_key, data_key,
            deadline_key, dropped_collection_key, header_of, kind, row_key, stored_value,
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
        let parts = changes.parts();
        if parts.iter().flat_map(|part| &part.deadlines).any(|deadlines| !deadlines.is_empty()) {
            self.entry_kinds.deadlines.store(true, Ordering::Release);
        }
        if parts.iter().any(|part| !part.rows.is_empty()) {
            self.entry_kinds.rows.store(true, Ordering::Release);
        }
        let mut batch = self.database.batch();
        self.put_state(&mut batch, changes);
        for part in parts {
            let replaced = replaced_entries(changes, part.generation);
            self.put_deadlines(&mut batch, part, &replaced);
            self.put_data(&mut batch, part, &replaced);
            self.put_rows(&mut batch, part, &replaced);
        }
        Ok(batch.commit()?)
    }

    fn put_state(&self, batch: &mut OwnedWriteBatch, changes: &Changes) {
        let state = changes.exact_state();
        batch.insert(&self.keyspace, STATE_KEY, state.to_bytes());
        if let Some(newest) = changes.highest_generation()
            && newest > state.newest
        {
            batch.insert(&self.keyspace, NEWEST_KEY, newest.to_le_bytes());
        }
        if state.has_table {
            batch.insert(&self.keyspace, DATABASES_KEY, databases::encode(&state));
        }
        if state.first().indexed && self.entry_kinds.deadlines.load(Ordering::Acquire) {
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

    fn put_deadlines(
        &self,
        batch: &mut OwnedWriteBatch,
        part: &Part,
        replaced: &[&ReplacedEntries],
    ) {
        for of in DeadlineKind::BOTH {
            let changed = &part.deadlines[of as usize];
            for ((deadline, key), present) in changed {
                let key = deadline_key(part.generation, of, *deadline, key);
                if *present {
                    batch.insert(&self.keyspace, key, []);
                } else {
                    batch.remove(&self.keyspace, key);
                }
            }
            let replaced = replaced.iter().flat_map(|replaced| &replaced.deadlines[of as usize]);
            // The layer may contain the same deadline again.
            for old in replaced.filter(|old| !changed.contains_key(old)) {
                let key = deadline_key(part.generation, of, old.0, &old.1);
                batch.remove(&self.keyspace, key);
            }
        }
    }

    fn put_data(&self, batch: &mut OwnedWriteBatch, part: &Part, replaced: &[&ReplacedEntries]) {
        let had_deadlines = match part.indexed {
            true => had_deadlines(part, replaced),
            false => BTreeSet::new(),
        };
        for (position, record) in part.data.from(Position::START) {
            let key = data_key(part.generation, position, record.key());
            let stored = (!record.is_absent()).then(|| stored_value(&record.entry()));
            match &stored {
                Some(stored)
                    if part.indexed
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

    fn put_rows(&self, batch: &mut OwnedWriteBatch, part: &Part, replaced: &[&ReplacedEntries]) {
        for (id, rows) in &part.rows {
            for (name, value) in rows {
                let key = row_key(part.generation, *id, name);
                match value {
                    Some(value) => batch.insert(&self.keyspace, key, &**value),
                    None => batch.remove(&self.keyspace, key),
                }
            }
        }
        let replaced = replaced.iter().flat_map(|replaced| &replaced.dropped_collections);
        let ended = replaced.filter(|id| !part.dropped_collections.contains(id));
        for id in part.dropped_collections.iter().chain(ended) {
            batch.insert(&self.keyspace, dropped_collection_key(part.generation, *id), []);
        }
    }
}

/// Returns what the layer's blind writes of a generation replace. They have a part in the layer,
/// unless their generation has ended.
fn replaced_entries(changes: &Changes, generation: u64) -> Vec<&ReplacedEntries> {
    let groups = changes.groups.iter().filter(|group| group.generation() == Some(generation));
    groups.filter_map(|group| group.replaced_entries()).collect()
}

/// Returns the keys that have lost a deadline. They may have another one now.
fn had_deadlines<'a>(part: &'a Part, replaced: &[&'a ReplacedEntries]) -> BTreeSet<&'a [u8]> {
    let keys = DeadlineKind::Keys as usize;
    let lost = part.deadlines[keys].iter().filter(|(_, present)| !**present);
    let lost = lost.map(|((_, key), _)| &**key);
    let old = replaced.iter().flat_map(|replaced| &replaced.deadlines[keys]);
    lost.chain(old.map(|(_, key)| &**key)).collect()
}
