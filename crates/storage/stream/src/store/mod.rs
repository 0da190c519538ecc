//! Stream store: holds the decided bytes of inner streams on a node, by ⟨stream, position⟩.
//!
//! Bytes arrive through [`Store::put_bytes`], in any order and any number of times. They are
//! gathered until they fill a *unit* (64 KiB), and written in whole blocks, each once ([disk-7]),
//! into
//! *chunks* (1 MiB of one stream) of files that were created ahead ([disk-10]). A partial block
//! stays in memory. A *checkpoint* flushes all writes and writes a *catalogue*: the location of all
//! bytes, with checksums, and the bytes that are not on disk otherwise. Until the next one, a crash
//! restores exactly what it describes; the caller replays the rest of its log. The format is in
//! `docs/spec/stream-store.md`.
//!
//! Only [`Store::open`] blocks. The caller passes completions to the store
//! ([`Store::is_store_completion`], [`Store::on_completed`]) and calls [`Store::advance`] once per
//! turn.
//!
//! Reading order: this file; `layout`; `stream` for the contents of one stream; `writing`,
//! `checkpoint`, `reading` for operations in progress; `placing` for bytes that are written before
//! they are decided; `space` for files and free chunks; `catalogue` for the format.

mod catalogue;
mod checkpoint;
mod chunk;
mod error;
mod layout;
mod opening;
mod placing;
mod pointer;
mod ranges;
mod reading;
mod space;
mod spares;
mod stream;
mod writing;

use std::ops::Range;

use quorate_core::{node_id::NodeId, slot::Slot, value::StreamName};
use quorate_log::disk::{Completed, Disk, DiskError, Family};

use catalogue::Streams;
use checkpoint::{CatalogueFile, Checkpoint};
pub use error::{ReadError, ReadsBusy, StoreError};
use layout::ChunkAddress;
pub use layout::{Layout, StoreLimits};
pub use placing::{StoredPlace, UnitBytes};
pub use ranges::Ranges;
use reading::Reads;
pub use reading::{READS_MAX, ReadDone};
use space::Space;
use spares::UnitBuffers;
use writing::Writes;

/// Maximum number of writes, reads and flushes that a store has in flight, together.
pub const OPERATIONS_MAX: usize =
    writing::WRITES_MAX + checkpoint::OPERATIONS_MAX + reading::READS_IN_FLIGHT_MAX;

#[derive(Debug)]
pub struct Store {
    limits: StoreLimits,
    layout: Layout,
    streams: Streams,
    file_space: Space,
    unit_buffers: UnitBuffers,
    writes: Writes,
    reads: Reads,
    checkpoint: Option<Checkpoint>,
    /// File of the valid catalogue.
    current_catalogue: Option<CatalogueFile>,
    /// File of the previous catalogue. The next catalogue overwrites it.
    previous_catalogue: Option<CatalogueFile>,
    checkpointed_to: Slot,
    /// Chunks that are no longer needed but may be listed in a durable catalogue or the one being
    /// written. The next catalogue omits them ([trim-4]).
    chunks_to_free: Vec<ChunkAddress>,
    /// Permanent failure. Writes may be lost after it ([disk-9]).
    failure: Option<String>,
}

impl Store {
    /// Name of the small file that points to the catalogue. Its replacement completes as
    /// [`Completed::SmallFileReplaced`].
    pub const POINTER_FILE: &'static str = pointer::FILE;

    /// Returns whether a completion must be passed to [`Self::on_completed`].
    pub fn is_store_completion(completed: &Completed) -> bool {
        match completed {
            Completed::Written { file, .. }
            | Completed::Read { file, .. }
            | Completed::Flushed { file, .. }
            | Completed::Prepared { file, .. }
            | Completed::Retired { file, .. } => file.family == Family::Stream,
            Completed::SmallFileReplaced { name, .. } => *name == Self::POINTER_FILE,
            Completed::SmallFileRead { .. } => false,
        }
    }

    /// Stores bytes of a stream, starting at `position`. Skips bytes that the store already has or
    /// has dropped, so it is safe to put the same bytes again. Gaps are allowed, and can be filled
    /// later. Does nothing after a failure.
    pub fn put_bytes<D: Disk>(
        &mut self,
        stream: StreamName,
        position: u64,
        bytes: &[u8],
        disk: &mut D,
    ) {
        if self.failure.is_some() || bytes.is_empty() {
            return;
        }
        let Self { streams, writes, unit_buffers: spares, layout, .. } = self;
        let known = streams.entry(stream).or_default();
        let before = known.gathered_bytes();
        let mut cuts = Vec::new();
        known.add_bytes(position, bytes, *layout, spares, |position, cut| {
            cuts.push((position, cut));
        });
        for (position, cut) in cuts {
            writes.queue_cut(stream, position, &cut);
            known.queue_blocks(position, cut);
        }
        writes.update_gathered(stream, before, known.gathered_bytes());
        let most = self.limits.gathered_bytes_max;
        if self.writes.gathered_bytes() > most {
            self.cut_gathered(most / 2);
        }
        if self.writes.is_waiting() {
            self.assign_and_write(disk);
            self.create_files_ahead(disk);
        }
    }

