//! A disk in memory, for tests and simulation: deterministic, with faults on command.
//!
//! It keeps the promises of [model-3] and no others: a durable write survives a crash; a write in
//! flight is kept, lost or torn by sectors, as the seed of the crash decides, and so is one that
//! waits for a later flush; one that was kept may still be lost by the next crash, unless it was
//! synced in between. The same holds for a small file that is replaced, and for a file that gets a
//! new name: until the folder is synced, the old one may come back.

mod every_fate;
mod shared;
mod small_files;
mod stored;

pub use every_fate::EveryFate;

use std::{
    fmt,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quorate_core::dice::Dice;

use crate::disk::{
    BLOCK, Buffer, Completed, Disk, DiskCounters, DiskError, Durability, Family, FileId, FileInfo,
    Output, Position, SmallFiles, Source, Zeros, made,
};
use shared::{Operation, Shared, Task, dead};

/// A fault of the next operation of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The write fails; some of its sectors arrived.
    WriteFails,
    /// A flush fails, be it the write's own, which was whole, or one of its own.
    FlushFails,
    /// Only the first bytes were written.
    ShortWrite { bytes: usize },
    /// The write reports success, but went to another place (a firmware bug).
    Misdirected {
        /// Blocks further on.
        blocks: u64,
    },
    /// The read fails.
    ReadFails,
    /// Making a file fails with an input/output error.
    PrepareFails,
    /// Removing a file fails, and it stays.
    RetireFails,
    /// A file does not get a new name.
    ReuseFails {
        /// Fails after the rename: the new name is visible, and the next crash keeps it or brings
        /// back the old one.
        renamed: bool,
    },
    /// A small file is not replaced.
    ReplaceFails {
        /// Fails after the rename: the new contents are visible, and the next crash keeps them or
        /// brings back the old ones.
        renamed: bool,
    },
}

/// Kind of an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingKind {
    /// Writes.
    Write,
    /// Reads.
    Read,
    /// Makes what was written durable.
    Flush,
    /// Makes a file.
    Prepare,
    /// Removes a file.
    Retire,
    /// Gives a file a new name.
    Reuse,
    /// Replaces a small file.
    Keep,
    /// Reads one back.
    Recall,
}

/// An operation in flight, for the test that decides when it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Give it to [`MemoryDisk::complete`].
    pub id: u64,
    pub kind: PendingKind,
    /// Where; of a small file nothing is said.
    pub at: Position,
    pub bytes: u64,
}

/// Effect of a crash on the writes in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Arrived whole.
    pub kept: u32,
    /// Arrived in parts.
    pub torn: u32,
    /// Never arrived.
    pub lost: u32,
}

/// Decides what a crash keeps.
pub trait Fates {
    /// Which of `of` things happens.
    fn choose(&mut self, of: usize) -> usize;

    /// Returns whether this sector of a torn write of `of` sectors is on the disk.
    fn arrives(&mut self, sector: usize, of: usize) -> bool;
}

impl Fates for Dice {
    fn choose(&mut self, of: usize) -> usize {
        self.index(of)
    }

    fn arrives(&mut self, _: usize, _: usize) -> bool {
        self.below(2) == 0
    }
}

