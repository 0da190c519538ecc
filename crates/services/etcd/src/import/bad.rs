//! Reasons why a file cannot be imported as a snapshot.

use std::io;

use thiserror::Error;

/// Reason why a file cannot be imported as a snapshot.
#[derive(Debug, Error)]
pub enum Bad {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file does not start like a snapshot.
    #[error("it is no snapshot of etcd: it does not begin like a bbolt file")]
    NotASnapshot,
    /// A bbolt file of another program, without this bucket.
    #[error("it is no snapshot of etcd v3: it has no bucket '{0}'")]
    NotEtcd(&'static str),
    /// The file ends too early.
    #[error("it is cut short: it has {bytes} bytes and begins like one of {wanted}")]
    Truncated {
        /// Actual length of the file.
        bytes: u64,
        /// Expected length of the file.
        wanted: u64,
    },
    /// The checksum at the end does not match.
    #[error("it is damaged: the SHA-256 at its end does not match")]
    Checksum,
    /// The contents at an offset are not in etcd's format.
    #[error("it is damaged near byte {at}: {what}")]
    Damaged {
        /// Approximate offset.
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
