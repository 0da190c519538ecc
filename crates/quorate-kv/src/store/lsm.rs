//! The store on disk: an LSM tree whose data and applied position are one.
//!
//! **Atomicity.** Everything of this store — position, the replica's metadata, deadlines, keys — is
//! in one fjall keyspace, told apart by its first byte. All that changed since the last commit goes
//! into one `WriteBatch`. Read in fjall 3.1: a batch is one journal entry with a start, an end and
//! a checksum, and one sequence number; recovery drops a batch without its end. The batch enters
//! the memtable under the journal's lock, and the memtable is rotated under the same lock, so a
//! table on disk holds whole batches only. Two keyspaces would not do: their memtables are flushed
//! apart, and after a power loss, with the journal's tail gone, one could be ahead of the other.
//!
//! **Durability.** The journal is not synced at a commit: after a crash the store is at an earlier
//! position, and the replica's log replays from there. Data and position are never apart.
//!
//! **Damage.** An unsynced journal may come back from a power loss with a hole in it, which fjall
//! reports as damage. The log is the truth, so [`LsmStore::open`] then sets the folder aside and
//! starts an empty one, and says so.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt, io,
    ops::{Bound, ControlFlow},
    panic,
    path::{Path, PathBuf},
};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use quorate_core::slot::Slot;
use quorate_replica::service::MetaChange;

use super::{Bytes, Entry, Metadata, Position, Store, Version, Visit};

/// First bytes of stored keys.
mod kind {
    pub(super) const STATE: u8 = 0;
    pub(super) const META: u8 = 1;
    pub(super) const DEADLINE: u8 = 2;
    pub(super) const DATA: u8 = 3;
}

/// Version of this layout.
const FORMAT: u8 = 1;
/// Bytes of a stored value before the client's: slot, index, deadline.
const HEADER_BYTES: usize = 8 + 4 + 8;
/// Bytes of a stored data key before the client's: kind, generation, position.
const KEY_BYTES: usize = 1 + 6 + 6;
/// Deadline of a key without one.
const NO_DEADLINE: u64 = u64::MAX;
/// Keys of a flushed generation that are removed with one commit.
const PURGED_MAX: usize = 1024;

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

/// What a commit stores besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    applied_to: Slot,
    keys: u64,
    /// FLUSHALL starts another generation: keys of earlier ones are not seen, and are removed
    /// little by little. Otherwise it would be one commit as large as the store.
    generation: u64,
    /// Nothing is left of generations below.
    oldest: u64,
}

impl State {
    const EMPTY: Self = Self {
        applied_to: Slot::FIRST,
        keys: 0,
        generation: 0,
        oldest: 0,
    };

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&self.applied_to.0.to_le_bytes());
        bytes.extend_from_slice(&self.keys.to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.oldest.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, rest) = bytes.split_first()? else {
            return None;
        };
        let (slot, rest) = rest.split_first_chunk()?;
        let (keys, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (oldest, []) = rest.split_first_chunk()? else {
            return None;
        };
        Some(Self {
            applied_to: Slot(u64::from_le_bytes(*slot)),
            keys: u64::from_le_bytes(*keys),
            generation: u64::from_le_bytes(*generation),
            oldest: u64::from_le_bytes(*oldest),
        })
    }
}