/// A handle to a disk in memory. Clones share the disk; the handles of before a crash are dead.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    shared: Arc<Mutex<Shared>>,
    life: u64,
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryDisk {
    /// An empty disk without bounds. Operations complete at the next poll.
    pub fn new() -> Self {
        Self { shared: Arc::default(), life: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of changes to stored data: one per write and per new segment, two per
    /// change of a small file, which is renamed and then made durable.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// The process dies when it has changed what is stored `steps` times more: from then on all its
    /// calls fail, and nothing that is in flight completes. [`Self::crash`] then settles what is
    /// stored.
    pub fn die_after(&self, steps: u64) {
        self.lock().steps_left = Some(steps);
    }

    /// Returns whether the process is alive: neither stopped by [`Self::die_after`] nor ended by a
    /// crash.
    pub fn is_alive(&self) -> bool {
        self.lives(&self.lock())
    }

    fn lives(&self, shared: &Shared) -> bool {
        shared.life == self.life && shared.steps_left != Some(0)
    }

    /// Locks the shared state for a process that is alive.
    fn lock_alive(
        &self,
        action: &str,
        file: impl fmt::Display,
    ) -> Result<MutexGuard<'_, Shared>, DiskError> {
        let shared = self.lock();
        if self.lives(&shared) {
            return Ok(shared);
        }
        Err(dead(action, file))
    }

    /// A live handle, for the process that starts after a crash.
    pub fn attach(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), life: self.lock().life }
    }

    /// Bytes of a file that is being made that were wanted last.
    pub fn wanted(&self) -> u64 {
        self.lock().wanted
    }

    /// Sets whether operations wait for [`Self::complete`] or [`Self::complete_all`].
    pub fn set_manual(&self, manual: bool) {
        self.lock().manual = manual;
    }

    /// Returns the operations in flight, in the order in which they were started.
    pub fn pending(&self) -> Vec<Pending> {
        let shared = self.lock();
        let pending = |(id, operation): (&u64, &Operation)| Pending {
            id: *id,
            kind: operation.kind(),
            at: operation.at,
            bytes: operation.bytes,
        };
        shared.pending.iter().map(pending).collect()
    }

    /// Lets this operation complete; false if there is no such operation.
    pub fn complete(&self, id: u64) -> bool {
        self.lock().complete(id)
    }

    /// Lets everything in flight complete, in order.
    pub fn complete_all(&self) {
        let mut shared = self.lock();
        while let Some(id) = shared.pending.keys().next().copied() {
            if !shared.complete(id) {
                return;
            }
        }
    }

    /// Closes the disk for its process: operations in flight end unreported.
    pub fn close(&self) {
        self.complete_all();
        self.lock().done.clear();
    }

    /// The next operation that this can happen to, when it completes.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push_back(fault);
    }

    /// Forgets the faults that have not happened yet.
    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// As if remounted read-only: writes, new files and removals fail.
    pub fn set_read_only(&self, read_only: bool) {
        self.lock().read_only = read_only;
    }

    /// Simulates a lack of descriptors: files that are being written to and were opened in time
    /// still work; no other can be read, and none can be made.
    pub fn set_out_of_descriptors(&self, out: bool) {
        self.lock().out_of_descriptors = out;
    }

    /// Limits the bytes of all files together; a new file beyond fails with "disk full".
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Power fails, or the process dies. What was made durable is kept; each write in flight is
    /// kept, torn by sectors or lost, as `seed` decides; so is each that completed for a later
    /// flush, and each that an earlier crash had kept without anybody syncing it since. A file that
    /// is being removed is there or not, one that gets a new name has the old or the new one, a
    /// small file is the old or the new one. Handles of before are dead.
    pub fn crash(&self, seed: u64) -> CrashReport {
        self.crash_as(&mut Dice::new(seed))
    }

    /// The same, as `fates` decide: for who wants to see all that can happen.
    pub fn crash_as(&self, fates: &mut dyn Fates) -> CrashReport {
        self.lock().crash(fates)
    }

    /// Another disk with the same contents and the same operations in flight, which knows nothing
    /// of this one.
    pub fn copy(&self) -> Self {
        Self { shared: Arc::new(Mutex::new(self.lock().copy())), life: self.life }
    }

    /// As a driver that forgets to sync the folder when a file gets a new name ([disk-10]).
    pub fn set_names_unsynced(&self, unsynced: bool) {
        self.lock().names_unsynced = unsynced;
    }

    /// Flips one bit of what is stored; false if nothing was ever written there.
    pub fn rot(&self, at: impl Into<Position>, bit: u64) -> bool {
        self.lock().stored.flip(at.into(), bit)
    }

    /// Every block that was ever written, in order.
    pub fn written_blocks(&self) -> Vec<Position> {
        self.lock().stored.written_blocks().collect()
    }

    /// From now on this block cannot be read.
    pub fn set_unreadable(&self, at: impl Into<Position>) {
        self.lock().unreadable.push(at.into());
    }

    /// The contents of a file.
    pub fn bytes(&self, file: impl Into<FileId>) -> Option<Vec<u8>> {
        let (shared, file) = (self.lock(), file.into());
        let bytes = shared.stored.size(file)?;
        Some(shared.stored.read(file.at(0), to_usize(bytes)))
    }

    /// Puts a file there, as if it had always been.
    pub fn set_bytes(&self, file: impl Into<FileId>, bytes: &[u8]) {
        let (mut shared, file) = (self.lock(), file.into());
        shared.stored.create(file, bytes.len() as u64);
        for (index, block) in (0..).zip(bytes.chunks(BLOCK)) {
            if block.iter().any(|byte| *byte != 0) {
                shared.stored.write(file.at(index * BLOCK as u64), block);
            }
        }
    }

    /// Puts these bytes there, as if they had always been: what a write to the wrong place once
    /// left.
    pub fn put(&self, at: impl Into<Position>, bytes: &[u8]) {
        self.lock().stored.write(at.into(), bytes);
    }

    /// There is no small file of this name.
    pub fn drop_small(&self, name: &str) {
        self.lock().small_files.remove(name);
    }

    /// The same of a small file.
    pub fn put_small(&self, name: &str, bytes: &[u8]) {
        self.lock().small_files.put(name, bytes);
    }

    /// As a folder of before the numbers of a family's files were written down.
    pub fn forget_made(&self, family: Family) {
        self.lock().small_files.remove(family.made_file());
    }

    /// Deletes a file from outside; returns false if it is not there.
    pub fn remove(&self, file: impl Into<FileId>) -> bool {
        self.lock().stored.remove(file.into())
    }

    fn start(&self, token: u64, at: Position, bytes: u64, task: Task) {
        let mut shared = self.lock();
        if self.lives(&shared) {
            shared.start(Operation { token, at, bytes, task, not_opened: None });
        }
    }
}

