//! The store interface: keys with a value, a version and a deadline, and rows of collections.

use std::ops::ControlFlow;

use quorate_core::slot::Slot;
use quorate_replica::service::{Health, Imaged, LoadError, MetaChange, Scrubbed};
use xxhash_rust::xxh3::Xxh3;

use self::{
    collection::{Id, collection_id},
    entry::{ReplacedEntry, exists_at},
    image::ImagePart,
    meter::Meter,
    removals::Removals,
};
use crate::key::Key;

pub mod collection;
mod dead;
mod entry;
pub mod image;
pub mod lsm;
pub mod memory;
mod merge;
pub mod meter;
pub(crate) mod places;
pub mod removals;
pub mod stream;
mod table;

pub use self::{
    entry::{Bytes, Entry, Stamp},
    places::{Database, Position, Version},
};

/// Kind of deadline. Each has an index of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineKind {
    Keys = 0,
    /// The earliest deadline of each hash's fields.
    Fields = 1,
}

impl DeadlineKind {
    const BOTH: [Self; 2] = [Self::Keys, Self::Fields];
}

pub type Overdue<'v> = dyn FnMut(u64, &[u8]) -> ControlFlow<()> + 'v;

pub type Visit<'v> = dyn FnMut(&[u8], &Entry<'_>) -> ControlFlow<()> + 'v;

pub type VisitRow<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// Range of a collection's rows, and the direction of visits.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Name at which the range starts, inclusive.
    pub from: &'a [u8],
    /// Name at which the range ends, exclusive; `None` if it has no end.
    pub to: Option<&'a [u8]>,
    /// Visit the last row first.
    pub is_backward: bool,
}

impl<'a> Span<'a> {
    pub const ALL: Self = Self { from: &[], to: None, is_backward: false };

    pub const fn from(from: &'a [u8]) -> Self {
        Self { from, ..Self::ALL }
    }

    fn is_empty(&self) -> bool {
        self.to.is_some_and(|to| self.from >= to)
    }

    fn contains(&self, name: &[u8]) -> bool {
        name >= self.from && self.to.is_none_or(|to| name < to)
    }
}

/// Metadata of the replica, stored with the data: arbitrary keys and values.
pub type Metadata = Vec<(Vec<u8>, Vec<u8>)>;

/// Store of keys in the order of their positions. All calls come from one thread.
///
/// **Time.** A key whose deadline is not above the group's time does not exist ([time-2]), but is
/// stored until [`Store::sweep`] or a new value replaces it. [`Store::get`], [`Store::contains`],
/// [`Store::remove`] and [`Store::len`] consider only keys that exist; [`Store::scan`], snapshots
/// and [`digest`] consider all stored keys.
///
/// For a store on disk, [`Store::health`] reports whether it can continue, and
/// [`Store::has_failed`] whether its results and changes since the last commit are void.
///
/// **Databases.** A store has [`Database::COUNT`] keyspaces, one of which is selected. All methods
/// that read or change keys, rows or deadlines mean the selected one, unless they say otherwise.
/// [`Database::ZERO`] is selected between commands; a load and a restart select it again.
pub trait Store: Send {
    /// Selects a database and returns the one that was selected before.
    fn select(&self, database: Database) -> Database;

    fn selected(&self) -> Database;

    /// Returns a set of databases, of [`Database::bit`] each, that contains all with stored keys or
    /// a version in [`Store::since`]. Differs between kinds of stores, so it is for loops only.
    fn in_use(&self) -> u16;

    /// Returns the version of the last command that changed the database as a whole: the minimum
    /// version of all its keys, present or absent, for WATCH.
    fn since(&self) -> Version;

    /// Raises [`Store::since`] of the selected database to `version`, if it is lower.
    fn raise_since(&mut self, version: Version);

    /// Swaps the contents of two databases, whichever is selected, and raises [`Store::since`] of
    /// both to `version`. Takes a time independent of their sizes, apart from look-ups that are
    /// due anyway.
    fn swap(&mut self, a: Database, b: Database, version: Version);

