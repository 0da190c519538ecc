//! A disk in memory, for tests and simulation: deterministic, with faults on command.
//!
//! It guarantees what [model-3] requires and nothing more. A durable write survives a crash. A
//! write in flight is kept, lost or torn by sectors, depending on the crash's seed, and so is a
//! write that waits for a later flush. If such a write is kept, the next crash may still lose it
//! unless it was synced in between. The same holds for a small file that is replaced, and for a
//! renamed file: until the folder is synced, the old one may reappear.

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
    Output, Position, SmallFiles, Source, ZeroFill, made,
};
use shared::{Operation, Shared, Task, dead_process_error};

/// A fault injected into the next operation of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The write fails after some of its sectors were stored.
    WriteFails,
    /// A flush fails. Affects separate flushes and those of durable writes, whose data is stored in
    /// full.
    FlushFails,
    /// Only the first bytes of the write are stored.
    ShortWrite {
        bytes: usize,
    },
    /// The write reports success but is stored at the wrong place, as after a firmware bug.
    Misdirected {
        /// Distance from the intended place, in blocks.
        blocks: u64,
    },
    ReadFails,
    PrepareFails,
    RetireFails,
    ReuseFails {
        /// The operation fails only after the rename. The new name is then visible, and the next
        /// crash keeps it or restores the old one.
        renamed: bool,
    },
    ReplaceFails {
        /// The operation fails only after the rename. The new contents are then visible, and the
        /// next crash keeps them or restores the old ones.
        renamed: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingKind {
    Write,
    Read,
    Flush,
    Prepare,
    Retire,
    /// Recycles a file under a new name.
    Reuse,
    ReplaceSmallFile,
    ReadSmallFile,
}

/// An operation in flight. The test decides when it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub id: u64,
    pub kind: PendingKind,
    /// Position in the file. Meaningless for a small file.
    pub position: Position,
    pub bytes: u64,
}

/// Number of writes in flight at a crash that met each fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    pub kept_writes: u32,
    pub torn_writes: u32,
    pub lost_writes: u32,
}

/// Decides what a crash keeps.
pub trait CrashFates {
    /// Returns one of `of` alternatives, counted from 0.
    fn choose(&mut self, of: usize) -> usize;

    /// Returns whether this sector of a torn write of `of` sectors is stored.
    fn is_sector_stored(&mut self, sector: usize, of: usize) -> bool;
}

impl CrashFates for Dice {
    fn choose(&mut self, of: usize) -> usize {
        self.index(of)
    }

    fn is_sector_stored(&mut self, _: usize, _: usize) -> bool {
        self.below(2) == 0
    }
}

