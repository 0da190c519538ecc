//! Old entries: what a write must know of the entry that it replaces, without its value.

use std::sync::atomic::Ordering;

use super::{APART_BYTES, Access, Failure, Tree};
use crate::store::{
    Old,
    lsm::{
        blind::{Footprint, Group},
        layout::{self, apart_header_key, kind, prefix},
    },
};

impl Tree {
    /// Returns the data of the entry at a stored key that is about to change. Reads no value that is
    /// stored apart and has a deadline, if such are `indexed`.
    pub(in crate::store::lsm) fn old(
        &self,
        key: &[u8],
        indexed: bool,
    ) -> Result<Option<Old>, Failure> {
        let mut stored = None;
        if indexed && self.has_deadlines() && self.size_of(key)? >= Some(APART_BYTES) {
            stored = self.get(&apart_header_key(key))?;
        }
        if stored.is_none() {
            stored = self.get(key)?;
        }
        stored.map(|stored| decode(&stored)).transpose()
    }

    /// Looks up what a group of blind writes replaces, unless that is known.
    pub(in crate::store::lsm) fn look_up(&self, group: &Group) -> Result<(), Failure> {
        group.look_up(|key, indexed| self.footprint(key, indexed)).map(drop)
    }

    /// Returns the footprint of the entry at a stored key. Reads no value that is stored apart, if
    /// such with deadlines are `indexed`.
    pub(in crate::store::lsm) fn footprint(
        &self,
        key: &[u8],
        indexed: bool,
    ) -> Result<Option<Footprint>, Failure> {
        let Some(bytes) = self.size_of(key)? else {
            return Ok(None);
        };
        // No header of a collection is that large.
        let apart = bytes >= APART_BYTES;
        let has_rows = !apart && self.has.rows.load(Ordering::Acquire);
        if !has_rows && !self.has_deadlines() {
            return Ok(Some(Footprint::default()));
        }
        let stored = match apart && indexed {
            true => self.get(&apart_header_key(key))?,
            false => self.get(key)?,
        };
        let old = stored.map(|stored| decode(&stored)).transpose()?;
        Ok(Some(old.map(Footprint::from).unwrap_or_default()))
    }

    fn size_of(&self, key: &[u8]) -> Result<Option<u32>, Failure> {
        self.disk.allows(Access::Read)?;
        Ok(self.keyspace.size_of(key)?)
    }

    fn has_deadlines(&self) -> bool {
        self.has.deadlines.load(Ordering::Acquire)
    }

    /// Finds out which kinds of entries the tree has, and returns whether it has deadlines.
    pub(super) fn find_kinds(&self) -> Result<bool, Failure> {
        let has = |kind| -> Result<bool, Failure> {
            let entries = prefix(kind, 0)..prefix(kind + 1, 0);
            Ok(self.keys(entries).next().transpose()?.is_some())
        };
        let deadlines = has(kind::DEADLINE)? || has(kind::APART_HEADER)?;
        self.has.deadlines.store(deadlines, Ordering::Release);
        self.has.rows.store(has(kind::ROW)?, Ordering::Release);
        Ok(deadlines)
    }
}

fn decode(stored: &[u8]) -> Result<Old, Failure> {
    layout::old(stored).ok_or_else(|| Failure::damaged("an entry makes no sense"))
}
