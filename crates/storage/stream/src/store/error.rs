//! Errors of opening a store and of reading its bytes.

use std::ops::Range;

use quorate_core::value::StreamName;
use quorate_log::disk::DiskError;
use thiserror::Error;

use super::pointer::FILE;

/// The reason that a store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// A disk operation was refused or failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The small file that names the catalogue was changed from outside, or has rotted.
    #[error("the file {FILE} is damaged: {0}")]
    Pointer(&'static str),
    /// The file of the catalogue does not exist or is too short; another folder may be mounted
    /// here.
    #[error("stream file {file} with the catalogue is missing")]
    Missing {
        /// Number of the file.
        file: u64,
    },
    /// The catalogue differs from what was written.
    #[error("the catalogue in stream file {file} is damaged: {reason}")]
    Catalogue {
        /// Number of the catalogue's file.
        file: u64,
        /// Description of the error, for humans.
        reason: &'static str,
    },
    /// The sizes of the layout are invalid.
    #[error("the layout of the store is not of whole blocks, units and chunks, or too large")]
    Layout,
}

/// The reason that a read returned no bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The bytes on disk differ from those that were put; another node may have them. See
    /// [`super::Store::lose`].
    #[error("bytes {range:?} of stream {stream:?} are damaged: {reason}")]
    Rotten {
        stream: StreamName,
        /// The range that is damaged together with the first byte requested.
        range: Range<u64>,
        /// Description of the error, for humans.
        reason: String,
    },
    /// The byte is not held.
    #[error("it is not held")]
    Missing,
    /// The disk cannot read for now, but nothing is broken: retry later.
    #[error("it cannot be read now: {0}")]
    NotNow(DiskError),
}

/// The maximum number of reads has been started and not taken with [`super::Store::next_read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many reads")]
pub struct ReadsBusy;
