//! State of the disk in memory that its handles share: operations in flight, and their completion.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, io,
};

use quorate_core::dice::Dice;
use rustix::io::Errno;

use super::{CrashFates, CrashReport, Fault, small_files, stored::Stored, to_usize};
use crate::disk::{
    BLOCK, Buffer, Completed, DiskCounters, DiskError, Durability, Family, FileId, Output,
    PendingKind, Position, SmallFiles, made,
};

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) life_number: u64,
    pub(super) stored: Stored,
    pub(super) small_files: small_files::Folder,
    pub(super) pending: BTreeMap<u64, Operation>,
    pub(super) completions: VecDeque<Completed>,
    next_id: u64,
    pub(super) manual_completion: bool,
    pub(super) read_only: bool,
    /// The folder is not synced after a rename.
    pub(super) skips_folder_syncs: bool,
    pub(super) capacity: Option<u64>,
    pub(super) faults: VecDeque<Fault>,
    pub(super) unreadable_positions: Vec<Position>,
    /// No files can be opened except those in `open`.
    pub(super) out_of_descriptors: bool,
    pub(super) open: BTreeSet<FileId>,
    pub(super) counters: DiskCounters,
    /// Number of bytes of the file being created that were last requested.
    pub(super) change_count: u64,
    pub(super) steps: u64,
    /// Number of changes left before the process dies, or `None` if it does not die.
    pub(super) changes_left: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) token: u64,
    pub(super) at: Position,
    pub(super) bytes: u64,
    pub(super) task: Task,
    /// Error of opening the file when the write was started, if it failed.
    pub(super) open_error: Option<DiskError>,
}

#[derive(Debug)]
pub(super) enum Task {
    Write {
        output: Output,
        durability: Durability,
    },
    Read {
        buffer: Buffer,
    },
    Flush {
        /// Mark taken when the flush started. The flush covers the writes below the mark.
        covers_below: u64,
    },
    Prepare,
    Retire,
    Reuse {
        from: FileId,
    },
    ReplaceSmallFile {
        name: &'static str,
        bytes: Vec<u8>,
    },
    ReadSmallFile {
        name: &'static str,
    },
}

impl Task {
    fn copy(&self) -> Self {
        let copy = |buffer: &[u8]| {
            let mut copy = Buffer::new(buffer.len());
            copy.copy_from_slice(buffer);
            copy
        };
        match self {
            Self::Write { output, durability } => {
                Self::Write { output: copy(output).into(), durability: *durability }
            }
            Self::Read { buffer } => Self::Read { buffer: copy(buffer) },
            Self::Flush { covers_below: covers } => Self::Flush { covers_below: *covers },
            Self::Prepare => Self::Prepare,
            Self::Retire => Self::Retire,
            Self::Reuse { from } => Self::Reuse { from: *from },
            Self::ReplaceSmallFile { name, bytes } => {
                Self::ReplaceSmallFile { name, bytes: bytes.clone() }
            }
            Self::ReadSmallFile { name } => Self::ReadSmallFile { name },
        }
    }
}

