//! Store on disk: an LSM tree that saves the data and the applied position atomically.
//!
//! **Layers.** A commit goes to a table in memory and writes nothing. Once enough changes have
//! accumulated, a thread (`writer`) writes them to the tree, so a key that is written often enters
//! the tree once. Lookups search changes that are not in the tree yet before the tree.
//!
//! **Atomicity.** Everything (position, the replica's metadata, deadlines, keys) is in one fjall
//! keyspace, distinguished by its first byte. All changes of a table go into one `WriteBatch`, with
//! the position of its last commit. In fjall 3.1, a batch is one journal entry with a start, an end
//! and a checksum, and one sequence number; recovery drops a batch without its end. The batch
//! enters the memtable under the journal's lock, and the memtable is rotated under the same lock,
//! so a table on disk contains whole batches only. Two keyspaces would not do: their memtables are
//! flushed separately, so after a power loss that destroys the tail of the journal, one could be
//! ahead of the other.
//!
//! **Durability.** After a crash, the store is at an earlier position, and the log replays from
//! there; [`Limits`] bound the replay. The log keeps everything after the last synced position
//! ([store-1], `syncing`).
//!
//! **Damage.** After a power loss, an unsynced journal may have a hole, which fjall reports as
//! damage. The journal is then cut after its last whole batch (`journal`); nothing synced is lost.
//! Damage anywhere else is bit rot: the folder is set aside, at start or while running, and an
//! empty store takes its place and reports the loss.
//!
//! **Databases.** The keys of a database have a generation in their stored form, and the state says
//! which (`databases`). A flush begins another one, and a swap exchanges two in the state.
//!
//! **Snapshots.** A snapshot consists of fjall's own snapshot and the layers above it at that time
//! (`image`). A load (`loading`) writes other generations, which its last batch makes current.
//!
//! **The disk.** The writer waits for space before the disk is full. If a write fails nevertheless,
//! even in one of fjall's threads, the open database accepts no more writes. The store stays
//! readable until the disk accepts writes again. Then its folder is reopened, and the log replays
//! the missing part. The replica reads the state from [`Store::health`] (`trouble`) and continues
//! to vote.

mod blind;
mod changes;
mod condition;
mod counting;
mod databases;
mod disk;
mod failure;
mod image;
mod journal;
mod layout;
mod loading;
mod purge;
mod renewal;
mod scrub;
mod selection;
mod syncing;
mod tree;
mod trouble;
mod writer;

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell, RefCell},
    cmp::Reverse,
    collections::VecDeque,
    fmt, iter, mem,
    ops::{Bound, ControlFlow, Range},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fjall::Slice;
use quorate_core::slot::Slot;
use quorate_replica::service::{Health, Imaged, LoadError, MetaChange, Scrubbed};

use self::{
    blind::{BlindWrites, Footprint},
    changes::{Changes, Part},
    condition::Condition,
    image::{Image, changed},
    layout::{
        Space, State, data_key, deadline_key, entry, kind, parse_data_key, parse_deadline_key,
        parse_row_key, prefix, row_key, rows_end,
    },
    tree::{CACHE_BYTES, OpenedTree, Tree, TreeLocation},
    writer::Writer,
};
pub use self::{
    disk::{Access, Disk, DiskSpace, RealDisk},
    failure::{Failure, StoreError, gets_over_panics_here},
    writer::Delays,
};
use super::{
    Bytes, Database, DeadlineKind, Entry, Metadata, Overdue, Position, ReplacedEntry, Span, Stamp,
    Store, Version, Visit, VisitRow,
    collection::{Id, Kind, NAME_BYTES_MAX, collection_id, earliest_field_deadline},
    dead::ExpiredKeyCount,
    image::{ImagePart, records},
    merge::Merge,
    meter::Meter,
    removals::Removals,
    table::Record,
};
use crate::key::Key;

