//! Snapshot of the store in memory while commands continue. A record ahead of the cursor is saved
//! before it changes; nothing else is copied.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use quorate_replica::service::Imaged;

use super::{
    rows::{Rows, in_order},
    space::{Space, Spaces},
};
use crate::store::{
    Bytes, Database, Position, Stamp, Version,
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
    /// Databases that are not complete, by the numbers that they had when the snapshot began.
    parts: BTreeMap<Database, Part>,
    /// For each database, the number that its contents had when the snapshot began; `None` if they
    /// are newer.
    origins: [Option<Database>; Database::COUNT],
    saved_bytes: usize,
    /// Maximum number of saved bytes.
    bytes_max: usize,
}

/// Database of a snapshot.
#[derive(Debug)]
struct Part {
    since: Version,
    has_begun: bool,
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
    flushed_contents: Option<Box<Space>>,
}

impl Image {
    /// Begins a snapshot of all databases that have a key or a version.
    pub(super) fn of(
        spaces: &Spaces,
        since: &[Version; Database::COUNT],
        number: u64,
        from: u64,
    ) -> Self {
        let bytes: u64 = spaces.iter().flatten().map(|space| space.bytes_about()).sum();
        let part = usize::try_from(bytes / SAVED_BYTES_DIVISOR).unwrap_or(usize::MAX);
        let mut image = Self {
            number,
            from,
            parts: BTreeMap::new(),
            origins: <[Option<Database>; Database::COUNT]>::default(),
            saved_bytes: 0,
            bytes_max: part.clamp(SAVED_BYTES_MIN, SAVED_BYTES_MAX),
        };
        for database in Database::all() {
            let (space, since) = (&spaces[database.index()], since[database.index()]);
            let has_keys = space.as_ref().is_some_and(|space| space.table.len() > 0);
            if has_keys || since != Version::ABSENT {
                image.parts.insert(database, Part::new(since));
                image.origins[database.index()] = Some(database);
            }
        }
        image
    }

    #[cfg(test)]
    pub(super) fn set_limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    #[cfg(test)]
    pub(super) fn saved_bytes(&self) -> usize {
        self.saved_bytes
    }

    #[cfg(test)]
    pub(super) fn count_saved(&self) -> usize {
        let records = self.parts.values().flat_map(|part| part.saved_records.from(Position::START));
        records.map(|(_, record)| RECORD_BYTES + record.bytes()).sum()
    }

    /// Returns the part of the snapshot that needs the present contents of a database.
    fn part_of(&mut self, database: Database) -> Option<&mut Part> {
        self.parts.get_mut(&self.origins[database.index()]?)
    }

    /// Follows a swap of two databases' contents.
    pub(super) fn swap(&mut self, a: Database, b: Database) {
        self.origins.swap(a.index(), b.index());
    }

    /// Saves a key before it changes. Returns `false` if the limit would be exceeded; the snapshot
    /// then ends.
    pub(super) fn save_key(
        &mut self,
        database: Database,
        table: Option<&Table>,
        position: Position,
        key: &[u8],
    ) -> bool {
        let Some(part) = self.part_of(database) else {
            return true;
        };
        let bytes = part.save_key(table, position, key);
        self.saved_bytes += bytes;
        self.saved_bytes <= self.bytes_max
    }

    /// Returns the mark for a collection that may be new: the number of the snapshot if it needs no
    /// rows of the collection, or 0.
    pub(super) fn mark_of(&self, database: Database, id: Id) -> u64 {
        let part = self.origins[database.index()].and_then(|began| self.parts.get(&began));
        match part.is_none_or(|part| part.needs_no_rows(id, self.from)) {
            true => self.number,
            false => 0,
        }
    }

    /// Saves a row before it changes. Returns `false` if the limit would be exceeded, which ends
    /// the snapshot.
    pub(super) fn save_row(
        &mut self,
        database: Database,
        id: Id,
        rows: Option<&Rows>,
        name: &[u8],
    ) -> bool {
        let (from, number) = (self.from, self.number);
        let Some(part) = self.part_of(database) else {
            return true;
        };
        let needs_none =
            rows.map_or_else(|| part.needs_no_rows(id, from), |rows| rows.image_done == number);
        if needs_none {
            return true;
        }
        let bytes = part.save_row(id, rows, name);
        self.saved_bytes += bytes;
        self.saved_bytes <= self.bytes_max
    }

