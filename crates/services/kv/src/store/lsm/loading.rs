//! Loads a snapshot: writes the keys to a hidden generation, which the last batch makes current.
//!
//! Until then, the tree has its old state. After a crash, the store is at its old position, and the
//! loaded keys are removed. The first keys of a load mark the generation as used, so that no other
//! generation ever begins among the remains of a crash.

use std::{cell::RefCell, collections::BTreeSet, mem, sync::Arc};

use quorate_core::slot::Slot;
use quorate_replica::service::{LoadError, MetaChange};

use super::{
    Load, LsmStore, SLOW,
    changes::Changes,
    condition::Condition,
    layout::{State, kind},
};
use crate::{
    key::Key,
    store::{
        DeadlineKind, Position, Stamp,
        collection::{Id, earliest_field_deadline},
    },
};

impl LsmStore {
    pub(super) fn start_load(&mut self) -> Result<(), LoadError> {
        self.loading = None;
        self.handle_writer_events();
        self.must_be_open()?;
        self.image = None;
        self.newest_generation += 1;
        let generation = self.newest_generation;
        // Unsent changes are dropped; those in flight belong to the old state.
        self.waiting_changes.clear();
        self.state = self.sent_state;
        self.requested_sync = self.requested_sync.min(self.sent_state.applied_position);
        self.blind_writes = RefCell::default();
        self.active_changes = Changes::for_load(self.sent_state, generation);
        // Until the writer has looked them up, the state in flight may count existing keys as new.
        if let Some(frozen) = &self.frozen_changes {
            self.active_changes.uncounted_groups.clone_from(&frozen.uncounted_groups);
        }
        (self.needs_purge, self.has_uncommitted) = (false, true);
        self.begin_deadlines();
        self.loading = Some(Load { generation, keys: 0 });
        Ok(())
    }

    pub(super) fn load_key(
        &mut self,
        key: Key<'_>,
        value: &[u8],
        stamp: Stamp,
    ) -> Result<(), LoadError> {
        let load = self.loading.as_mut().ok_or(LoadError::NotLoading)?;
        load.keys += 1;
        let key = key.bytes();
        self.active_changes.put(Position::of(key), key, value, stamp);
        let deadlines = [stamp.deadline, earliest_field_deadline(stamp.kind, value)];
        for (of, deadline) in DeadlineKind::BOTH.into_iter().zip(deadlines) {
            if let Some(deadline) = deadline {
                self.active_changes.set_deadline(of, key, deadline, true);
            }
        }
        self.send_full_layers()
    }

    pub(super) fn load_one_row(
        &mut self,
        id: Id,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), LoadError> {
        if self.loading.is_none() {
            return Err(LoadError::NotLoading);
        }
        self.active_changes.set_row(id, name, Some(value));
        self.send_full_layers()
    }

    fn send_full_layers(&mut self) -> Result<(), LoadError> {
        if self.buffered_multiple() == 0 {
            return Ok(());
        }
        self.handle_writer_events();
        if self.buffered_multiple() >= SLOW {
            self.delay_commit();
        }
        let load = self.loading.ok_or(LoadError::NotLoading)?;
        let takes = matches!(self.condition, Condition::Well | Condition::WaitingForDisk(_));
        if takes && self.frozen_changes.is_none() {
            // The tree stays in its old state.
            let next = Changes::for_load(self.sent_state, load.generation);
            let full = Arc::new(mem::replace(&mut self.active_changes, next));
            self.frozen_changes = Some(Arc::clone(&full));
            self.writer.write(full);
        }
        Ok(())
    }

    pub(super) fn end_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        self.handle_writer_events();
        let load = self.loading.take().ok_or(LoadError::NotLoading)?;
        self.must_be_open()?;
        // No old metadata may remain in the tree or in the changes in flight.
        let stored = self.tree_range(vec![kind::META]..vec![kind::DEADLINE]);
        let mut old: BTreeSet<_> = stored.map(|(key, _)| key[1..].to_vec()).collect();
        self.must_be_open()?;
        old.extend(self.frozen_changes.iter().flat_map(|layer| layer.meta.keys().cloned()));
        let gone = old.into_iter().map(|key| MetaChange { key, value: None });
        self.active_changes.commit(&gone.collect::<Vec<_>>());
        self.active_changes.commit(meta);
        self.state = State {
            applied_position: at,
            keys: load.keys,
            generation: load.generation,
            oldest: self.sent_state.oldest,
            indexed: true,
        };
        self.synced_position = self.synced_position.map(|synced| synced.min(at));
        self.requested_sync = self.requested_sync.min(at);
        // The old generation has ended, but still takes space.
        (self.needs_purge, self.has_uncommitted) = (true, false);
        self.write_all_changes();
        Ok(())
    }

    fn must_be_open(&self) -> Result<(), LoadError> {
        match self.first_failed_read.get() {
            Some(failure) => Err(LoadError::Storage(failure.to_string())),
            None if self.tree.is_none() || self.reopened_with_loss.is_some() => {
                Err(LoadError::Storage(self.condition.to_string()))
            }
            None => Ok(()),
        }
    }
}
