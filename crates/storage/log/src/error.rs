//! Errors of the log, with details and advice for operators.

use crate::disk::{DiskError, ExhaustedResource};
use quorate_core::slot::Slot;
use thiserror::Error;

use crate::place::Place;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogError {
    /// [disk-9] A write or a sync failed, so this process releases no further records. Reads still
    /// work. Every later call that could release records returns the same error.
    #[error("the log failed and takes no more records: {0}")]
    Failed(#[source] DiskError),
    /// The log could not be opened or read.
    #[error("log: {0}")]
    Disk(#[source] DiskError),
    /// The log belongs to another node or cluster.
    #[error("foreign log: {detail}")]
    ForeignLog { detail: String },
    /// The log was written by a newer version of the program.
    #[error("{place}: format version {version} is newer than this program knows")]
    Newer { version: u16, place: Place },
    /// The base was written by a newer version of the program.
    #[error("the log's base has format version {version}, which is newer than this program knows")]
    NewerBase { version: u16 },
    /// The base file differs from what was written. No crash causes this, because the file is only
    /// ever replaced as a whole.
    #[error("the file `base` of the data folder is damaged: {reason}")]
    BaseDamaged { reason: String },
    /// Data in the log differs from what was written.
    #[error("{place}: {reason}")]
    Damaged { place: Place, reason: String },
    /// The end of the log cannot be read, so records may be missing.
    #[error("{place}: the end of the log cannot be read: {detail}")]
    Unreadable { place: Place, detail: String },
    /// A record with its value exceeds the maximum size of a log write. It was not appended.
    #[error("a record of {bytes} bytes does not fit: at most {bytes_max}")]
    TooLarge {
        /// Size of the record with its value, in bytes.
        bytes: usize,
        /// Maximum size, in bytes.
        bytes_max: usize,
    },
    /// The slots are below the start of the log, so only a snapshot covers them ([snap-3]).
    #[error("the log begins with slot {start}")]
    BelowStart { start: Slot },
    /// Too many reads are queued. Retry after one has completed.
    #[error("too many reads of the log at once")]
    ReadsBusy,
    /// The options contradict each other.
    #[error("log options: {0}")]
    InvalidOptions(String),
}

impl LogError {
    /// Returns whether the cause is a full disk, so that a later attempt may succeed.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Failed(error) | Self::Disk(error) if error.exhausted == Some(ExhaustedResource::Space))
    }

    pub fn hint(&self) -> &'static str {
        match self {
            Self::Failed(_) => "check the disk, then restart the node; it recovers from its log",
            Self::Disk(DiskError { exhausted: Some(ExhaustedResource::Descriptors), .. }) => {
                "raise the limit on open files (ulimit -n, LimitNOFILE=); nothing is lost"
            }
            Self::Disk(_) => "check that the data folder exists, is readable and writable",
            Self::ForeignLog { .. } => "point --data at this node's own folder",
            Self::Newer { .. } | Self::NewerBase { .. } => "start the newer version of the program",
            Self::Damaged { .. } => "run `quorate log verify` on the folder of the stopped node",
            Self::BaseDamaged { .. } => {
                "the disk lost what was durable: check it. Without that file it is unknown where the log \
                 begins, nor what the node was part of: put back the very file if you have it, and else \
                 treat the node as one whose disk is lost"
            }
            Self::BelowStart { .. } => "ask for a snapshot",
            Self::Unreadable { .. } => {
                "the device fails to read: a copy without what it hides would have forgotten votes; \
                 keep the folder, and let the others go on without this node until it reads again"
            }
            Self::TooLarge { .. } => "send smaller commands, or raise the segment size",
            Self::ReadsBusy => "ask again when a read is done",
            Self::InvalidOptions(_) => "change the options",
        }
    }
}
