//! Loads a snapshot: writes the keys of each database to a hidden generation, which the last batch
//! makes current.
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
    layout::{Space, State, kind},
};
use crate::{
    key::Key,
    store::{
        Database, DeadlineKind, Position, Stamp, Version,
        collection::{Id, earliest_field_deadline},
    },
};

impl LsmStore {
    pub(super) fn start_load(&mut self) -> Result<(), LoadError> {
        self.loading = None;
        self.handle_writer_events();
        self.must_be_open()?;
        self.image = None;
        let mut spaces = [None; Database::COUNT];
        spaces[0] = Some(Space::new(self.begin_generation()));
        // Unsent changes are dropped; those in flight belong to the old state.
        self.waiting_changes.clear();
        self.state = self.sent_state;
        self.requested_sync = self.requested_sync.min(self.sent_state.applied_position);
        self.blind_writes = RefCell::default();
        self.active_changes = Changes::new(self.sent_state);
        // Until the writer has looked them up, the state in flight may count existing keys as new.
        if let Some(frozen) = &self.frozen_changes {
            self.active_changes.uncounted_groups.clone_from(&frozen.uncounted_groups);
        }
        (self.needs_purge, self.has_uncommitted) = (false, true);
        self.reset_deadlines();
        self.selected.set(Database::ZERO);
        let since = [Version::ABSENT; Database::COUNT];
        self.loading = Some(Load { spaces, since, database: Database::ZERO });
        Ok(())
    }

    pub(super) fn load_one_database(
        &mut self,
        database: Database,
        since: Version,
    ) -> Result<(), LoadError> {
        let generation = match database {
            Database::ZERO => None,
            _ => Some(self.begin_generation()),
        };
        let load = self.loading.as_mut().ok_or(LoadError::NotLoading)?;
        load.database = database;
        load.since[database.index()] = since;
        if let Some(generation) = generation {
            load.spaces[database.index()] = Some(Space::new(generation));
        }
        Ok(())
    }

    pub(super) fn load_key(
        &mut self,
        key: Key<'_>,
        value: &[u8],
        stamp: Stamp,
    ) -> Result<(), LoadError> {
        let load = self.loading.as_mut().ok_or(LoadError::NotLoading)?;
        let space = load.space_mut();
        space.keys += 1;
        let part = self.active_changes.part_mut(*space);
        let key = key.bytes();
        part.put(Position::of(key), key, value, stamp);
        let deadlines = [stamp.deadline, earliest_field_deadline(stamp.kind, value)];
        for (of, deadline) in DeadlineKind::BOTH.into_iter().zip(deadlines) {
            if let Some(deadline) = deadline {
                part.set_deadline(of, key, deadline, true);
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
        let load = self.loading.as_mut().ok_or(LoadError::NotLoading)?;
        self.active_changes.part_mut(*load.space_mut()).set_row(id, name, Some(value));
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
        let takes = matches!(self.condition, Condition::Well | Condition::WaitingForDisk(_));
        if takes && self.frozen_changes.is_none() {
            // The tree stays in its old state.
            let next = Changes::new(self.sent_state);
            let full = Arc::new(mem::replace(&mut self.active_changes, next));
            self.frozen_changes = Some(Arc::clone(&full));
            self.writer.write(full);
        }
        Ok(())
    }

    pub(super) fn end_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        self.handle_writer_events();
        let load = self.loading.take().ok_or(LoadError::NotLoading)?;
        self.selected.set(Database::ZERO);
        self.must_be_open()?;
        // No old metadata may remain in the tree or in the changes in flight.
        let stored = self.tree_range(vec![kind::META]..vec![kind::DEADLINE]);
        let mut old: BTreeSet<_> = stored.map(|(key, _)| key[1..].to_vec()).collect();
        self.must_be_open()?;
        old.extend(self.frozen_changes.iter().flat_map(|layer| layer.meta.keys().cloned()));
        let gone = old.into_iter().map(|key| MetaChange { key, value: None });
        self.active_changes.commit(&gone.collect::<Vec<_>>());
        self.active_changes.commit(meta);
        self.state = self.loaded_state(at, load);
        self.synced_position = self.synced_position.map(|synced| synced.min(at));
        self.requested_sync = self.requested_sync.min(at);
        // The old generations have ended, but still take space.
        (self.needs_purge, self.has_uncommitted) = (true, false);
        self.write_all_changes();
        Ok(())
    }

    fn loaded_state(&self, at: Slot, load: Load) -> State {
        let Load { mut spaces, since, .. } = load;
        for space in spaces.iter_mut().skip(1) {
            // A database without keys has no generation, as after a flush.
            space.take_if(|space| space.keys == 0);
        }
        let others = spaces.iter().skip(1).any(Option::is_some);
        let has_table =
            self.sent_state.has_table || others || since.iter().any(|at| *at != Version::ABSENT);
        let newest = self.newest_generation;
        let mut state =
            State { applied_position: at, newest, spaces, since, has_table, ..self.sent_state };
        for ended in self.sent_state.live_generations() {
            state.end_generation(ended);
        }
        state
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
