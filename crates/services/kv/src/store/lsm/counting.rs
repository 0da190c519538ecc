//! Key count and deadline index while some keys are set by blind writes.

use super::{
    LsmStore,
    blind::Footprint,
    condition::Condition,
    failure::Failure,
    layout::{Space, data_key},
};
use crate::store::{Database, DeadlineKind, Position};

impl LsmStore {
    /// Stores a string of database 0 in place of an entry that no layer contains, without reading
    /// the entry. Returns `None`, and counts the key as new until the writer has looked it up. If
    /// the writer has fallen behind, reads the entry and returns its footprint.
    pub(super) fn replace_blindly(&mut self, position: Position, key: &[u8]) -> Option<Footprint> {
        debug_assert_eq!(self.selected.get(), Database::ZERO);
        let space = self.state.first();
        let Space { generation, indexed, .. } = space;
        let blind = self.blind_writes.get_mut();
        if blind.keys_to_look_up() >= self.limits.blind_keys {
            blind.count(&self.deadlines[0].expired_keys);
        }
        if blind.keys_to_look_up() >= self.limits.blind_keys {
            return self.footprint(position, key);
        }
        let stored = data_key(generation, position, key);
        self.active_changes.part_mut(space).add_blind_memory(key);
        if let Some(group) = self.blind_writes.get_mut().push(stored, indexed)
            && self.condition == Condition::Well
        {
            self.writer.queue_look_up(group);
        }
        None
    }

    /// Returns the footprint of an entry in the tree, which no layer contains.
    pub(super) fn footprint(&self, position: Position, key: &[u8]) -> Option<Footprint> {
        let Space { generation, indexed, .. } = self.space()?;
        let found = match &self.tree {
            Some(tree) => tree.footprint(&data_key(generation, position, key), indexed),
            None => Err(Failure::NotOpen),
        };
        self.must_read(found)?
    }

    /// Returns the exact number of stored keys in database 0. Looks up all entries that blind
    /// writes replace; returns `None` if they cannot be read.
    pub(super) fn count_keys(&self) -> Option<u64> {
        let mut blind = self.blind_writes.borrow_mut();
        blind.close(self.state.first().indexed);
        for group in blind.uncounted_groups() {
            let found = match &self.tree {
                Some(tree) => tree.look_up_group(group),
                None => Err(Failure::NotOpen),
            };
            self.must_read(found)?;
        }
        blind.count(&self.deadlines[0].expired_keys);
        Some(self.state.first().keys.saturating_sub(blind.surplus_keys()))
    }

    /// Makes the number of keys in database 0 exact, so that its contents can get another number.
    /// If entries cannot be read, the commands since the last commit are void anyway.
    pub(super) fn settle_blind_writes(&mut self) {
        if let Some(keys) = self.count_keys() {
            self.blind_writes.get_mut().take_surplus_keys();
            self.state.first_mut().keys = keys;
        }
    }

    /// Returns whether a deadline found in the index is the current one of its key. Until a layer
    /// is written, the tree also contains the deadlines that its blind writes replace.
    pub(super) fn is_current(&self, of: DeadlineKind, deadline: u64, key: &[u8]) -> bool {
        let record = self.above(Position::of(key), key);
        record
            .is_none_or(|record| record.replaced_entry().deadlines()[of as usize] == Some(deadline))
    }
}
