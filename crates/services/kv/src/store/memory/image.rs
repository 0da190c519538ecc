//! Snapshot of the store in memory while commands continue. A record ahead of the cursor is saved
//! before it changes; nothing else is copied.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use quorate_replica::service::Imaged;

use super::rows::{Collections, Rows, in_order};
use crate::store::{
    Bytes, Position, Stamp,
    collection::Id,
    image::{Cursor, PartialCollection, PassEnd, StepBudget, VisitPart, records},
    merge::Merge,
    table::{Record, Table},
};

const SAVED_BYTES_MAX: usize = 256 << 20;
/// Divisor of the store's size that gives the limit on saved bytes, within the other two.
const SAVED_BYTES_DIVISOR: u64 = 4;
/// Limit on saved bytes for a small store, about what a few batches write.
const SAVED_BYTES_MIN: usize = 16 << 20;
/// Approximate memory of a saved record in addition to its key and value.
const RECORD_BYTES: usize = 64;

/// Saved rows of a collection. `None` marks a row that was absent.
type SavedRows = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

#[derive(Debug)]
pub(super) struct Image {
    /// Number of the snapshot. Collections that the cursor has passed, or that are newer, carry it.
    number: u64,
    /// First slot whose commands the snapshot does not have.
    from: u64,
    cursor: Cursor,
    /// Saved records of keys ahead of the cursor that have changed since the snapshot began. A key
    /// that was absent has a record too. They hide the records of the table.
    saved_records: Table,
    /// Saved rows ahead of the cursor that have changed since the snapshot began.
    saved_rows: BTreeMap<Id, SavedRows>,
    saved_bytes: usize,
    /// Collections without rows that the cursor has passed. They have no mark.
    passed_empty: BTreeSet<Id>,
    /// Number of shards of `saved_records` that have been freed.
    freed: usize,
    /// Contents at the time of a flush, which no longer change.
    flushed_contents: Option<(Table, Collections)>,
    /// Maximum number of saved bytes.
    bytes_max: usize,
}

impl Image {
    pub(super) fn of(table: &Table, collections: &Collections, number: u64, from: u64) -> Self {
        let bytes = table.bytes_about().saturating_add(collections.bytes());
        let part = usize::try_from(bytes / SAVED_BYTES_DIVISOR).unwrap_or(usize::MAX);
        Self { from, ..Self::with_limit(part.clamp(SAVED_BYTES_MIN, SAVED_BYTES_MAX), number) }
    }

    pub(super) fn with_limit(bytes_max: usize, number: u64) -> Self {
        Self {
            number,
            from: 0,
            cursor: Cursor::default(),
            saved_records: Table::default(),
            saved_rows: BTreeMap::new(),
            saved_bytes: 0,
            passed_empty: BTreeSet::new(),
            freed: 0,
            flushed_contents: None,
            bytes_max,
        }
    }

    #[cfg(test)]
    pub(super) fn saved_bytes(&self) -> usize {
        self.saved_bytes
    }

    #[cfg(test)]
    pub(super) fn count_saved(&self) -> usize {
        let records = self.saved_records.from(Position::START);
        records.map(|(_, record)| RECORD_BYTES + record.bytes()).sum()
    }

    /// Saves a key before it changes. Returns `false` if the limit would be exceeded; the snapshot
    /// then ends.
    pub(super) fn save_key(&mut self, table: &Table, position: Position, key: &[u8]) -> bool {
        if self.flushed_contents.is_some()
            || self.cursor.has_passed(position, key)
            || self.saved_records.get(position, key).is_some()
        {
            return true;
        }
        let record = table.get(position, key);
        let bytes = RECORD_BYTES + record.map_or_else(|| Record::bytes_of(key, b""), Record::bytes);
        self.saved_bytes += bytes;
        if self.saved_bytes > self.bytes_max {
            return false;
        }
        match record.map(Record::entry) {
            Some(entry) => self.saved_records.put(position, key, &entry.value, entry.stamp()),
            None => self.saved_records.put(position, key, b"", Stamp::ABSENT),
        };
        true
    }

    /// Returns the mark of collections that the snapshot does not need.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the snapshot needs no rows of a collection that has none now: it was created
    /// after the snapshot began, or is a stream that was passed without entries.
    pub(super) fn needs_no_rows(&self, id: Id) -> bool {
        self.from <= id.version.slot || self.passed_empty.contains(&id)
    }

