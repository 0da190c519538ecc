//! Chunk files: tracks free chunks and creates files ahead of need.
//!
//! A file is created off the write path, one ahead of its use, and reads as zeros ([disk-10]). Its
//! blocks are reserved, not written: at the speed of the disk, writing zeros would double the cost
//! of each byte. Chunks are reused in place once no durable catalogue lists them ([trim-4]). Idle
//! files are kept as long as they are likely to be reused, because deleting one and creating
//! another costs more than a write, especially on a file system that discards freed blocks.

use std::collections::{BTreeMap, BTreeSet};

use quorate_log::disk::{Disk, DiskError, Family, FileId, ZeroFill};
use quorate_log::patience::Backoff;

use super::layout::{ChunkAddress, Layout, RETRY_SKIPS_MAX};

/// Maximum number of files to create ahead of a writer that fills files faster than the disk can
/// create them.
const FILES_AHEAD_MAX: u32 = 4;
/// Number of turns without an allocation after which an idle file is deleted.
const IDLE_TURNS_MAX: u32 = 1 << 12;

/// Contents for which a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePurpose {
    Chunks,
    Catalogue,
}

#[derive(Clone, Copy, Debug)]
struct FileInCreation {
    number: u64,
    bytes: u64,
    purpose: FilePurpose,
}

/// Number and size of a created file.
pub(super) type CreatedFile = Result<(u64, u64), DiskError>;

/// Peak numbers of chunks in use.
#[derive(Debug, Default)]
struct UsagePeak {
    /// Highest number since the last catalogue.
    current_period: u64,
    /// Highest number of recent periods, which falls slowly.
    recent_peak: u64,
}

impl UsagePeak {
    /// Records the current number of chunks in use.
    fn record_used(&mut self, used: u64) {
        self.current_period = self.current_period.max(used);
    }

    /// Ends a period with `used` chunks in use. The recent peak falls by at most an eighth.
    fn end_period(&mut self, used: u64) {
        let since = std::mem::replace(&mut self.current_period, used);
        self.recent_peak = since.max(self.recent_peak - self.recent_peak.div_ceil(8));
    }
}

#[derive(Debug)]
pub(super) struct Space {
    layout: Layout,
    /// Number of chunks in use for each file, by file number.
    files: BTreeMap<u64, u32>,
    free_chunks: BTreeSet<ChunkAddress>,
    /// Total number of chunks in use.
    used_chunks: u64,
    /// Address of the last allocated chunk. The next allocation continues from there, so that few
    /// files are written at a time.
    last_allocated: ChunkAddress,
    next_number: u64,
    file_in_creation: Option<FileInCreation>,
    is_hurried: bool,
    /// Target number of files with free chunks. Raised whenever a write had to wait for a chunk.
    target_files: u32,
    usage_peak: UsagePeak,
    /// Number of turns since a chunk was allocated or an idle file was deleted.
    turns_without_allocation: u32,
    backoff: Backoff,
    /// Description of the last failure to create a chunk file, for operators.
    shortage: Option<String>,
}

impl Space {
    pub(super) fn new(layout: Layout, next_number: u64) -> Self {
        Self {
            layout,
            files: BTreeMap::new(),
            free_chunks: BTreeSet::new(),
            used_chunks: 0,
            last_allocated: ChunkAddress { file: 0, index: 0 },
            next_number,
            file_in_creation: None,
            is_hurried: false,
            target_files: 1,
            usage_peak: UsagePeak::default(),
            turns_without_allocation: 0,
            backoff: Backoff::default(),
            shortage: None,
        }
    }

    /// Adds a chunk file with all chunks free.
    pub(super) fn add_file(&mut self, number: u64) {
        let chunk = |index| ChunkAddress { file: number, index };
        self.files.insert(number, 0);
        self.free_chunks.extend((0..self.layout.chunks_per_file).map(chunk));
    }

    /// Marks a chunk as used because a catalogue lists it. Returns `false` if it is not free or
    /// does not exist.
    #[must_use]
    pub(super) fn mark_used(&mut self, address: ChunkAddress) -> bool {
        let free = self.free_chunks.remove(&address);
        if free {
            *self.files.get_mut(&address.file).expect("it has chunks") += 1;
            self.used_chunks += 1;
        }
        free
    }

    pub(super) fn has_file(&self, number: u64) -> bool {
        self.files.contains_key(&number)
    }

    pub(super) fn allocate_chunk(&mut self) -> Option<ChunkAddress> {
        let next = self.free_chunks.range(self.last_allocated..).next();
        let address = next.or(self.free_chunks.first()).copied()?;
        assert!(self.mark_used(address), "it is free");
        self.last_allocated = address;
        self.usage_peak.record_used(self.used_chunks);
        self.turns_without_allocation = 0;
        Some(address)
    }

    /// Frees a chunk. No durable catalogue may list it, and it must not be written to at the
    /// moment.
    pub(super) fn free_chunk(&mut self, address: ChunkAddress) {
        let used = self.files.get_mut(&address.file);
        let used = used.expect("a file with a chunk in use stays");
        *used = used.checked_sub(1).expect("it was in use");
        self.used_chunks -= 1;
        self.free_chunks.insert(address);
    }

    /// Deletes idle files that are unlikely to be needed again. Called after a catalogue has become
    /// durable and the chunks that it no longer lists have been freed.
    pub(super) fn delete_idle_files<D: Disk>(&mut self, disk: &mut D) {
        self.usage_peak.end_period(self.used_chunks);
        let usual = self.usage_peak.recent_peak.div_ceil(self.layout.chunks_per_file.into());
        let busy = self.files.len() - self.idle_files().count();
        // On a full disk, only `target_files` idle files are kept, because other users may need the
        // space.
        let roomy = self.shortage.is_none();
        let idle = if roomy { usual.saturating_sub(busy as u64) } else { 0 };
        self.delete_idle_beyond(idle + u64::from(self.target_files), disk);
    }

