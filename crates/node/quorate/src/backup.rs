//! Backups of a node, for programs that store or forward them.

use std::{io, time::Instant};

use quorate_core::slot::Slot;
use quorate_net::{Handle, SnapshotError, Unanswered};
use quorate_replica::backup::EncodedBackup;

use crate::error::Error;

/// Magic word that marks a file from `etcdctl snapshot save`, so that a restore recognizes it. It
/// follows the backup and its length, and precedes a checksum.
pub const ETCD_ENVELOPE_MAGIC: &[u8; 8] = b"QUORATE1";

/// Timeout for a snapshot, in seconds.
const SNAPSHOT_TIMEOUT_S: u64 = 600;

/// Takes a snapshot of this node at slot `at` or later, and passes it to `each` as a backup without
/// stream data, piece by piece. The format is the one that `quorate backup` writes and `quorate
/// restore` reads. Blocks until all bytes are passed; `each` may block to set the pace. Returns the
/// number of bytes.
pub fn write_backup(
    handle: &Handle,
    at: Slot,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<u64, Error> {
    let begun = Instant::now();
    loop {
        match handle.snapshot(Some(at)) {
            Ok(_) => break,
            // A snapshot is in progress: a repeated request returns the same one.
            Err(SnapshotError::Unanswered(Unanswered::TimedOut))
                if begun.elapsed().as_secs() < SNAPSHOT_TIMEOUT_S => {}
            Err(error) => return Err(Error::new("no_snapshot", error)),
        }
    }
    let unanswered = |error: Unanswered| Error::new("no_snapshot", error);
    let lost = || Error::new("no_snapshot", "the node has lost its snapshot");
    let mut backup = handle.backup().map_err(unanswered)?.ok_or_else(lost)?;
    let unreadable = |error| Error::new("unreadable_snapshot", error);
    let (header, files) = backup.header().map_err(unreadable)?;
    let mut encoded = EncodedBackup::begin(&mut backup.snapshot, &header, files);
    let mut bytes = 0;
    loop {
        let piece = encoded.next_piece().map_err(unreadable)?;
        if piece.is_empty() {
            return Ok(bytes);
        }
        bytes += piece.len() as u64;
        each(&piece).map_err(|error| Error::from_io("pass on a backup", &error))?;
    }
}
