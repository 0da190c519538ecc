//! The disk port: what a node asks of a disk, and what it is told.
//!
//! Segments are files of a fixed size, born off the path full of zeros ([disk-10]). A write covers
//! whole blocks of one segment and is complete only when it is on stable storage (DSYNC). At most
//! [`OPERATIONS_MAX`] operations are in flight; they may complete in any order.
//!
//! [`open`] finds the best driver for a folder: io_uring, or threads that block. [`MemoryDisk`] is the
//! disk of tests and of the simulator, and fails exactly as told.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod buffer;
#[cfg(target_os = "linux")]
mod choose;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod conformance_tests;
mod error;
#[cfg(target_os = "linux")]
mod event;
#[cfg(target_os = "linux")]
mod file;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod folder;
pub mod made;
#[cfg(target_os = "linux")]
mod mailbox;
mod memory;
#[cfg(target_os = "linux")]
mod modelled;
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
#[allow(
    unsafe_code,
    reason = "a ring shares memory with the kernel; see the module's argument"
)]
mod uring;

use std::{fmt, os::fd::BorrowedFd};

pub use buffer::Buffer;
#[cfg(target_os = "linux")]
pub use choose::{FileDisk, Want, open};
pub use error::{DiskError, Lack, is_full};
#[cfg(target_os = "linux")]
pub use folder::{LOG_FOLDER, ReadOnlyFolder};
pub use memory::{CrashReport, Fault, MemoryDisk, Pending, PendingKind};
#[cfg(target_os = "linux")]
pub use modelled::{FlushModel, device_time};
pub use small_files::{DataFolder, SmallFiles, temporary};

/// What is written and read in one piece; no block is ever written twice ([disk-1]).
pub const BLOCK: usize = 4096;
/// The part of a block that a crash leaves old or new, never mixed ([model-3]).
pub const SECTOR: usize = 512;

/// A segment's number: its name, and its epoch ([disk-4]). Only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(pub u64);

/// A position in the log's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The segment.
    pub segment: Segment,
    /// Bytes from its start.
    pub offset: u64,
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, offset {}", self.segment, self.offset)
    }
}

/// A segment that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// Its number.
    pub segment: Segment,
    /// Its size.
    pub bytes: u64,
}

/// Segments that can be read at leisure: what recovery and the offline tools need.
pub trait Source {
    /// All segments, in order of their numbers.
    fn segments(&mut self) -> Result<Vec<SegmentFile>, DiskError>;

    /// The highest number that a segment ever had, 0 for none, as written down apart from them;
    /// `None` if that was never done.
    fn made(&mut self) -> Result<Option<Segment>, DiskError>;

    /// Fills the buffer, now. Offset and length are whole blocks within the segment.
    fn read_now(&mut self, at: Place, buffer: &mut Buffer, bytes: usize) -> Result<(), DiskError>;
}

/// How a new segment gets its zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// They are written: no later write changes metadata, so a commit is one write and one flush.
    Written,
    /// Blocks are reserved and read as zeros, where the file system can do that: half the bytes, for
    /// a log that nobody waits for. Each write then says in the metadata that its blocks are used.
    Reserved,
}

/// What ended.
#[derive(Debug)]
pub enum Completed {
    /// A write is on stable storage, or failed for good.
    Written {
        /// As given to [`Disk::start_write`].
        token: u64,
        /// Comes back.
        buffer: Buffer,
        /// How it went.
        result: Result<(), DiskError>,
    },
    /// A read ended.
    Read {
        /// As given to [`Disk::start_read`].
        token: u64,
        /// Comes back, filled.
        buffer: Buffer,
        /// How it went.
        result: Result<(), DiskError>,
    },
    /// A segment is ready to be written to, or could not be made.
    Prepared {
        /// Which.
        segment: Segment,
        /// How it went. After an error nothing of it is left.
        result: Result<(), DiskError>,
    },
}

/// What a disk was asked to do so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Writes into segments; one per batch.
    pub writes: u64,
    /// Flushes; one per batch.
    pub flushes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Reads after start.
    pub reads: u64,
    /// Segments prepared.
    pub prepared: u64,
    /// How many of them a write had to wait for.
    pub segment_waits: u64,
}

/// Segments have smaller numbers than this; sums of them do not overflow.
pub const SEGMENT_NUMBER_MAX: u64 = 1 << 62;
/// Most writes and reads together that a disk is asked for at a time.
pub const OPERATIONS_MAX: usize = 16;

/// A disk. All calls but those of [`Source`] and [`Disk::sync_now`] return at once.
pub trait Disk: Source {
    /// Makes what a segment holds durable, now. Only at start: what recovery read may still be on
    /// its way to the device.
    fn sync_now(&mut self, segment: Segment) -> Result<(), DiskError>;

    /// Memory for a write; a driver may hand out memory that it knows in advance.
    fn allocate(&mut self, bytes: usize) -> Buffer {
        Buffer::new(bytes)
    }

    /// Takes back what [`Disk::allocate`] gave.
    fn release(&mut self, buffer: Buffer) {
        drop(buffer);
    }

    /// Writes the first `bytes` bytes, whole blocks, and makes exactly them durable ([disk-6]).
    fn start_write(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize);

    /// Reads `bytes` bytes, whole blocks, to the start of the buffer.
    fn start_read(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize);

    /// Opens the file of the segment that is written to next, before that is needed, and keeps it
    /// open until a later segment is written to. Nothing is written to a segment for which this
    /// failed, so a write never lacks a descriptor.
    fn open_ahead(&mut self, segment: Segment) -> Result<(), DiskError>;

    /// Writes down, now and durably, that segments up to this one were made. Only at start.
    fn note_made(&mut self, made: Segment) -> Result<(), DiskError>;

    /// Makes a new segment: zeros, sync, rename, sync of the folder ([disk-10]); then its number is
    /// written down.
    fn start_prepare(&mut self, segment: Segment, bytes: u64, zeros: Zeros);

    /// A write begins, and so many bytes of the segment that is being made should be there by now.
    /// Beyond that it is made when nothing is written, so that commits do not wait for it.
    fn want_prepared(&mut self, bytes: u64);

    /// Somebody waits for the segment that is being made.
    fn hurry_prepare(&mut self);

    /// The next thing that ended.
    fn poll(&mut self) -> Option<Completed>;

    /// Readable when [`Disk::poll`] has something; for epoll.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Room for new segments, if known.
    fn free_bytes(&self) -> Option<u64>;

    /// What drives it, and why: printed at start.
    fn describe(&self) -> String;

    /// What it did so far.
    fn counters(&self) -> DiskCounters;
}
