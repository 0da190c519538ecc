//! Store in memory. After a restart, it is rebuilt from a snapshot and the log.

mod image;
mod rows;
mod space;
mod text;
mod tree;

use std::cell::Cell;

use quorate_core::slot::Slot;
use quorate_replica::service::{Health, Imaged, LoadError, MetaChange};

use self::{
    image::Image,
    rows::FREED_MAX,
    space::{Space, Spaces},
};
use super::{
    Bytes, Database, DeadlineKind, Entry, Metadata, Overdue, Position, ReplacedEntry, Span, Stamp,
    Store, Version, Visit, VisitRow, collection::Id, image::ImagePart, meter::Meter,
    removals::Removals, table::Record,
};
use crate::key::Key;

/// Size in bytes up to which flushed data is freed immediately.
const FREED_AT_ONCE_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
pub struct MemoryStore {
    /// Contents of the databases; `None` if nothing has been written.
    spaces: Spaces,
    /// See [`Store::since`].
    since: [Version; Database::COUNT],
    selected: Cell<Database>,
    /// Database to which the next loaded keys belong.
    loaded: Database,
    removals: Removals,
    meter: Meter,
    time: u64,
    /// Index of the database whose dropped rows are freed next.
    freed_next: usize,
    /// Flushed data that is freed gradually.
    flushed_data: Vec<Space>,
    image: Option<Box<Image>>,
    /// Number of snapshots begun since the start.
    image_number: u64,
    /// Slot below which all commands are committed.
    committed_position: u64,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the contents of the selected database.
    fn space(&self) -> Option<&Space> {
        self.spaces[self.selected.get().index()].as_deref()
    }

    fn space_mut(&mut self) -> &mut Space {
        self.spaces[self.selected.get().index()].get_or_insert_default()
    }

    /// Removes the entry of a key and returns its data.
    fn remove_stored(&mut self, key: &[u8]) -> Option<ReplacedEntry> {
        let position = Position::of(key);
        if self.image.is_some() {
            self.save_for_image(position, key);
        }
        let database = self.selected.get();
        let old = self.spaces[database.index()].as_mut()?.remove(position, key)?;
        self.removals.record_removal(database, position, old.version);
        Some(old)
    }

    /// Saves a row for the snapshot in progress, before the row changes.
    #[cold]
    fn keep_row_for_image(&mut self, id: Id, name: &[u8]) {
        let database = self.selected.get();
        let space = self.spaces[database.index()].as_ref();
        if let Some(image) = &mut self.image
            && !image.save_row(
                database,
                id,
                space.and_then(|space| space.collections.get(id)),
                name,
            )
        {
            self.image = None;
        }
    }

    /// Frees some rows that belong to no key, unless a snapshot may need them. The databases share
    /// one limit, and the next one comes first once it is reached.
    fn free_some_rows(&mut self) {
        if self.image.is_none() {
            let mut left = FREED_MAX;
            let first = self.freed_next;
            for at in (first..Database::COUNT).chain(0..first) {
                if left > 0
                    && let Some(space) = &mut self.spaces[at]
                {
                    left = space.collections.free_dropped_rows(left);
                    self.freed_next = (at + 1) % Database::COUNT;
                }
            }
        }
        if let Some(space) = self.flushed_data.last_mut()
            && !space.free_some()
        {
            self.flushed_data.pop();
        }
    }

    /// Saves a key for the snapshot in progress, before the key changes.
    #[cold]
    fn save_for_image(&mut self, position: Position, key: &[u8]) {
        let database = self.selected.get();
        let space = self.spaces[database.index()].as_ref();
        if let Some(image) = &mut self.image
            && !image.save_key(database, space.map(|space| &space.table), position, key)
        {
            self.image = None;
        }
    }
}

impl Store for MemoryStore {
    fn select(&self, database: Database) -> Database {
        self.selected.replace(database)
    }

    fn selected(&self) -> Database {
        self.selected.get()
    }

    fn in_use(&self) -> u16 {
        let used = Database::all().filter(|database| {
            let at = database.index();
            self.spaces[at].is_some() || self.since[at] != Version::ABSENT
        });
        used.fold(0, |set, database| set | database.bit())
    }

    fn since(&self) -> Version {
        self.since[self.selected.get().index()]
    }

    fn raise_since(&mut self, version: Version) {
        let since = &mut self.since[self.selected.get().index()];
        *since = version.max(*since);
    }