impl Operation {
    pub(super) fn kind(&self) -> PendingKind {
        match self.task {
            Task::Write { .. } => PendingKind::Write,
            Task::Read { .. } => PendingKind::Read,
            Task::Flush { .. } => PendingKind::Flush,
            Task::Prepare => PendingKind::Prepare,
            Task::Retire => PendingKind::Retire,
            Task::Reuse { .. } => PendingKind::Reuse,
            Task::ReplaceSmallFile { .. } => PendingKind::ReplaceSmallFile,
            Task::ReadSmallFile { .. } => PendingKind::ReadSmallFile,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FaultTarget {
    Write,
    Read,
    Flush,
    Prepare,
    Retire,
    Reuse,
    SmallFile,
}

impl Fault {
    fn applies_to(self, target: FaultTarget) -> bool {
        match self {
            Self::WriteFails | Self::ShortWrite { .. } | Self::Misdirected { .. } => {
                target == FaultTarget::Write
            }
            Self::FlushFails => matches!(target, FaultTarget::Write | FaultTarget::Flush),
            Self::ReadFails => target == FaultTarget::Read,
            Self::PrepareFails => target == FaultTarget::Prepare,
            Self::RetireFails => target == FaultTarget::Retire,
            Self::ReuseFails { .. } => target == FaultTarget::Reuse,
            Self::ReplaceFails { .. } => target == FaultTarget::SmallFile,
        }
    }
}

fn device_error(action: &str, file: impl fmt::Display) -> DiskError {
    DiskError::new(action, file, &io::Error::other("device failed"))
}

impl Shared {
    pub(super) fn start(&mut self, operation: Operation) {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, operation);
    }

    /// Completes an operation. Returns false if it does not exist, or if the process dies first.
    pub(super) fn complete(&mut self, id: u64) -> bool {
        if self.changes_left == Some(0) {
            return false;
        }
        let Some(operation) = self.pending.remove(&id) else {
            return false;
        };
        let Operation { token, at, bytes, task, open_error: not_opened } = operation;
        let file = at.file;
        let done = match task {
            Task::Write { output, durability } => Completed::Written {
                token,
                file,
                durability,
                result: self.write(token, at, &output[..to_usize(bytes)], durability, not_opened),
                output,
            },
            Task::Read { mut buffer } => {
                self.counters.read_count += 1;
                let failed = self.take_fault(FaultTarget::Read).is_some();
                let result = self.fill(at, &mut buffer, to_usize(bytes), failed);
                Completed::Read { token, file, buffer, result }
            }
            Task::Flush { covers_below: covers } => {
                Completed::Flushed { token, file, result: self.flush(file, covers) }
            }
            Task::Prepare => Completed::Prepared { file, result: self.prepare(file, bytes) },
            Task::Retire => Completed::Retired { file, result: self.retire(file) },
            Task::Reuse { from } => Completed::Prepared { file, result: self.reuse(from, file) },
            Task::ReplaceSmallFile { name, bytes } => {
                Completed::SmallFileReplaced { token, name, result: self.replace(name, &bytes) }
            }
            Task::ReadSmallFile { name } => {
                Completed::SmallFileRead { token, name, result: self.read(name) }
            }
        };
        self.completions.push_back(done);
        true
    }

    /// Counts a change to stored data. Returns false if the process dies before the change.
    fn count_change(&mut self) -> bool {
        match &mut self.changes_left {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        self.steps += 1;
        true
    }

    /// Removes and returns the first queued fault for operations on `target`.
    fn take_fault(&mut self, target: FaultTarget) -> Option<Fault> {
        let at = self.faults.iter().position(|fault| fault.applies_to(target))?;
        self.faults.remove(at)
    }

    fn write(
        &mut self,
        token: u64,
        at: Position,
        bytes: &[u8],
        durability: Durability,
        not_opened: Option<DiskError>,
    ) -> Result<(), DiskError> {
        self.count_change();
        self.counters.count_write(at.file.family, bytes.len() as u64);
        if durability == Durability::Flushed {
            self.counters.count_flush(at.file.family);
        }
        let fault = self.take_fault(FaultTarget::Write);
        if self.read_only {
            let error = io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(DiskError::new("write", at.file, &error));
        }
        if let Some(error) = not_opened {
            return Err(error);
        }
        match fault {
            None => {
                match durability {
                    Durability::Flushed => self.stored.write_durably(at, bytes),
                    Durability::AfterFlush => self.stored.write_in_doubt(at, bytes, true),
                }
                Ok(())
            }
            Some(Fault::Misdirected { blocks }) => {
                let at = at.file.position_at(at.offset + blocks * BLOCK as u64);
                self.stored.write(at, bytes);
                Ok(())
            }
            Some(Fault::FlushFails) => {
                self.stored.write_in_doubt(at, bytes, false);
                let error = io::Error::other("flush failed");
                Err(DiskError::new("sync", at.file, &error))
            }
            Some(Fault::ShortWrite { bytes: short }) => {
                let short = short.min(bytes.len());
                self.stored.write(at, &bytes[..short]);
                Err(DiskError::short_transfer("write", at.file, short, bytes.len()))
            }
            Some(_) => {
                self.stored.write_torn(at, bytes, &mut Dice::new(token));
                Err(device_error("write", at.file))
            }
        }
    }

    fn flush(&mut self, file: FileId, covers: u64) -> Result<(), DiskError> {
        self.count_change();
        self.counters.count_flush(file.family);
        self.stored_file("sync", file)?;
        if self.take_fault(FaultTarget::Flush).is_some() {
            self.stored.fail_flush(file, covers);
            let error = io::Error::other("flush failed");
            return Err(DiskError::new("sync", file, &error));
        }
        self.stored.flush(file, covers);
        Ok(())
    }

    fn prepare(&mut self, file: FileId, bytes: u64) -> Result<(), DiskError> {
        let failed = |error: io::Error| Err(DiskError::new("prepare", file, &error));
        if self.read_only {
            return failed(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        if self.out_of_descriptors {
            return failed(Errno::MFILE.into());
        }
        if self.take_fault(FaultTarget::Prepare).is_some() {
            return Err(device_error("prepare", file));
        }
        if self.free_bytes().is_some_and(|free| bytes > free) {
            return failed(io::ErrorKind::StorageFull.into());
        }
        self.counters.files_prepared += u64::from(file.family == Family::Log);
        self.count_change();
        self.stored.create(file, bytes);
        self.stored.sync_names(file.family);
        made::write(self, file)
    }

    fn reuse(&mut self, from: FileId, to: FileId) -> Result<(), DiskError> {
        if self.read_only {
            let error = io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(DiskError::new("rename to", to, &error));
        }
        let fault = self.take_fault(FaultTarget::Reuse);
        if fault == Some(Fault::ReuseFails { renamed: false }) {
            return Err(device_error("rename to", to));
        }
        // An earlier attempt may already have completed the rename.
        if self.stored.size(from).is_some() || self.stored.size(to).is_none() {
            self.stored_file("rename", from)?;
            if !self.count_change() {
                return Err(dead_process_error("rename to", to));
            }
            self.stored.rename_in_doubt(from, to);
        }
        if fault.is_some() {
            return Err(device_error("sync the folder of", to));
        }
        if !self.count_change() {
            return Err(dead_process_error("sync the folder of", to));
        }
        if !self.skips_folder_syncs {
            self.stored.sync_names(to.family);
        }
        made::write(self, to)
    }

    fn retire(&mut self, file: FileId) -> Result<(), DiskError> {
        self.count_change();
        if self.read_only {
            let error = io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(DiskError::new("remove", file, &error));
        }
        if self.take_fault(FaultTarget::Retire).is_some() {
            return Err(device_error("remove", file));
        }
        self.stored_file("remove", file)?;
        self.stored.remove(file);
        self.stored.sync_names(file.family);
        Ok(())
    }

    /// Implements [`super::MemoryDisk::crash_as`].
    pub(super) fn crash(&mut self, fates: &mut dyn CrashFates) -> CrashReport {
        self.life_number += 1;
        self.changes_left = None;
        self.open.clear();
        self.completions.clear();
        let (mut writes, mut retired) = (Vec::new(), Vec::new());
        for operation in std::mem::take(&mut self.pending).into_values() {
            let Operation { at, bytes, task, .. } = operation;
            match task {
                Task::Write { output, .. } => {
                    writes.push((at, output[..to_usize(bytes)].to_vec()));
                }
                Task::Retire => retired.push(at.file),
                // The change is begun here so that its outcome is settled along with the others.
                Task::Reuse { from } => self.stored.rename_in_doubt(from, at.file),
                Task::ReplaceSmallFile { name, bytes } => self.small_files.rename(name, &bytes),
                Task::Read { .. }
                | Task::Flush { .. }
                | Task::Prepare
                | Task::ReadSmallFile { .. } => {}
            }
        }
        let report = self.stored.crash(writes.into_iter(), fates);
        for file in retired {
            if fates.choose(2) == 0 {
                self.stored.remove(file);
            }
        }
        self.small_files.crash(fates);
        report
    }

    /// Returns a copy of the stored data and the operations in flight, for another disk.
    pub(super) fn copy(&self) -> Self {
        let operation = |(id, operation): (&u64, &Operation)| {
            let copy = Operation {
                task: operation.task.copy(),
                open_error: operation.open_error.clone(),
                ..*operation
            };
            (*id, copy)
        };
        Self {
            life_number: self.life_number,
            stored: self.stored.clone(),
            small_files: self.small_files.clone(),
            pending: self.pending.iter().map(operation).collect(),
            completions: VecDeque::new(),
            next_id: self.next_id,
            manual_completion: self.manual_completion,
            read_only: self.read_only,
            skips_folder_syncs: self.skips_folder_syncs,
            capacity: self.capacity,
            faults: self.faults.clone(),
            unreadable_positions: self.unreadable_positions.clone(),
            out_of_descriptors: self.out_of_descriptors,
            open: self.open.clone(),
            counters: self.counters,
            change_count: self.change_count,
            steps: self.steps,
            changes_left: self.changes_left,
        }
    }

    pub(super) fn stored_file(&self, action: &str, file: FileId) -> Result<(), DiskError> {
        match self.stored.size(file) {
            Some(_) => Ok(()),
            None => Err(DiskError::new(action, file, &io::ErrorKind::NotFound.into())),
        }
    }

    pub(super) fn fill(
        &self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
        failed: bool,
    ) -> Result<(), DiskError> {
        self.open(at.file)?;
        let end = at.offset + bytes as u64;
        let bad = |place: &Position| {
            place.file == at.file && at.offset < place.offset + BLOCK as u64 && place.offset < end
        };
        if failed || self.unreadable_positions.iter().any(bad) {
            return Err(device_error("read", at));
        }
        if end > self.stored.size(at.file).unwrap_or(0) {
            return Err(DiskError::short_transfer("read", at, 0, bytes));
        }
        buffer[..bytes].copy_from_slice(&self.stored.read(at, bytes));
        Ok(())
    }

    pub(super) fn open(&self, file: FileId) -> Result<(), DiskError> {
        if !self.out_of_descriptors || self.open.contains(&file) {
            return Ok(());
        }
        Err(DiskError::new("open", file, &Errno::MFILE.into()))
    }

    pub(super) fn free_bytes(&self) -> Option<u64> {
        let used: u64 = self.stored.sizes().map(|(_, bytes)| bytes).sum();
        Some(self.capacity?.saturating_sub(used))
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
        let fault = self.take_fault(FaultTarget::SmallFile);
        if fault == Some(Fault::ReplaceFails { renamed: false }) {
            return Err(device_error("write", name));
        }
        if !self.count_change() {
            return Err(dead_process_error("rename to", name));
        }
        self.small_files.rename(name, bytes);
        if fault.is_some() {
            return Err(device_error("sync the folder of", name));
        }
        if !self.count_change() {
            return Err(dead_process_error("sync the folder of", name));
        }
        self.small_files.sync();
        Ok(())
    }
}

/// Returns the error for calls of a dead process.
pub(super) fn dead_process_error(action: &str, file: impl fmt::Display) -> DiskError {
    DiskError::new(action, file, &io::Error::other("the process is dead"))
}
