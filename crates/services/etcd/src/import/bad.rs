//! Reasons for refusing to import a file as a snapshot.

use std::io;

use thiserror::Error;

/// Reason for refusing to import a file as a snapshot.
#[derive(Debug, Error)]
pub enum Bad {
    /// The operating system failed to read the file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file does not begin like a snapshot.
    #[error("it is no snapshot of etcd: it does not begin like a bbolt file")]
    NotASnapshot,
    /// The file is a bbolt file without this bucket, so another program has written it.
    #[error("it is no snapshot of etcd v3: it has no bucket '{0}'")]
    NotEtcd(&'static str),
    /// The file is shorter than expected.
    #[error("it is cut short: it has {bytes} bytes and begins like one of {wanted}")]
    Truncated {
        /// Actual length of the file, in bytes.
        bytes: u64,
        /// Expected length of the file, in bytes.
        wanted: u64,
    },
    /// The checksum at the end of the file does not match.
    #[error("it is damaged: the SHA-256 at its end does not match")]
    Checksum,
    /// Part of the file is not in etcd's format.
    #[error("it is damaged near byte {at}: {what}")]
    Damaged {
        /// Approximate offset of the damage in the file.
        at: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// The snapshot contains data that this service does not support.
    #[error("{0}")]
    Unfit(String),
    /// The snapshot does not fit in memory.
    #[error("it is too large for this machine")]
    TooLarge,
}

impl Bad {
    pub(super) const fn damaged(at: u64, what: &'static str) -> Self {
        Self::Damaged { at, what }
    }
}
