//! The disk port: operations that a node requests from a disk, and their completions.
//!
//! Files come in families ([`Family`]); one driver serves them all. Files have a fixed size and are
//! created off the commit path, full of zeros ([disk-10]). A write covers whole blocks of one file;
//! it is durable when it completes (DSYNC), or after a later flush. At most [`OPERATIONS_MAX`]
//! operations are in flight, the rest are queued; they may complete in any order.
//!
//! [`open`] chooses the best driver for a folder: io_uring, or blocking threads. [`MemoryDisk`] is
//! the disk of tests and of the simulator, and injects faults on request.
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod blocks;
mod buffer;
mod checksum;
#[cfg(target_os = "linux")]
mod choose;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod conformance_tests;
#[cfg(target_os = "linux")]
mod driver;
mod durations;
mod error;
#[cfg(target_os = "linux")]
mod event;
mod file_id;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod folder;
pub mod made;
#[cfg(target_os = "linux")]
mod mailbox;
#[cfg(target_os = "linux")]
mod maker;
mod memory;
#[cfg(test)]
mod memory_tests;
#[cfg(target_os = "linux")]
mod modelled;
#[cfg(target_os = "linux")]
mod operation;
#[cfg(target_os = "linux")]
mod pace;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod pace_tests;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod races_tests;
pub mod sealed;
mod small_files;
#[cfg(test)]
mod small_files_tests;
#[cfg(target_os = "linux")]
mod sync;
#[cfg(target_os = "linux")]
mod threads;
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "a ring shares memory with the kernel; see the module's argument")]
mod uring;

use std::os::fd::BorrowedFd;

pub use blocks::{BlockPool, Blocks, CHECKED_BYTES, Filling, Output};
pub use buffer::{Buffer, Buffers};
pub use checksum::joined;
#[cfg(target_os = "linux")]
pub use choose::{DriverChoice, open, open_with};
#[cfg(target_os = "linux")]
pub use driver::FileDisk;
pub use durations::Durations;
pub use error::{DiskError, Lack, is_full};
pub use file_id::{Family, FileId, FileInfo, Position};
#[cfg(target_os = "linux")]
pub use folder::{Abilities, ReadOnlyFolder};
pub use memory::{CrashReport, EveryFate, Fates, Fault, MemoryDisk, Pending, PendingKind};
#[cfg(target_os = "linux")]
pub use modelled::{FlushModel, device_time};
pub use small_files::{DataFolder, SmallFiles, temporary};
#[cfg(target_os = "linux")]
pub use uring::available as uring_available;

/// Unit of reads and writes; no block is written twice ([disk-1]).
pub const BLOCK: usize = 4096;
/// Largest unit that a crash leaves either old or new, never mixed ([model-3]).
pub const SECTOR: usize = 512;
/// Maximum number of writes, reads and flushes, over all families, that a driver submits to the
/// device at a time. Further requests are queued; each family bounds its own.
pub const OPERATIONS_MAX: usize = 43;

/// Maximum size of a small file, in bytes. Of a longer one only the beginning could be read.
pub const SMALL_FILE_BYTES_MAX: usize = small_files::BYTES_MAX;

/// Blocking read access to files: what recovery and the offline tools need.
pub trait Source {
    /// Returns all files of a family, in order of their numbers.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError>;

    /// Returns the newest file ever created in a family, as recorded apart from the files (number
    /// 0: none was created); `None` if nothing was recorded.
    ///
    /// # Errors
    /// The recorded number cannot be read.
    fn made(&mut self, family: Family) -> Result<Option<FileId>, DiskError>;

    /// Reads the small file of this name, next to the folders of the families; `None` if there is
    /// none. See [`Disk::start_replace_small_file`].
    ///
    /// # Errors
    /// The file may exist, but cannot be read.
    fn kept(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError>;

    /// Fills the buffer and blocks until done. Offset and length are whole blocks within the file.
    ///
    /// # Errors
    /// The file cannot be opened or read, or is too short.
    fn read_now(
        &mut self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
    ) -> Result<(), DiskError>;
}

/// Method of zeroing a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// Zeros are written. Later writes change no metadata, so a commit is one write and one flush.
    Written,
    /// Blocks are reserved and read as zeros, where the file system supports that. Halves the bytes
    /// written, for files off the commit path, but each write then changes metadata, since it marks
    /// its blocks as used.
    Reserved,
}

