//! Errors of opening a store and of reading its bytes.

use std::ops::Range;

use quorate_core::value::StreamName;
use quorate_log::disk::DiskError;
use thiserror::Error;

use super::pointer::FILE;

/// The store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The disk refused or failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The small file that names the catalogue was changed from outside, or rotted.
    #[error("the file {FILE} is damaged: {0}")]
    Pointer(&'static str),
    /// The file of the catalogue is not there, or too short: another folder may be mounted here.
    #[error("stream file {file} with the catalogue is missing")]
    Missing {
        /// Its number.
        file: u64,
    },
    /// The catalogue is not what was written.
    #[error("the catalogue in stream file {file} is damaged: {reason}")]
    Catalogue {
        /// The number of its file.
        file: u64,
        /// Description of the error, for a person.
        reason: &'static str,
    },
    /// Sizes that no store can have.
    #[error("the layout of the store is not of whole blocks, units and chunks, or too large")]
    Layout,
}

/// A read gave no bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unread {
    /// The bytes on disk are not those that were put: another node has them, perhaps. See
    /// [`super::Store::lose`].
    #[error("bytes {range:?} of stream {stream:?} are damaged: {reason}")]
    Rotten {
        /// The stream of the bytes.
        stream: StreamName,
        /// All that is damaged with the first byte that was asked for.
        range: Range<u64>,
        /// Description of the error, for a person.
        reason: String,
    },
    /// The byte is not held.
    #[error("it is not held")]
    Missing,
    /// The disk cannot read for now, and nothing is broken: ask again later.
    #[error("it cannot be read now: {0}")]
    NotNow(DiskError),
}

/// As many reads as there may be have not been taken with [`super::Store::next_read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many reads")]
pub struct ReadsBusy;
