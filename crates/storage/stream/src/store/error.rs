//! Errors of opening a store and reading from it.

use std::ops::Range;

use quorate_core::value::StreamName;
use quorate_log::disk::DiskError;
use thiserror::Error;

use super::pointer::FILE;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// A disk operation was refused or failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The small file that points to the catalogue was modified or corrupted.
    #[error("the file {FILE} is damaged: {0}")]
    PointerDamaged(&'static str),
    /// The catalogue's file is missing or too short. Another folder may be mounted here.
    #[error("stream file {file} with the catalogue is missing")]
    Missing { file: u64 },
    /// The catalogue's contents differ from what was written.
    #[error("the catalogue in stream file {file} is damaged: {reason}")]
    Catalogue { file: u64, reason: &'static str },
    #[error("the layout of the store is not of whole blocks, units and chunks, or too large")]
    Layout,
}

/// Error of a read that returns no bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The bytes on disk differ from those that were put. Another node may have them. See
    /// [`super::Store::drop_damaged`].
    #[error("bytes {range:?} of stream {stream:?} are damaged: {reason}")]
    Corrupt {
        stream: StreamName,
        /// All bytes that share a checksum with the first requested byte.
        range: Range<u64>,
        reason: String,
    },
    #[error("it is not held")]
    Missing,
    /// The disk cannot read at the moment, but nothing is broken. Retry later.
    #[error("it cannot be read now: {0}")]
    RetryLater(DiskError),
}

/// Error for a read beyond the maximum number of reads. Take results with
/// [`super::Store::next_read`] first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many reads")]
pub struct ReadsBusy;
