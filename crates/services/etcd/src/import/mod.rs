//! Import of etcd's data: converts a snapshot of `etcdctl snapshot save`, or etcd's database file,
//! to an image of this service.
//!
//! [`bolt`] reads the file, [`contents`] its buckets, and [`items`] puts them in the order of an
//! image. Keys are imported with all revisions in the file, leases with their keys, users with
//! their roles and passwords. The whole content of the file is checked: it may come from anywhere.

mod bolt;
mod contents;
mod items;

use std::io;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

pub use self::{
    bolt::{OnDisk, Source},
    contents::{Contents, Status},
    items::{Items, LEASE_GRACE_MS, Settings},
};

/// Bytes of the checksum after a snapshot; without it the length is a multiple of [`SECTOR`].
const SUM_BYTES: u64 = 32;
const SECTOR: u64 = 512;
/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

/// Why a file is no snapshot that can be used.
#[derive(Debug, Error)]
pub enum Bad {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file does not start like a snapshot.
    #[error("it is no snapshot of etcd: it does not begin like a bbolt file")]
    NotASnapshot,
    /// A bbolt file of another program.
    #[error("it is no snapshot of etcd v3: it has no bucket '{0}'")]
    NotEtcd(&'static str),
    /// The file ends too early.
    #[error("it is cut short: it has {bytes} bytes and begins like one of {wanted}")]
    Truncated {
        /// Actual length of the file.
        bytes: u64,
        /// Expected length.
        wanted: u64,
    },
    /// The checksum at its end is another one.
    #[error("it is damaged: the SHA-256 at its end does not match")]
    Checksum,
    /// The content at some place is not in etcd's format.
    #[error("it is damaged near byte {at}: {what}")]
    Damaged {
        /// About where.
        at: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// The snapshot contains data that this service does not support.
    #[error("{0}")]
    Unfit(String),
    /// The snapshot does not fit into memory.
    #[error("it is too large for this machine")]
    TooLarge,
}

impl Bad {
    const fn damaged(at: u64, what: &'static str) -> Self {
        Self::Damaged { at, what }
    }
}

/// Returns the length of the database within the file, and whether a checksum after it confirms
/// that it is complete; a mismatch is an error.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn verify(source: &dyn Source) -> Result<(u64, bool), Bad> {
    let bytes = source.bytes();
    if bytes % SECTOR != SUM_BYTES {
        return Ok((bytes, false));
    }
    let end = bytes - SUM_BYTES;
    let (mut hash, mut at) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE];
    while at < end {
        let length = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
        let now = piece.get_mut(..length).unwrap_or_default();
        source.read(at, now)?;
        hash.update(&*now);
        at += length as u64;
    }
    let mut said = [0; SUM_BYTES as usize];
    source.read(end, &mut said)?;
    match hash.finalize()[..] == said {
        true => Ok((end, true)),
        false => Err(Bad::Checksum),
    }
}