    /// Returns whether more bytes may be put. If not, too many bytes wait for the disk, or the
    /// store has failed, and the caller must not apply any more slots.
    pub fn has_room(&self) -> bool {
        self.failure.is_none() && self.writes.dirty_bytes() < self.limits.dirty_bytes_max
    }

    /// Returns the end of the stored bytes that follow `position` without a gap, or `position`
    /// itself if the store does not have that byte.
    pub fn held_contiguous_to(&self, stream: StreamName, position: u64) -> u64 {
        let known = self.streams.get(&stream);
        known.map_or(position, |known| known.held_ranges().end_of_range_at(position))
    }

    /// Returns the first stored byte at or after `from`, possibly of a later stream, or the first
    /// of all bytes if `from` is `None`.
    pub fn next_held_byte(&self, from: Option<(StreamName, u64)>) -> Option<(StreamName, u64)> {
        let lowest = StreamName { owner: NodeId(0), boot: 0, number: 0 };
        let first = from.map_or(lowest, |(stream, _)| stream);
        self.streams.range(first..).find_map(|(name, known)| {
            let here = from.filter(|(stream, _)| stream == name);
            let position =
                known.held_ranges().first_held_from(here.map_or(0, |(_, position)| position))?;
            Some((*name, position))
        })
    }

    /// Returns the parts of a range that are neither held nor dropped, in order.
    pub fn missing(&self, stream: StreamName, range: Range<u64>) -> Vec<Range<u64>> {
        match self.streams.get(&stream) {
            Some(known) => {
                let from = range.start.max(known.retained_from());
                known.held_ranges().missing(from..range.end)
            }
            None if range.is_empty() => Vec::new(),
            None => vec![range],
        }
    }

    /// Drops damaged bytes, along with all bytes that share a checksum with them. The caller should
    /// put them again; they will be stored elsewhere. Bytes that are still in memory are intact and
    /// are kept.
    pub fn drop_damaged(&mut self, stream: StreamName, range: Range<u64>) {
        if let Some(known) = self.streams.get_mut(&stream) {
            self.chunks_to_free.extend(known.drop_damaged(range, self.layout));
        }
    }

    /// Drops all bytes of the stream below `position` and accepts no more of them. Memory is freed
    /// at once, disk space at the next checkpoint.
    pub fn drop_below(&mut self, stream: StreamName, position: u64) {
        let position = position.min(layout::POSITION_MAX);
        let known = self.streams.entry(stream).or_default();
        let before = known.gathered_bytes();
        let (chunks, bytes) = known.drop_below(position, self.layout);
        self.writes.update_gathered(stream, before, known.gathered_bytes());
        self.writes.subtract_waiting(bytes);
        self.chunks_to_free.extend(chunks);
    }

    /// Ends the stream at `position`, dropping bytes that were placed at or after it. Memory is
    /// freed at once, disk space at the next checkpoint.
    pub fn drop_above(&mut self, stream: StreamName, position: u64) {
        if let Some(known) = self.streams.get_mut(&stream) {
            let before = known.gathered_bytes();
            let (chunks, bytes) = known.drop_above(position, self.layout);
            self.writes.update_gathered(stream, before, known.gathered_bytes());
            self.writes.subtract_waiting(bytes);
            self.chunks_to_free.extend(chunks);
        }
    }

    /// Removes the stream with its bytes and its start. Memory is freed at once, disk space at the
    /// next checkpoint.
    pub fn remove_stream(&mut self, stream: StreamName) {
        if let Some(known) = self.streams.remove(&stream) {
            self.writes.update_gathered(stream, known.gathered_bytes(), 0);
            let (chunks, bytes) = known.into_chunks();
            self.writes.subtract_waiting(bytes);
            self.chunks_to_free.extend(chunks);
        }
    }

    /// Returns all streams that have bytes or a known start, each with its start.
    pub fn streams(&self) -> impl Iterator<Item = (StreamName, u64)> {
        let streams = self.streams.iter();
        streams.map(|(name, known)| (*name, known.retained_from()))
    }