/// Bounds on the changes and open files that the store keeps in memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Buffered bytes above which changes are sent to the tree. At twice that, commits slow down;
    /// at eight times, they stop until the tree has caught up.
    pub held_bytes: usize,
    /// Written bytes above which changes are sent to the tree. Bounds the replay after a restart.
    pub written_bytes: usize,
    /// Maximum number of keys that were set without reading the old entry and are still to be
    /// looked up. An exact count of keys has to wait for these look-ups.
    pub blind_keys: usize,
    /// Maximum number of tree files open between reads, at least 10. Compaction opens some more.
    pub files_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { held_bytes: 16 << 20, written_bytes: 64 << 20, blind_keys: 2048, files_max: 256 }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub limits: Limits,
    /// Retry and polling delays of the writer thread.
    pub delays: Delays,
    pub disk: Arc<dyn Disk>,
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), delays: Delays::default(), disk: Arc::new(RealDisk) }
    }
}

impl From<Limits> for Options {
    fn from(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }
}

/// Multiple of `held_bytes` at which commits slow down.
const SLOW: usize = 2;
/// Multiple of `held_bytes` at which commits stop.
const STOP_AT_MULTIPLE: usize = 8;
/// Number of unreadable snapshots after which no more are made, as each reads all sound data.
const FAILED_IMAGES_MAX: u32 = 2;
/// Maximum time for which a slowed commit waits for the tree.
const COMMIT_DELAY_MAX: Duration = Duration::from_millis(2);
/// Bounds that shorten searches of one index of deadlines.
#[derive(Debug, Default)]
struct DeadlineBounds {
    /// Lower bound of the deadlines, with the first key that may have it. Without this bound, a
    /// search for expired keys would walk over removed deadlines until compaction drops them.
    earliest: RefCell<(u64, Box<[u8]>)>,
    /// Lower bound of the deadlines later than the group's time. Saves the same walks.
    next: Cell<u64>,
}

/// Deadlines of a database that need not be searched for again.
#[derive(Debug, Default)]
struct KnownDeadlines {
    /// Bounds for the deadlines of keys and of fields.
    bounds: [DeadlineBounds; 2],
    expired_keys: ExpiredKeyCount,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    /// Contents loaded so far. Database 0 always has some.
    spaces: [Option<Space>; Database::COUNT],
    since: [Version; Database::COUNT],
    /// Database to which the next keys belong.
    database: Database,
}

impl Load {
    fn space_mut(&mut self) -> &mut Space {
        self.spaces[self.database.index()].as_mut().expect("a database begins with contents")
    }
}

/// Store of keys and values in an LSM tree on disk.
pub struct LsmStore {
    path: PathBuf,
    /// `None` while the tree is being opened.
    tree: Option<Tree>,
    state: State,
    selected: Cell<Database>,
    /// State of the tree once the writes in flight are complete.
    sent_state: State,
    /// Highest generation ever begun.
    newest_generation: u64,
    /// Position to which the log is durable, above which nothing may enter the tree.
    logged_position: Slot,
    limits: Limits,
    /// Changes that have not been sent to the tree.
    active_changes: Changes,
    /// Frozen changes to send next, oldest first. A snapshot needed them unchanged.
    waiting_changes: VecDeque<Arc<Changes>>,
    /// Changes being written to the tree.
    frozen_changes: Option<Arc<Changes>>,
    /// The changes written last. Lookups still search them before the tree: recently written keys
    /// are likely to be used again, and a table is faster.
    written_changes: Option<Arc<Changes>>,
    writer: Writer,
    condition: Condition,
    /// First failed read since the last commit. Voids all results and changes since then.
    first_failed_read: OnceCell<Failure>,
    /// Number of failed reads in this process.
    failed_reads: u32,
    /// `Some` from the reopening of the tree until it is reported, with a description of lost data.
    reopened_with_loss: Option<Option<String>>,
    image: Option<Image>,
    /// Load in progress. Meanwhile, nothing is read or committed.
    loading: Option<Load>,
    /// Position that survives a power loss; `None` without a tree.
    synced_position: Option<Slot>,
    /// Position up to which a sync has been requested.
    requested_sync: Slot,
    /// True if a sync is in progress.
    is_syncing: bool,
    /// True if data has changed since the last commit.
    has_uncommitted: bool,
    /// True if removed data awaits the purge.
    needs_purge: bool,
    /// Keys set without reading what they replace.
    blind_writes: RefCell<BlindWrites>,
    /// Deadlines of each database.
    deadlines: [KnownDeadlines; Database::COUNT],
    time: u64,
    removals: Removals,
    meter: Meter,
    scrub: Option<scrub::Scrub>,
    /// Failures that make a scrub necessary.
    suspicion: scrub::Suspicion,
    /// Renewal in progress: a rebuild of the store, because some of its files are damaged.
    renewal: Option<renewal::Renewal>,
    /// Number of unreadable snapshots since the tree was opened or a snapshot was completed.
    failed_images: u32,
}