/// Point at which a write reaches stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On completion of the write.
    Flushed,
    /// On completion of a flush of the file that was started after the write completed. Until then,
    /// a crash keeps or loses each sector independently.
    Later,
}

/// A completed operation.
#[derive(Debug)]
pub enum Completed {
    /// A write completed.
    Written {
        /// As passed to [`Disk::start_write`].
        token: u64,
        file: FileId,
        durability: Durability,
        /// Returned to the caller.
        output: Output,
        /// After an error the contents on disk are unknown.
        result: Result<(), DiskError>,
    },
    /// A read completed.
    Read {
        /// As passed to [`Disk::start_read`].
        token: u64,
        file: FileId,
        /// Returned to the caller, filled.
        buffer: Buffer,
        result: Result<(), DiskError>,
    },
    /// A flush completed.
    Flushed {
        /// As passed to [`Disk::start_flush`].
        token: u64,
        file: FileId,
        /// After an error it is unknown which writes are durable; a later successful flush proves
        /// nothing about them ([disk-9]).
        result: Result<(), DiskError>,
    },
    /// A file is ready to be written, or could not be created.
    Prepared {
        file: FileId,
        /// After an error the file is absent, or all zeros, or still the one to be recycled;
        /// another attempt to create the same file replaces it.
        result: Result<(), DiskError>,
    },
    /// A small file was replaced, or the attempt failed.
    SmallFileReplaced {
        /// As passed to [`Disk::start_replace_small_file`].
        token: u64,
        name: &'static str,
        /// After an error the file has its old or its new contents, and the next crash may change
        /// which. Only a later success settles it.
        result: Result<(), DiskError>,
    },
    /// A small file was read back, or the attempt failed.
    SmallFileRead {
        /// As passed to [`Disk::start_read_small_file`].
        token: u64,
        name: &'static str,
        /// Contents of the file; `None` if there is no such file.
        result: Result<Option<Vec<u8>>, DiskError>,
    },
    /// A file was removed, or could not be removed.
    Retired {
        file: FileId,
        /// After an error the file may or may not exist.
        result: Result<(), DiskError>,
    },
}

/// Counts of disk operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Writes to files of all families. The log issues one per commit.
    pub writes: u64,
    /// Flushes of files of all families. The log issues one per commit.
    pub flushes: u64,
    /// Bytes written to files of all families.
    pub write_bytes: u64,
    /// Writes to files of families other than the log's.
    pub other_writes: u64,
    /// Flushes of files of families other than the log's.
    pub other_flushes: u64,
    /// Bytes written to files of families other than the log's.
    pub other_bytes: u64,
    /// Reads since start.
    pub reads: u64,
    /// Log segments created.
    pub prepared: u64,
    /// Times that a write had to wait for a segment.
    pub segment_waits: u64,
    /// Times from the start of a log write until it was on stable storage; empty if the disk has no
    /// clock.
    pub flush_times: Durations,
}

impl DiskCounters {
    /// Counts a write to a family's file.
    pub(crate) fn wrote(&mut self, family: Family, bytes: u64) {
        self.writes += 1;
        self.write_bytes += bytes;
        if family != Family::Log {
            self.other_writes += 1;
            self.other_bytes += bytes;
        }
    }

    /// Counts a flush of a family's file.
    pub(crate) fn flushed(&mut self, family: Family) {
        self.flushes += 1;
        self.other_flushes += u64::from(family != Family::Log);
    }

    /// Returns the counts of the log's own files only.
    #[must_use]
    pub fn of_the_log(mut self) -> Self {
        self.writes -= std::mem::take(&mut self.other_writes);
        self.flushes -= std::mem::take(&mut self.other_flushes);
        self.write_bytes -= std::mem::take(&mut self.other_bytes);
        self
    }
}

/// A disk. Calls return at once, except those of [`Source`], [`Disk::sync_now`],
/// [`Disk::sync_names`], [`Disk::note_made`] and those that open a file.
pub trait Disk: Source {
    /// Makes the contents of a file durable, and blocks until done. Only at start: recovery may
    /// have read data that is still in a cache.
    ///
    /// # Errors
    /// It is unknown what is durable.
    fn sync_now(&mut self, file: FileId) -> Result<(), DiskError>;

