//! The disk port: operations that a node requests from a disk, and their completions.
//!
//! Files come in families ([`Family`]); one driver serves them all. Files have a fixed size and are
//! created off the commit path, full of zeros ([disk-10]). A write covers whole blocks of one file.
//! It is durable when it completes (DSYNC), or after a later flush. At most [`OPERATIONS_MAX`]
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
mod private_files;
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
pub use checksum::combine_checksums;
#[cfg(target_os = "linux")]
pub use choose::{DriverChoice, open, open_with};
#[cfg(target_os = "linux")]
pub use driver::FileDisk;
pub use durations::DurationHistogram;
pub use error::{DiskError, ExhaustedResource, is_full};
pub use file_id::{Family, FileId, FileInfo, Position};
#[cfg(target_os = "linux")]
pub use folder::{FileSystemFeatures, ReadOnlyFolder};
pub use memory::{CrashFates, CrashReport, EveryFate, Fault, MemoryDisk, Pending, PendingKind};
#[cfg(target_os = "linux")]
pub use modelled::{FlushModel, device_time};
pub use private_files::{create_private_folder, make_private, private_file};
pub use small_files::{DataFolder, SmallFiles, temporary_name};
#[cfg(target_os = "linux")]
pub use uring::describe_available as uring_available;

/// Size of a block, in bytes. Reads and writes cover whole blocks, and no block is written twice
/// ([disk-1]).
pub const BLOCK: usize = 4096;
/// Size of a sector, in bytes: the largest unit that a crash leaves either old or new, never mixed
/// ([model-3]).
pub const SECTOR: usize = 512;
/// Maximum number of writes, reads and flushes, over all families, that a driver has in flight.
/// Further requests are queued. Each family limits its own requests.
pub const OPERATIONS_MAX: usize = 43;

/// Maximum size of a small file, in bytes. A longer one cannot be read as a whole.
pub const SMALL_FILE_BYTES_MAX: usize = small_files::BYTES_MAX;

/// Blocking read access to files, for recovery and the offline tools.
pub trait Source {
    /// Returns all files of a family, in order of their numbers.
    fn files(&mut self, family: Family) -> Result<Vec<FileInfo>, DiskError>;

    /// Returns the newest file ever created in a family, according to a record stored apart from
    /// the files. The number is 0 if no file has been created. Returns `None` if there is no
    /// record.
    fn newest_created(&mut self, family: Family) -> Result<Option<FileId>, DiskError>;

    /// Reads a small file in the data folder, or returns `None` if it does not exist. See
    /// [`Disk::start_replace_small_file`]. After an error, the file may exist.
    fn read_small_file(&mut self, name: &str) -> Result<Option<Vec<u8>>, DiskError>;

    /// Fills the buffer from a file. Blocks until done. Offset and length must be whole blocks
    /// within the file.
    fn read_now(
        &mut self,
        at: Position,
        buffer: &mut Buffer,
        bytes: usize,
    ) -> Result<(), DiskError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroFill {
    /// Writes zeros. Later writes change no metadata, so a commit is one write and one flush.
    Written,
    /// Reserves blocks that read as zeros, if the file system supports it. This halves the number
    /// of bytes written, but each later write changes metadata to mark its blocks as used. For
    /// files off the commit path.
    Reserved,
}

/// The point at which a write reaches stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The write is durable when it completes.
    Flushed,
    /// The write is durable once a later flush of the file completes. That flush must start after
    /// the write has completed. Until then, a crash keeps or loses each sector independently.
    AfterFlush,
}

#[derive(Debug)]
pub enum Completed {
    Written {
        /// Token passed to [`Disk::start_write`].
        token: u64,
        file: FileId,
        durability: Durability,
        /// The memory that was written.
        output: Output,
        /// After an error, the contents on disk are unknown.
        result: Result<(), DiskError>,
    },
    Read {
        /// Token passed to [`Disk::start_read`].
        token: u64,
        file: FileId,
        buffer: Buffer,
        result: Result<(), DiskError>,
    },
    Flushed {
        /// Token passed to [`Disk::start_flush`].
        token: u64,
        file: FileId,
        /// After an error, it is unknown which writes are durable, and a later successful flush
        /// proves nothing about them ([disk-9]).
        result: Result<(), DiskError>,
    },
    /// A file was created or recycled.
    Prepared {
        file: FileId,
        /// After an error, the file is absent, all zeros, or still the one to be recycled. Another
        /// attempt to create the same file replaces it.
        result: Result<(), DiskError>,
    },
    SmallFileReplaced {
        /// Token passed to [`Disk::start_replace_small_file`].
        token: u64,
        name: &'static str,
        /// After an error, the file has its old or its new contents, and the next crash may switch
        /// between them. Only a later success settles the contents.
        result: Result<(), DiskError>,
    },
    SmallFileRead {
        /// Token passed to [`Disk::start_read_small_file`].
        token: u64,
        name: &'static str,
        result: Result<Option<Vec<u8>>, DiskError>,
    },
    /// A file was removed.
    Retired {
        file: FileId,
        /// After an error, the file may or may not exist.
        result: Result<(), DiskError>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Number of writes, over all families. The log issues one per log write.
    pub writes: u64,
    /// Number of flushes, over all families. The log issues one per log write.
    pub flushes: u64,
    pub write_bytes: u64,
    /// Number of writes by families other than the log.
    pub other_family_writes: u64,
    /// Number of flushes by families other than the log.
    pub other_family_flushes: u64,
    /// Number of bytes written by families other than the log.
    pub other_family_bytes: u64,
    pub read_count: u64,
    pub files_prepared: u64,
    /// Number of times that a log write had to wait for a segment.
    pub segment_waits: u64,
    /// Histogram of the time from the start of a log write until it is on stable storage. Empty if
    /// the disk has no clock.
    pub flush_times: DurationHistogram,
}

impl DiskCounters {
    pub(crate) fn count_write(&mut self, family: Family, bytes: u64) {
        self.writes += 1;
        self.write_bytes += bytes;
        if family != Family::Log {
            self.other_family_writes += 1;
            self.other_family_bytes += bytes;
        }
    }

