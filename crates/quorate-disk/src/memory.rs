//! A disk in memory, for tests and simulation: deterministic, and it fails exactly as told.
//!
//! It keeps the promises of [model-3] and no other: a completed write survives a crash; a write in
//! flight is kept, lost or torn by sectors, as the seed of the crash decides; and one that was kept
//! may still be lost by the next crash, unless somebody synced it in between.

mod small_files;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, io,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use super::{
    BLOCK, Buffer, Completed, Disk, DiskCounters, Place, SECTOR, Segment, SegmentFile, SmallFiles,
    Source, Zeros, made,
};
use crate::error::DiskError;

/// What goes wrong with the next operation of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The write fails; some of its sectors arrived.
    WriteFails,
    /// All was written, but the flush fails.
    FlushFails,
    /// Only the first bytes were written.
    ShortWrite {
        /// How many.
        bytes: usize,
    },
    /// The write reports success, but went to another place (a firmware bug).
    Misdirected {
        /// Blocks further on.
        blocks: u64,
    },
    /// The read fails.
    ReadFails,
    /// Making a segment fails with an input/output error.
    PrepareFails,
    /// A small file is not replaced.
    ReplaceFails {
        /// Whether it fails behind the rename: the new contents are seen, and the next crash keeps them
        /// or brings back the old ones.
        renamed: bool,
    },
}

/// What a fault can happen to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Write,
    Read,
    Prepare,
    SmallFile,
}

/// What an operation in flight does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PendingKind {
    /// Writes a batch.
    Write,
    /// Reads.
    Read,
    /// Makes a segment.
    Prepare,
}

/// An operation in flight, for whoever decides when it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Give it to [`MemoryDisk::complete`].
    pub id: u64,
    /// What it does.
    pub kind: PendingKind,
    /// Where.
    pub at: Place,
    /// How much.
    pub bytes: u64,
}

/// What a crash did to the writes in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Arrived whole.
    pub kept: u32,
    /// Arrived in parts.
    pub torn: u32,
    /// Never arrived.
    pub lost: u32,
}

/// A handle to a disk in memory. Clones share the disk; the handles of before a crash are dead.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    shared: Arc<Mutex<Shared>>,
    life: u64,
}

#[derive(Debug, Default)]
struct Shared {
    life: u64,
    segments: BTreeMap<Segment, Contents>,
    pending: BTreeMap<u64, Operation>,
    done: VecDeque<Completed>,
    /// Writes that a crash kept although nobody was told so: old sectors, to tear them again.
    unsynced: Vec<(Place, Vec<u8>)>,
    next_id: u64,
    manual: bool,
    read_only: bool,
    capacity: Option<u64>,
    faults: VecDeque<Fault>,
    unreadable: Vec<Place>,
    /// No file can be opened; these are open.
    out_of_descriptors: bool,
    open: BTreeSet<Segment>,
    counters: DiskCounters,
    /// Bytes that were wanted last of the segment that is being made.
    wanted: u64,
    small_files: small_files::Folder,
    /// Changes of what is stored, so far,
    steps: u64,
    /// and how many more the process lives to make.
    steps_left: Option<u64>,
}