    fn swap(&mut self, a: Database, b: Database, version: Version) {
        if a == b {
            return;
        }
        self.spaces.swap(a.index(), b.index());
        if let Some(image) = &mut self.image {
            image.swap(a, b);
        }
        for database in [a, b] {
            let since = &mut self.since[database.index()];
            *since = version.max(*since);
        }
    }

    fn set_time(&mut self, group_ms: u64) {
        if group_ms < self.time {
            // The group's time went back, so the service was rolled back.
            self.spaces.iter_mut().flatten().for_each(|space| space.reset_expired_keys());
        }
        self.time = group_ms;
    }

    fn time(&self) -> u64 {
        self.time
    }

    fn stored(&self, key: Key<'_>) -> Option<Entry<'_>> {
        let key = key.bytes();
        self.space()?.table.get(Position::of(key), key).map(Record::entry)
    }

    fn set(&mut self, key: Key<'_>, value: &[u8], stamp: Stamp) {
        let key = key.bytes();
        let position = Position::of(key);
        if self.image.is_some() {
            self.save_for_image(position, key);
        }
        self.space_mut().set(position, key, value, stamp);
    }

    fn take(&mut self, key: Key<'_>) -> Option<Option<u64>> {
        let old = self.remove_stored(key.bytes())?;
        if let Some(id) = old.id {
            self.space_mut().collections.end(id);
        }
        Some(old.deadline)
    }

    fn detach(&mut self, key: Key<'_>) {
        if let Some(ReplacedEntry { id: Some(id), .. }) = self.remove_stored(key.bytes()) {
            self.space_mut().collections.detached(id);
        }
    }

    fn row(&self, id: Id, name: &[u8]) -> Option<Bytes<'_>> {
        self.space()?.collections.row(id, name).map(Bytes::Borrowed)
    }

    fn put_row(&mut self, id: Id, name: &[u8], value: &[u8]) {
        if self.image.is_some() {
            self.keep_row_for_image(id, name);
        }
        let database = self.selected.get();
        let mark = self.image.as_ref().map_or(0, |image| image.mark_of(database, id));
        self.space_mut().collections.put(id, name, value, mark);
    }

    fn remove_row(&mut self, id: Id, name: &[u8]) {
        if self.image.is_some() {
            self.keep_row_for_image(id, name);
        }
        self.space_mut().collections.remove(id, name);
    }

    fn all_rows(&self, id: Id, span: Span<'_>, visit: &mut VisitRow<'_>) {
        if let Some(space) = self.space() {
            space.collections.visit_rows(id, span, visit);
        }
    }

    fn rank(&self, id: Id, name: &[u8]) -> Option<u64> {
        Some(self.space().map_or(0, |space| space.collections.rank(id, name)))
    }

    fn nth(&self, id: Id, number: u64) -> Option<Vec<u8>> {
        self.space()?.collections.nth(id, number).map(<[u8]>::to_vec)
    }

    fn end_rows(&mut self, id: Id) {
        self.space_mut().collections.end(id);
    }