/// Keys and values in an LSM tree.
pub struct LsmStore {
    database: Database,
    keyspace: Keyspace,
    state: State,
    /// Changes since the last commit: stored key → stored value, or removed.
    overlay: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Where the removal of earlier generations goes on.
    purge_from: Vec<u8>,
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
        let error = |detail: String| OpenError {
            path: path.to_owned(),
            detail,
        };
        match Self::open_as_it_is(path) {
            Ok(store) => Ok((store, None)),
            Err(Failed::Damaged(detail)) => {
                let aside = set_aside(path).map_err(|e| error(format!("{detail}; {e}")))?;
                let store = Self::open_as_it_is(path).map_err(|e| error(e.to_string()))?;
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

    fn open_as_it_is(path: &Path) -> Result<Self, Failed> {
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
        Ok(Self {
            database,
            keyspace,
            state,
            overlay: BTreeMap::new(),
            purge_from: Vec::new(),
            earliest: Cell::new(0),
        })
    }

    /// Puts everything on stable storage.
    pub fn persist(&self) -> Result<(), OpenError> {
        self.database
            .persist(PersistMode::SyncAll)
            .map_err(|e| OpenError {
                path: PathBuf::new(),
                detail: e.to_string(),
            })
    }

    /// Number of committed entries of all kinds, for looking at what takes space. Reads everything.
    pub fn stored_entries(&self) -> usize {
        must(self.keyspace.len())
    }

    /// The stored value behind a stored key, changes included.
    fn stored(&self, key: &[u8]) -> Option<Bytes<'_>> {
        match self.overlay.get(key) {
            Some(change) => change.as_deref().map(Bytes::Borrowed),
            None => must(self.keyspace.get(key)).map(|slice| Bytes::Shared(slice, 0)),
        }
    }

    /// Visits stored keys between two bounds in order, changes included.
    fn range(
        &self,
        from: &[u8],
        before: &[u8],
        visit: &mut dyn FnMut(&[u8], Bytes<'_>) -> ControlFlow<()>,
    ) {
        let bounds = (Bound::Included(from), Bound::Excluded(before));
        let mut changes = self.overlay.range::<[u8], _>(bounds).peekable();
        let mut stored = self
            .keyspace
            .range::<&[u8], _>((Bound::Included(from), Bound::Excluded(before)));
        let mut next_stored = || stored.next().map(|guard| must(guard.into_inner()));
        let mut ahead = next_stored();
        loop {
            let flow = match (changes.peek(), &ahead) {
                (None, None) => return,
                (Some((key, _)), Some((other, _))) if ***key > **other => {
                    let (key, value) = ahead.take().expect("matched as present");
                    ahead = next_stored();
                    visit(&key, Bytes::Shared(value, 0))
                }
                (None, Some(_)) => {
                    let (key, value) = ahead.take().expect("matched as present");
                    ahead = next_stored();
                    visit(&key, Bytes::Shared(value, 0))
                }
                (Some((key, change)), other) => {
                    if other.as_ref().is_some_and(|(other, _)| **other == ***key) {
                        ahead = next_stored();
                    }
                    let flow = match change {
                        Some(value) => visit(key, Bytes::Borrowed(value)),
                        None => ControlFlow::Continue(()),
                    };
                    changes.next();
                    flow
                }
            };
            if flow.is_break() {
                return;
            }
        }
    }

    fn data_key(&self, key: &[u8]) -> Vec<u8> {
        let mut stored = Vec::with_capacity(KEY_BYTES + key.len());
        stored.push(kind::DATA);
        stored.extend_from_slice(&generation_bytes(self.state.generation));
        stored.extend_from_slice(&Position::of(key).to_bytes());
        stored.extend_from_slice(key);
        stored
    }

    fn deadline_key(&self, deadline: u64, key: &[u8]) -> Vec<u8> {
        let mut stored = prefix(kind::DEADLINE, self.state.generation);
        stored.extend_from_slice(&deadline.to_be_bytes());
        stored.extend_from_slice(key);
        stored
    }

    /// The deadline of a stored key, if the key is there.
    fn deadline_of(&self, stored_key: &[u8]) -> Option<Option<u64>> {
        let stored = self.stored(stored_key)?;
        Some(header(&stored).1)
    }

    fn move_deadline(&mut self, key: &[u8], old: Option<u64>, new: Option<u64>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.overlay.insert(self.deadline_key(old, key), None);
        }
        if let Some(new) = new {
            self.earliest.set(self.earliest.get().min(new));
            self.overlay
                .insert(self.deadline_key(new, key), Some(Vec::new()));
        }
    }

    /// Removes some keys of generations that FLUSHALL ended.
    fn purge(&mut self, batch: &mut fjall::OwnedWriteBatch) {
        if self.state.oldest == self.state.generation {
            return;
        }
        let mut left = PURGED_MAX;
        for kind in [kind::DEADLINE, kind::DATA] {
            let from = prefix(kind, 0).max(self.purge_from.clone());
            let before = prefix(kind, self.state.generation);
            if from >= before {
                continue;
            }
            let stored = self.keyspace.range::<Vec<u8>, _>(from..before);
            for guard in stored.take(left) {
                let key = must(guard.key());
                left -= 1;
                self.purge_from = key.to_vec();
                batch.remove(&self.keyspace, key);
            }
            if left == 0 {
                return;
            }
        }
        self.state.oldest = self.state.generation;
        self.purge_from.clear();
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

fn generation_bytes(generation: u64) -> [u8; 6] {
    let [_, _, bytes @ ..] = generation.to_be_bytes();
    bytes
}

/// What all stored keys of a kind and generation begin with.
fn prefix(kind: u8, generation: u64) -> Vec<u8> {
    let mut stored = vec![kind];
    stored.extend_from_slice(&generation_bytes(generation));
    stored
}

/// Version and deadline of a stored value.
fn header(stored: &[u8]) -> (Version, Option<u64>) {
    let damaged = "this version wrote it: values have a header";
    let (slot, rest) = stored.split_first_chunk().expect(damaged);
    let (index, rest) = rest.split_first_chunk().expect(damaged);
    let (deadline, _) = rest.split_first_chunk().expect(damaged);
    let version = Version {
        slot: u64::from_le_bytes(*slot),
        index: u32::from_le_bytes(*index),
    };
    let deadline = u64::from_le_bytes(*deadline);
    (version, (deadline != NO_DEADLINE).then_some(deadline))
}

fn stored_value(value: &[u8], version: Version, deadline: Option<u64>) -> Vec<u8> {
    let mut stored = Vec::with_capacity(HEADER_BYTES + value.len());
    stored.extend_from_slice(&version.slot.to_le_bytes());
    stored.extend_from_slice(&version.index.to_le_bytes());
    stored.extend_from_slice(&deadline.unwrap_or(NO_DEADLINE).to_le_bytes());
    stored.extend_from_slice(value);
    stored
}

fn entry(stored: Bytes<'_>) -> Entry<'_> {
    let (version, deadline) = header(&stored);
    let value = match stored {
        Bytes::Borrowed(bytes) => Bytes::Borrowed(&bytes[HEADER_BYTES..]),
        Bytes::Shared(slice, from) => Bytes::Shared(slice, from + HEADER_BYTES),
    };
    Entry {
        value,
        version,
        deadline,
    }
}

/// The disk under the store failed. Going on would mean to answer from a state that is not the
/// log's; the process ends, and says why.
fn must<T>(result: fjall::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("the store cannot go on: {error}"))
}

impl Store for LsmStore {
    fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.stored(&self.data_key(key)).map(entry)
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version, deadline: Option<u64>) {
        let stored_key = self.data_key(key);
        let old = self.deadline_of(&stored_key);
        self.state.keys += u64::from(old.is_none());
        self.move_deadline(key, old.flatten(), deadline);
        self.overlay
            .insert(stored_key, Some(stored_value(value, version, deadline)));
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let stored_key = self.data_key(key);
        let Some(old) = self.deadline_of(&stored_key) else {
            return false;
        };
        self.state.keys -= 1;
        self.move_deadline(key, old, None);
        self.overlay.insert(stored_key, None);
        true
    }

    fn clear(&mut self) {
        // The overlay holds data and deadlines of this generation only.
        self.overlay.clear();
        self.state.generation += 1;
        self.state.keys = 0;
        self.earliest.set(0);
    }

    fn len(&self) -> u64 {
        self.state.keys
    }

    fn scan(&self, from: Position, visit: &mut Visit<'_>) {
        let mut first = prefix(kind::DATA, self.state.generation);
        first.extend_from_slice(&from.to_bytes());
        let before = prefix(kind::DATA, self.state.generation + 1);
        self.range(&first, &before, &mut |key, stored| {
            visit(&key[KEY_BYTES..], &entry(stored))
        });
    }

    fn overdue(&self, wall_ms: u64, visit: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) {
        let skipped = prefix(kind::DEADLINE, self.state.generation).len();
        let (from, to) = (self.earliest.get(), wall_ms.saturating_add(1));
        if from >= to {
            return;
        }
        let (first, before) = (self.deadline_key(from, b""), self.deadline_key(to, b""));
        let mut found = None;
        self.range(&first, &before, &mut |key, _| match key
            .get(skipped..)
            .and_then(<[u8]>::split_first_chunk)
        {
            Some((deadline, key)) => {
                let deadline = u64::from_be_bytes(*deadline);
                found.get_or_insert(deadline);
                visit(deadline, key)
            }
            None => ControlFlow::Continue(()),
        });
        self.earliest.set(found.unwrap_or(to));
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        self.state.applied_to = applied_to;
        let items = self.overlay.len() + meta.len() + 1;
        let mut batch = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), items);
        for (key, change) in std::mem::take(&mut self.overlay) {
            match change {
                Some(value) => batch.insert(&self.keyspace, key, value),
                None => batch.remove(&self.keyspace, key),
            }
        }
        for change in meta {
            let key = [&[kind::META], &*change.key].concat();
            match &change.value {
                Some(value) => batch.insert(&self.keyspace, key, &**value),
                None => batch.remove(&self.keyspace, key),
            }
        }
        self.purge(&mut batch);
        batch.insert(&self.keyspace, [kind::STATE], self.state.to_bytes());
        must(batch.commit());
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
        let _ = self.database.persist(PersistMode::SyncAll);
    }
}
