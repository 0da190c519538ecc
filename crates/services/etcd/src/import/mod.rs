//! Import of data from etcd: converts a snapshot of `etcdctl snapshot save`, or etcd's database
//! file, to an image of this service.
//!
//! [`bolt`] reads the file, [`contents`] its buckets, and [`items`] generates the image from them.
//! Keys are imported with all revisions in the file, leases with their keys, and users with their
//! roles and passwords. The file is not trusted: everything in it is validated.

mod bad;
mod bolt;
mod contents;
mod items;

use sha2::{Digest as _, Sha256};

pub use self::{
    bad::ImportError,
    bolt::{DatabaseSource, UnchangingFile},
    contents::{SnapshotContents, SnapshotStatus},
    items::{ImageItems, ImportSettings, LEASE_GRACE_MS},
};

/// Size of the checksum after a snapshot, whose length is otherwise a multiple of [`SECTOR`].
const CHECKSUM_BYTES: u64 = 32;
const SECTOR: u64 = 512;
/// Number of bytes per read.
const READ_BYTES: usize = 256 << 10;

/// Returns the length of the database in the file, and whether a checksum confirms it.
///
/// # Errors
///
/// Fails if the file cannot be read or is damaged, e.g. its checksum does not match.
pub fn verify_checksum(source: &dyn DatabaseSource) -> Result<(u64, bool), ImportError> {
    let bytes = source.bytes();
    if bytes % SECTOR != CHECKSUM_BYTES {
        return Ok((bytes, false));
    }
    let end = bytes - CHECKSUM_BYTES;
    let (mut hash, mut at) = (Sha256::new(), 0);
    let mut piece = vec![0; READ_BYTES];
    while at < end {
        let length = usize::try_from(end - at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        let now = piece.get_mut(..length).unwrap_or_default();
        source.read_at(at, now)?;
        hash.update(&*now);
        at += length as u64;
    }
    let mut said = [0; CHECKSUM_BYTES as usize];
    source.read_at(end, &mut said)?;
    match hash.finalize()[..] == said {
        true => Ok((end, true)),
        false => Err(ImportError::Checksum),
    }
}