    pub(crate) fn count_flush(&mut self, family: Family) {
        self.flushes += 1;
        self.other_family_flushes += u64::from(family != Family::Log);
    }

    #[must_use]
    pub fn without_other_families(mut self) -> Self {
        self.writes -= std::mem::take(&mut self.other_family_writes);
        self.flushes -= std::mem::take(&mut self.other_family_flushes);
        self.write_bytes -= std::mem::take(&mut self.other_family_bytes);
        self
    }
}

/// A disk. Calls do not block, except those of [`Source`], [`Disk::sync_now`],
/// [`Disk::sync_file_names`], [`Disk::record_created`] and those that open a file.
pub trait Disk: Source {
    /// Makes the contents of a file durable. Blocks until done. Used only at start, when recovery
    /// may have read data that is still in a cache. After an error, it is unknown what is durable.
    fn sync_now(&mut self, file: FileId) -> Result<(), DiskError>;

    /// Makes the set of files and the contents of small files durable. Blocks until done. Used only
    /// at start, because the next crash could undo what survived the last one. After an error, it
    /// is unknown what is durable.
    fn sync_file_names(&mut self) -> Result<(), DiskError>;

    /// Allocates a write buffer of `bytes` bytes, which must be whole blocks, with arbitrary
    /// contents. A driver may return memory that it registered in advance.
    fn allocate(&mut self, bytes: usize) -> Buffer {
        Buffer::new(bytes)
    }

    fn release(&mut self, buffer: Buffer) {
        drop(buffer);
    }

    /// Starts writing the first `bytes` bytes of `output`, which must be whole blocks. With
    /// [`Durability::Flushed`] they are durable on completion; other data in the file need not be
    /// ([disk-6]).
    fn start_write(
        &mut self,
        token: u64,
        at: Position,
        output: Output,
        bytes: usize,
        durability: Durability,
    );

    /// Starts reading `bytes` bytes, which must be whole blocks, into the start of the buffer.
    fn start_read(&mut self, token: u64, at: Position, buffer: Buffer, bytes: usize);

    /// Starts making all completed writes to a file durable.
    fn start_flush(&mut self, token: u64, file: FileId);

    /// Opens the next file to be written in a family before it is needed, so that a write never
    /// lacks a descriptor. The file stays open until a later one is written. The caller must not
    /// write to a file that could not be opened.
    fn open_next_file(&mut self, file: FileId) -> Result<(), DiskError>;

    /// Records durably that all files up to `made` were created. Blocks until done. Used only at
    /// start. After an error, the record may or may not have changed.
    fn record_created(&mut self, made: FileId) -> Result<(), DiskError>;

    /// Starts creating a file: writes zeros, syncs, renames, syncs the folder ([disk-10]), and then
    /// records the file's number.
    fn start_prepare(&mut self, file: FileId, bytes: u64, zeros: ZeroFill);

    /// Starts recycling a file under a new name of its family: renames, syncs the folder
    /// ([disk-10]), and then records the new number. Completes as [`Completed::Prepared`] with
    /// `to`. The size and contents remain, so a reader must know what was written under the new
    /// name. Operations in flight for `from` complete as if it still existed. After an error, the
    /// same request may be repeated, however far the first attempt got.
    fn start_reuse(&mut self, from: FileId, to: FileId);

    /// Starts replacing the contents of a small file, durably, with at most
    /// [`SMALL_FILE_BYTES_MAX`] bytes. After a crash the contents are old or new, never mixed.
    fn start_replace_small_file(&mut self, token: u64, name: &'static str, bytes: Vec<u8>);

    /// Starts reading a small file in order to verify it. Bypasses the system's cache as far as
    /// possible.
    fn start_read_small_file(&mut self, token: u64, name: &'static str);

    /// Announces a log write, and requests that `bytes` bytes of the family's next file exist by
    /// now. The rest of the file is created only while no writes are in flight, so that commits do
    /// not wait for it.
    fn pace_file_creation(&mut self, family: Family, bytes: u64);

    /// Removes the pauses in creating the family's next file, because a write is waiting for it.
    fn hurry_file_creation(&mut self, family: Family);

    /// Starts removing a file, durably. Operations in flight for the file complete as if it still
    /// existed. No new ones may be started.
    fn start_retire(&mut self, file: FileId);

    /// Returns a descriptor for reading a file directly, for splice and sendfile, or `None` if this
    /// disk has no descriptors. Use it at once, because the disk may close it later.
    fn descriptor(&mut self, file: FileId) -> Result<Option<BorrowedFd<'_>>, DiskError>;

    /// Returns the next completion, or `None` if there is none yet.
    fn poll(&mut self) -> Option<Completed>;

    /// Returns a descriptor, for epoll, that is readable when [`Disk::poll`] has a completion.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the free space for new files of a family in bytes, or `None` if unknown.
    fn free_bytes(&self, family: Family) -> Option<u64>;

    /// Describes the driver and why it was chosen. Logged at start.
    fn describe(&self) -> String;

    fn counters(&self) -> DiskCounters;
}