    fn clear(&mut self) {
        let database = self.selected.get();
        let Some(mut space) = self.spaces[database.index()].take() else {
            return;
        };
        space.drop_deadlines();
        let unneeded = match &mut self.image {
            Some(image) => image.save_flushed(database, space),
            None => Some(space),
        };
        if let Some(space) = unneeded
            && space.bytes_about() > FREED_AT_ONCE_BYTES
        {
            self.flushed_data.push(*space);
        }
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn removals(&self) -> &Removals {
        &self.removals
    }

    fn removals_mut(&mut self) -> &mut Removals {
        &mut self.removals
    }

    fn len(&self) -> u64 {
        self.space().map_or(0, |space| space.len(self.time))
    }

    fn prefetch(&self, keys: &[Position]) {
        if let Some(space) = self.space() {
            space.table.prefetch_records(keys);
        }
    }

    fn all_keys(&self, from: Position, visit: &mut Visit<'_>) {
        let table = self.space().map(|space| &space.table);
        for (_, record) in table.into_iter().flat_map(|table| table.from(from)) {
            if visit(record.key(), &record.entry()).is_break() {
                return;
            }
        }
    }

    fn deadlines(&self, of: DeadlineKind, from: u64, to: u64, visit: &mut Overdue<'_>) {
        if let Some(space) = self.space() {
            space.deadlines(of, from, to, visit);
        }
    }

    fn next_deadline_of(&self, of: DeadlineKind, until_ms: u64) -> Option<u64> {
        let deadline = self.space()?.next_deadline(of, self.time)?;
        (deadline <= until_ms).then_some(deadline)
    }

    fn commit(&mut self, applied_to: Slot, _meta: &[MetaChange]) {
        self.committed_position = applied_to.0;
        self.free_some_rows();
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        self.selected.set(Database::ZERO);
        (Slot::FIRST, Vec::new())
    }

    fn health(&mut self) -> Health {
        if self.image.as_ref().is_some_and(|image| image.should_advance()) {
            Health::Behind
        } else {
            Health::Well
        }
    }

    fn begin_image(&mut self) -> Option<u64> {
        self.image_number += 1;
        let image =
            Image::of(&self.spaces, &self.since, self.image_number, self.committed_position);
        self.image = Some(Box::new(image));
        Some(self.spaces.iter().flatten().map(|space| space.table.len()).sum())
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(ImagePart<'_>)) -> Imaged {
        let Some(image) = &mut self.image else {
            return Imaged::Failed;
        };
        let left = image.next(&mut self.spaces, bytes, each);
        if left == Imaged::End {
            self.image = None;
        }
        left
    }

    fn end_image(&mut self) {
        self.image = None;
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        *self = Self { time: self.time, image_number: self.image_number, ..Self::default() };
        Ok(())
    }

    fn load_database(&mut self, database: Database, since: Version) -> Result<(), LoadError> {
        self.loaded = database;
        self.since[database.index()] = since;
        Ok(())
    }

    fn load(&mut self, key: Key<'_>, value: &[u8], stamp: Stamp) -> Result<(), LoadError> {
        let selected = self.select(self.loaded);
        self.set(key, value, stamp);
        self.select(selected);
        Ok(())
    }

    fn load_row(&mut self, id: Id, name: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let selected = self.select(self.loaded);
        self.put_row(id, name, value);
        self.select(selected);
        Ok(())
    }

    fn finish_load(&mut self, at: Slot, _meta: &[MetaChange]) -> Result<(), LoadError> {
        self.committed_position = at.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const VERSION: Version = Version { slot: 1, index: 0 };
    const KEYS: u64 = 20_000;
    const VALUE: [u8; 1000] = [b'v'; 1000];

    fn filled() -> MemoryStore {
        let mut store = MemoryStore::new();
        for number in 0..KEYS {
            store.put((&number.to_le_bytes()).into(), &VALUE, VERSION, None);
        }
        store
    }

    /// Returns all keys in stored order.
    fn in_order() -> Vec<[u8; 8]> {
        let mut keys: Vec<_> = (0..KEYS).map(u64::to_le_bytes).collect();
        keys.sort_by_key(|key| Position::of(key));
        keys
    }

    /// Returns the number of bytes saved for the snapshot, and checks it against a recount.
    fn kept(store: &MemoryStore) -> usize {
        let image = store.image.as_ref().expect("an image is going on");
        assert!(image.saved_bytes() >= image.count_saved());
        image.saved_bytes()
    }

    /// Saved records stay within their limit even if keys at the end of the snapshot are written as
    /// fast as the store accepts them.
    #[test]
    fn writes_during_an_image_retain_a_bounded_amount() {
        const MAX: usize = 1 << 20;
        let mut store = filled();
        assert!(store.begin_image().is_some());
        store.image.as_mut().expect("an image is going on").set_limit(MAX);
        let mut last_first = in_order();
        last_first.reverse();
        let mut last_first = last_first.into_iter().cycle();
        let (mut seen, mut most, mut waited, mut fresh) = (BTreeMap::new(), 0, 0, KEYS);
        let mut left = Imaged::More;
        while left == Imaged::More {
            // One batch of commands.
            for number in 0..100 {
                let key = last_first.next().expect("it never ends");
                match number % 4 {
                    0 => drop(store.remove((&key).into())),
                    1 => {
                        fresh += 1;
                        store.put((&fresh.to_le_bytes()).into(), b"new", VERSION, None);
                    }
                    _ => store.put((&key).into(), b"changed", VERSION, Some(7)),
                }
            }
            most = most.max(kept(&store));
            // From here on, the snapshot advances by its own steps only.
            let mut bytes = 1 << 10;
            while left == Imaged::More {
                left = store.next_image(bytes, &mut |part| {
                    if let ImagePart::Key(key, entry) = part {
                        seen.insert(key.to_vec(), entry.value.to_vec());
                    }
                });
                if store.health() == Health::Well {
                    break;
                }
                bytes = 1 << 14;
                waited += 1;
            }
        }
        assert_eq!(left, Imaged::End);
        assert!(waited > 100 && most > MAX / 2 && most <= MAX, "{waited} {most}");
        assert_eq!(seen.len() as u64, KEYS);
        assert!(seen.values().all(|value| *value == VALUE));
        assert_eq!(store.health(), Health::Well);
    }

    /// Rows of a database are freed although another one drops some with each commit.
    #[test]
    fn dropped_rows_of_all_databases_are_freed() {
        const ROWS: usize = 2 * FREED_MAX;
        let mut store = MemoryStore::new();
        let id = |slot| Id { version: Version { slot, index: 0 }, number: 0 };
        let last = Database::new(5).expect("a number of a database");
        let drop_rows = |store: &mut MemoryStore, database: Database, slot: u64, rows: usize| {
            store.select(database);
            for row in 0..rows {
                store.put_row(id(slot), &row.to_be_bytes(), b"");
            }
            store.end_rows(id(slot));
            store.select(Database::ZERO);
        };
        let left = |store: &MemoryStore| -> usize {
            let spaces = store.spaces.iter().flatten();
            spaces.map(|space| space.collections.dropped_row_count()).sum()
        };
        drop_rows(&mut store, last, 1, ROWS);
        drop_rows(&mut store, Database::ZERO, 2, ROWS);
        for slot in 3..9 {
            drop_rows(&mut store, Database::ZERO, slot, 1);
            let before = left(&store);
            store.commit(Slot(slot), &[]);
            assert!(before - left(&store) <= FREED_MAX, "more than one step allows");
        }
        assert_eq!(left(&store), 0);
    }

    /// A load may end in the middle of any database, and the next command means the first.
    #[test]
    fn load_leaves_the_selection_as_it_was() {
        let mut store = MemoryStore::new();
        let last = Database::new(15).expect("a number of a database");
        let stamp = Stamp::string(VERSION, None);
        store.begin_load().expect("it has no files");
        store.load(b"k".into(), b"first", stamp).expect("it has no files");
        store.load_database(last, VERSION).expect("it has no files");
        store.load(b"k".into(), b"last", stamp).expect("it has no files");
        assert_eq!(store.selected(), Database::ZERO);
        let value = |store: &MemoryStore| store.get(b"k".into()).map(|entry| entry.value.to_vec());
        assert_eq!(value(&store).as_deref(), Some(&b"first"[..]));
        store.select(last);
        assert_eq!(value(&store).as_deref(), Some(&b"last"[..]));
        // A load starts with the first database, wherever another one has stopped.
        store.begin_load().expect("it has no files");
        store.load(b"k".into(), b"again", stamp).expect("it has no files");
        assert_eq!(value(&store).as_deref(), Some(&b"again"[..]));
    }

    #[test]
    fn overwriting_more_than_may_be_retained_fails_the_image() {
        let mut store = filled();
        assert!(store.begin_image().is_some());
        for number in 0..KEYS {
            let key = number.to_le_bytes();
            store.put((&key).into(), b"", VERSION, None);
        }
        assert_eq!(store.next_image(1, &mut |_| {}), Imaged::Failed);
        assert_eq!(store.health(), Health::Well, "nothing holds it back any more");
    }

    #[test]
    fn writes_behind_the_image_cursor_retain_nothing() {
        let mut store = filled();
        store.begin_image();
        let keys = in_order();
        let mut passed = 0;
        while passed < KEYS / 2 {
            store.next_image(10_000, &mut |_| passed += 1);
        }
        for key in &keys[..usize::try_from(passed).expect("a small number")] {
            store.put(key.into(), b"new", VERSION, None);
        }
        assert_eq!(kept(&store), 0);
        // No record is saved twice or after a flush.
        for _ in 0..3 {
            store.put(keys.last().expect("a key").into(), b"new", VERSION, None);
        }
        let once = kept(&store);
        assert!(once > VALUE.len() && once < 2 * VALUE.len(), "{once}");
        store.clear();
        store.put((&keys[20_000 - 2]).into(), b"new", VERSION, None);
        assert_eq!(kept(&store), once);
        let mut rest = 0;
        while store.next_image(10_000, &mut |_| rest += 1) == Imaged::More {}
        assert_eq!(passed + rest, KEYS);
    }
}
