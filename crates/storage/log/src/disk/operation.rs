//! Operations requested from a driver, and their completions.

use std::{fs::File, sync::Arc};

use crate::disk::{
    Buffer, Completed, DiskCounters, DiskError, Durability, FileId, Output, Position,
    folder::Folder,
};

#[derive(Debug)]
pub(crate) enum Task {
    Write { output: Output, bytes: usize, durability: Durability },
    Read { buffer: Buffer, bytes: usize },
    Flush,
}

/// An operation with its token and position.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) token: u64,
    pub(crate) at: Position,
    pub(crate) task: Task,
}

impl Operation {
    pub(crate) fn write(
        token: u64,
        at: Position,
        output: Output,
        bytes: usize,
        durability: Durability,
    ) -> Self {
        let task = Task::Write { output, bytes, durability };
        Self { token, at, task }
    }

    pub(crate) fn read(token: u64, at: Position, buffer: Buffer, bytes: usize) -> Self {
        let task = Task::Read { buffer, bytes };
        Self { token, at, task }
    }

    pub(crate) fn flush(token: u64, file: FileId) -> Self {
        let (at, task) = (file.position_at(0), Task::Flush);
        Self { token, at, task }
    }

    /// Returns a copy that refers to no memory, for an operation whose memory is leaked.
    pub(crate) fn without_memory(&self) -> Self {
        let buffer = Buffer::new(0);
        let task = match self.task {
            Task::Write { bytes, durability, .. } => {
                Task::Write { output: buffer.into(), bytes, durability }
            }
            Task::Read { bytes, .. } => Task::Read { buffer, bytes },
            Task::Flush => Task::Flush,
        };
        let (token, at) = (self.token, self.at);
        Self { token, at, task }
    }

    pub(crate) fn open(&self, folder: &mut Folder) -> Result<Arc<File>, DiskError> {
        match self.task {
            Task::Write { .. } => folder.file_for_write(self.at.file),
            Task::Read { .. } | Task::Flush => folder.file_for_read(self.at.file),
        }
    }

    pub(crate) fn count(&self, counters: &mut DiskCounters) {
        let family = self.at.file.family;
        match &self.task {
            Task::Write { bytes, durability, .. } => {
                counters.count_write(family, *bytes as u64);
                if *durability == Durability::Flushed {
                    counters.count_flush(family);
                }
            }
            Task::Read { .. } => counters.read_count += 1,
            Task::Flush => counters.count_flush(family),
        }
    }

    pub(crate) fn action(&self) -> &'static str {
        match self.task {
            Task::Write { .. } => "write",
            Task::Read { .. } => "read",
            Task::Flush => "sync",
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self.task {
            Task::Write { bytes, .. } | Task::Read { bytes, .. } => bytes,
            Task::Flush => 0,
        }
    }

    pub(crate) fn end(self, result: Result<(), DiskError>) -> Completed {
        let (token, file) = (self.token, self.at.file);
        match self.task {
            Task::Write { output, durability, .. } => {
                Completed::Written { token, file, durability, output, result }
            }
            Task::Read { buffer, .. } => Completed::Read { token, file, buffer, result },
            Task::Flush => Completed::Flushed { token, file, result },
        }
    }
}
