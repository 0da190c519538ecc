//! Contents of one database in memory.

use std::collections::BTreeSet;

use super::rows::Collections;
use crate::store::{
    Database, DeadlineKind, Overdue, Position, ReplacedEntry, Stamp,
    collection::{collection_id, earliest_field_deadline},
    dead::ExpiredKeyCount,
    table::Table,
};

/// Contents of all databases; `None` if nothing has been written since the last flush.
pub(super) type Spaces = [Option<Box<Space>>; Database::COUNT];

#[derive(Debug, Default)]
pub(super) struct Space {
    pub(super) table: Table,
    pub(super) collections: Collections,
    /// Deadlines of keys, and of fields.
    deadlines: [BTreeSet<(u64, Box<[u8]>)>; 2],
    expired_keys: ExpiredKeyCount,
}

impl Space {
    pub(super) fn set(&mut self, position: Position, key: &[u8], value: &[u8], stamp: Stamp) {
        let old = self.table.put(position, key, value, stamp);
        let ended = old.and_then(|old| old.id);
        if let Some(id) = ended
            && ended != collection_id(stamp.kind, value)
        {
            self.collections.end(id);
        }
        let old = old.map_or([None; 2], |old| old.deadlines());
        self.set_deadlines(key, old, [stamp.deadline, earliest_field_deadline(stamp.kind, value)]);
    }

    /// Removes the entry of a key without its rows, and returns its data.
    pub(super) fn remove(&mut self, position: Position, key: &[u8]) -> Option<ReplacedEntry> {
        let old = self.table.remove(position, key)?.replaced_entry();
        self.set_deadlines(key, old.deadlines(), [None; 2]);
        Some(old)
    }

    fn set_deadlines(&mut self, key: &[u8], old: [Option<u64>; 2], new: [Option<u64>; 2]) {
        if old == new {
            return;
        }
        self.expired_keys.adjust_for_deadline(old[0], new[0]);
        for of in [0, 1] {
            if let Some(old) = old[of] {
                self.deadlines[of].remove(&(old, key.into()));
            }
            if let Some(new) = new[of] {
                self.deadlines[of].insert((new, key.into()));
            }
        }
    }

    /// Counts the expired keys anew, as the group's time went back.
    pub(super) fn reset_expired_keys(&mut self) {
        self.expired_keys = ExpiredKeyCount::default();
    }

    /// Returns the number of keys that exist at a group time.
    pub(super) fn len(&self, group_ms: u64) -> u64 {
        let to = group_ms.saturating_add(1);
        if let Some(from) = self.expired_keys.first_uncounted(to) {
            let range = (from, Box::default())..(to, Box::default());
            self.expired_keys.add_counted(to, self.deadlines[0].range(range).count() as u64);
        }
        self.table.len() - self.expired_keys.keys()
    }

    /// Visits the deadlines from `from` to `to` inclusive, earliest first.
    pub(super) fn deadlines(&self, of: DeadlineKind, from: u64, to: u64, visit: &mut Overdue<'_>) {
        let due = self.deadlines[of as usize]
            .range((from, Box::default())..)
            .take_while(|(deadline, _)| *deadline <= to);
        for (deadline, key) in due {
            if visit(*deadline, key).is_break() {
                return;
            }
        }
    }

    /// Returns the earliest deadline above a group time.
    pub(super) fn next_deadline(&self, of: DeadlineKind, group_ms: u64) -> Option<u64> {
        let above = (group_ms.checked_add(1)?, Box::default());
        let (deadline, _) = self.deadlines[of as usize].range(above..).next()?;
        Some(*deadline)
    }

    /// Returns the approximate memory of keys and rows in bytes.
    pub(super) fn bytes_about(&self) -> u64 {
        self.table.bytes_about().saturating_add(self.collections.bytes())
    }

    /// Drops the deadlines, which neither a snapshot nor the gradual freeing needs.
    pub(super) fn drop_deadlines(&mut self) {
        self.deadlines = <[BTreeSet<_>; 2]>::default();
    }

    /// Frees some keys or rows of a discarded space. Returns whether any are left.
    pub(super) fn free_some(&mut self) -> bool {
        self.table.free_some_records() || self.collections.free_any_rows()
    }
}