impl SmallFiles for MemoryDisk {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        SmallFiles::read(&*self.lock_alive("read", name)?, name)
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.lock_alive("replace", name)?.replace(name, bytes)
    }
}

impl Source for MemoryDisk {
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError> {
        let shared = self.lock_alive("read", family.folder())?;
        let files = shared.stored.sizes();
        let files = files.filter(|(file, _)| file.family == family);
        Ok(files.map(|(file, bytes)| FileInfo { file, bytes }).collect())
    }

    fn made(&mut self, family: Family) -> Result<Option<FileId>, DiskError> {
        made::read(self, family)
    }

    fn kept(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        SmallFiles::read(self, name)
    }

    fn read_now(
        &mut self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
    ) -> Result<(), DiskError> {
        self.lock_alive("read", at)?.fill(at, buffer, bytes, false)
    }
}

impl Disk for MemoryDisk {
    fn sync_now(&mut self, file: FileId) -> Result<(), DiskError> {
        let mut shared = self.lock_alive("sync", file)?;
        let covers = shared.stored.flush_covers();
        shared.stored.flush(file, covers);
        Ok(())
    }

    fn sync_names(&mut self) -> Result<(), DiskError> {
        let mut shared = self.lock_alive("sync", "the folders")?;
        shared.small_files.sync();
        for family in Family::all() {
            shared.stored.sync_names(family);
        }
        Ok(())
    }

    fn open_ahead(&mut self, file: FileId) -> Result<(), DiskError> {
        let mut shared = self.lock_alive("open", file)?;
        shared.open(file)?;
        shared.stored_file("open", file)?;
        shared.open.insert(file);
        Ok(())
    }

    fn start_write(
        &mut self,
        token: u64,
        at: Position,
        output: Output,
        bytes: usize,
        durability: Durability,
    ) {
        let mut shared = self.lock();
        if !self.lives(&shared) {
            return;
        }
        let file = at.file;
        shared.open.retain(|open| open.family != file.family || *open >= file);
        let not_opened = shared.open(file).err();
        shared.start(Operation {
            token,
            at,
            bytes: bytes as u64,
            task: Task::Write { output, durability },
            not_opened,
        });
    }

    fn start_read(&mut self, token: u64, at: Position, buffer: Buffer, bytes: usize) {
        self.start(token, at, bytes as u64, Task::Read { buffer });
    }

    fn start_flush(&mut self, token: u64, file: FileId) {
        let covers = self.lock().stored.flush_covers();
        self.start(token, file.at(0), 0, Task::Flush { covers });
    }

    fn note_made(&mut self, made: FileId) -> Result<(), DiskError> {
        made::write(self, made)
    }

    fn start_prepare(&mut self, file: FileId, bytes: u64, _: Zeros) {
        self.start(0, file.at(0), bytes, Task::Prepare);
    }

    fn want_prepared(&mut self, _: Family, bytes: u64) {
        self.lock().wanted = bytes;
    }

    fn hurry_prepare(&mut self, family: Family) {
        self.lock().counters.segment_waits += u64::from(family == Family::Log);
    }

    fn start_retire(&mut self, file: FileId) {
        self.lock().open.remove(&file);
        self.start(0, file.at(0), 0, Task::Retire);
    }

    fn start_reuse(&mut self, from: FileId, to: FileId) {
        self.lock().open.remove(&from);
        self.start(0, to.at(0), 0, Task::Reuse { from });
    }

    fn start_keep(&mut self, token: u64, name: &'static str, bytes: Vec<u8>) {
        let nowhere = FileId::new(Family::Log, 0).at(0);
        let length = bytes.len() as u64;
        self.start(token, nowhere, length, Task::Keep { name, bytes });
    }

    fn start_recall(&mut self, token: u64, name: &'static str) {
        let nowhere = FileId::new(Family::Log, 0).at(0);
        self.start(token, nowhere, 0, Task::Recall { name });
    }

    fn descriptor(&mut self, _: FileId) -> Result<Option<BorrowedFd<'_>>, DiskError> {
        Ok(None)
    }

    fn poll(&mut self) -> Option<Completed> {
        let mut shared = self.lock();
        if !self.lives(&shared) {
            return None;
        }
        if !shared.manual
            && shared.done.is_empty()
            && let Some(id) = shared.pending.keys().next().copied()
        {
            shared.complete(id);
        }
        shared.done.pop_front()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn free_bytes(&self, _: Family) -> Option<u64> {
        Some(self.lock().free_bytes().unwrap_or(u64::MAX))
    }

    fn describe(&self) -> String {
        "memory: a simulated disk, nothing is kept".to_owned()
    }

    fn counters(&self) -> DiskCounters {
        self.lock().counters
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a disk in memory fits in memory")
}