impl fmt::Debug for LsmStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LsmStore").field("state", &self.state).finish_non_exhaustive()
    }
}

impl LsmStore {
    /// Opens the store at `path`, or creates it. The returned text describes data that was set
    /// aside as damaged.
    ///
    /// If the disk is full or failing, the store is returned as unavailable and opened later,
    /// because a node can vote without it.
    pub fn open(path: &Path) -> Result<(Self, Option<String>), StoreError> {
        Self::open_with(path, Options::default())
    }

    pub fn open_with(
        path: &Path,
        options: impl Into<Options>,
    ) -> Result<(Self, Option<String>), StoreError> {
        let options = options.into();
        let error = |failure| StoreError { path: path.to_owned(), failure };
        let Options { limits, delays, disk } = options;
        let home = TreeLocation {
            path: path.to_owned(),
            disk,
            files_max: limits.files_max,
            cache_bytes: CACHE_BYTES,
        };
        let (opened, condition) = match Tree::open(&home, None) {
            Ok(opened) => (Some(opened), Condition::Well),
            Err(failure) if failure.may_pass() => (None, Condition::Closed(failure.to_string())),
            Err(failure) => return Err(error(failure)),
        };
        let (tree, state, newest_generation, note) = match opened {
            Some(OpenedTree {
                tree,
                state,
                newest_generation,
                loss_description: note,
                aside: _,
            }) => (Some(tree), state, newest_generation, note),
            None => (None, State::EMPTY, 0, None),
        };
        let given = tree.clone().map(|tree| (tree, state, newest_generation));
        // fjall syncs its journal before it reads it, so the recovered position is durable.
        let synced = tree.is_some().then_some(state.applied_position);
        let writer =
            Writer::start(home, delays, given).map_err(|failed| error(Failure::Thread(failed)))?;
        let store = Self {
            path: path.to_owned(),
            tree,
            state,
            selected: Cell::default(),
            sent_state: state,
            newest_generation,
            logged_position: Slot(u64::MAX),
            limits,
            active_changes: Changes::new(state),
            waiting_changes: VecDeque::new(),
            frozen_changes: None,
            written_changes: None,
            writer,
            condition,
            first_failed_read: OnceCell::new(),
            failed_reads: 0,
            reopened_with_loss: None,
            image: None,
            loading: None,
            synced_position: synced,
            requested_sync: Slot::FIRST,
            is_syncing: false,
            has_uncommitted: false,
            needs_purge: false,
            blind_writes: RefCell::default(),
            deadlines: Default::default(),
            time: 0,
            removals: Removals::default(),
            meter: Meter::default(),
            scrub: None,
            suspicion: scrub::Suspicion::default(),
            renewal: None,
            failed_images: 0,
        };
        Ok((store, note))
    }

    /// Syncs all data to stable storage. All changes must be committed.
    pub fn persist(&mut self) -> Result<(), StoreError> {
        self.flush();
        let synced = match (&self.tree, &self.condition) {
            (Some(tree), Condition::Well) => tree.sync(),
            (_, condition) => Err(Failure::Unwell(condition.to_string())),
        };
        synced.map_err(|failure| StoreError { path: self.path.clone(), failure })
    }

    /// Returns the number of entries of all kinds in the tree, or 0 if it cannot be read. Reads all
    /// data; meant for diagnosis of disk usage.
    pub fn stored_entries(&self) -> usize {
        let entries = self.tree.as_ref().map(Tree::entries);
        entries.and_then(Result::ok).unwrap_or(0)
    }

    /// Returns the selected database's part of the layers above the tree, uppermost first.
    fn layers(&self) -> impl Iterator<Item = &Part> {
        let immutable = self.immutable_layers().map(|layer| &**layer);
        let layers = iter::once(&self.active_changes).chain(immutable);
        let generation = self.space().map(|space| space.generation);
        layers.filter_map(move |layer| layer.part(generation?))
    }