    /// Takes the contents of a database from a flush, or returns them if the snapshot does not need
    /// them.
    pub(super) fn save_flushed(
        &mut self,
        database: Database,
        contents: Box<Space>,
    ) -> Option<Box<Space>> {
        let part = self.part_of(database);
        let unneeded = match part {
            Some(part) => {
                part.flushed_contents = Some(contents);
                None
            }
            None => Some(contents),
        };
        self.origins[database.index()] = None;
        unneeded
    }

    /// Returns whether the snapshot should advance before more is saved. Half of the limit is
    /// reserved for the next batch.
    pub(super) fn should_advance(&self) -> bool {
        self.saved_bytes > self.bytes_max / 2
    }

    /// Passes the next keys and rows to `each`, given the store's current contents.
    pub(super) fn next(
        &mut self,
        spaces: &mut Spaces,
        bytes: usize,
        each: &mut VisitPart<'_>,
    ) -> Imaged {
        let mut turn = StepBudget::of(bytes);
        let left = loop {
            let Some(mut first) = self.parts.first_entry() else {
                break Imaged::End;
            };
            let database = *first.key();
            let part = first.get_mut();
            if !part.has_begun {
                part.has_begun = true;
                turn.pass_database(database, part.since, each);
            }
            let now = self.origins.iter().position(|origin| *origin == Some(database));
            let live = now.and_then(|now| spaces[now].as_deref_mut());
            match part.pass_entries(live, self.number, &mut turn, each) {
                PassEnd::Rows => {}
                PassEnd::BudgetExhausted => {
                    part.free();
                    break Imaged::More;
                }
                PassEnd::ImageComplete => drop(first.remove()),
            }
        };
        self.saved_bytes = self.parts.values().map(|part| part.saved_bytes).sum();
        left
    }
}

impl Part {
    fn new(since: Version) -> Self {
        Self {
            since,
            has_begun: false,
            cursor: Cursor::default(),
            saved_records: Table::default(),
            saved_rows: BTreeMap::new(),
            saved_bytes: 0,
            passed_empty: BTreeSet::new(),
            freed: 0,
            flushed_contents: None,
        }
    }

    /// Saves a key before it changes. Returns the number of bytes for that.
    fn save_key(&mut self, table: Option<&Table>, position: Position, key: &[u8]) -> usize {
        if self.cursor.has_passed(position, key) || self.saved_records.get(position, key).is_some()
        {
            return 0;
        }
        let record = table.and_then(|table| table.get(position, key));
        let bytes = RECORD_BYTES + record.map_or_else(|| Record::bytes_of(key, b""), Record::bytes);
        self.saved_bytes += bytes;
        match record.map(Record::entry) {
            Some(entry) => self.saved_records.put(position, key, &entry.value, entry.stamp()),
            None => self.saved_records.put(position, key, b"", Stamp::ABSENT),
        };
        bytes
    }

    /// Returns whether the snapshot, which has no command from `from` on, needs no rows of a
    /// collection that has none now: it was created after the snapshot began, or is a stream that
    /// was passed without entries.
    fn needs_no_rows(&self, id: Id, from: u64) -> bool {
        from <= id.version.slot || self.passed_empty.contains(&id)
    }

    /// Saves a row before it changes. Returns the number of bytes for that.
    fn save_row(&mut self, id: Id, rows: Option<&Rows>, name: &[u8]) -> usize {
        let is_within = |within: &PartialCollection| within.id == id && within.has_passed(name);
        let kept = self.saved_rows.get(&id);
        if self.cursor.open_collection().is_some_and(is_within)
            || kept.is_some_and(|kept| kept.contains_key(name))
        {
            return 0;
        }
        let old = rows.and_then(|rows| rows.get(name));
        let bytes = row_bytes(name, old);
        self.saved_bytes += bytes;
        let kept = self.saved_rows.entry(id).or_default();
        kept.insert(name.into(), old.map(Box::from));
        bytes
    }

    /// Passes the next keys, or the next rows of one, given the contents of the database unless
    /// they were flushed.
    fn pass_entries(
        &mut self,
        live: Option<&mut Space>,
        number: u64,
        turn: &mut StepBudget,
        each: &mut VisitPart<'_>,
    ) -> PassEnd {
        let Some(contents) = self.flushed_contents.as_deref_mut().or(live) else {
            return PassEnd::ImageComplete;
        };
        let Space { table, collections, .. } = contents;
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
            if !collections.mark_passed(id, number) {
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
        if let Some(contents) = &mut self.flushed_contents {
            contents.table.free_before(passed, self.freed);
        }
        self.freed = Table::shards_before(passed);
    }
}

fn row_bytes(name: &[u8], value: Option<&[u8]>) -> usize {
    RECORD_BYTES + name.len() + value.map_or(0, <[u8]>::len)
}
