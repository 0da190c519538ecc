//! Looks up the old entries that a write replaces, without reading their values where possible.

use std::sync::atomic::Ordering;

use super::{APART_BYTES, Access, Failure, Tree};
use crate::store::{
    ReplacedEntry,
    lsm::{
        blind::{Footprint, Group},
        layout::{self, apart_header_key, kind, prefix},
    },
};

impl Tree {
    /// Returns what is stored of a key that is about to change. If the tree is `indexed`, values
    /// that are in separate files and have a deadline are not read.
    pub(in crate::store::lsm) fn find_replaced(
        &self,
        key: &[u8],
        indexed: bool,
    ) -> Result<Option<ReplacedEntry>, Failure> {
        let mut stored = None;
        if indexed && self.has_deadlines() && self.size_of(key)? >= Some(APART_BYTES) {
            stored = self.get(&apart_header_key(key))?;
        }
        if stored.is_none() {
            stored = self.get(key)?;
        }
        stored.map(|stored| decode(&stored)).transpose()
    }

    /// Looks up the entries that a group of blind writes replaces, unless this has been done.
    pub(in crate::store::lsm) fn look_up_group(&self, group: &Group) -> Result<(), Failure> {
        group.look_up_once(|key, indexed| self.footprint(key, indexed)).map(drop)
    }

    /// Returns the footprint of the entry with a stored key. If the tree is `indexed`, no value in
    /// a separate file is read.
    pub(in crate::store::lsm) fn footprint(
        &self,
        key: &[u8],
        indexed: bool,
    ) -> Result<Option<Footprint>, Failure> {
        let Some(bytes) = self.size_of(key)? else {
            return Ok(None);
        };
        // The header of a collection is never that large.
        let apart = bytes >= APART_BYTES;
        let has_rows = !apart && self.entry_kinds.rows.load(Ordering::Acquire);
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
        self.entry_kinds.deadlines.load(Ordering::Acquire)
    }

    /// Determines which kinds of entries the tree contains. Returns whether it contains deadlines.
    pub(super) fn find_kinds(&self) -> Result<bool, Failure> {
        let has = |kind| -> Result<bool, Failure> {
            let entries = prefix(kind, 0)..prefix(kind + 1, 0);
            Ok(self.keys(entries).next().transpose()?.is_some())
        };
        let deadlines = has(kind::DEADLINE)? || has(kind::APART_HEADER)?;
        self.entry_kinds.deadlines.store(deadlines, Ordering::Release);
        self.entry_kinds.rows.store(has(kind::ROW)?, Ordering::Release);
        Ok(deadlines)
    }
}

fn decode(stored: &[u8]) -> Result<ReplacedEntry, Failure> {
    layout::decode_replaced(stored).ok_or_else(|| Failure::damaged("an entry makes no sense"))
}