    /// Returns whether a checkpoint is worthwhile just to free disk space. That is the case if the
    /// chunks that wait for a checkpoint fill a file and are a considerable share of all chunks, or
    /// if any chunk waits and the disk is full.
    pub fn should_free_space(&self) -> bool {
        let waiting = self.chunks_to_free.len() as u64;
        let worth = waiting >= self.checkpoint_chunks_min() || self.is_full();
        self.checkpoint.is_none() && waiting > 0 && worth
    }

    /// Returns whether making `bytes` bytes durable justifies a checkpoint before the rest has
    /// arrived ([here-2]).
    pub fn justifies_checkpoint(&self, bytes: u64) -> bool {
        bytes / self.layout.chunk_bytes_u64() >= self.checkpoint_chunks_min()
    }

    /// Returns the number of chunks that justifies the cost of a catalogue, which lists all chunks
    /// in use.
    fn checkpoint_chunks_min(&self) -> u64 {
        u64::from(self.layout.chunks_per_file).max(self.file_space.used_chunks() / 16)
    }

    /// Returns the slot below which all bytes that were put survive a crash.
    pub fn checkpointed_to(&self) -> Slot {
        self.checkpointed_to
    }

    /// Returns the error of a write or flush after which the store no longer writes. Reads still
    /// work.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Describes the lack of disk space or descriptors that the store waits for, if any.
    pub fn shortage(&self) -> Option<&str> {
        let checkpoint = self.checkpoint.as_ref().and_then(Checkpoint::shortage);
        self.file_space.shortage().or(checkpoint).or_else(|| self.writes.shortage())
    }

    /// Returns whether newly put bytes must wait in memory for disk space.
    pub fn is_full(&self) -> bool {
        self.file_space.is_full()
    }

    /// Returns the total size of the chunks in use. Dropped bytes count until the next checkpoint.
    pub fn used_bytes(&self) -> u64 {
        self.file_space.used_chunks() * self.layout.chunk_bytes_u64()
    }

    pub fn file_bytes(&self) -> u64 {
        let catalogues = self.current_catalogue.iter().chain(&self.previous_catalogue);
        self.file_space.file_bytes() + catalogues.map(|file| file.bytes).sum::<u64>()
    }

    /// Returns the number of bytes in whole blocks that are in memory and not yet on disk.
    pub fn dirty_bytes(&self) -> usize {
        self.writes.dirty_bytes()
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Handles the completion of an operation that the store requested.
    pub fn on_completed<D: Disk>(&mut self, completed: Completed, disk: &mut D) {
        match completed {
            Completed::Written { token, file, output, result, .. } => {
                if self.is_catalogue(file) {
                    self.on_catalogue_written(result);
                } else {
                    self.on_write_completed(token, output, result);
                }
            }
            Completed::Read { token, buffer, result, .. } => {
                self.on_disk_read(token, buffer, result)
            }
            Completed::Flushed { file, result, .. } => self.on_flushed(file, result),
            Completed::Prepared { file, result } => self.on_file_prepared(file, result, disk),
            Completed::SmallFileReplaced { result, .. } => self.on_pointer_replaced(result, disk),
            // A file that could not be removed is removed at the next start.
            Completed::Retired { .. } | Completed::SmallFileRead { .. } => {}
        }
        self.advance(disk);
    }

    /// Continues all work in progress. Call it once per turn, even without completions, because it
    /// also retries work that lacked space or descriptors.
    pub fn advance<D: Disk>(&mut self, disk: &mut D) {
        if self.failure.is_none() {
            self.assign_and_write(disk);
            self.continue_checkpoint(disk);
            self.create_files_ahead(disk);
        }
        self.read(disk);
    }

    fn create_files_ahead<D: Disk>(&mut self, disk: &mut D) {
        let waiting = self.writes.is_waiting();
        self.file_space.create_ahead(waiting, self.limits.disk_reserve_bytes, disk);
    }

    fn on_file_prepared<D: Disk>(
        &mut self,
        file: quorate_log::disk::FileId,
        result: Result<(), DiskError>,
        disk: &mut D,
    ) {
        let Some((purpose, made)) = self.file_space.on_created(file, result) else {
            return;
        };
        match (purpose, made) {
            (_, Err(error)) if error.exhausted.is_none() => self.fail(&error),
            (space::FilePurpose::Catalogue, made) => self.on_catalogue_prepared(made, disk),
            (space::FilePurpose::Chunks, _) => {}
        }
    }

    /// Stops all writes permanently ([disk-9]).
    fn fail(&mut self, error: &DiskError) {
        if self.failure.is_none() {
            self.failure = Some(error.to_string());
            self.checkpoint = None;
            self.cancel_writes();
        }
    }
}