    /// Makes the set of files and the contents of small files durable, and blocks until done. Only
    /// at start: the next crash could undo what is visible after this one.
    ///
    /// # Errors
    /// It is unknown what is durable.
    fn sync_names(&mut self) -> Result<(), DiskError>;

    /// Allocates a write buffer of `bytes` bytes in whole blocks, with arbitrary contents. A driver
    /// may return memory that it registered in advance.
    fn allocate(&mut self, bytes: usize) -> Buffer {
        Buffer::new(bytes)
    }

    /// Releases a buffer from [`Disk::allocate`].
    fn release(&mut self, buffer: Buffer) {
        drop(buffer);
    }

    /// Writes the first `bytes` bytes, whole blocks. With [`Durability::Flushed`] they are durable
    /// on completion; the rest of the file need not be ([disk-6]).
    fn start_write(
        &mut self,
        token: u64,
        at: Position,
        output: Output,
        bytes: usize,
        durability: Durability,
    );

    /// Reads `bytes` bytes, whole blocks, into the start of the buffer.
    fn start_read(&mut self, token: u64, at: Position, buffer: Buffer, bytes: usize);

    /// Makes all completed writes of a file durable.
    fn start_flush(&mut self, token: u64, file: FileId);

    /// Opens the next file of a family to be written, ahead of need, and keeps it open until a
    /// later one is written. A file for which this failed is never written, so a write never lacks
    /// a descriptor.
    ///
    /// # Errors
    /// The file does not exist, or cannot be opened now.
    fn open_ahead(&mut self, file: FileId) -> Result<(), DiskError>;

    /// Records durably that files up to this one were created, and blocks until done. Only at
    /// start.
    ///
    /// # Errors
    /// The number may or may not be recorded.
    fn note_made(&mut self, made: FileId) -> Result<(), DiskError>;

    /// Creates a file: zeros, sync, rename, sync of the folder ([disk-10]); then its number is
    /// recorded.
    fn start_prepare(&mut self, file: FileId, bytes: u64, zeros: Zeros);

    /// Recycles a file that is no longer needed under a new name of its family: rename, sync of the
    /// folder ([disk-10]), then the number is recorded. Completes as [`Completed::Prepared`] with
    /// `to`. Size and contents stay: the reader must know what was written under the new name.
    /// Operations in flight for `from` complete as if it still existed. After an error the same
    /// request may be repeated, whatever its progress.
    fn start_reuse(&mut self, from: FileId, to: FileId);

    /// Replaces the contents of a small file, durably, by at most [`SMALL_FILE_BYTES_MAX`] bytes. After a
    /// crash the contents are old or new, never mixed.
    fn start_replace_small_file(&mut self, token: u64, name: &'static str, bytes: Vec<u8>);

    /// Reads a small file back to verify it: from the device, as far as the system's cache can be
    /// bypassed.
    fn start_read_small_file(&mut self, token: u64, name: &'static str);

    /// Announces a write, by which `bytes` bytes of the family's next file should exist. Beyond
    /// that it is created while no writes are in flight, so that commits do not wait for it.
    fn pace_prepare(&mut self, family: Family, bytes: u64);

    /// Creates the family's next file without pauses, because a write waits for it.
    fn hurry_prepare(&mut self, family: Family);

    /// Removes a file, durably. Operations in flight for it complete as if it existed; no new ones
    /// may be started.
    fn start_retire(&mut self, file: FileId);

    /// Returns a descriptor to read a file with directly, for splice and sendfile; `None` if the
    /// files of this disk have none. Use it at once: the disk may close it later.
    ///
    /// # Errors
    /// The file does not exist, or cannot be opened now.
    fn descriptor(&mut self, file: FileId) -> Result<Option<BorrowedFd<'_>>, DiskError>;

    /// Returns the next completion.
    fn poll(&mut self) -> Option<Completed>;

    /// Returns a descriptor, for epoll, that is readable when [`Disk::poll`] has a completion.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the free space for new files of a family, in bytes, if known.
    fn free_bytes(&self, family: Family) -> Option<u64>;

    /// Describes the driver and why it was chosen; logged at start.
    fn describe(&self) -> String;

    fn counters(&self) -> DiskCounters;
}