    /// Returns the layers that no longer change, uppermost first.
    fn immutable_layers(&self) -> impl Iterator<Item = &Arc<Changes>> {
        let below = [&self.frozen_changes, &self.written_changes].into_iter().flatten();
        self.waiting_changes.iter().rev().chain(below)
    }

    fn above(&self, position: Position, key: &[u8]) -> Option<&Record> {
        self.layers().find_map(|layer| layer.data.get(position, key))
    }

    fn find_in_tree(&self, position: Position, key: &[u8]) -> Option<Slice> {
        let key = data_key(self.space()?.generation, position, key);
        let found = match &self.tree {
            Some(tree) => tree.get(&key),
            None => Err(Failure::NotOpen),
        };
        self.must_read(found)?
    }

    /// Returns the result of a read. A failure is recorded, which voids all results since the last
    /// commit.
    fn must_read<T>(&self, read: Result<T, Failure>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(failure) => {
                self.first_failed_read.get_or_init(|| failure);
                None
            }
        }
    }

    /// Returns an entry decoded from the tree. A malformed one is recorded as damage.
    fn must_decode<T>(&self, read: Option<T>) -> Option<T> {
        self.must_read(read.ok_or_else(|| Failure::damaged("an entry makes no sense")))
    }

    fn tree_range(&self, range: Range<Vec<u8>>) -> impl Iterator<Item = (Slice, Slice)> {
        let found = self.tree.iter().flat_map(move |tree| tree.range(range.clone()));
        found.map_while(|read| self.must_read(read))
    }

    /// Returns what is stored of a key that is about to change.
    fn find_replaced(&self, position: Position, key: &[u8]) -> Option<ReplacedEntry> {
        match self.above(position, key) {
            Some(record) => (!record.is_absent()).then(|| record.replaced_entry()),
            None => {
                let Space { generation, indexed, .. } = self.space()?;
                let found = match &self.tree {
                    Some(tree) => tree.find_replaced(&data_key(generation, position, key), indexed),
                    None => Err(Failure::NotOpen),
                };
                self.must_read(found)?
            }
        }
    }

    /// Forgets what is known of the deadlines of all databases.
    fn reset_deadlines(&mut self) {
        self.deadlines = Default::default();
    }

    fn known_deadlines(&self) -> &KnownDeadlines {
        &self.deadlines[self.selected.get().index()]
    }

    fn move_deadlines(&mut self, key: &[u8], old: [Option<u64>; 2], new: [Option<u64>; 2]) {
        if old == new {
            return;
        }
        let space = *self.space_mut();
        let known = &mut self.deadlines[self.selected.get().index()];
        let part = self.active_changes.part_mut(space);
        known.expired_keys.adjust_for_deadline(old[0], new[0]);
        for of in DeadlineKind::BOTH {
            let (old, new) = (old[of as usize], new[of as usize]);
            if old == new {
                continue;
            }
            if let Some(old) = old {
                part.set_deadline(of, key, old, false);
            }
            if let Some(new) = new {
                let ends = &mut known.bounds[of as usize];
                let earliest = ends.earliest.get_mut();
                if (new, key) < (earliest.0, &*earliest.1) {
                    *earliest = (new, key.into());
                }
                ends.next.set(ends.next.get().min(new));
                part.set_deadline(of, key, new, true);
            }
        }
    }

    fn remove_stored(&mut self, key: Key<'_>, old: ReplacedEntry) {
        let key = key.bytes();
        self.has_uncommitted = true;
        let space = self.space_mut();
        space.keys = space.keys.saturating_sub(1);
        self.move_deadlines(key, old.deadlines(), [None; 2]);
        let position = Position::of(key);
        self.active_part().put(position, key, b"", Stamp::ABSENT);
        self.removals.record_removal(self.selected.get(), position, old.version);
    }

    /// Sends all commits to the tree and waits until they are written, unless the disk prevents it.
    fn flush(&mut self) {
        self.wait_for_writer();
        while self.can_write()
            && (!self.waiting_changes.is_empty()
                || (!self.has_uncommitted && self.active_changes.written() > 0))
        {
            self.freeze_oldest_changes();
            self.wait_for_writer();
        }
    }

    /// Freezes the active changes, all of which are committed, and returns them.
    fn freeze_active(&mut self) -> Arc<Changes> {
        debug_assert!(!self.has_uncommitted);
        let purged_below = self.writer.purged_below(&self.state.live_generations());
        self.state.oldest = self.state.oldest.max(purged_below);
        self.state.newest = self.newest_generation;
        let blind = self.blind_writes.get_mut();
        let first = self.state.first_mut();
        blind.close(first.indexed);
        blind.count(&self.deadlines[0].expired_keys);
        first.keys = first.keys.saturating_sub(blind.take_surplus_keys());
        let mut full = mem::replace(&mut self.active_changes, Changes::new(self.state));
        full.state = self.state;
        full.groups = blind.take_active_groups();
        full.uncounted_groups = blind.uncounted_groups().to_vec();
        self.needs_purge = false;
        Arc::new(full)
    }

    /// Sends the oldest changes to the tree. The caller ensures that none are in flight.
    fn freeze_oldest_changes(&mut self) {
        debug_assert!(self.frozen_changes.is_none());
        let full = match self.waiting_changes.pop_front() {
            Some(full) => full,
            None => self.freeze_active(),
        };
        self.sent_state = full.state;
        self.frozen_changes = Some(Arc::clone(&full));
        self.writer.write(full);
    }

    /// Waits until no changes are in flight, or the disk prevents progress.
    fn wait_for_writer(&mut self) {
        self.handle_writer_events();
        while self.frozen_changes.is_some()
            && self.condition == Condition::Well
            && let Some(event) = self.writer.next_event()
        {
            self.handle_event(event);
        }
    }

    fn can_write(&self) -> bool {
        let takes = matches!(self.condition, Condition::Well | Condition::WaitingForDisk(_));
        let next = self.waiting_changes.front().map_or(&self.state, |next| &next.state);
        let logged = next.applied_position <= self.logged_position;
        takes && logged && self.frozen_changes.is_none() && self.first_failed_read.get().is_none()
    }

    fn write_all_changes(&mut self) {
        self.handle_writer_events();
        let held = self.buffered_multiple();
        if held >= SLOW {
            self.delay_commit();
        }
        let full = held > 0 || self.active_changes.written() >= self.limits.written_bytes;
        if self.can_write() && (full || self.needs_purge || !self.waiting_changes.is_empty()) {
            self.freeze_oldest_changes();
        }
        self.continue_sync();
    }

    fn delay_commit(&mut self) {
        if self.frozen_changes.is_some()
            && self.condition == Condition::Well
            && let Some(event) = self.writer.event_within(COMMIT_DELAY_MAX)
        {
            self.handle_event(event);
        }
    }

    /// Returns the size of the buffered changes as a multiple of the limit.
    fn buffered_multiple(&self) -> usize {
        let waiting: usize = self.waiting_changes.iter().map(|layer| layer.memory_bytes()).sum();
        (self.active_changes.memory_bytes() + waiting) / self.limits.held_bytes.max(1)
    }
}

