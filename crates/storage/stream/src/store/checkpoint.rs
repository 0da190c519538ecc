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
use quorate_log::disk::{BLOCK, Buffer, Disk, DiskError, Durability, Family, FileId, Lack};
use quorate_log::patience::Backoff;

use super::{
    Store, catalogue,
    layout::{Address, SKIPS_MAX},
    pointer::{self, Pointer},
    space::{CreatedFile, Purpose},
};

/// Maximum number of disk operations that a checkpoint has in flight.
pub(super) const OPERATIONS_MAX: usize = 1;
/// Size of each write of a catalogue, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// A file that contains the current or the previous catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CatalogueFile {
    pub(super) number: u64,
    pub(super) bytes: u64,
}

impl CatalogueFile {
    fn id(self) -> FileId {
        FileId::new(Family::Stream, self.number)
    }
}

/// A checkpoint in progress.
#[derive(Debug)]
pub(super) struct Checkpoint {
    at: Slot,
    bytes: Vec<u8>,
    checksum: u32,
    /// Number of the first write that the catalogue does not cover.
    barrier: u64,
    /// Chunks that earlier catalogues may list and this one no longer does.
    leaving: Vec<Address>,
    stage: Stage,
    /// Set while a disk operation of the checkpoint is in flight.
    is_in_flight: bool,
    /// Set if the checkpoint has waited for space. The catalogue may then be compiled again, with
    /// less in it.
    stale: bool,
    patience: Backoff,
    short: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Wait for the writes that the catalogue covers.
    Writes,
    Flushes(BTreeSet<u64>),
    /// Create a file for the catalogue, unless one is large enough.
    File,
    /// Write the catalogue, starting at this byte.
    Catalogue(usize),
    Flush,
    /// Replace the small file.
    Name,
}

impl Checkpoint {
    pub(super) fn short(&self) -> Option<&str> {
        self.short.as_deref()
    }

    /// Records a lack of space or descriptors. The step is retried later.
    fn retry_later(&mut self, why: &DiskError) {
        self.patience.failed(SKIPS_MAX);
        self.short = Some(why.to_string());
    }

    fn goes_on(&mut self, stage: Stage) {
        self.stage = stage;
        self.is_in_flight = false;
    }

    fn lacks_nothing(&mut self) {
        self.patience.succeeded();
        self.short = None;
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
        self.write(disk);
        let mut checkpoint = Checkpoint {
            at,
            bytes: Vec::new(),
            checksum: 0,
            barrier: 0,
            leaving: Vec::new(),
            stage: Stage::Writes,
            is_in_flight: false,
            stale: false,
            patience: Backoff::default(),
            short: None,
        };
        self.compile(&mut checkpoint);
        self.checkpoint = Some(checkpoint);
        self.advance(disk);
        true
    }

    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Encodes the current contents as the catalogue of a checkpoint.
    fn compile(&mut self, checkpoint: &mut Checkpoint) {
        checkpoint.bytes = catalogue::encode(checkpoint.at, self.layout, &self.streams);
        checkpoint.checksum = crc32c::crc32c(&checkpoint.bytes);
        checkpoint.barrier = self.writes.next_number();
        checkpoint.leaving.append(&mut self.released);
        checkpoint.stage = Stage::Writes;
    }

    pub(super) fn is_catalogue(&self, file: FileId) -> bool {
        self.spare.is_some_and(|spare| spare.id() == file)
    }

