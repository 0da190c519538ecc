//! The disk port: what a node asks of a disk, and what it is told.
//!
//! Files come in families ([`Family`]); one driver serves them all. They have a fixed size and are
//! born off the path full of zeros ([disk-10]). A write covers whole blocks of one file; it is
//! durable when it completes (DSYNC), or by a flush that comes later. At most [`OPERATIONS_MAX`]
//! operations are in flight, more wait for their turn; they may complete in any order.
//!
//! [`open`] finds the best driver for a folder: io_uring, or threads that block. [`MemoryDisk`] is
//! the disk of tests and of the simulator, and fails exactly as told.
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
pub use choose::{Want, open, open_with};
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
/// The part of a block that a crash leaves old or new, never mixed ([model-3]).
pub const SECTOR: usize = 512;
/// Most writes, reads and flushes together that a driver hands to the device at a time, for all
/// families. What more is asked for waits: each family bounds what it asks for.
pub const OPERATIONS_MAX: usize = 43;

/// Most bytes of a small file that is kept; of a longer one only the beginning could be read.
pub const KEPT_BYTES_MAX: usize = small_files::BYTES_MAX;

/// Files that can be read at leisure: what recovery and the offline tools need.
pub trait Source {
    /// All files of a family, in order of their numbers.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError>;

    /// The file of a family that was made last, number 0 for none, as written down apart from the
    /// files; `None` if that was never done.
    ///
    /// # Errors
    /// What was written down cannot be read.
    fn made(&mut self, family: Family) -> Result<Option<FileId>, DiskError>;

    /// Reads the small file of this name, next to the folders of the families; `None` if there is
    /// none. See [`Disk::start_keep`].
    ///
    /// # Errors
    /// The file may exist, but cannot be read.
    fn kept(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError>;

    /// Fills the buffer, now. Offset and length are whole blocks within the file.
    ///
    /// # Errors
    /// The file cannot be opened or read, or ends before.
    fn read_now(
        &mut self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
    ) -> Result<(), DiskError>;
}

/// How a new file gets its zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// Zeros are written: no later write changes metadata, so a commit is one write and one flush.
    Written,
    /// Blocks are reserved and read as zeros, where the file system can do that: half the bytes,
    /// for files off the commit path. Each write then changes metadata, since it marks its blocks
    /// as used.
    Reserved,
}

/// When a write is on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it completes.
    Flushed,
    /// When a flush of its file completes that was started after the write had completed. Before, a
    /// crash keeps or loses each of its sectors.
    Later,
}

/// A completed operation.
#[derive(Debug)]
pub enum Completed {
    /// A write ended.
    Written {
        /// As given to [`Disk::start_write`].
        token: u64,
        file: FileId,
        durability: Durability,
        /// Comes back.
        output: Output,
        /// After an error the contents on disk are unknown.
        result: Result<(), DiskError>,
    },
    /// A read ended.
    Read {
        /// As given to [`Disk::start_read`].
        token: u64,
        file: FileId,
        /// Comes back, filled.
        buffer: Buffer,
        result: Result<(), DiskError>,
    },
    /// A flush ended.
    Flushed {
        /// As given to [`Disk::start_flush`].
        token: u64,
        /// The file.
        file: FileId,
        /// After an error it is unknown which writes are durable, and a later flush that succeeds
        /// says nothing about them ([disk-9]).
        result: Result<(), DiskError>,
    },
    /// A file is ready to be written to, or could not be made.
    Prepared {
        /// Which.
        file: FileId,
        /// After an error the file is absent, or all zeros, or still the one to be recycled;
        /// another attempt to make the same file replaces it.
        result: Result<(), DiskError>,
    },
    /// A small file was replaced, or not.
    Kept {
        /// As given to [`Disk::start_keep`].
        token: u64,
        /// Its name.
        name: &'static str,
        /// After an error the file has its old or its new contents, and the next crash may change
        /// which; only a later success settles it.
        result: Result<(), DiskError>,
    },
    /// A small file was read back, or not.
    Recalled {
        /// As given to [`Disk::start_recall`].
        token: u64,
        /// Its name.
        name: &'static str,
        /// Contents of the file; `None` if there is no such file.
        result: Result<Option<Vec<u8>>, DiskError>,
    },
    /// A file is gone, or could not be removed.
    Retired {
        /// Which.
        file: FileId,
        /// After an error the file may exist or not.
        result: Result<(), DiskError>,
    },
}

/// Counts of disk operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Writes into files; of the log one per commit.
    pub writes: u64,
    /// Flushes; of the log one per commit.
    pub flushes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Writes to files of other families than the log's.
    pub other_writes: u64,
    /// Flushes of files of other families.
    pub other_flushes: u64,
    /// Bytes written to files of other families.
    pub other_bytes: u64,
    /// Reads after start.
    pub reads: u64,
    /// Segments of the log prepared.
    pub prepared: u64,
    /// Segments that a write had to wait for.
    pub segment_waits: u64,
    /// Times from the start of a log write until it was on stable storage; empty if the disk has no
    /// clock.
    pub flush_times: Durations,
}