    fn set_time(&mut self, group_ms: u64);

    fn time(&self) -> u64;

    /// Returns the entry of `key`, even if expired.
    fn stored(&self, key: Key<'_>) -> Option<Entry<'_>>;

    /// Returns the entry of `key` if it exists.
    fn get(&self, key: Key<'_>) -> Option<Entry<'_>> {
        let group_ms = self.time();
        let entry = self.stored(key).filter(|entry| entry.exists_at(group_ms))?;
        self.meter().count_moved(entry.value.len());
        Some(entry)
    }

    fn contains(&self, key: Key<'_>) -> bool {
        self.get(key).is_some()
    }

    /// Sets the value and metadata of `key`. Drops the rows of the old value, unless the new one
    /// has the same id.
    fn set(&mut self, key: Key<'_>, value: &[u8], stamp: Stamp);

    fn put(&mut self, key: Key<'_>, value: &[u8], version: Version, deadline: Option<u64>) {
        self.set(key, value, Stamp::string(version, deadline));
    }

    /// Removes the entry of `key` with its rows. Returns the old deadline; `None` if there was no
    /// entry.
    fn take(&mut self, key: Key<'_>) -> Option<Option<u64>>;

    /// Removes the entry of `key` without its rows, which are gone or belong to another key.
    fn detach(&mut self, key: Key<'_>);

    fn row(&self, id: Id, name: &[u8]) -> Option<Bytes<'_>>;

    /// Sets a row. Its name has up to [`collection::NAME_BYTES_MAX`] bytes.
    fn put_row(&mut self, id: Id, name: &[u8], value: &[u8]);

    fn remove_row(&mut self, id: Id, name: &[u8]);

    /// Visits rows of a collection, within the limit of [`Store::meter`].
    fn rows(&self, id: Id, span: Span<'_>, visit: &mut VisitRow<'_>) {
        self.all_rows(id, span, &mut |name, value| match self.meter().count_item(value.len()) {
            true => visit(name, value),
            false => ControlFlow::Break(()),
        });
    }

    /// Visits rows of a collection without limit.
    fn all_rows(&self, id: Id, span: Span<'_>, visit: &mut VisitRow<'_>);

    /// Returns the meter that counts visits.
    fn meter(&self) -> &Meter;

    /// Returns the number of rows before a name, or `None` if this store would have to count them.
    fn rank(&self, _id: Id, _name: &[u8]) -> Option<u64> {
        None
    }

    /// Returns the name of the row with the given rank, if this store supports ranks.
    fn nth(&self, _id: Id, _number: u64) -> Option<Vec<u8>> {
        None
    }

    /// Drops rows without a key. They are freed gradually, which clients cannot observe.
    fn end_rows(&mut self, id: Id);

    /// Removes `key` and returns whether it existed.
    fn remove(&mut self, key: Key<'_>) -> bool {
        let group_ms = self.time();
        self.take(key).is_some_and(|deadline| exists_at(deadline, group_ms))
    }

    /// Removes up to `most` expired keys, earliest deadline first, and returns their number. The
    /// choice depends only on the stored keys and the group's time.
    fn sweep(&mut self, most: usize) -> usize {
        let mut dead: Vec<Box<[u8]>> = Vec::new();
        if most > 0 {
            self.deadlines(DeadlineKind::Keys, 0, self.time(), &mut |_, key| {
                dead.push(key.into());
                match dead.len() < most {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
        }
        for key in dead.iter().filter_map(|key| Key::new(key).ok()) {
            self.take(key);
        }
        dead.len()
    }

    /// Removes all keys of the selected database without recording them in [`Store::removals`].
    fn clear(&mut self);

    /// Returns the record of removed keys' versions.
    fn removals(&self) -> &Removals;

    fn removals_mut(&mut self) -> &mut Removals;

    /// Returns the number of keys that exist. Slow if many have expired since the last call.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prefetches keys that the next commands change, all in parallel.
    fn prefetch(&self, keys: &[Position]) {
        let _ = keys;
    }

    /// Visits stored keys from `from` on, including expired ones, within the limit of
    /// [`Store::meter`].
    fn scan(&self, from: Position, visit: &mut Visit<'_>) {
        let meter = self.meter();
        // A key costs more than a row: it has a memory location of its own.
        self.all_keys(from, &mut |key, entry| match meter.count_visits(3)
            && meter.count_item(16 * key.len())
        {
            true => visit(key, entry),
            false => ControlFlow::Break(()),
        });
    }

    /// Visits all stored keys from `from` on, without limit.
    fn all_keys(&self, from: Position, visit: &mut Visit<'_>);

    /// Visits the stored deadlines from `from` to `to` inclusive, earliest first.
    fn deadlines(&self, of: DeadlineKind, from: u64, to: u64, visit: &mut Overdue<'_>);

    /// Returns the earliest deadline of a kind above the group's time and up to `until_ms`.
    fn next_deadline_of(&self, of: DeadlineKind, until_ms: u64) -> Option<u64>;

    /// Returns the earliest deadline of all databases above the group's time and up to `until_ms`;
    /// see [`StateMachine::next_deadline`](quorate_replica::service::StateMachine::next_deadline).
    fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        let (selected, used) = (self.selected(), self.in_use());
        let used = Database::all().filter(|database| used & database.bit() != 0);
        let next = used.filter_map(|database| {
            self.select(database);
            self.next_deadline_here(until_ms)
        });
        let next = next.min();
        self.select(selected);
        next
    }

    /// Returns the earliest deadline of the selected database, as [`Store::next_deadline`] does.
    fn next_deadline_here(&self, until_ms: u64) -> Option<u64> {
        let mut passed = false;
        self.deadlines(DeadlineKind::Fields, 0, self.time(), &mut |_, _| {
            passed = true;
            ControlFlow::Break(())
        });
        if passed {
            // A hash's next deadline is unknown until its expired field is removed, and its other
            // fields must not live longer for that.
            return (until_ms > self.time()).then_some(until_ms);
        }
        let next = DeadlineKind::BOTH.map(|of| self.next_deadline_of(of, until_ms));
        next.into_iter().flatten().min()
    }

    /// Makes all changes since the last call, the position `applied_to` and the changes `meta` of
    /// metadata one atomic unit.
    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]);

    /// Allows only positions up to `to` to survive a restart; see
    /// [`StateMachine::logged`](quorate_replica::service::StateMachine::logged).
    fn logged(&mut self, to: Slot) {
        let _ = to;
    }

    /// Returns position and metadata of the last commit that survived the restart.
    fn recovered(&mut self) -> (Slot, Metadata);

    /// See [`StateMachine::health`](quorate_replica::service::StateMachine::health).
    fn health(&mut self) -> Health {
        Health::Well
    }

    /// See [`StateMachine::has_failed`](quorate_replica::service::StateMachine::has_failed).
    fn has_failed(&self) -> bool {
        false
    }

    /// Begins a snapshot and returns its number of keys in all databases. Everything must be
    /// committed; see
    /// [`StateMachine::begin_image`](quorate_replica::service::StateMachine::begin_image).
    fn begin_image(&mut self) -> Option<u64>;

    /// Passes the next keys of the snapshot, each followed by its rows, to `each`; see
    /// [`StateMachine::next_image`](quorate_replica::service::StateMachine::next_image).
    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(ImagePart<'_>)) -> Imaged;

    fn end_image(&mut self);

    /// Begins to load keys that replace all present ones; see
    /// [`StateMachine::begin_load`](quorate_replica::service::StateMachine::begin_load).
    fn begin_load(&mut self) -> Result<(), LoadError>;

    /// Selects the database to which the next loaded keys belong, and sets its [`Store::since`].
    /// Each database may be loaded once; without a call, keys belong to [`Database::ZERO`].
    fn load_database(&mut self, database: Database, since: Version) -> Result<(), LoadError>;

    /// Loads a key. Each key may be loaded once.
    fn load(&mut self, key: Key<'_>, value: &[u8], stamp: Stamp) -> Result<(), LoadError>;

    /// Loads a row of a loaded key. Each row may be loaded once.
    fn load_row(&mut self, id: Id, name: &[u8], value: &[u8]) -> Result<(), LoadError>;

    /// See [`StateMachine::finish_load`](quorate_replica::service::StateMachine::finish_load).
    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError>;

    /// See [`StateMachine::synced_to`](quorate_replica::service::StateMachine::synced_to).
    fn synced_to(&mut self) -> Option<Slot> {
        None
    }

    /// See [`StateMachine::start_sync`](quorate_replica::service::StateMachine::start_sync).
    fn start_sync(&mut self) {}

    /// See [`StateMachine::start_scrub`](quorate_replica::service::StateMachine::start_scrub).
    fn start_scrub(&mut self, bytes_per_second: u64) {
        let _ = bytes_per_second;
    }

    /// See [`StateMachine::take_scrubbed`](quorate_replica::service::StateMachine::take_scrubbed).
    fn take_scrubbed(&mut self) -> Scrubbed {
        Scrubbed::default()
    }

    /// See [`StateMachine::wants_scrub`](quorate_replica::service::StateMachine::wants_scrub).
    fn wants_scrub(&mut self) -> bool {
        false
    }

    /// See [`StateMachine::kept_bytes`](quorate_replica::service::StateMachine::kept_bytes).
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// See [`StateMachine::renew`](quorate_replica::service::StateMachine::renew).
    fn renew(&mut self) -> Result<(), String> {
        Err("the store has no files".to_owned())
    }
}

/// Returns a fingerprint of all stored keys, values, versions, deadlines and rows of all databases,
/// equal for equal contents in any kind of store. Reads all data.
pub fn digest(store: &dyn Store) -> u128 {
    let mut hasher = Xxh3::new();
    let (selected, used) = (store.selected(), store.in_use());
    for database in Database::all().filter(|database| used & database.bit() != 0) {
        store.select(database);
        digest_database(store, &mut hasher);
    }
    store.select(selected);
    store.removals().digest(&mut hasher);
    hasher.digest128()
}

/// Adds the selected database to a fingerprint. Database 0 without a version adds its keys alone,
/// as it did when it was the only one; any other adds nothing if it has neither keys nor a version.
fn digest_database(store: &dyn Store, hasher: &mut Xxh3) {
    fn update(hasher: &mut Xxh3, parts: [&[u8]; 2]) {
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    let (database, since) = (store.selected(), store.since());
    let begin = |hasher: &mut Xxh3| {
        // No key has that length.
        hasher.update(&u64::MAX.to_le_bytes());
        hasher.update(&[database.number()]);
        hasher.update(&since.slot.to_le_bytes());
        hasher.update(&since.index.to_le_bytes());
    };
    let mut has_begun = since != Version::ABSENT;
    if has_begun {
        begin(hasher);
    }
    store.scan(Position::START, &mut |key, entry| {
        if !has_begun && database != Database::ZERO {
            begin(hasher);
        }
        has_begun = true;
        update(hasher, [key, &entry.value]);
        hasher.update(&entry.version.slot.to_le_bytes());
        hasher.update(&entry.version.index.to_le_bytes());
        // Distinguishes a missing deadline from 0, and a header from a string with the same bytes.
        hasher.update(&[u8::from(entry.deadline.is_some()) | (entry.kind as u8) << 1]);
        hasher.update(&entry.deadline.unwrap_or(0).to_le_bytes());
        if let Some(id) = collection_id(entry.kind, &entry.value) {
            store.rows(id, Span::ALL, &mut |name, value| {
                update(hasher, [name, value]);
                ControlFlow::Continue(())
            });
        }
        ControlFlow::Continue(())
    });
}
