//! A checkpoint: flushes completed writes, then writes and flushes a catalogue, then makes the
//! small file point to it.
//!
//! The catalogue is compiled when the checkpoint begins, so puts may continue during the
//! checkpoint. It lists blocks that are written or being written, and contains all other bytes
//! itself. Therefore a disk without space for another chunk can still take a checkpoint, which
//! frees the chunks of dropped bytes. Two files alternate, so that the valid catalogue is never
//! overwritten.

use std::collections::BTreeSet;

use quorate_core::slot::Slot;
use quorate_log::disk::{
    BLOCK, Buffer, Disk, DiskError, Durability, ExhaustedResource, Family, FileId,
};
use quorate_log::patience::Backoff;

use super::{
    Store, catalogue,
    layout::{ChunkAddress, RETRY_SKIPS_MAX},
    pointer::{self, Pointer},
    space::{CreatedFile, FilePurpose},
};

/// Maximum number of disk operations that a checkpoint has in flight.
pub(super) const OPERATIONS_MAX: usize = 1;
/// Size of each write of a catalogue, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// A file that contains the current or the previous catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CatalogueFile {
    pub(super) file_number: u64,
    pub(super) bytes: u64,
}

impl CatalogueFile {
    fn id(self) -> FileId {
        FileId::new(Family::Stream, self.file_number)
    }
}

/// A checkpoint in progress.
#[derive(Debug)]
pub(super) struct Checkpoint {
    slot: Slot,
    bytes: Vec<u8>,
    checksum: u32,
    /// Number of the first write that the catalogue does not cover.
    first_uncovered_write: u64,
    /// Chunks that earlier catalogues may list and this one no longer does.
    removed_chunks: Vec<ChunkAddress>,
    stage: CheckpointStage,
    /// Set while a disk operation of the checkpoint is in flight.
    is_in_flight: bool,
    /// Set if the checkpoint has waited for space. The catalogue may then be compiled again, with
    /// less in it.
    is_outdated: bool,
    backoff: Backoff,
    shortage: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum CheckpointStage {
    /// Wait for the writes that the catalogue covers.
    AwaitWrites,
    FlushFiles(BTreeSet<u64>),
    /// Create a file for the catalogue, unless one is large enough.
    CreateFile,
    /// Write the catalogue, starting at this byte.
    WriteCatalogue(usize),
    FlushCatalogue,
    /// Replace the small file.
    ReplacePointer,
}

impl Checkpoint {
    pub(super) fn shortage(&self) -> Option<&str> {
        self.shortage.as_deref()
    }

    /// Records a lack of space or descriptors. The step is retried later.
    fn retry_later(&mut self, why: &DiskError) {
        self.backoff.record_failure(RETRY_SKIPS_MAX);
        self.shortage = Some(why.to_string());
    }

    fn enter_stage(&mut self, stage: CheckpointStage) {
        self.stage = stage;
        self.is_in_flight = false;
    }

    fn clear_shortage(&mut self) {
        self.backoff.record_success();
        self.shortage = None;
    }
}

impl Store {
    /// Begins a checkpoint. The caller must have put all bytes decided below `at`. Bytes put later
    /// belong to the next checkpoint. Returns `false` if a checkpoint is in progress, the store has
    /// failed, or `at` is lower than that of the last checkpoint.
    pub fn start_checkpoint<D: Disk>(&mut self, at: Slot, disk: &mut D) -> bool {
        if self.checkpoint.is_some() || self.failure.is_some() || at < self.checkpointed_to {
            return false;
        }
        self.cut_gathered(0);
        self.assign_and_write(disk);
        let mut checkpoint = Checkpoint {
            slot: at,
            bytes: Vec::new(),
            checksum: 0,
            first_uncovered_write: 0,
            removed_chunks: Vec::new(),
            stage: CheckpointStage::AwaitWrites,
            is_in_flight: false,
            is_outdated: false,
            backoff: Backoff::default(),
            shortage: None,
        };
        self.compile_catalogue(&mut checkpoint);
        self.checkpoint = Some(checkpoint);
        self.advance(disk);
        true
    }

    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Encodes the current contents as the catalogue of a checkpoint.
    fn compile_catalogue(&mut self, checkpoint: &mut Checkpoint) {
        checkpoint.bytes = catalogue::encode(checkpoint.slot, self.layout, &self.streams);
        checkpoint.checksum = crc32c::crc32c(&checkpoint.bytes);
        checkpoint.first_uncovered_write = self.writes.next_number();
        checkpoint.removed_chunks.append(&mut self.chunks_to_free);
        checkpoint.stage = CheckpointStage::AwaitWrites;
    }

