//! A checkpoint: completed writes are flushed, then a catalogue is written and flushed, then the
//! small file names it.
//!
//! The catalogue is compiled at once when a checkpoint begins, so puts may continue meanwhile. It
//! names places that are written or being written, and contains all other bytes itself: a disk
//! without space for another chunk can still take a checkpoint, and so frees the chunks of dropped
//! bytes. Two files alternate: the one being written is not the one being named.

use std::collections::BTreeSet;

use quorate_core::slot::Slot;
use quorate_log::disk::{BLOCK, Buffer, Disk, DiskError, Durability, Family, FileId, Lack};

use super::{
    Store, catalogue,
    layout::Address,
    patience::Backoff,
    pointer::{self, Pointer},
    space::{Made, Purpose},
};

/// Maximum number of operations of a checkpoint: one write or flush at a time.
pub(super) const OPERATIONS_MAX: usize = 1;
/// Size of the pieces in which a catalogue is written.
const PIECE_BYTES: usize = 256 << 10;

/// A file that contains a catalogue, or used to.
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
    /// The encoded catalogue.
    bytes: Vec<u8>,
    checksum: u32,
    /// Number of the first write that the catalogue does not name.
    barrier: u64,
    /// Chunks that the catalogue no longer names.
    leaving: Vec<Address>,
    stage: Stage,
    /// An operation of the checkpoint is in flight.
    busy: bool,
    /// The checkpoint has waited for space, so the catalogue may be compiled again with fewer
    /// contents.
    stale: bool,
    patience: Backoff,
    short: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for the writes that the catalogue names.
    Writes,
    /// Flushes these files.
    Flushes(BTreeSet<u64>),
    /// Creates a file for the catalogue, if none is large enough.
    File,
    /// Writes the catalogue from this byte on.
    Catalogue(usize),
    /// Flushes the catalogue.
    Flush,
    /// Replaces the small file.
    Name,
}

impl Checkpoint {
    pub(super) fn short(&self) -> Option<&str> {
        self.short.as_deref()
    }

    /// Records that a resource is missing; the step is retried later.
    fn wait(&mut self, why: &DiskError) {
        self.patience.failed();
        self.short = Some(why.to_string());
    }

    fn goes_on(&mut self, stage: Stage) {
        self.stage = stage;
        self.busy = false;
    }

    /// Records that the missing resource is available.
    fn lacks_nothing(&mut self) {
        self.patience.succeeded();
        self.short = None;
    }
}

impl Store {
    /// Begins a checkpoint. The caller has put everything decided below `at`; bytes put from now on
    /// belong to the next one. Returns `false` if a checkpoint is in progress, the store has
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
            busy: false,
            stale: false,
            patience: Backoff::default(),
            short: None,
        };
        self.compile(&mut checkpoint);
        self.checkpoint = Some(checkpoint);
        self.advance(disk);
        true
    }

    /// Returns whether a checkpoint is in progress.
    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Compiles the catalogue of the current contents.
    fn compile(&mut self, checkpoint: &mut Checkpoint) {
        checkpoint.bytes = catalogue::encode(checkpoint.at, self.layout, &self.streams);
        checkpoint.checksum = crc32c::crc32c(&checkpoint.bytes);
        checkpoint.barrier = self.writes.next_number();
        checkpoint.leaving.append(&mut self.released);
        checkpoint.stage = Stage::Writes;
    }

    /// Returns whether the catalogue is being written to this file.
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

    /// Takes as many steps as are possible now. An error is final.
    fn steps<D: Disk>(
        &mut self,
        checkpoint: &mut Checkpoint,
        disk: &mut D,
    ) -> Result<(), DiskError> {
        while !checkpoint.busy {
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
                        checkpoint.busy = true;
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
                        checkpoint.wait(&error);
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
                    checkpoint.busy = true;
                }
                Stage::Flush => {
                    disk.start_flush(0, self.spare.expect("it was written").id());
                    checkpoint.busy = true;
                }
                Stage::Name => {
                    let pointer = Pointer {
                        at: checkpoint.at,
                        file: self.spare.expect("it was written").number,
                        bytes: checkpoint.bytes.len() as u64,
                        checksum: checkpoint.checksum,
                    };
                    disk.start_replace_small_file(0, pointer::FILE, pointer.encode());
                    checkpoint.busy = true;
                }
            }
        }
        Ok(())
    }

    /// Creates a file for the catalogue, with space for growth and for everything that may be
    /// buffered in memory, so that a catalogue that contains it fits even if the disk is full by
    /// then.
    fn make_file<D: Disk>(&mut self, checkpoint: &mut Checkpoint, disk: &mut D) {
        let needed = checkpoint.bytes.len() as u64;
        let dirty = self.limits.dirty_bytes_max as u64;
        let mut bytes = (2 * needed + dirty).next_multiple_of(BLOCK as u64);
        // Files of chunks are recognised by their size.
        if bytes == self.layout.file_bytes() {
            bytes += BLOCK as u64;
        }
        self.space.make(bytes, Purpose::Catalogue, disk);
        checkpoint.busy = true;
    }

    /// Handles the creation of the file, or the lack of space for it.
    pub(super) fn catalogue_prepared<D: Disk>(&mut self, made: Made, disk: &mut D) {
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
                checkpoint.wait(&error);
            }
        }
    }

    /// Handles the completed write of a piece of the catalogue.
    pub(super) fn catalogue_written(&mut self, result: Result<(), DiskError>) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.busy = false;
        if checkpoint.stage == Stage::Catalogue(checkpoint.bytes.len()) {
            checkpoint.stage = Stage::Flush;
        }
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    /// Handles the completed flush of a file.
    pub(super) fn flushed(&mut self, file: FileId, result: Result<(), DiskError>) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.busy = false;
        match result {
            Ok(()) => {
                checkpoint.lacks_nothing();
                match &mut checkpoint.stage {
                    Stage::Flushes(files) => drop(files.remove(&file.number)),
                    Stage::Flush => checkpoint.stage = Stage::Name,
                    Stage::Writes | Stage::File | Stage::Catalogue(_) | Stage::Name => {}
                }
            }
            // The file was not opened, so no flush was attempted.
            Err(error) if error.lack == Some(Lack::Descriptors) => checkpoint.wait(&error),
            Err(error) => self.fail(&error),
        }
    }

    /// Handles the replacement of the small file.
    pub(super) fn kept<D: Disk>(&mut self, result: Result<(), DiskError>, disk: &mut D) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return;
        };
        checkpoint.busy = false;
        match result {
            Ok(()) => {
                self.checkpointed_to = checkpoint.at;
                for address in std::mem::take(&mut checkpoint.leaving) {
                    self.space.give(address);
                }
                self.checkpoint = None;
                std::mem::swap(&mut self.current, &mut self.spare);
                self.space.shrink(disk);
            }
            // Whether the file is old or new, the same contents are written again.
            Err(error) if error.lack.is_some() => checkpoint.wait(&error),
            Err(error) => self.fail(&error),
        }
    }
}
