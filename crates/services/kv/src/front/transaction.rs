//! A client's transaction: the commands queued since MULTI and the key versions recorded by WATCH.

use quorate_access::Role;

use crate::{
    commands::transactions::{KeyState, Watched},
    encode::{Decoder, Encoder},
    store::Database,
};

/// Maximum number of keys watched by a connection.
const WATCHED_MAX: usize = 4096;
const WATCHED_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct Transaction {
    /// Database of the next queued command, and of the connection once EXEC was executed.
    pub(super) database: Database,
    /// Encoded commands, each with its length.
    commands: Vec<u8>,
    count: usize,
    /// Highest role needed by a queued command.
    required_role: Option<Role>,
    /// True if a command was refused, so that EXEC fails.
    is_aborted: bool,
    /// Keys of queued reads that the client caches, each with its length.
    read_keys: Vec<u8>,
}

impl Transaction {
    /// Begins a transaction on a connection that has selected `database`.
    pub(super) const fn new(database: Database) -> Self {
        Self {
            database,
            commands: Vec::new(),
            count: 0,
            required_role: None,
            is_aborted: false,
            read_keys: Vec::new(),
        }
    }

    pub(super) fn queue_command(&mut self, command: &[u8]) {
        Encoder(&mut self.commands).bytes(command);
        self.count += 1;
    }

    /// Records the keys of a queued read, which the client caches.
    pub(super) fn read(&mut self, keys: &[&[u8]]) {
        let keys = keys.iter().filter(|_| !self.is_aborted);
        for key in keys {
            Encoder(&mut self.read_keys).bytes(key);
        }
    }

    pub(super) fn read_keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = Decoder(&self.read_keys);
        std::iter::from_fn(move || rest.bytes().ok())
    }

    pub(super) fn require_role(&mut self, role: Option<Role>) {
        self.required_role = self.required_role.max(role);
    }

    pub(super) const fn required_role(&self) -> Option<Role> {
        self.required_role
    }

    /// Records a refused command, which makes EXEC fail.
    pub(super) fn abort(&mut self) {
        self.is_aborted = true;
        (self.commands, self.read_keys) = (Vec::new(), Vec::new());
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    pub(super) const fn bytes(&self) -> usize {
        self.commands.len() + self.read_keys.len()
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.commands.capacity() + self.read_keys.capacity()
    }

    /// Returns the encoded commands and their number, or `None` if a command was refused.
    pub(super) fn take_commands(self) -> Option<(Vec<u8>, usize)> {
        (!self.is_aborted).then_some((self.commands, self.count))
    }
}

/// Watched keys by epoch. EXEC, DISCARD and UNWATCH end an epoch. A WATCH sent before the end of an
/// epoch may be answered after it, and must not count for later transactions.
#[derive(Debug, Default)]
pub(super) struct WatchedKeys {
    epoch: u64,
    versions: Vec<(u64, Watched)>,
    /// Number of keys in the WATCH commands of this epoch.
    requested_keys: usize,
    /// Total size in bytes of the keys counted in `requested_keys`.
    requested_bytes: usize,
    /// Last epoch in which a WATCH failed.
    failed_epoch: Option<u64>,
}

impl WatchedKeys {
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Adds `count` keys with `bytes` bytes in total. Returns whether the totals are within the
    /// limits.
    pub(super) const fn admit_keys(&mut self, count: usize, bytes: usize) -> bool {
        self.requested_keys += count;
        self.requested_bytes += bytes;
        self.requested_keys <= WATCHED_MAX && self.requested_bytes <= WATCHED_BYTES_MAX
    }

    pub(super) fn record_version(
        &mut self,
        epoch: u64,
        (database, key): (Database, &[u8]),
        seen: KeyState,
    ) {
        // A WATCH waits for all requests of earlier epochs, whose versions are no longer needed.
        self.versions.retain(|(seen, _)| *seen >= epoch);
        self.versions.push((epoch, Watched { database, key: key.to_vec(), state: seen }));
    }

    pub(super) const fn record_failed_watch(&mut self, epoch: u64) {
        self.failed_epoch = Some(epoch);
    }

    /// Returns the memory of all keys, including those of unanswered WATCH commands.
    pub(super) fn held_bytes(&self) -> usize {
        self.requested_bytes
            + (self.requested_keys + self.versions.capacity()) * size_of::<(u64, Watched)>()
    }

    /// Ends the epoch and returns its number. Its versions do not count for later transactions.
    pub(super) const fn end_epoch(&mut self) -> u64 {
        let epoch = self.epoch;
        self.epoch += 1;
        (self.requested_keys, self.requested_bytes) = (0, 0);
        epoch
    }

    /// Returns the keys that were absent when WATCH read them in this epoch.
    pub(super) fn absent_keys(&self, epoch: u64) -> Vec<&[u8]> {
        let seen = self.versions.iter().filter(|(seen, _)| *seen == epoch);
        let absent = seen.filter(|(_, watched)| watched.state.has_absent_version());
        absent.map(|(_, watched)| watched.key.as_slice()).collect()
    }

    /// Removes and returns the keys of an ended epoch. Returns `None` if a WATCH failed.
    pub(super) fn take_watched(&mut self, epoch: u64) -> Option<Vec<Watched>> {
        let (taken, kept) =
            std::mem::take(&mut self.versions).into_iter().partition(|(seen, _)| *seen <= epoch);
        self.versions = kept;
        let taken: Vec<(u64, Watched)> = taken;
        let of_epoch = taken.into_iter().filter(|(seen, _)| *seen == epoch);
        (self.failed_epoch != Some(epoch)).then(|| of_epoch.map(|(_, watched)| watched).collect())
    }
}

/// [watch-4] Converts watched keys for a group below [`ABSENT_LEVEL`], which cannot compare
/// versions of absent keys and has one database. A key that changed between two WATCH commands
/// never matches.
///
/// [`ABSENT_LEVEL`]: crate::commands::transactions::ABSENT_LEVEL
pub(super) fn without_absent_versions(watched: &mut [Watched]) {
    watched.sort_by(|one, other| one.key.cmp(&other.key));
    for same_key in watched.chunk_by_mut(|one, other| one.key == other.key) {
        let changed = same_key.iter().any(|watched| watched.state != same_key[0].state);
        for watched in same_key {
            if changed {
                watched.state = KeyState::NEVER;
            } else if watched.state.has_absent_version() {
                watched.state = KeyState::SOME_ABSENT;
            }
        }
    }
}