    /// Deletes idle files one at a time while no chunk is allocated.
    fn delete_one_when_idle<D: Disk>(&mut self, disk: &mut D) {
        self.turns_without_allocation += 1;
        if self.turns_without_allocation >= IDLE_TURNS_MAX {
            self.turns_without_allocation = 0;
            self.usage_peak.end_period(self.used_chunks);
            let idle = self.idle_files().count() as u64;
            self.delete_idle_beyond(idle.saturating_sub(1).max(self.target_files.into()), disk);
        }
    }

    fn idle_files(&self) -> impl Iterator<Item = u64> {
        let idle = self.files.iter().filter(|(_, used)| **used == 0);
        idle.map(|(number, _)| *number)
    }

    /// Deletes idle files until `files` of them are left.
    fn delete_idle_beyond<D: Disk>(&mut self, files: u64, disk: &mut D) {
        let kept = usize::try_from(files).unwrap_or(usize::MAX);
        for number in self.idle_files().skip(kept).collect::<Vec<u64>>() {
            self.files.remove(&number);
            self.free_chunks.retain(|address| address.file != number);
            disk.start_retire(FileId::new(Family::Stream, number));
        }
    }

    /// Returns the number of chunks in use, including those that the next catalogue frees.
    pub(super) fn used_chunks(&self) -> u64 {
        self.used_chunks
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.files.len() as u64 * self.layout.file_bytes()
    }

    /// Describes why no chunk file can be created at the moment.
    pub(super) fn shortage(&self) -> Option<&str> {
        self.shortage.as_deref()
    }

    /// Returns whether no chunk is free and no file can be created at the moment.
    pub(super) fn is_full(&self) -> bool {
        self.shortage.is_some() && self.free_chunks.is_empty()
    }

    pub(super) fn is_creating_file(&self) -> bool {
        self.file_in_creation.is_some()
    }

    /// Creates the next chunk file ahead of need. `waiting` is set while a write waits for a chunk
    /// or for the disk.
    pub(super) fn create_ahead<D: Disk>(&mut self, waiting: bool, left_bytes: u64, disk: &mut D) {
        self.delete_one_when_idle(disk);
        let free = self.free_chunks.len() as u64;
        // If a chunk is free, the writes wait for the disk, and another file would not help.
        let waiting = waiting && free == 0;
        if let Some(making) = self.file_in_creation {
            if waiting && !self.is_hurried {
                self.is_hurried = true;
                self.target_files = (self.target_files + 1).min(FILES_AHEAD_MAX);
                disk.hurry_file_creation(Family::Stream);
            } else if making.purpose == FilePurpose::Chunks {
                // The new file stays a quarter ahead of the allocated part of the previous file.
                let all = making.bytes * u64::from(self.target_files);
                let taken = all.saturating_sub(free * self.layout.chunk_bytes_u64());
                disk.pace_file_creation(Family::Stream, taken + taken / 4);
            }
            return;
        }
        // After a failure to create a file, writes may be held back for lack of space and therefore
        // request no chunk.
        let used = !self.files.is_empty() || self.shortage.is_some();
        let scarce = used && free < u64::from(self.layout.chunks_per_file * self.target_files);
        if !waiting && !scarce || !self.backoff.try_or_skip() {
            return;
        }
        let bytes = self.layout.file_bytes();
        let room = disk.free_bytes(Family::Stream);
        let needed = bytes.saturating_add(left_bytes);
        if let Some(room) = room.filter(|room| *room < needed) {
            self.backoff.record_failure(RETRY_SKIPS_MAX);
            self.shortage = Some(format!(
                "a file for streams needs {bytes} bytes in addition to {left_bytes} that are left to others, and the disk \
                 has {room}"
            ));
            return;
        }
        self.create_file(bytes, FilePurpose::Chunks, disk);
    }

    /// Starts creating a file. No other file may be in creation.
    pub(super) fn create_file<D: Disk>(&mut self, bytes: u64, purpose: FilePurpose, disk: &mut D) {
        assert!(self.file_in_creation.is_none(), "one at a time");
        let number = self.next_number;
        let file = FileId::new(Family::Stream, number);
        disk.start_prepare(file, bytes, ZeroFill::Reserved);
        if purpose == FilePurpose::Catalogue {
            disk.hurry_file_creation(Family::Stream);
        }
        self.is_hurried = purpose == FilePurpose::Catalogue;
        self.file_in_creation = Some(FileInCreation { number, bytes, purpose });
    }

    /// Handles the creation of a file, or its failure. Returns the file's purpose, number and size.
    pub(super) fn on_created(
        &mut self,
        file: FileId,
        result: Result<(), DiskError>,
    ) -> Option<(FilePurpose, CreatedFile)> {
        let making = self.file_in_creation.take_if(|making| making.number == file.number)?;
        let made = result.map(|()| {
            self.next_number += 1;
            (making.number, making.bytes)
        });
        if making.purpose == FilePurpose::Chunks {
            match &made {
                Ok((number, _)) => {
                    self.add_file(*number);
                    self.backoff.record_success();
                    self.shortage = None;
                }
                Err(error) => {
                    self.backoff.record_failure(RETRY_SKIPS_MAX);
                    self.shortage = Some(error.to_string());
                }
            }
        }
        Some((making.purpose, made))
    }
}