/// A handle to a disk in memory. Clones share the disk. After a crash, existing handles are dead.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    shared: Arc<Mutex<Shared>>,
    life_number: u64,
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryDisk {
    /// Creates an empty disk without limits. Operations complete at the next poll.
    pub fn new() -> Self {
        Self { shared: Arc::default(), life_number: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of changes to stored data so far: one for each write and each new
    /// segment, two for each change of a small file, which is renamed and then made durable.
    pub fn stored_change_count(&self) -> u64 {
        self.lock().steps
    }

    /// Kills the process after `steps` more changes to stored data. From then on all its calls
    /// fail, and operations in flight never complete. [`Self::crash`] then settles what is stored.
    pub fn die_after_changes(&self, steps: u64) {
        self.lock().changes_left = Some(steps);
    }

    /// Returns whether the process is alive: neither killed by [`Self::die_after_changes`] nor
    /// ended by a crash.
    pub fn is_alive(&self) -> bool {
        self.is_current_life(&self.lock())
    }

    fn is_current_life(&self, shared: &Shared) -> bool {
        shared.life_number == self.life_number && shared.changes_left != Some(0)
    }

    /// Locks the shared state, or fails if the process is dead.
    fn lock_alive(
        &self,
        action: &str,
        file: impl fmt::Display,
    ) -> Result<MutexGuard<'_, Shared>, DiskError> {
        let shared = self.lock();
        if self.is_current_life(&shared) {
            return Ok(shared);
        }
        Err(dead_process_error(action, file))
    }

    /// Returns a live handle for the process that starts after a crash.
    pub fn reopen_after_crash(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), life_number: self.lock().life_number }
    }

    /// Returns the number of bytes last requested by [`Disk::pace_file_creation`].
    pub fn paced_bytes(&self) -> u64 {
        self.lock().change_count
    }

    /// Sets whether operations wait for [`Self::complete`] or [`Self::complete_all`].
    pub fn set_manual_completion(&self, manual: bool) {
        self.lock().manual_completion = manual;
    }

    /// Returns the operations in flight, in the order in which they were started.
    pub fn pending(&self) -> Vec<Pending> {
        let shared = self.lock();
        let pending = |(id, operation): (&u64, &Operation)| Pending {
            id: *id,
            kind: operation.kind(),
            position: operation.at,
            bytes: operation.bytes,
        };
        shared.pending.iter().map(pending).collect()
    }

    /// Completes an operation. Returns false if it does not exist.
    pub fn complete(&self, id: u64) -> bool {
        self.lock().complete(id)
    }

    pub fn complete_all(&self) {
        let mut shared = self.lock();
        while let Some(id) = shared.pending.keys().next().copied() {
            if !shared.complete(id) {
                return;
            }
        }
    }

    /// Closes the disk. Operations in flight end without a completion.
    pub fn close(&self) {
        self.complete_all();
        self.lock().completions.clear();
    }

    /// Queues a fault for the next operation of its kind that completes.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push_back(fault);
    }

    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// Simulates a read-only mount: writes, file creation and removals fail.
    pub fn set_read_only(&self, read_only: bool) {
        self.lock().read_only = read_only;
    }

    /// Simulates a lack of descriptors. Files that were opened in time can still be written; no
    /// other file can be opened or created.
    pub fn set_out_of_descriptors(&self, out: bool) {
        self.lock().out_of_descriptors = out;
    }

    /// Limits the total size of all files. Creating a file beyond the limit fails with "disk full".
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Simulates a power failure or the death of the process. Durable data is kept. `seed` decides
    /// whether each write in flight is kept, torn by sectors or lost. The same applies to each
    /// completed write that awaits a flush, and to each write that an earlier crash kept and that
    /// has not been synced since. A file being removed may or may not exist, a renamed file has its
    /// old or its new name, and a small file has its old or its new contents. Existing handles
    /// become dead.
    pub fn crash(&self, seed: u64) -> CrashReport {
        self.crash_as(&mut Dice::new(seed))
    }

    /// Like [`Self::crash`], but `fates` makes the choices. For tests that try every outcome.
    pub fn crash_as(&self, fates: &mut dyn CrashFates) -> CrashReport {
        self.lock().crash(fates)
    }

    /// Returns an independent disk with the same contents and the same operations in flight.
    pub fn copy(&self) -> Self {
        Self { shared: Arc::new(Mutex::new(self.lock().copy())), life_number: self.life_number }
    }

    /// Simulates a driver that does not sync the folder after a rename ([disk-10]).
    pub fn skip_folder_syncs(&self, unsynced: bool) {
        self.lock().skips_folder_syncs = unsynced;
    }

    /// Flips one bit of stored data. Returns false if its block was never written.
    pub fn flip_bit(&self, at: impl Into<Position>, bit: u64) -> bool {
        self.lock().stored.flip_bit(at.into(), bit)
    }

    /// Returns every block that was ever written, in order.
    pub fn written_blocks(&self) -> Vec<Position> {
        self.lock().stored.written_blocks().collect()
    }

    pub fn set_unreadable(&self, at: impl Into<Position>) {
        self.lock().unreadable_positions.push(at.into());
    }

    pub fn bytes(&self, file: impl Into<FileId>) -> Option<Vec<u8>> {
        let (shared, file) = (self.lock(), file.into());
        let bytes = shared.stored.size(file)?;
        Some(shared.stored.read(file.position_at(0), to_usize(bytes)))
    }

    /// Stores a file as if it had always existed.
    pub fn store_file(&self, file: impl Into<FileId>, bytes: &[u8]) {
        let (mut shared, file) = (self.lock(), file.into());
        shared.stored.create(file, bytes.len() as u64);
        for (index, block) in (0..).zip(bytes.chunks(BLOCK)) {
            if block.iter().any(|byte| *byte != 0) {
                shared.stored.write(file.position_at(index * BLOCK as u64), block);
            }
        }
    }

    /// Stores bytes as if they had always been there, such as the remains of a misdirected write.
    pub fn store_bytes(&self, at: impl Into<Position>, bytes: &[u8]) {
        self.lock().stored.write(at.into(), bytes);
    }

    pub fn remove_small_file(&self, name: &str) {
        self.lock().small_files.remove(name);
    }

    /// Stores a small file as if it had always existed.
    pub fn store_small_file(&self, name: &str, bytes: &[u8]) {
        self.lock().small_files.put(name, bytes);
    }

    /// Removes the record of the newest file, as if an earlier version had created the folder.
    pub fn remove_created_record(&self, family: Family) {
        self.lock().small_files.remove(family.newest_record_name());
    }

    /// Deletes a file without the log's knowledge. Returns false if it does not exist.
    pub fn remove(&self, file: impl Into<FileId>) -> bool {
        self.lock().stored.remove(file.into())
    }

    fn start(&self, token: u64, at: Position, bytes: u64, task: Task) {
        let mut shared = self.lock();
        if self.is_current_life(&shared) {
            shared.start(Operation { token, at, bytes, task, open_error: None });
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

    fn newest_created(&mut self, family: Family) -> Result<Option<FileId>, DiskError> {
        made::read(self, family)
    }

    fn read_small_file(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
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
        let covers = shared.stored.next_flush_mark();
        shared.stored.flush(file, covers);
        Ok(())
    }

    fn sync_file_names(&mut self) -> Result<(), DiskError> {
        let mut shared = self.lock_alive("sync", "the folders")?;
        shared.small_files.sync();
        for family in Family::all() {
            shared.stored.sync_names(family);
        }
        Ok(())
    }

    fn open_next_file(&mut self, file: FileId) -> Result<(), DiskError> {
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
        if !self.is_current_life(&shared) {
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
            open_error: not_opened,
        });
    }

    fn start_read(&mut self, token: u64, at: Position, buffer: Buffer, bytes: usize) {
        self.start(token, at, bytes as u64, Task::Read { buffer });
    }

    fn start_flush(&mut self, token: u64, file: FileId) {
        let covers = self.lock().stored.next_flush_mark();
        self.start(token, file.position_at(0), 0, Task::Flush { covers_below: covers });
    }

    fn record_created(&mut self, made: FileId) -> Result<(), DiskError> {
        made::write(self, made)
    }

    fn start_prepare(&mut self, file: FileId, bytes: u64, _: ZeroFill) {
        self.start(0, file.position_at(0), bytes, Task::Prepare);
    }

    fn pace_file_creation(&mut self, _: Family, bytes: u64) {
        self.lock().change_count = bytes;
    }

    fn hurry_file_creation(&mut self, family: Family) {
        self.lock().counters.segment_waits += u64::from(family == Family::Log);
    }

    fn start_retire(&mut self, file: FileId) {
        self.lock().open.remove(&file);
        self.start(0, file.position_at(0), 0, Task::Retire);
    }

    fn start_reuse(&mut self, from: FileId, to: FileId) {
        self.lock().open.remove(&from);
        self.start(0, to.position_at(0), 0, Task::Reuse { from });
    }

    fn start_replace_small_file(&mut self, token: u64, name: &'static str, bytes: Vec<u8>) {
        let nowhere = FileId::new(Family::Log, 0).position_at(0);
        let length = bytes.len() as u64;
        self.start(token, nowhere, length, Task::ReplaceSmallFile { name, bytes });
    }

    fn start_read_small_file(&mut self, token: u64, name: &'static str) {
        let nowhere = FileId::new(Family::Log, 0).position_at(0);
        self.start(token, nowhere, 0, Task::ReadSmallFile { name });
    }

    fn descriptor(&mut self, _: FileId) -> Result<Option<BorrowedFd<'_>>, DiskError> {
        Ok(None)
    }

    fn poll(&mut self) -> Option<Completed> {
        let mut shared = self.lock();
        if !self.is_current_life(&shared) {
            return None;
        }
        if !shared.manual_completion
            && shared.completions.is_empty()
            && let Some(id) = shared.pending.keys().next().copied()
        {
            shared.complete(id);
        }
        shared.completions.pop_front()
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