    pub(super) fn go_on_with_checkpoint<D: Disk>(&mut self, disk: &mut D) {
        let Some(mut checkpoint) = self.checkpoint.take() else {
            return;
        };
        let result = self.steps(&mut checkpoint, disk);
        self.checkpoint = Some(checkpoint);
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    /// Executes steps until one has to wait. An error is permanent.
    fn steps<D: Disk>(
        &mut self,
        checkpoint: &mut Checkpoint,
        disk: &mut D,
    ) -> Result<(), DiskError> {
        while !checkpoint.is_in_flight {
            if checkpoint.short.is_some() && !checkpoint.patience.may_try() {
                return Ok(());
            }
            match &mut checkpoint.stage {
                Stage::Writes => {
                    if !self.writes.are_done_below(checkpoint.barrier) {
                        return Ok(());
                    }
                    checkpoint.goes_on(Stage::Flushes(self.writes.take_unflushed()));
                }
                Stage::Flushes(files) => match files.first() {
                    Some(file) => {
                        disk.start_flush(0, FileId::new(Family::Stream, *file));
                        checkpoint.is_in_flight = true;
                    }
                    None => checkpoint.goes_on(Stage::File),
                },
                Stage::File => {
                    let needed = checkpoint.bytes.len() as u64;
                    if self.spare.is_some_and(|spare| spare.bytes >= needed) {
                        checkpoint.goes_on(Stage::Catalogue(0));
                    } else if self.space.is_making() {
                        return Ok(());
                    } else if std::mem::take(&mut checkpoint.stale) {
                        self.compile(checkpoint);
                    } else {
                        self.make_file(checkpoint, disk);
                    }
                }
                Stage::Catalogue(written) => {
                    let file = self.spare.expect("it was made").id();
                    if let Err(error) = disk.open_ahead(file) {
                        if error.lack.is_none() {
                            return Err(error);
                        }
                        checkpoint.retry_later(&error);
                        return Ok(());
                    }
                    checkpoint.patience.succeeded();
                    checkpoint.short = None;
                    let rest = &checkpoint.bytes[*written..];
                    let piece = &rest[..rest.len().min(PIECE_BYTES)];
                    let mut buffer = Buffer::new(piece.len());
                    buffer[..piece.len()].copy_from_slice(piece);
                    let blocks = piece.len().next_multiple_of(BLOCK);
                    let place = file.at(*written as u64);
                    *written += piece.len();
                    disk.start_write(0, place, buffer.into(), blocks, Durability::Later);
                    checkpoint.is_in_flight = true;
                }
                Stage::Flush => {
                    disk.start_flush(0, self.spare.expect("it was written").id());
                    checkpoint.is_in_flight = true;
                }
                Stage::Name => {
                    let pointer = Pointer {
                        at: checkpoint.at,
                        file: self.spare.expect("it was written").number,
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
    fn make_file<D: Disk>(&mut self, checkpoint: &mut Checkpoint, disk: &mut D) {
        let needed = checkpoint.bytes.len() as u64;
        let dirty = self.limits.dirty_bytes_max as u64;
        let mut bytes = (2 * needed + dirty).next_multiple_of(BLOCK as u64);
        // Chunk files are recognised by their size, so a catalogue file must not have the same
        // size.
        if bytes == self.layout.file_bytes() {
            bytes += BLOCK as u64;
        }
        self.space.create_file(bytes, Purpose::Catalogue, disk);
        checkpoint.is_in_flight = true;
    }

    /// Handles the creation of the file, or the lack of space for it.
    pub(super) fn catalogue_prepared<D: Disk>(&mut self, made: CreatedFile, disk: &mut D) {
        let made = made.map(|(number, bytes)| {
            let old = self.spare.replace(CatalogueFile { number, bytes });
            if let Some(old) = old {
                disk.start_retire(old.id());
            }
        });
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.goes_on(Stage::File);
        match made {
            Ok(()) => checkpoint.lacks_nothing(),
            Err(error) => {
                checkpoint.stale = true;
                checkpoint.retry_later(&error);
            }
        }
    }

    pub(super) fn catalogue_written(&mut self, result: Result<(), DiskError>) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.is_in_flight = false;
        if checkpoint.stage == Stage::Catalogue(checkpoint.bytes.len()) {
            checkpoint.stage = Stage::Flush;
        }
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    pub(super) fn flushed(&mut self, file: FileId, result: Result<(), DiskError>) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.is_in_flight = false;
        match result {
            Ok(()) => {
                checkpoint.lacks_nothing();
                match &mut checkpoint.stage {
                    Stage::Flushes(files) => drop(files.remove(&file.number)),
                    Stage::Flush => checkpoint.stage = Stage::Name,
                    Stage::Writes | Stage::File | Stage::Catalogue(_) | Stage::Name => {}
                }
            }
            // The file could not be opened, so no flush was attempted.
            Err(error) if error.lack == Some(Lack::Descriptors) => checkpoint.retry_later(&error),
            Err(error) => self.fail(&error),
        }
    }

    pub(super) fn kept<D: Disk>(&mut self, result: Result<(), DiskError>, disk: &mut D) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.is_in_flight = false;
        match result {
            Ok(()) => {
                self.checkpointed_to = checkpoint.at;
                for address in std::mem::take(&mut checkpoint.leaving) {
                    self.space.free_chunk(address);
                }
                self.checkpoint = None;
                std::mem::swap(&mut self.current, &mut self.spare);
                self.space.delete_idle_files(disk);
            }
            // It is unknown whether the file was replaced. Writing the same contents again is safe
            // in either case.
            Err(error) if error.lack.is_some() => checkpoint.retry_later(&error),
            Err(error) => self.fail(&error),
        }
    }
}