impl Store for LsmStore {
    fn select(&self, database: Database) -> Database {
        self.selected.replace(database)
    }

    fn selected(&self) -> Database {
        self.selected.get()
    }

    fn in_use(&self) -> u16 {
        self.used_databases()
    }

    fn since(&self) -> Version {
        self.state.since[self.selected.get().index()]
    }

    fn raise_since(&mut self, version: Version) {
        let since = &mut self.state.since[self.selected.get().index()];
        if version > *since {
            *since = version;
            (self.state.has_table, self.has_uncommitted) = (true, true);
        }
    }

    fn swap(&mut self, a: Database, b: Database, version: Version) {
        if a != b {
            self.swap_spaces(a, b, version);
        }
    }

    fn set_time(&mut self, group_ms: u64) {
        if group_ms < self.time {
            // The group's time went back, so the service was rolled back.
            self.reset_deadlines();
        }
        self.time = group_ms;
    }

    fn time(&self) -> u64 {
        self.time
    }

    fn stored(&self, key: Key<'_>) -> Option<Entry<'_>> {
        let key = key.bytes();
        let position = Position::of(key);
        match self.above(position, key) {
            Some(record) => (!record.is_absent()).then(|| record.entry()),
            None => self.must_decode(entry(self.find_in_tree(position, key)?)),
        }
    }

    fn set(&mut self, key: Key<'_>, value: &[u8], stamp: Stamp) {
        let key = key.bytes();
        let position = Position::of(key);
        let old: Option<Footprint> = match self.above(position, key) {
            Some(record) => (!record.is_absent()).then(|| record.replaced_entry().into()),
            None if stamp.kind == Kind::String && self.selected.get() == Database::ZERO => {
                self.replace_blindly(position, key)
            }
            // A collection may keep the rows of the old entry, which its command has just read.
            None => self.footprint(position, key),
        };
        self.has_uncommitted = true;
        let space = self.space_mut();
        space.keys = space.keys.saturating_add(u64::from(old.is_none()));
        let ended = old.and_then(|old| old.id);
        if let Some(id) = ended
            && ended != collection_id(stamp.kind, value)
        {
            self.active_part().end(id);
        }
        let old = old.map_or([None; 2], |old| old.deadlines);
        self.move_deadlines(key, old, [stamp.deadline, earliest_field_deadline(stamp.kind, value)]);
        self.active_part().put(position, key, value, stamp);
    }

    fn take(&mut self, key: Key<'_>) -> Option<Option<u64>> {
        let old = self.find_replaced(Position::of(key.bytes()), key.bytes())?;
        self.remove_stored(key, old);
        if let Some(id) = old.id {
            self.active_part().end(id);
        }
        Some(old.deadline)
    }

    fn detach(&mut self, key: Key<'_>) {
        if let Some(old) = self.find_replaced(Position::of(key.bytes()), key.bytes()) {
            self.remove_stored(key, old);
        }
    }

    fn row(&self, id: Id, name: &[u8]) -> Option<Bytes<'_>> {
        if let Some(row) = self.layers().find_map(|layer| layer.row(id, name)) {
            return row.map(Bytes::Borrowed);
        }
        let key = row_key(self.space()?.generation, id, name);
        let found = match &self.tree {
            Some(tree) => tree.get(&key),
            None => Err(Failure::NotOpen),
        };
        Some(Bytes::Shared(self.must_read(found)??, 0))
    }

