//! A transaction that a client is putting together: the commands since MULTI, and what WATCH saw.

use quorate_access::Role;

use crate::{
    commands::transactions::{Seen, Watched},
    encode::Encoder,
};

/// Most keys that a connection may watch.
const WATCHED_MAX: usize = 4096;
/// Most bytes of those keys.
const WATCHED_BYTES_MAX: usize = 1024 * 1024;

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(super) struct Multi {
    /// Encoded, each with its length before it.
    commands: Vec<u8>,
    count: usize,
    /// The role that all of them need.
    needs: Option<Role>,
    /// A command was refused: EXEC will be too.
    broken: bool,
}

impl Multi {
    /// Keeps a command for EXEC.
    pub(super) fn queue(&mut self, command: &[u8]) {
        Encoder(&mut self.commands).bytes(command);
        self.count += 1;
    }

    /// Notes the role that a new command needs.
    pub(super) fn need(&mut self, role: Option<Role>) {
        self.needs = self.needs.max(role);
    }

    /// The role that EXEC needs.
    pub(super) const fn needs(&self) -> Option<Role> {
        self.needs
    }

    /// Notes that a command was refused.
    pub(super) fn refuse(&mut self) {
        self.broken = true;
        self.commands = Vec::new();
    }

    /// Returns the number of queued commands.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the commands that are kept.
    pub(super) const fn bytes(&self) -> usize {
        self.commands.len()
    }

    /// Memory of them.
    pub(super) const fn held_bytes(&self) -> usize {
        self.commands.capacity()
    }

    /// Returns the commands as one, and their number; `None` if one was refused.
    pub(super) fn take(self) -> Option<(Vec<u8>, usize)> {
        (!self.broken).then_some((self.commands, self.count))
    }
}

/// Keys seen by WATCH. EXEC, DISCARD and UNWATCH end an epoch: a WATCH that was sent before them
/// may be answered after they were read, and must not count for later transactions.
#[derive(Debug, Default)]
pub(super) struct Watching {
    epoch: u64,
    seen: Vec<(u64, Watched)>,
    /// Keys asked for in this epoch, and their bytes.
    asked: usize,
    asked_bytes: usize,
    /// The last epoch with a WATCH that got no answer.
    failed: Option<u64>,
}

impl Watching {
    /// Returns the epoch of a WATCH that arrives now.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns whether `count` more keys of `bytes` together can be watched.
    pub(super) const fn admit(&mut self, count: usize, bytes: usize) -> bool {
        self.asked += count;
        self.asked_bytes += bytes;
        self.asked <= WATCHED_MAX && self.asked_bytes <= WATCHED_BYTES_MAX
    }

    pub(super) fn saw(&mut self, epoch: u64, key: &[u8], seen: Seen) {
        // Everything of earlier epochs is sent by now: a WATCH waits for it.
        self.seen.retain(|(seen, _)| *seen >= epoch);
        self.seen.push((epoch, Watched { key: key.to_vec(), seen }));
    }

    pub(super) const fn failed(&mut self, epoch: u64) {
        self.failed = Some(epoch);
    }

    /// Memory of the keys, those asked for included.
    pub(super) fn held_bytes(&self) -> usize {
        self.asked_bytes + (self.asked + self.seen.capacity()) * size_of::<(u64, Watched)>()
    }

    /// Ends the epoch: nothing seen until now counts for later transactions.
    pub(super) const fn end_epoch(&mut self) -> u64 {
        let epoch = self.epoch;
        self.epoch += 1;
        (self.asked, self.asked_bytes) = (0, 0);
        epoch
    }

    /// Returns the keys that were absent when this epoch's WATCH saw them.
    pub(super) fn absent(&self, epoch: u64) -> Vec<&[u8]> {
        let seen = self.seen.iter().filter(|(seen, _)| *seen == epoch);
        let absent = seen.filter(|(_, watched)| watched.seen.has_absent_version());
        absent.map(|(_, watched)| watched.key.as_slice()).collect()
    }

    /// Takes the keys seen in an epoch that ended; `None` if a WATCH got no answer.
    pub(super) fn take(&mut self, epoch: u64) -> Option<Vec<Watched>> {
        let (taken, kept) =
            std::mem::take(&mut self.seen).into_iter().partition(|(seen, _)| *seen <= epoch);
        self.seen = kept;
        let taken: Vec<(u64, Watched)> = taken;
        let of_epoch = taken.into_iter().filter(|(seen, _)| *seen == epoch);
        (self.failed != Some(epoch)).then(|| of_epoch.map(|(_, watched)| watched).collect())
    }
}

/// [watch-4] Puts what was seen as a group below [`ABSENT_LEVEL`] can compare it: without versions
/// of absent keys. What was seen twice and has changed in between never matches.
///
/// [`ABSENT_LEVEL`]: crate::commands::transactions::ABSENT_LEVEL
pub(super) fn without_absent_versions(watched: &mut [Watched]) {
    watched.sort_by(|one, other| one.key.cmp(&other.key));
    for same_key in watched.chunk_by_mut(|one, other| one.key == other.key) {
        let changed = same_key.iter().any(|watched| watched.seen != same_key[0].seen);
        for watched in same_key {
            if changed {
                watched.seen = Seen::NEVER;
            } else if watched.seen.has_absent_version() {
                watched.seen = Seen::SOME_ABSENT;
            }
        }
    }
}
