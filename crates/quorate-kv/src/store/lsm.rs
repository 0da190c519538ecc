//! The store on disk: an LSM tree whose data and applied position are one.
//!
//! **Layers.** Commits go to a table in memory, and from there to the tree when they are enough: a
//! key that is written often enters the tree once. A thread of its own does that (`writer`); what is
//! on its way, and what is not yet, is looked at before the tree. So a commit writes nothing.
//!
//! **Atomicity.** Everything of this store — position, the replica's metadata, deadlines, keys — is
//! in one fjall keyspace, told apart by its first byte. All of a table goes into one `WriteBatch`,
//! with the position of its last commit. Read in fjall 3.1: a batch is one journal entry with a
//! start, an end and a checksum, and one sequence number; recovery drops a batch without its end.
//! The batch enters the memtable under the journal's lock, and the memtable is rotated under the
//! same lock, so a table on disk holds whole batches only. Two keyspaces would not do: their
//! memtables are flushed apart, and after a power loss, with the journal's tail gone, one could be
//! ahead of the other.
//!
//! **Durability.** The replica's log has everything; after a crash the store is at an earlier
//! position, and the log replays from there. [`Limits`] bound how much. Data and position are never
//! apart.
//!
//! **Damage.** An unsynced journal may come back from a power loss with a hole in it, which fjall
//! reports as damage. The log is the truth, so [`LsmStore::open`] then sets the folder aside and
//! starts an empty one, and says so.

mod changes;
mod layout;
mod merge;
mod writer;

use std::{
    borrow::Cow,
    cell::Cell,
    fmt, io, iter, mem,
    ops::ControlFlow,
    panic,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Slice};
use quorate_core::slot::Slot;
use quorate_replica::service::MetaChange;

use self::{
    changes::Changes,
    layout::{
        FORMAT, State, data_key, deadline_key, entry, header, kind, parse_data_key,
        parse_deadline_key, prefix,
    },
    merge::Merge,
    writer::{Stopped, Writer},
};
use super::{Entry, Metadata, Position, Store, Version, Visit, table::Record};
use crate::key::Key;

/// How much may be held back from the tree.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes in memory from which on changes go to the tree. Twice as much slows commits down, eight
    /// times as much stops them until the tree has caught up.
    pub held_bytes: usize,
    /// Bytes written from which on changes go to the tree, so that the log has little to replay.
    pub written_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            held_bytes: 16 << 20,
            written_bytes: 64 << 20,
        }
    }
}

const STOPPED: &str = "the store cannot go on: the thread that writes it has stopped";

/// How long a commit waits for the tree when twice the limit is held.
const BRAKE: Duration = Duration::from_millis(2);

/// The store could not be opened.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    detail: String,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store {}: {}", self.path.display(), self.detail)
    }
}

impl std::error::Error for OpenError {}

/// Keys and values in an LSM tree.
pub struct LsmStore {
    database: Database,
    keyspace: Keyspace,
    state: State,
    limits: Limits,
    /// Not on its way to the tree yet.
    active: Changes,
    /// On its way.
    frozen: Option<Arc<Changes>>,
    /// The last that arrived. Still looked at before the tree: what is written often was written
    /// lately, and a table is faster than a tree.
    settled: Option<Arc<Changes>>,
    writer: Writer,
    /// Something changed since the last commit.
    dirty: bool,
    /// There is something to purge.
    cleared: bool,
    /// No key has an earlier deadline. Deadlines that were removed lie before it until they are
    /// compacted away; looking for overdue keys must not walk over them each time.
    earliest: Cell<u64>,
}