    /// Saves a row before it changes. Returns `false` if the limit would be exceeded, which ends
    /// the snapshot.
    pub(super) fn save_row(&mut self, id: Id, rows: Option<&Rows>, name: &[u8]) -> bool {
        let is_within = |within: &PartialCollection| within.id == id && within.has_passed(name);
        let kept = self.saved_rows.get(&id);
        if self.flushed_contents.is_some()
            || rows.map_or_else(|| self.needs_no_rows(id), |rows| rows.image_done == self.number)
            || self.cursor.open_collection().is_some_and(is_within)
            || kept.is_some_and(|kept| kept.contains_key(name))
        {
            return true;
        }
        let old = rows.and_then(|rows| rows.get(name));
        self.saved_bytes += row_bytes(name, old);
        if self.saved_bytes > self.bytes_max {
            return false;
        }
        let kept = self.saved_rows.entry(id).or_default();
        kept.insert(name.into(), old.map(Box::from));
        true
    }

    /// Takes ownership of all contents from a flush.
    pub(super) fn save_flushed(&mut self, table: Table, collections: Collections) {
        self.flushed_contents.get_or_insert((table, collections));
    }

    /// Returns whether the snapshot should advance before more is saved. Half of the limit is
    /// reserved for the next batch.
    pub(super) fn should_advance(&self) -> bool {
        self.saved_bytes > self.bytes_max / 2
    }

    /// Passes the next keys and rows to `each`, given the store's current table and collections.
    pub(super) fn next(
        &mut self,
        table: &Table,
        collections: &mut Collections,
        bytes: usize,
        each: &mut VisitPart<'_>,
    ) -> Imaged {
        let mut turn = StepBudget::of(bytes);
        let left = loop {
            match self.pass_entries(table, collections, &mut turn, each) {
                PassEnd::Rows => {}
                PassEnd::BudgetExhausted => break Imaged::More,
                PassEnd::ImageComplete => break Imaged::End,
            }
        };
        self.free();
        left
    }

    fn pass_entries(
        &mut self,
        table: &Table,
        collections: &mut Collections,
        turn: &mut StepBudget,
        each: &mut VisitPart<'_>,
    ) -> PassEnd {
        let (table, collections) = match &mut self.flushed_contents {
            Some((table, collections)) => (&*table, collections),
            None => (table, collections),
        };
        let Some(within) = self.cursor.open_collection() else {
            let from = self.cursor.position();
            let mut merge = Merge::new();
            merge.add(records(&self.saved_records, from));
            merge.add(records(table, from));
            return self.cursor.pass_keys(merge, turn, each);
        };
        let (id, from) = (within.id, within.from().to_vec());
        let mut merge = Merge::new();
        if let Some(kept) = self.saved_rows.get(&id) {
            let from = (Bound::Included(&*from), Bound::Unbounded);
            let kept = kept.range::<[u8], _>(from);
            merge.add(kept.map(|(name, value)| {
                let value = value.as_deref().map(Bytes::Borrowed);
                (Cow::Borrowed(&**name), value)
            }));
        }
        if let Some(rows) = collections.get(id) {
            let rows = in_order(rows, &from);
            merge.add(rows.map(|(name, value)| (name, Some(value))));
        }
        let stop = self.cursor.pass_rows(merge, turn, each);
        if self.cursor.open_collection().is_none() {
            if !collections.mark_passed(id, self.number) {
                self.passed_empty.insert(id);
            }
            let kept = self.saved_rows.remove(&id).unwrap_or_default();
            let bytes = kept.iter().map(|(name, old)| row_bytes(name, old.as_deref()));
            self.saved_bytes = self.saved_bytes.saturating_sub(bytes.sum());
        }
        stop
    }

    /// Frees the saved records that the cursor has passed.
    fn free(&mut self) {
        let passed = self.cursor.position();
        let (records, bytes) = self.saved_records.free_before(passed, self.freed);
        self.saved_bytes =
            self.saved_bytes.saturating_sub(records.saturating_mul(RECORD_BYTES) + bytes);
        if let Some((table, _)) = &mut self.flushed_contents {
            table.free_before(passed, self.freed);
        }
        self.freed = Table::shards_before(passed);
    }
}

fn row_bytes(name: &[u8], value: Option<&[u8]>) -> usize {
    RECORD_BYTES + name.len() + value.map_or(0, <[u8]>::len)
}
