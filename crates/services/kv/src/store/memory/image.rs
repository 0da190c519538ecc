//! An image of the store in memory while commands go on: what they overwrite before the image has
//! passed it is kept; nothing else is copied.

use quorate_replica::service::Imaged;

use crate::store::{
    Entry, Position, Version,
    image::{Cursor, records},
    merge::Merge,
    table::{Record, Table},
};

/// Most bytes kept for an image.
const KEPT_BYTES_MAX: usize = 256 << 20;
/// The part of a smaller store.
const KEPT_PART: u64 = 4;
/// May be kept even if the store is smaller still: as much as a few batches write.
const KEPT_BYTES_MIN: usize = 16 << 20;
/// What a kept record takes besides its bytes, about.
const RECORD_BYTES: usize = 64;

/// The image.
#[derive(Debug)]
pub(super) struct Image {
    cursor: Cursor,
    /// What stood where something else stands now, as far as the image has not passed it; absent
    /// keys too. It hides what the table has.
    kept: Table,
    kept_bytes: usize,
    /// Shards of it that are freed.
    freed: usize,
    /// All keys as they were, if they were removed since: nothing changes them any more.
    cleared: Option<Table>,
    /// Most bytes that may be kept.
    bytes_max: usize,
}

impl Image {
    /// Of this table as it stands.
    pub(super) fn of(table: &Table) -> Self {
        let part = usize::try_from(table.bytes_about() / KEPT_PART).unwrap_or(usize::MAX);
        Self::within(part.clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX))
    }

    pub(super) fn within(bytes_max: usize) -> Self {
        Self {
            cursor: Cursor::default(),
            kept: Table::default(),
            kept_bytes: 0,
            freed: 0,
            cleared: None,
            bytes_max,
        }
    }

    /// Bytes that are kept, about.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The same, counted anew.
    #[cfg(test)]
    pub(super) fn count_kept(&self) -> usize {
        let records = self.kept.from(Position::START);
        records
            .map(|(_, record)| RECORD_BYTES + record.bytes())
            .sum()
    }

    /// A key is about to change. `false`: that is more than may be kept; the image is over.
    pub(super) fn keep(&mut self, table: &Table, position: Position, key: &[u8]) -> bool {
        if self.cleared.is_some()
            || self.cursor.has_passed(position, key)
            || self.kept.get(position, key).is_some()
        {
            return true;
        }
        let record = table.get(position, key);
        let bytes = RECORD_BYTES + record.map_or_else(|| Record::bytes_of(key, b""), Record::bytes);
        self.kept_bytes += bytes;
        if self.kept_bytes > self.bytes_max {
            return false;
        }
        match record.map(Record::entry) {
            Some(Entry {
                value,
                version,
                deadline,
            }) => self.kept.put(position, key, &value, version, deadline),
            None => self.kept.put(position, key, b"", Version::ABSENT, None),
        };
        true
    }

    /// All keys are about to be removed; this is the table.
    pub(super) fn keep_all(&mut self, table: Table) {
        self.cleared.get_or_insert(table);
    }

    /// Whether it has to move on before more is kept: one run of commands more must find room.
    pub(super) fn is_behind(&self) -> bool {
        self.kept_bytes > self.bytes_max / 2
    }

    /// Passes the next keys; `table` is as it stands now.
    pub(super) fn next(
        &mut self,
        table: &Table,
        bytes: usize,
        each: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) -> Imaged {
        let from = self.cursor.position();
        let mut merge = Merge::new();
        merge.add(records(&self.kept, from));
        merge.add(records(self.cleared.as_ref().unwrap_or(table), from));
        let left = self.cursor.go_on(merge, bytes, each);
        self.free();
        left
    }

    /// Frees what the image has passed.
    fn free(&mut self) {
        let passed = self.cursor.position();
        let (records, bytes) = self.kept.forget_before(passed, self.freed);
        self.kept_bytes = self
            .kept_bytes
            .saturating_sub(records.saturating_mul(RECORD_BYTES) + bytes);
        if let Some(table) = &mut self.cleared {
            table.forget_before(passed, self.freed);
        }
        self.freed = Table::shards_before(passed);
    }
}