impl fmt::Debug for LsmStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LsmStore")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl LsmStore {
    /// Opens the store in this folder, or starts one. The text says what had to be set aside
    /// because it was damaged.
    pub fn open(path: &Path) -> Result<(Self, Option<String>), OpenError> {
        Self::open_with(path, Limits::default())
    }

    /// The same, with limits of one's own.
    pub fn open_with(path: &Path, limits: Limits) -> Result<(Self, Option<String>), OpenError> {
        let error = |detail: String| OpenError {
            path: path.to_owned(),
            detail,
        };
        match Self::open_as_it_is(path, limits) {
            Ok(store) => Ok((store, None)),
            Err(Failed::Damaged(detail)) => {
                let aside = set_aside(path).map_err(|e| error(format!("{detail}; {e}")))?;
                let store = Self::open_as_it_is(path, limits).map_err(|e| error(e.to_string()))?;
                let aside = aside.display();
                Ok((
                    store,
                    Some(format!(
                        "{detail}; moved to {aside}, to be rebuilt from the log"
                    )),
                ))
            }
            Err(Failed::Other(detail)) => Err(error(detail)),
        }
    }

    fn open_as_it_is(path: &Path, limits: Limits) -> Result<Self, Failed> {
        let database = recover(path)?;
        let keyspace = database
            .keyspace("kv", KeyspaceCreateOptions::default)
            .map_err(Failed::from)?;
        let state = match keyspace.get([kind::STATE]).map_err(Failed::from)? {
            None => State::EMPTY,
            Some(bytes) => State::from_bytes(&bytes).ok_or_else(|| {
                let format = bytes.first().copied().unwrap_or(0);
                Failed::Other(format!(
                    "format {format}, but this version knows {FORMAT} only"
                ))
            })?,
        };
        let writer = Writer::start(database.clone(), keyspace.clone(), state)
            .map_err(|error| Failed::Other(error.to_string()))?;
        Ok(Self {
            database,
            keyspace,
            state,
            limits,
            active: Changes::new(state),
            frozen: None,
            settled: None,
            writer,
            dirty: false,
            cleared: false,
            earliest: Cell::new(0),
        })
    }

    /// Puts everything that is committed on stable storage, if nothing is uncommitted.
    pub fn persist(&mut self) -> Result<(), OpenError> {
        let failed = |detail: String| OpenError {
            path: PathBuf::new(),
            detail,
        };
        self.flush().map_err(|Stopped| failed(STOPPED.to_owned()))?;
        self.database
            .persist(PersistMode::SyncAll)
            .map_err(|e| failed(e.to_string()))
    }

    /// Number of entries of all kinds in the tree, for looking at what takes space. Reads everything.
    pub fn stored_entries(&self) -> usize {
        must(self.keyspace.len())
    }

    /// What is above the tree, uppermost first.
    fn layers(&self) -> impl Iterator<Item = &Changes> {
        let below = [&self.frozen, &self.settled].into_iter().flatten();
        // Changes of a generation that ended are not seen.
        let seen = below.filter(|layer| layer.state.generation == self.state.generation);
        iter::once(&self.active).chain(seen.map(|layer| &**layer))
    }

    fn above(&self, position: Position, key: &[u8]) -> Option<&Record> {
        self.layers()
            .find_map(|layer| layer.data.get(position, key))
    }

    fn in_tree(&self, position: Position, key: &[u8]) -> Option<Slice> {
        must(
            self.keyspace
                .get(data_key(self.state.generation, position, key)),
        )
    }

    /// The deadline of a key, if the key is there.
    fn deadline_of(&self, position: Position, key: &[u8]) -> Option<Option<u64>> {
        match self.above(position, key) {
            Some(record) => (!record.is_absent()).then(|| record.deadline()),
            None => Some(header(&self.in_tree(position, key)?).1),
        }
    }

    fn move_deadline(&mut self, key: &[u8], old: Option<u64>, new: Option<u64>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.active.set_deadline(key, old, false);
        }
        if let Some(new) = new {
            self.earliest.set(self.earliest.get().min(new));
            self.active.set_deadline(key, new, true);
        }
    }

    /// Gives all that is committed to the tree and waits for it.
    fn flush(&mut self) -> Result<(), Stopped> {
        if !self.dirty && self.active.written > 0 {
            self.thaw()?;
            self.freeze()?;
        }
        self.thaw()
    }

    /// Sends the changes to the tree; none are on their way, and all are committed.
    fn freeze(&mut self) -> Result<(), Stopped> {
        debug_assert!(self.frozen.is_none() && !self.dirty);
        self.state.oldest = self.state.oldest.max(self.writer.purged_below());
        self.active.state = self.state;
        let full = mem::replace(&mut self.active, Changes::new(self.state));
        let full = Arc::new(full);
        self.frozen = Some(Arc::clone(&full));
        self.cleared = false;
        self.writer.write(full)
    }

    /// Waits until nothing is on its way to the tree.
    fn thaw(&mut self) -> Result<(), Stopped> {
        if self.frozen.is_some() {
            self.writer.wait_until_written()?;
            self.settle()?;
        }
        Ok(())
    }

    /// The same, but waits only so long.
    fn thaw_within(&mut self, patience: Duration) -> Result<(), Stopped> {
        if self.frozen.is_some() && self.writer.has_written(patience)? {
            self.settle()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Stopped> {
        match mem::replace(&mut self.settled, self.frozen.take()) {
            Some(outdated) => self.writer.free(outdated),
            None => Ok(()),
        }
    }

    /// Sends changes to the tree when they are enough.
    fn drain(&mut self) -> Result<(), Stopped> {
        let held = self.active.held / self.limits.held_bytes.max(1);
        match held {
            0..2 => self.thaw_within(Duration::ZERO)?,
            2..8 => self.thaw_within(BRAKE)?,
            _ => self.thaw()?,
        }
        let full = held > 0 || self.active.written >= self.limits.written_bytes;
        if self.frozen.is_none() && (full || self.cleared) {
            self.freeze()?;
        }
        Ok(())
    }
}

/// Opens the tree. The library asserts, in builds with debug assertions, that the two lengths of a
/// journal's item are the same, and a process killed between them leaves zeros in one: that is
/// damage like any other, not a reason to fail at each start.
fn recover(path: &Path) -> Result<Database, Failed> {
    let opened = panic::catch_unwind(|| Database::builder(path).open());
    let stopped = |_| Failed::Damaged("its recovery stopped at a failed assertion".to_owned());
    opened.map_err(stopped)?.map_err(Failed::from)
}

/// Why a folder could not be opened.
enum Failed {
    /// Its contents are damaged; the log can rebuild them.
    Damaged(String),
    /// Anything else: another process, the file system, another version.
    Other(String),
}

impl From<fjall::Error> for Failed {
    fn from(error: fjall::Error) -> Self {
        match error {
            fjall::Error::Io(_)
            | fjall::Error::Storage(fjall::LsmError::Io(_))
            | fjall::Error::InvalidVersion(_) => Self::Other(error.to_string()),
            fjall::Error::Locked => Self::Other("in use by another process".to_owned()),
            damage => Self::Damaged(damage.to_string()),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(detail) | Self::Other(detail) => f.write_str(detail),
        }
    }
}

/// Renames a damaged folder; the name is free.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        let aside = PathBuf::from(name);
        if !aside.try_exists()? {
            std::fs::rename(path, &aside)?;
            return Ok(aside);
        }
        number += 1;
    }
}