    fn put_row(&mut self, id: Id, name: &[u8], value: &[u8]) {
        self.has_uncommitted = true;
        self.active_part().set_row(id, name, Some(value));
    }

    fn remove_row(&mut self, id: Id, name: &[u8]) {
        if self.space().is_some() {
            self.has_uncommitted = true;
            self.active_part().set_row(id, name, None);
        }
    }

    fn all_rows(&self, id: Id, span: Span<'_>, visit: &mut VisitRow<'_>) {
        let Some(Space { generation, .. }) = self.space() else {
            return;
        };
        if span.is_empty() {
            return;
        }
        // The tree asserts a maximum key length. No stored name is this long, so truncating the
        // name does not change the order.
        let cut = |name: &'_ [u8]| name.len().min(NAME_BYTES_MAX + 1);
        let span = Span {
            from: &span.from[..cut(span.from)],
            to: span.to.map(|to| &to[..cut(to)]),
            ..span
        };
        if span.is_empty() {
            return;
        }
        let to = span.to.map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(span.from), to);
        let layers = self.layers().filter_map(|layer| layer.rows.get(&id));
        let layers = layers.map(|rows| rows.range::<[u8], _>(bounds));
        let behind = match span.to {
            Some(to) => row_key(generation, id, to),
            None => rows_end(generation, id),
        };
        let range = row_key(generation, id, span.from)..behind;
        let in_tree = |(key, value): (Slice, Slice)| {
            let name = self.must_decode(parse_row_key(&key))?.to_vec();
            Some((Cow::Owned(name), Some(Bytes::Shared(value, 0))))
        };
        if span.is_backward {
            let mut merge = Merge::new();
            let reversed = |(name, value)| (Reverse(name), value);
            for rows in layers {
                merge.add(changed(rows.rev()).map(reversed));
            }
            let tree = self.tree.iter();
            let found = tree.flat_map(|tree| tree.range_back(range.clone()));
            let found = found.map_while(|read| in_tree(self.must_read(read)?));
            merge.add(found.map(reversed));
            visit_rows(merge.map(|(Reverse(name), value)| (name, value)), visit);
        } else {
            let mut merge = Merge::new();
            for rows in layers {
                merge.add(changed(rows));
            }
            merge.add(self.tree_range(range).map_while(in_tree));
            visit_rows(merge, visit);
        }
    }

    fn end_rows(&mut self, id: Id) {
        if self.space().is_some() {
            self.has_uncommitted = true;
            self.active_part().end(id);
        }
    }

    fn clear(&mut self) {
        self.end_space();
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
        // Before the expired keys are counted: a replaced key is not one of them.
        let counted = match self.selected.get() {
            Database::ZERO => self.count_keys(),
            _ => None,
        };
        let stored = counted.or(self.space().map(|space| space.keys)).unwrap_or(0);
        let expired_keys = &self.known_deadlines().expired_keys;
        let to = self.time.saturating_add(1);
        if let Some(from) = expired_keys.first_uncounted(to) {
            let mut keys = 0;
            self.deadlines(DeadlineKind::Keys, from, self.time, &mut |_, _| {
                keys += 1;
                ControlFlow::Continue(())
            });
            expired_keys.add_counted(to, keys);
        }
        stored.saturating_sub(expired_keys.keys())
    }

    fn prefetch(&self, keys: &[Position]) {
        for layer in self.layers() {
            layer.data.prefetch_records(keys);
        }
    }

    fn all_keys(&self, from: Position, visit: &mut Visit<'_>) {
        let Some(Space { generation, .. }) = self.space() else {
            return;
        };
        let mut merge = Merge::new();
        for layer in self.layers() {
            merge.add(records(&layer.data, from));
        }
        let (first, before) = (data_key(generation, from, b""), prefix(kind::DATA, generation + 1));
        merge.add(self.tree_range(first..before).map_while(|(key, value)| {
            let (position, key) = self.must_decode(parse_data_key(&key))?;
            let entry = self.must_decode(entry(value))?;
            Some(((position, Cow::Owned(key.to_vec())), Some(entry)))
        }));
        for ((_, key), entry) in merge {
            if let Some(entry) = entry
                && visit(&key, &entry).is_break()
            {
                return;
            }
        }
    }

    fn deadlines(&self, of: DeadlineKind, from: u64, to: u64, visit: &mut Overdue<'_>) {
        let Some(Space { generation, .. }) = self.space() else {
            return;
        };
        let ends = &self.known_deadlines().bounds[of as usize];
        let (earliest, to) = (ends.earliest.borrow().clone(), to.saturating_add(1));
        // Only a search from the bound on shows that no deadline precedes the first one found.
        let from_earliest = from <= earliest.0;
        let from = match from_earliest {
            true => earliest,
            false => (from, Box::default()),
        };
        if from.0 >= to {
            return;
        }
        let mut merge = Merge::new();
        for layer in self.layers() {
            let deadlines = &layer.deadlines[of as usize];
            let deadlines = deadlines.range(from.clone()..(to, Box::default()));
            merge.add(
                deadlines.map(|((deadline, key), present)| {
                    ((*deadline, Cow::Borrowed(&**key)), *present)
                }),
            );
        }
        let first = deadline_key(generation, of, from.0, &from.1);
        let range = first..deadline_key(generation, of, to, b"");
        let tree = self.tree.iter();
        let keys = tree.flat_map(move |tree| tree.keys(range.clone()));
        merge.add(keys.map_while(|key| {
            let key = self.must_read(key)?;
            let (deadline, key) = self.must_decode(parse_deadline_key(&key))?;
            Some(((deadline, Cow::Owned(key.to_vec())), true))
        }));
        let mut found = None;
        for ((deadline, key), present) in merge {
            if !present || !self.is_current(of, deadline, &key) {
                continue;
            }
            found.get_or_insert_with(|| (deadline, Box::from(&*key)));
            if visit(deadline, &key).is_break() {
                break;
            }
        }
        if from_earliest {
            let found = found.unwrap_or_else(|| (to, Box::default()));
            ends.earliest.replace(found);
        }
    }

    fn next_deadline_of(&self, of: DeadlineKind, until_ms: u64) -> Option<u64> {
        let next = &self.known_deadlines().bounds[of as usize].next;
        let from = self.time.checked_add(1)?.max(next.get());
        if from > until_ms {
            return None;
        }
        let mut found = None;
        self.deadlines(of, from, until_ms, &mut |deadline, _| {
            found = Some(deadline);
            ControlFlow::Break(())
        });
        next.set(found.unwrap_or(until_ms.saturating_add(1)));
        found
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        if self.has_failed() || self.loading.is_some() {
            return;
        }
        self.state.applied_position = applied_to;
        self.active_changes.commit(meta);
        self.has_uncommitted = false;
        self.write_all_changes();
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        self.selected.set(Database::ZERO);
        let stored = self.tree_range(vec![kind::META]..vec![kind::DEADLINE]);
        let meta = stored.map(|(key, value)| (key[1..].to_vec(), value.to_vec()));
        (self.state.applied_position, meta.collect())
    }

    fn logged(&mut self, to: Slot) {
        self.logged_position = to;
    }

    fn health(&mut self) -> Health {
        self.handle_tree_events()
    }

    fn has_failed(&self) -> bool {
        // Results also stay void until the reopening has been reported.
        self.first_failed_read.get().is_some()
            || self.tree.is_none()
            || self.reopened_with_loss.is_some()
    }

    fn begin_image(&mut self) -> Option<u64> {
        self.image = None;
        if self.has_failed()
            || self.failed_images >= FAILED_IMAGES_MAX
            || self.has_uncommitted
            || self.loading.is_some()
        {
            return None;
        }
        let first_keys = self.count_keys()?;
        if !self.active_changes.is_empty() {
            let still = self.freeze_active();
            self.waiting_changes.push_back(still);
        }
        let layers = self.immutable_layers().cloned().collect();
        let past = self.tree.as_ref()?.tree_snapshot();
        let databases = self.imaged_databases(first_keys).collect();
        self.image = Some(Image::new(past, layers, databases));
        let others = self.state.spaces.iter().skip(1).flatten();
        Some(others.fold(first_keys, |sum, space| sum.saturating_add(space.keys)))
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(ImagePart<'_>)) -> Imaged {
        let Some(image) = &mut self.image else {
            return Imaged::Failed;
        };
        let left = image.next(bytes, each);
        if !matches!(left, Ok(Imaged::More)) {
            self.image = None;
        }
        match left {
            Ok(Imaged::More) => Imaged::More,
            Ok(whole) => {
                self.failed_images = 0;
                whole
            }
            // [scrub-2] Clients may never read the unreadable part, so a peer's need for a snapshot
            // is no reason to give up the sound data.
            Err(_) => {
                self.failed_images += 1;
                Imaged::Failed
            }
        }
    }

    fn end_image(&mut self) {
        self.image = None;
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.start_load()
    }

    fn load_database(&mut self, database: Database, since: Version) -> Result<(), LoadError> {
        self.load_one_database(database, since)
    }

    fn load(&mut self, key: Key<'_>, value: &[u8], stamp: Stamp) -> Result<(), LoadError> {
        self.load_key(key, value, stamp)
    }

    fn load_row(&mut self, id: Id, name: &[u8], value: &[u8]) -> Result<(), LoadError> {
        self.load_one_row(id, name, value)
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        self.end_load(at, meta)
    }

    fn synced_to(&mut self) -> Option<Slot> {
        self.handle_writer_events();
        Some(self.synced_position.unwrap_or(Slot::FIRST))
    }

    fn start_sync(&mut self) {
        self.request_sync();
    }

    fn start_scrub(&mut self, bytes_per_second: u64) {
        self.begin_scrub(bytes_per_second);
    }

    fn take_scrubbed(&mut self) -> Scrubbed {
        self.take_scrub_results()
    }

    fn wants_scrub(&mut self) -> bool {
        self.suspects_damage()
    }

    fn kept_bytes(&self) -> u64 {
        self.file_bytes()
    }

    fn renew(&mut self) -> Result<(), String> {
        self.begin_renewal()
    }
}

fn visit_rows<'a>(
    rows: impl Iterator<Item = (Cow<'a, [u8]>, Option<Bytes<'a>>)>,
    visit: &mut VisitRow<'_>,
) {
    for (name, value) in rows {
        if let Some(value) = value
            && visit(&name, &value).is_break()
        {
            return;
        }
    }
}

impl Drop for LsmStore {
    /// Writes all commits to the tree, which saves the next start a replay.
    fn drop(&mut self) {
        self.flush();
        self.writer.end();
        if let Some(tree) = &self.tree {
            let _ = tree.sync();
        }
    }
}
