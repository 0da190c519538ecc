//! Error of an import: the reasons for refusing a file.

use std::io;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum ImportError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is no snapshot of etcd: it does not begin like a bbolt file")]
    NotASnapshot,
    /// The file is a bbolt file without this bucket, so it was not written by etcd.
    #[error("it is no snapshot of etcd v3: it has no bucket '{0}'")]
    NotEtcd(&'static str),
    #[error("it is cut short: it has {bytes} bytes and begins like one of {wanted}")]
    Truncated { bytes: u64, wanted: u64 },
    /// The checksum at the end does not match.
    #[error("it is damaged: the SHA-256 at its end does not match")]
    Checksum,
    /// Part of the file is not in etcd's format.
    #[error("it is damaged near byte {offset}: {description}")]
    Damaged {
        /// Approximate offset of the damage.
        offset: u64,
        description: &'static str,
    },
    /// The snapshot contains something that this service does not support.
    #[error("{0}")]
    Unsupported(String),
    #[error("it is too large for this machine")]
    TooLarge,
}

impl ImportError {
    pub(super) const fn damaged(offset: u64, description: &'static str) -> Self {
        Self::Damaged { offset, description }
    }
}
