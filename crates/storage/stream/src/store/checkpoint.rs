//! A checkpoint: what was written is flushed, then a catalogue is written and flushed, then the
//! small file names it.
//!
//! The catalogue is made at once when a checkpoint begins, so puts may go on meanwhile. It names
//! places that are written or being written, and carries all other bytes itself: a disk without
//! room for another chunk still takes a checkpoint, and so gets back the chunks of what was
//! dropped. Two files take turns: the one that is written to is not the one that is named.

use std::collections::BTreeSet;

use quorate_core::slot::Slot;
use quorate_log::disk::{BLOCK, Buffer, Disk, DiskError, Durability, Family, FileId, Lack};

use super::{
    Store, catalogue,
    layout::Address,
    patience::Patience,
    pointer::{self, Pointer},
    space::{Made, Purpose},
};

/// A checkpoint writes or flushes one thing at a time.
pub(super) const OPERATIONS_MAX: usize = 1;
/// A catalogue is written in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;

/// A file that a catalogue lies in, or one lay in.
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

/// A checkpoint that is being made.
#[derive(Debug)]
pub(super) struct Checkpoint {
    at: Slot,
    /// The catalogue.
    bytes: Vec<u8>,
    checksum: u32,
    /// The catalogue names no write from this number on.
    barrier: u64,
    /// Chunks that it does not name any more.
    leaving: Vec<Address>,
    stage: Stage,
    /// Something is in flight for it.
    busy: bool,
    /// The checkpoint has waited for space: its contents may be less by now.
    stale: bool,
    patience: Patience,
    short: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// The writes that it names are being done.
    Writes,
    /// These files are to be flushed.
    Flushes(BTreeSet<u64>),
    /// A file for the catalogue is made, if there is none that is large enough.
    File,
    /// The catalogue is written from this byte on.
    Catalogue(usize),
    /// The catalogue is flushed.
    Flush,
    /// The small file is replaced.
    Name,
}

impl Checkpoint {
    pub(super) fn short(&self) -> Option<&str> {
        self.short.as_deref()
    }

    /// Notes that a resource is missing; the step is tried again later.
    fn wait(&mut self, why: &DiskError) {
        self.patience.failed();
        self.short = Some(why.to_string());
    }

    fn goes_on(&mut self, stage: Stage) {
        self.stage = stage;
        self.busy = false;
    }

    /// Notes that the missing resource is there.
    fn lacks_nothing(&mut self) {
        self.patience.succeeded();
        self.short = None;
    }
}

impl Store {
    /// Begins a checkpoint: the caller has put everything decided below `at`. Bytes put from now on
    /// belong to the next. `false` if one is being made, the store has failed, or `at` is not known
    /// to be later than before.
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
            patience: Patience::default(),
            short: None,
        };
        self.compile(&mut checkpoint);
        self.checkpoint = Some(checkpoint);
        self.advance(disk);
        true
    }

    /// Returns whether a checkpoint is being made.
    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Makes the catalogue of what there is now.
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

    /// Takes as many steps as can be done now. An error is final.
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
                    disk.start_keep(0, pointer::FILE, pointer.encode());
                    checkpoint.busy = true;
                }
            }
        }
        Ok(())
    }

    /// Makes a file for the catalogue, with room for what grows: and for all that may wait in
    /// memory, so that a disk that is full by then takes a catalogue that carries it.
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

    /// Notes that the file was made, or that there is no space for it now.
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

    /// Notes that a piece of the catalogue was written.
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

    /// Notes that a file was flushed.
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
            // It was not opened, so nothing has been tried.
            Err(error) if error.lack == Some(Lack::Descriptors) => checkpoint.wait(&error),
            Err(error) => self.fail(&error),
        }
    }

    /// Notes whether the small file names the catalogue.
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
            // Whichever of the two the file is by now, the same is written again.
            Err(error) if error.lack.is_some() => checkpoint.wait(&error),
            Err(error) => self.fail(&error),
        }
    }
}