/// Blocks that were never written are zeros and take no memory.
#[derive(Debug, Default)]
struct Contents {
    bytes: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

#[derive(Debug)]
struct Operation {
    token: u64,
    kind: PendingKind,
    at: Place,
    bytes: u64,
    buffer: Option<Buffer>,
    /// Why the file of a write could not be opened when it was started; later it needs no other.
    not_opened: Option<DiskError>,
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryDisk {
    /// An empty disk without bounds. Operations complete at the next poll.
    pub fn new() -> Self {
        Self {
            shared: Arc::default(),
            life: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often what is stored changed: once per write and per new segment, twice per change of a small
    /// file, which is renamed and then made durable.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// The process dies when it has changed what is stored so many times more: from then on all its calls
    /// fail, and nothing that is in flight completes. [`Self::crash`] then settles what is stored.
    pub fn die_after(&self, steps: u64) {
        self.lock().steps_left = Some(steps);
    }

    /// Whether the process lives: it was neither stopped by [`Self::die_after`] nor ended by a crash.
    pub fn is_alive(&self) -> bool {
        self.lives(&self.lock())
    }

    fn lives(&self, shared: &Shared) -> bool {
        shared.life == self.life && shared.steps_left != Some(0)
    }

    /// What is shared, for a process that lives.
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

    /// A live handle, for whoever starts after a crash.
    pub fn attach(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            life: self.lock().life,
        }
    }

    /// Bytes of the segment that is being made that were wanted last.
    pub fn wanted(&self) -> u64 {
        self.lock().wanted
    }

    /// Whether operations wait for [`Self::complete`] or [`Self::complete_all`].
    pub fn set_manual(&self, manual: bool) {
        self.lock().manual = manual;
    }

    /// What is in flight, in the order in which it was started.
    pub fn pending(&self) -> Vec<Pending> {
        let shared = self.lock();
        let pending = |(id, operation): (&u64, &Operation)| Pending {
            id: *id,
            kind: operation.kind,
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

    /// Whoever used the disk closes it: what is in flight ends, and nobody hears of it.
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

    /// As if remounted read-only: writes and new segments fail.
    pub fn set_read_only(&self, read_only: bool) {
        self.lock().read_only = read_only;
    }

    /// As if somebody had taken all descriptors: only the segments that are written to, and were
    /// opened in time, can be used; no other can be read, and none can be made.
    pub fn set_out_of_descriptors(&self, out: bool) {
        self.lock().out_of_descriptors = out;
    }

    /// How many bytes all segments together may have; a new one beyond fails with "disk full".
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Power fails, or the process dies. What completed is kept; each write in flight is kept, torn
    /// by sectors or lost, as `seed` decides; and so is each that an earlier crash had kept without
    /// anybody syncing it since. Handles of before are dead.
    pub fn crash(&self, seed: u64) -> CrashReport {
        let mut shared = self.lock();
        let mut dice = Dice(seed);
        let mut report = CrashReport::default();
        shared.life += 1;
        shared.steps_left = None;
        shared.open.clear();
        shared.done.clear();
        for (at, old) in std::mem::take(&mut shared.unsynced).into_iter().rev() {
            if dice.below(2) == 0 {
                shared.tear(at, &old, &mut dice);
            }
        }
        for operation in std::mem::take(&mut shared.pending).into_values() {
            let (PendingKind::Write, Some(buffer)) = (operation.kind, &operation.buffer) else {
                continue;
            };
            let new = &buffer[..to_usize(operation.bytes)];
            let old = shared.read(operation.at, new.len());
            match dice.below(3) {
                0 => report.lost += 1,
                1 => {
                    shared.tear(operation.at, new, &mut dice);
                    shared.unsynced.push((operation.at, old));
                    report.torn += 1;
                }
                _ => {
                    shared.write(operation.at, new);
                    shared.unsynced.push((operation.at, old));
                    report.kept += 1;
                }
            }
        }
        shared.small_files.crash(&mut dice);
        report
    }

    /// Flips one bit of what is stored; false if nothing was ever written there.
    pub fn rot(&self, at: Place, bit: u64) -> bool {
        let mut shared = self.lock();
        let place = at.offset + bit / 8;
        let Some(contents) = shared.segments.get_mut(&at.segment) else {
            return false;
        };
        let block = place / BLOCK as u64;
        let Some(block) = contents.blocks.get_mut(&block) else {
            return false;
        };
        block[to_usize(place % BLOCK as u64)] ^= 1 << (bit % 8);
        true
    }

    /// Every block that was ever written, in order.
    pub fn written_blocks(&self) -> Vec<Place> {
        let shared = self.lock();
        let mut places = Vec::new();
        for (segment, contents) in &shared.segments {
            for block in contents.blocks.keys() {
                places.push(Place {
                    segment: *segment,
                    offset: block * BLOCK as u64,
                });
            }
        }
        places
    }

    /// From now on this block cannot be read.
    pub fn set_unreadable(&self, at: Place) {
        self.lock().unreadable.push(at);
    }

    /// The contents of a segment.
    pub fn bytes(&self, segment: Segment) -> Option<Vec<u8>> {
        let shared = self.lock();
        let bytes = shared.segments.get(&segment)?.bytes;
        Some(shared.read(Place { segment, offset: 0 }, to_usize(bytes)))
    }

    /// Puts a segment there, as if it had always been.
    pub fn set_bytes(&self, segment: Segment, bytes: &[u8]) {
        let mut shared = self.lock();
        let contents = Contents {
            bytes: bytes.len() as u64,
            blocks: BTreeMap::new(),
        };
        shared.segments.insert(segment, contents);
        for (index, block) in (0..).zip(bytes.chunks(BLOCK)) {
            if block.iter().any(|byte| *byte != 0) {
                shared.write(
                    Place {
                        segment,
                        offset: index * BLOCK as u64,
                    },
                    block,
                );
            }
        }
    }

    /// As a folder of before the numbers of segments were written down.
    pub fn forget_made(&self) {
        self.lock().small_files.remove(made::FILE);
    }

    /// Somebody deletes a segment; false if there is none of that number.
    pub fn remove(&self, segment: Segment) -> bool {
        self.lock().segments.remove(&segment).is_some()
    }
}

impl Shared {
    fn start(&mut self, operation: Operation) {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, operation);
    }

    fn complete(&mut self, id: u64) -> bool {
        if self.steps_left == Some(0) {
            return false;
        }
        let Some(operation) = self.pending.remove(&id) else {
            return false;
        };
        let done = match operation.kind {
            PendingKind::Write => self.finish_write(operation),
            PendingKind::Read => self.finish_read(operation),
            PendingKind::Prepare => self.finish_prepare(&operation),
        };
        self.done.push_back(done);
        true
    }

    /// What is stored changes; false if the process does not live to make it.
    fn step(&mut self) -> bool {
        match &mut self.steps_left {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        self.steps += 1;
        true
    }

    /// The first fault in line that can happen to this.
    fn take_fault(&mut self, target: Target) -> Option<Fault> {
        let fits = |fault: &Fault| {
            let of = match fault {
                Fault::WriteFails
                | Fault::FlushFails
                | Fault::ShortWrite { .. }
                | Fault::Misdirected { .. } => Target::Write,
                Fault::ReadFails => Target::Read,
                Fault::PrepareFails => Target::Prepare,
                Fault::ReplaceFails { .. } => Target::SmallFile,
            };
            of == target
        };
        let at = self.faults.iter().position(fits)?;
        self.faults.remove(at)
    }

    fn finish_write(&mut self, operation: Operation) -> Completed {
        let Operation {
            token,
            at,
            bytes,
            buffer,
            not_opened,
            ..
        } = operation;
        let buffer = buffer.expect("writes have a buffer");
        let bytes = &buffer[..to_usize(bytes)];
        let name = || format!("segment {}", at.segment);
        self.step();
        let fault = self.take_fault(Target::Write);
        let result = if self.read_only {
            Err(DiskError::new(
                "write",
                name(),
                &io::ErrorKind::ReadOnlyFilesystem.into(),
            ))
        } else if let Some(error) = not_opened {
            Err(error)
        } else {
            match fault {
                None => {
                    self.write(at, bytes);
                    let end = at.offset + bytes.len() as u64;
                    self.unsynced.retain(|(old, gone)| {
                        let apart =
                            old.offset + gone.len() as u64 <= at.offset || end <= old.offset;
                        old.segment != at.segment || apart
                    });
                    Ok(())
                }
                Some(Fault::Misdirected { blocks }) => {
                    let offset = at.offset + blocks * BLOCK as u64;
                    self.write(Place { offset, ..at }, bytes);
                    Ok(())
                }
                Some(Fault::FlushFails) => {
                    let old = self.read(at, bytes.len());
                    self.write(at, bytes);
                    self.unsynced.push((at, old));
                    Err(DiskError::new(
                        "sync",
                        name(),
                        &io::Error::other("flush failed"),
                    ))
                }
                Some(Fault::ShortWrite { bytes: short }) => {
                    let short = short.min(bytes.len());
                    self.write(at, &bytes[..short]);
                    Err(DiskError::short("write", name(), short, bytes.len()))
                }
                Some(_) => {
                    self.tear(at, bytes, &mut Dice(token));
                    Err(DiskError::new(
                        "write",
                        name(),
                        &io::Error::other("device failed"),
                    ))
                }
            }
        };
        self.counters.writes += 1;
        self.counters.flushes += 1;
        self.counters.write_bytes += bytes.len() as u64;
        Completed::Written {
            token,
            buffer,
            result,
        }
    }

    fn finish_read(&mut self, operation: Operation) -> Completed {
        let Operation {
            token,
            at,
            bytes,
            buffer,
            ..
        } = operation;
        let mut buffer = buffer.expect("reads have a buffer");
        self.counters.reads += 1;
        let failed = self.take_fault(Target::Read).is_some();
        let result = self.fill(at, &mut buffer, to_usize(bytes), failed);
        Completed::Read {
            token,
            buffer,
            result,
        }
    }

    fn finish_prepare(&mut self, operation: &Operation) -> Completed {
        let (segment, bytes) = (operation.at.segment, operation.bytes);
        let fail =
            |error: io::Error| DiskError::new("prepare", format!("segment {segment}"), &error);
        let used: u64 = self.segments.values().map(|contents| contents.bytes).sum();
        let result = if self.read_only {
            Err(fail(io::ErrorKind::ReadOnlyFilesystem.into()))
        } else if self.out_of_descriptors {
            Err(fail(Errno::MFILE.into()))
        } else if self.take_fault(Target::Prepare).is_some() {
            Err(fail(io::Error::other("device failed")))
        } else if self
            .capacity
            .is_some_and(|capacity| used + bytes > capacity)
        {
            Err(fail(io::ErrorKind::StorageFull.into()))
        } else {
            self.counters.prepared += 1;
            self.step();
            self.segments.insert(
                segment,
                Contents {
                    bytes,
                    blocks: BTreeMap::new(),
                },
            );
            made::write(self, segment)
        };
        Completed::Prepared { segment, result }
    }

    fn fill(
        &self,
        at: Place,
        buffer: &mut Buffer,
        bytes: usize,
        failed: bool,
    ) -> Result<(), DiskError> {
        self.open(at.segment)?;
        let end = at.offset + bytes as u64;
        let bad = |place: &Place| {
            place.segment == at.segment
                && at.offset < place.offset + BLOCK as u64
                && place.offset < end
        };
        if failed || self.unreadable.iter().any(bad) {
            let name = format!("segment {}, offset {}", at.segment, at.offset);
            return Err(DiskError::new(
                "read",
                name,
                &io::Error::other("device failed"),
            ));
        }
        let size = self
            .segments
            .get(&at.segment)
            .map_or(0, |contents| contents.bytes);
        if end > size {
            let name = format!("segment {}, offset {}", at.segment, at.offset);
            return Err(DiskError::short("read", name, 0, bytes));
        }
        buffer[..bytes].copy_from_slice(&self.read(at, bytes));
        Ok(())
    }

    /// Whether a segment's file can be used.
    fn open(&self, segment: Segment) -> Result<(), DiskError> {
        if !self.out_of_descriptors || self.open.contains(&segment) {
            return Ok(());
        }
        let name = format!("segment {segment}");
        Err(DiskError::new("open", name, &Errno::MFILE.into()))
    }

    fn read(&self, at: Place, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        let Some(contents) = self.segments.get(&at.segment) else {
            return out;
        };
        let first = at.offset / BLOCK as u64;
        for (index, chunk) in (first..).zip(out.chunks_mut(BLOCK)) {
            if let Some(block) = contents.blocks.get(&index) {
                chunk.copy_from_slice(&block[..chunk.len()]);
            }
        }
        out
    }

    /// Bytes from the start of a block on; what lies outside of the segment is dropped.
    fn write(&mut self, at: Place, bytes: &[u8]) {
        let Some(contents) = self.segments.get_mut(&at.segment) else {
            return;
        };
        let first = at.offset / BLOCK as u64;
        for (index, chunk) in (first..contents.bytes / BLOCK as u64).zip(bytes.chunks(BLOCK)) {
            let block = contents
                .blocks
                .entry(index)
                .or_insert_with(|| vec![0; BLOCK].into());
            block[..chunk.len()].copy_from_slice(chunk);
        }
    }

    /// Some sectors arrive, some do not.
    fn tear(&mut self, at: Place, bytes: &[u8], dice: &mut Dice) {
        let mut mixed = self.read(at, bytes.len());
        for (old, new) in mixed.chunks_mut(SECTOR).zip(bytes.chunks(SECTOR)) {
            if dice.below(2) == 0 {
                old.copy_from_slice(new);
            }
        }
        self.write(at, &mixed);
    }
}

impl SmallFiles for Shared {
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DiskError> {
        Ok(self.small_files.read(name).map(<[u8]>::to_vec))
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        let failed = |action, error: io::Error| Err(DiskError::new(action, name, &error));
        if self.read_only {
            return failed("create", io::ErrorKind::ReadOnlyFilesystem.into());
        }
        if self.out_of_descriptors {
            return failed("create", Errno::MFILE.into());
        }
        let fault = self.take_fault(Target::SmallFile);
        if fault == Some(Fault::ReplaceFails { renamed: false }) {
            return failed("write", io::Error::other("device failed"));
        }
        if !self.step() {
            return Err(dead("rename to", name));
        }
        self.small_files.rename(name, bytes);
        if fault.is_some() {
            return failed("sync the folder of", io::Error::other("device failed"));
        }
        if !self.step() {
            return Err(dead("sync the folder of", name));
        }
        self.small_files.sync();
        Ok(())
    }
}

/// What a dead process is told.
fn dead(action: &str, file: impl fmt::Display) -> DiskError {
    DiskError::new(action, file, &io::Error::other("the process is dead"))
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
    fn segments(&mut self) -> Result<Vec<SegmentFile>, DiskError> {
        let shared = self.lock_alive("read", "the folder")?;
        let file = |(segment, contents): (&Segment, &Contents)| SegmentFile {
            segment: *segment,
            bytes: contents.bytes,
        };
        Ok(shared.segments.iter().map(file).collect())
    }

    fn made(&mut self) -> Result<Option<Segment>, DiskError> {
        made::read(self)
    }

    fn read_now(&mut self, at: Place, buffer: &mut Buffer, bytes: usize) -> Result<(), DiskError> {
        self.lock_alive("read", at)?.fill(at, buffer, bytes, false)
    }
}

impl Disk for MemoryDisk {
    fn sync_now(&mut self, segment: Segment) -> Result<(), DiskError> {
        let mut shared = self.lock_alive("sync", segment)?;
        shared.unsynced.retain(|(at, _)| at.segment != segment);
        Ok(())
    }

    fn open_ahead(&mut self, segment: Segment) -> Result<(), DiskError> {
        let mut shared = self.lock_alive("open", segment)?;
        shared.open(segment)?;
        if !shared.segments.contains_key(&segment) {
            let name = format!("segment {segment}");
            return Err(DiskError::new(
                "open",
                name,
                &io::ErrorKind::NotFound.into(),
            ));
        }
        shared.open.insert(segment);
        Ok(())
    }

    fn start_write(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        let not_opened = {
            let mut shared = self.lock();
            shared.open.retain(|open| *open >= at.segment);
            shared.open(at.segment).err()
        };
        let kind = PendingKind::Write;
        let bytes = bytes as u64;
        self.start(Operation {
            token,
            kind,
            at,
            bytes,
            buffer: Some(buffer),
            not_opened,
        });
    }

    fn start_read(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        let kind = PendingKind::Read;
        let bytes = bytes as u64;
        self.start(Operation {
            token,
            kind,
            at,
            bytes,
            buffer: Some(buffer),
            not_opened: None,
        });
    }

    fn note_made(&mut self, made: Segment) -> Result<(), DiskError> {
        made::write(self, made)
    }

    fn start_prepare(&mut self, segment: Segment, bytes: u64, _: Zeros) {
        let at = Place { segment, offset: 0 };
        let kind = PendingKind::Prepare;
        self.start(Operation {
            token: 0,
            kind,
            at,
            bytes,
            buffer: None,
            not_opened: None,
        });
    }

    fn want_prepared(&mut self, bytes: u64) {
        self.lock().wanted = bytes;
    }

    fn hurry_prepare(&mut self) {
        self.lock().counters.segment_waits += 1;
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

    fn free_bytes(&self) -> Option<u64> {
        let shared = self.lock();
        let used: u64 = shared
            .segments
            .values()
            .map(|contents| contents.bytes)
            .sum();
        Some(
            shared
                .capacity
                .map_or(u64::MAX, |capacity| capacity.saturating_sub(used)),
        )
    }

    fn describe(&self) -> String {
        "memory: a simulated disk, nothing is kept".to_owned()
    }

    fn counters(&self) -> DiskCounters {
        self.lock().counters
    }
}

impl MemoryDisk {
    fn start(&self, operation: Operation) {
        let mut shared = self.lock();
        if self.lives(&shared) {
            shared.start(operation);
        }
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a disk in memory fits in memory")
}

/// The disk's own deterministic dice (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}