/// The disk under the store failed. Going on would mean to answer from a state that is not the
/// log's; the process ends, and says why.
fn must<T>(result: fjall::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("the store cannot go on: {error}"))
}

impl Store for LsmStore {
    fn get(&self, key: Key<'_>) -> Option<Entry<'_>> {
        let key = key.bytes();
        let position = Position::of(key);
        match self.above(position, key) {
            Some(record) => (!record.is_absent()).then(|| record.entry()),
            None => self.in_tree(position, key).map(entry),
        }
    }

    fn put(&mut self, key: Key<'_>, value: &[u8], version: Version, deadline: Option<u64>) {
        let key = key.bytes();
        let position = Position::of(key);
        let old = self.deadline_of(position, key);
        self.dirty = true;
        self.state.keys += u64::from(old.is_none());
        self.move_deadline(key, old.flatten(), deadline);
        self.active.put(position, key, value, version, deadline);
    }

    fn remove(&mut self, key: Key<'_>) -> bool {
        let key = key.bytes();
        let position = Position::of(key);
        let Some(old) = self.deadline_of(position, key) else {
            return false;
        };
        self.dirty = true;
        self.state.keys -= 1;
        self.move_deadline(key, old, None);
        self.active.put(position, key, b"", Version::ABSENT, None);
        true
    }

    fn clear(&mut self) {
        self.active.clear();
        self.dirty = true;
        self.cleared = true;
        self.state.generation += 1;
        self.state.keys = 0;
        self.earliest.set(0);
    }

    fn len(&self) -> u64 {
        self.state.keys
    }

    fn foresee(&self, keys: &[Position]) {
        for layer in self.layers() {
            layer.data.touch(keys);
        }
    }

    fn scan(&self, from: Position, visit: &mut Visit<'_>) {
        let generation = self.state.generation;
        let mut merge = Merge::new();
        for layer in self.layers() {
            merge.add(layer.data.from(from).map(|(position, record)| {
                let key = (position, Cow::Borrowed(record.key()));
                (key, (!record.is_absent()).then(|| record.entry()))
            }));
        }
        let (first, before) = (
            data_key(generation, from, b""),
            prefix(kind::DATA, generation + 1),
        );
        merge.add(self.keyspace.range(first..before).map(|guard| {
            let (key, value) = must(guard.into_inner());
            let (position, key) = parse_data_key(&key);
            ((position, Cow::Owned(key.to_vec())), Some(entry(value)))
        }));
        for ((_, key), entry) in merge {
            if let Some(entry) = entry
                && visit(&key, &entry).is_break()
            {
                return;
            }
        }
    }

    fn overdue(&self, wall_ms: u64, visit: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) {
        let (from, to) = (self.earliest.get(), wall_ms.saturating_add(1));
        if from >= to {
            return;
        }
        let bound = |deadline| (deadline, Box::default());
        let mut merge = Merge::new();
        for layer in self.layers() {
            let deadlines = layer.deadlines.range(bound(from)..bound(to));
            merge.add(
                deadlines.map(|((deadline, key), present)| {
                    ((*deadline, Cow::Borrowed(&**key)), *present)
                }),
            );
        }
        let generation = self.state.generation;
        let (first, before) = (
            deadline_key(generation, from, b""),
            deadline_key(generation, to, b""),
        );
        merge.add(self.keyspace.range(first..before).map(|guard| {
            let key = must(guard.key());
            let (deadline, key) = parse_deadline_key(&key);
            ((deadline, Cow::Owned(key.to_vec())), true)
        }));
        let mut found = None;
        for ((deadline, key), present) in merge {
            if !present {
                continue;
            }
            found.get_or_insert(deadline);
            if visit(deadline, &key).is_break() {
                break;
            }
        }
        self.earliest.set(found.unwrap_or(to));
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        self.state.applied_to = applied_to;
        self.active.commit(meta);
        self.dirty = false;
        self.drain().expect(STOPPED);
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        let stored = self
            .keyspace
            .range::<&[u8], _>(&[kind::META][..]..&[kind::DEADLINE][..]);
        let meta = stored.map(|guard| {
            let (key, value) = must(guard.into_inner());
            (key[1..].to_vec(), value.to_vec())
        });
        (self.state.applied_to, meta.collect())
    }
}

impl Drop for LsmStore {
    /// A clean stop loses nothing, so that the next start replays nothing. If it fails, the log
    /// replays.
    fn drop(&mut self) {
        let _ = self.flush();
        self.writer.end();
        let _ = self.database.persist(PersistMode::SyncAll);
    }
}