impl DiskCounters {
    /// A write of a family's file.
    pub(crate) fn wrote(&mut self, family: Family, bytes: u64) {
        self.writes += 1;
        self.write_bytes += bytes;
        if family != Family::Log {
            self.other_writes += 1;
            self.other_bytes += bytes;
        }
    }

    /// A flush of a family's file.
    pub(crate) fn flushed(&mut self, family: Family) {
        self.flushes += 1;
        self.other_flushes += u64::from(family != Family::Log);
    }

    /// Only what was done with files of the log.
    #[must_use]
    pub fn of_the_log(mut self) -> Self {
        self.writes -= std::mem::take(&mut self.other_writes);
        self.flushes -= std::mem::take(&mut self.other_flushes);
        self.write_bytes -= std::mem::take(&mut self.other_bytes);
        self
    }
}

/// A disk. All calls but those of [`Source`], [`Disk::sync_now`], [`Disk::sync_names`],
/// [`Disk::note_made`] and those that open a file return at once.
pub trait Disk: Source {
    /// Makes what a file holds durable, now. Only at start: what recovery read may still be on its
    /// way to the device.
    ///
    /// # Errors
    /// It is unknown what is durable.
    fn sync_now(&mut self, file: FileId) -> Result<(), DiskError>;

    /// Makes durable, now, which files there are and what small files hold. Only at start: what is
    /// seen after a crash, the next one could undo.
    ///
    /// # Errors
    /// It is unknown what is durable.
    fn sync_names(&mut self) -> Result<(), DiskError>;

    /// Memory for a write, of `bytes` bytes in whole blocks and with any contents; a driver may
    /// hand out memory that it knows in advance.
    fn allocate(&mut self, bytes: usize) -> Buffer {
        Buffer::new(bytes)
    }

    /// Takes back what [`Disk::allocate`] gave.
    fn release(&mut self, buffer: Buffer) {
        drop(buffer);
    }

    /// Writes the first `bytes` bytes, whole blocks; if `durability` says so, they are durable when
    /// that completes, and nothing else of the file needs to be ([disk-6]).
    fn start_write(
        &mut self,
        token: u64,
        at: Position,
        output: Output,
        bytes: usize,
        durability: Durability,
    );

    /// Reads `bytes` bytes, whole blocks, to the start of the buffer.
    fn start_read(&mut self, token: u64, at: Position, buffer: Buffer, bytes: usize);

    /// Makes durable what the writes to a file wrote that have completed.
    fn start_flush(&mut self, token: u64, file: FileId);

    /// Opens the file of a family that is written to next, before that is needed, and keeps it open
    /// until a later one is written to. Nothing is written to a file for which this failed, so a
    /// write never lacks a descriptor.
    ///
    /// # Errors
    /// The file is not there, or cannot be opened now.
    fn open_ahead(&mut self, file: FileId) -> Result<(), DiskError>;

    /// Writes down, now and durably, that files up to this one were made. Only at start.
    ///
    /// # Errors
    /// It may be written down or not.
    fn note_made(&mut self, made: FileId) -> Result<(), DiskError>;

    /// Makes a new file: zeros, sync, rename, sync of the folder ([disk-10]); then its number is
    /// written down.
    fn start_prepare(&mut self, file: FileId, bytes: u64, zeros: Zeros);

    /// Recycles a file that is no longer needed under a new name of its family: rename, sync of the
    /// folder ([disk-10]), then the number is written down. Completes as [`Completed::Prepared`]
    /// with `to`. Size and contents stay: the reader must know what was written under the new name.
    /// Operations in flight for `from` complete as if it still existed. After an error the same
    /// request may be repeated, however far it got.
    fn start_reuse(&mut self, from: FileId, to: FileId);

    /// Makes these bytes, at most [`KEPT_BYTES_MAX`], the contents of a small file, durably: old or
    /// new after a crash, never mixed.
    fn start_keep(&mut self, token: u64, name: &'static str, bytes: Vec<u8>);

    /// Reads a small file back, for who wants to know whether it is sound: from the device, as far
    /// as the system can be told to forget what it has of it.
    fn start_recall(&mut self, token: u64, name: &'static str);

    /// A write begins, and `bytes` bytes of the family's file that is being made should be there by
    /// now. Beyond that it is made when nothing is written, so that commits do not wait for it.
    fn want_prepared(&mut self, family: Family, bytes: u64);

    /// Makes the family's next file without pauses, because a write waits for it.
    fn hurry_prepare(&mut self, family: Family);

    /// Removes a file, durably. What is in flight for it ends as if it were there; nothing new is
    /// started.
    fn start_retire(&mut self, file: FileId);

    /// A descriptor to read a file with past this port, for splice and sendfile; `None` if the
    /// files of this disk have none. It is to be used now: the disk may close it later.
    ///
    /// # Errors
    /// The file is not there, or cannot be opened now.
    fn descriptor(&mut self, file: FileId) -> Result<Option<BorrowedFd<'_>>, DiskError>;

    /// The next thing that ended.
    fn poll(&mut self) -> Option<Completed>;

    /// Readable when [`Disk::poll`] has something; for epoll.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Room for new files of a family, if known.
    fn free_bytes(&self, family: Family) -> Option<u64>;

    /// Describes the driver and why it was chosen; logged at start.
    fn describe(&self) -> String;

    fn counters(&self) -> DiskCounters;
}