    pub(super) fn is_catalogue(&self, file: FileId) -> bool {
        self.previous_catalogue.is_some_and(|spare| spare.id() == file)
    }

    pub(super) fn continue_checkpoint<D: Disk>(&mut self, disk: &mut D) {
        let Some(mut checkpoint) = self.checkpoint.take() else {
            return;
        };
        let result = self.run_steps(&mut checkpoint, disk);
        self.checkpoint = Some(checkpoint);
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    /// Executes steps until one has to wait. An error is permanent.
    fn run_steps<D: Disk>(
        &mut self,
        checkpoint: &mut Checkpoint,
        disk: &mut D,
    ) -> Result<(), DiskError> {
        while !checkpoint.is_in_flight {
            if checkpoint.shortage.is_some() && !checkpoint.backoff.try_or_skip() {
                return Ok(());
            }
            match &mut checkpoint.stage {
                CheckpointStage::AwaitWrites => {
                    if !self.writes.all_completed_below(checkpoint.first_uncovered_write) {
                        return Ok(());
                    }
                    checkpoint
                        .enter_stage(CheckpointStage::FlushFiles(self.writes.take_unflushed()));
                }
                CheckpointStage::FlushFiles(files) => match files.first() {
                    Some(file) => {
                        disk.start_flush(0, FileId::new(Family::Stream, *file));
                        checkpoint.is_in_flight = true;
                    }
                    None => checkpoint.enter_stage(CheckpointStage::CreateFile),
                },
                CheckpointStage::CreateFile => {
                    let needed = checkpoint.bytes.len() as u64;
                    if self.previous_catalogue.is_some_and(|spare| spare.bytes >= needed) {
                        checkpoint.enter_stage(CheckpointStage::WriteCatalogue(0));
                    } else if self.file_space.is_creating_file() {
                        return Ok(());
                    } else if std::mem::take(&mut checkpoint.is_outdated) {
                        self.compile_catalogue(checkpoint);
                    } else {
                        self.create_catalogue_file(checkpoint, disk);
                    }
                }
                CheckpointStage::WriteCatalogue(written) => {
                    let file = self.previous_catalogue.expect("it was made").id();
                    if let Err(error) = disk.open_next_file(file) {
                        if error.exhausted.is_none() {
                            return Err(error);
                        }
                        checkpoint.retry_later(&error);
                        return Ok(());
                    }
                    checkpoint.backoff.record_success();
                    checkpoint.shortage = None;
                    let rest = &checkpoint.bytes[*written..];
                    let piece = &rest[..rest.len().min(PIECE_BYTES)];
                    let mut buffer = Buffer::new(piece.len());
                    buffer[..piece.len()].copy_from_slice(piece);
                    let blocks = piece.len().next_multiple_of(BLOCK);
                    let place = file.position_at(*written as u64);
                    *written += piece.len();
                    disk.start_write(0, place, buffer.into(), blocks, Durability::AfterFlush);
                    checkpoint.is_in_flight = true;
                }
                CheckpointStage::FlushCatalogue => {
                    disk.start_flush(0, self.previous_catalogue.expect("it was written").id());
                    checkpoint.is_in_flight = true;
                }
                CheckpointStage::ReplacePointer => {
                    let pointer = Pointer {
                        at: checkpoint.slot,
                        file: self.previous_catalogue.expect("it was written").file_number,
                        bytes: checkpoint.bytes.len() as u64,
                        checksum: checkpoint.checksum,
                    };
                    disk.start_replace_small_file(0, pointer::FILE, pointer.encode());
                    checkpoint.is_in_flight = true;
                }
            }
        }
        Ok(())
    }

    /// Creates a file for the catalogue. The file has room for growth and for all bytes that may be
    /// buffered in memory, so that a catalogue containing them fits even if the disk is full by
    /// then.
    fn create_catalogue_file<D: Disk>(&mut self, checkpoint: &mut Checkpoint, disk: &mut D) {
        let needed = checkpoint.bytes.len() as u64;
        let dirty = self.limits.dirty_bytes_max as u64;
        let mut bytes = (2 * needed + dirty).next_multiple_of(BLOCK as u64);
        // Chunk files are recognised by their size, so a catalogue file must not have the same
        // size.
        if bytes == self.layout.file_bytes() {
            bytes += BLOCK as u64;
        }
        self.file_space.create_file(bytes, FilePurpose::Catalogue, disk);
        checkpoint.is_in_flight = true;
    }

    /// Handles the creation of the file, or the lack of space for it.
    pub(super) fn on_catalogue_prepared<D: Disk>(&mut self, made: CreatedFile, disk: &mut D) {
        let made = made.map(|(number, bytes)| {
            let old = self.previous_catalogue.replace(CatalogueFile { file_number: number, bytes });
            if let Some(old) = old {
                disk.start_retire(old.id());
            }
        });
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.enter_stage(CheckpointStage::CreateFile);
        match made {
            Ok(()) => checkpoint.clear_shortage(),
            Err(error) => {
                checkpoint.is_outdated = true;
                checkpoint.retry_later(&error);
            }
        }
    }

    pub(super) fn on_catalogue_written(&mut self, result: Result<(), DiskError>) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.is_in_flight = false;
        if checkpoint.stage == CheckpointStage::WriteCatalogue(checkpoint.bytes.len()) {
            checkpoint.stage = CheckpointStage::FlushCatalogue;
        }
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    pub(super) fn on_flushed(&mut self, file: FileId, result: Result<(), DiskError>) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.is_in_flight = false;
        match result {
            Ok(()) => {
                checkpoint.clear_shortage();
                match &mut checkpoint.stage {
                    CheckpointStage::FlushFiles(files) => drop(files.remove(&file.number)),
                    CheckpointStage::FlushCatalogue => {
                        checkpoint.stage = CheckpointStage::ReplacePointer
                    }
                    CheckpointStage::AwaitWrites
                    | CheckpointStage::CreateFile
                    | CheckpointStage::WriteCatalogue(_)
                    | CheckpointStage::ReplacePointer => {}
                }
            }
            // The file could not be opened, so no flush was attempted.
            Err(error) if error.exhausted == Some(ExhaustedResource::Descriptors) => {
                checkpoint.retry_later(&error)
            }
            Err(error) => self.fail(&error),
        }
    }

    pub(super) fn on_pointer_replaced<D: Disk>(
        &mut self,
        result: Result<(), DiskError>,
        disk: &mut D,
    ) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.is_in_flight = false;
        match result {
            Ok(()) => {
                self.checkpointed_to = checkpoint.slot;
                for address in std::mem::take(&mut checkpoint.removed_chunks) {
                    self.file_space.free_chunk(address);
                }
                self.checkpoint = None;
                std::mem::swap(&mut self.current_catalogue, &mut self.previous_catalogue);
                self.file_space.delete_idle_files(disk);
            }
            // It is unknown whether the file was replaced. Writing the same contents again is safe
            // in either case.
            Err(error) if error.exhausted.is_some() => checkpoint.retry_later(&error),
            Err(error) => self.fail(&error),
        }
    }
}
