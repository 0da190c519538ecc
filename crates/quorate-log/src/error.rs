//! What can go wrong with the log: what, detail, hint.

use std::{error::Error, fmt};

use quorate_disk::{DiskError, Lack};

use crate::place::Place;

/// Why the log cannot do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogError {
    /// [disk-9] A write or a sync failed: no record is released any more by this process. Reads
    /// still work. Every later call that could release says the same.
    Failed(DiskError),
    /// The log could not be opened or read.
    Disk(DiskError),
    /// The log belongs to somebody else.
    Foreign {
        /// Whose log it is, and whose was expected.
        detail: String,
    },
    /// The log was written by a newer program.
    Newer {
        /// The version of the log write that was found.
        version: u16,
        /// Where.
        place: Place,
    },
    /// What was read is not what was written.
    Damaged {
        /// Where.
        place: Place,
        /// What is wrong there.
        reason: String,
    },
    /// The end of the log cannot be read, so it is unknown whether records are missing.
    Unreadable {
        /// Where.
        place: Place,
        /// What the disk said.
        detail: String,
    },
    /// A record with its bytes is larger than a log write may be. It was not appended.
    TooLarge {
        /// Its size.
        bytes: usize,
        /// What fits.
        bytes_max: usize,
    },
    /// As many reads wait as may. Ask again when one is done.
    ReadsBusy,
    /// The options contradict each other.
    Options(String),
}

impl LogError {
    /// Whether room is what is missing: the same may work later.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Failed(error) | Self::Disk(error) if error.lack == Some(Lack::Room))
    }

    /// What a person may do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Failed(_) => "check the disk, then restart the node; it recovers from its log",
            Self::Disk(DiskError {
                lack: Some(Lack::Descriptors),
                ..
            }) => "raise the limit on open files (ulimit -n, LimitNOFILE=); nothing is lost",
            Self::Disk(_) => "check that the data folder exists, is readable and writable",
            Self::Foreign { .. } => "point --data at this node's own folder",
            Self::Newer { .. } => "start the newer version of the program",
            Self::Damaged { .. } => "run `quorate log verify` on the folder of the stopped node",
            Self::Unreadable { .. } => {
                "the device fails to read: a copy without what it hides would have forgotten votes; \
                 keep the folder, and let the others go on without this node until it reads again"
            }
            Self::TooLarge { .. } => "send smaller commands, or raise the segment size",
            Self::ReadsBusy => "ask again when a read is done",
            Self::Options(_) => "change the options",
        }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "the log failed and takes no more records: {error}"),
            Self::Disk(error) => write!(f, "log: {error}"),
            Self::Foreign { detail } => write!(f, "foreign log: {detail}"),
            Self::Newer { version, place } => {
                write!(
                    f,
                    "{place}: format version {version} is newer than this program knows"
                )
            }
            Self::Damaged { place, reason } => write!(f, "{place}: {reason}"),
            Self::Unreadable { place, detail } => {
                write!(f, "{place}: the end of the log cannot be read: {detail}")
            }
            Self::TooLarge { bytes, bytes_max } => {
                write!(
                    f,
                    "a record of {bytes} bytes does not fit: at most {bytes_max}"
                )
            }
            Self::ReadsBusy => f.write_str("too many reads of the log at once"),
            Self::Options(detail) => write!(f, "log options: {detail}"),
        }
    }
}

impl Error for LogError {}
