//! Snapshot streams: a backup's bytes in an envelope that `etcdctl` accepts.
//!
//! `etcdctl` requires a length that is a multiple of 512, followed by a SHA-256 checksum of all
//! preceding bytes. So the backup is followed by zeros, its length, a marker for `quorate restore`,
//! and the checksum.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use quorate::{ETCD_ENVELOPE_MAGIC, Slot, write_backup};
use sha2::{Digest as _, Sha256};
use tokio::{runtime::Handle, sync::mpsc, time::timeout};
use tonic::Status;

use super::{
    asking::{Freshness, ReplicaAccess},
    errors,
    memory::MemoryBudget,
    queue::{Queued, ResponseStream},
    settings::ETCD_VERSION,
};
use crate::proto::etcdserverpb::SnapshotResponse;

/// Maximum number of pieces queued for the client. While the queue is full, reading pauses.
const QUEUED_PIECES_MAX: usize = 2;
const PIECE_BYTES: usize = 256 << 10;
/// Time after which a client that does not read is disconnected.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Granularity of the size of etcd's files, in bytes.
const FILE_PAGE_BYTES: u64 = 512;

/// Returns the bytes between a backup of `bytes` bytes and the checksum.
fn padding_bytes(bytes: u64) -> Vec<u8> {
    let tail = 8 + ETCD_ENVELOPE_MAGIC.len() as u64;
    let zeros = (FILE_PAGE_BYTES - (bytes + tail) % FILE_PAGE_BYTES) % FILE_PAGE_BYTES;
    let mut end = vec![0; usize::try_from(zeros).unwrap_or(0)];
    end.extend_from_slice(&bytes.to_be_bytes());
    end.extend_from_slice(ETCD_ENVELOPE_MAGIC);
    end
}

/// A reader of a snapshot, on a separate thread.
struct SnapshotReader {
    replica_access: Arc<ReplicaAccess>,
    revision: i64,
    memory: MemoryBudget,
    hash: Sha256,
    pieces: mpsc::Sender<Queued<SnapshotResponse>>,
    runtime: Handle,
}

impl SnapshotReader {
    fn send_piece(&self, piece: &[u8]) -> io::Result<()> {
        let gone = || io::Error::other("the client is gone");
        let stalled = || io::Error::other("the client takes nothing");
        for blob in piece.chunks(PIECE_BYTES) {
            let share = self.memory.try_reserve(blob.len());
            let share = share
                .ok_or_else(|| io::Error::other(errors::memory_exceeded().message().to_owned()))?;
            let answer = SnapshotResponse {
                header: self.replica_access.response_header(self.revision),
                // The total size is unknown until everything has been read.
                remaining_bytes: 0,
                blob: Bytes::copy_from_slice(blob),
                version: ETCD_VERSION.to_owned(),
            };
            let queued = Queued::with_memory(answer, share, None);
            let sent = timeout(STALL_TIMEOUT, self.pieces.send(queued));
            let sent = self.runtime.block_on(sent).map_err(|_| stalled())?;
            sent.map_err(|_| gone())?;
        }
        Ok(())
    }

    fn hash_and_send(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hash.update(piece);
        self.send_piece(piece)
    }
}

/// Starts a snapshot that includes everything acknowledged before the call.
pub(super) async fn start_snapshot(
    asking: &Arc<ReplicaAccess>,
) -> Result<ResponseStream<SnapshotResponse>, Status> {
    let figures = asking.figures(Freshness::Linearizable).await?;
    let at: Slot = asking.status().await?.applied_to;
    let (pieces, receiver) = mpsc::channel(QUEUED_PIECES_MAX + 1);
    // Reserves a slot for the error that reports an incomplete snapshot, in case the queue is full
    // then.
    let last = pieces.clone().try_reserve_owned().map_err(|_| errors::server_stopped())?;
    let mut reader = SnapshotReader {
        replica_access: Arc::clone(asking),
        revision: figures.revision,
        memory: asking.memory.clone(),
        hash: Sha256::new(),
        pieces,
        runtime: Handle::current(),
    };
    let place = asking.snapshot_permit.clone().try_acquire_owned();
    let place = place.map_err(|_| errors::memory_exceeded())?;
    let handle = asking.handle().clone();
    tokio::task::spawn_blocking(move || {
        let sent = write_backup(&handle, at, &mut |piece| reader.hash_and_send(piece));
        let sent = sent.map_err(|error| error.to_string()).and_then(|bytes| {
            let end = reader.hash_and_send(&padding_bytes(bytes));
            let sum = reader.hash.clone().finalize();
            end.and_then(|()| reader.send_piece(&sum)).map_err(|error| error.to_string())
        });
        if let Err(error) = sent {
            tracing::warn!(%error, "a snapshot was not sent as a whole");
            let status = Status::unavailable(format!("etcdserver: no snapshot: {error}"));
            last.send(Err(status).into());
        }
        drop(place);
    });
    Ok(ResponseStream(receiver))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_is_padded_to_pages_and_ends_with_its_length() {
        for bytes in [0, 1, 495, 496, 497, 511, 512, 100_000] {
            let end = padding_bytes(bytes);
            assert_eq!((bytes + end.len() as u64) % FILE_PAGE_BYTES, 0);
            assert!(end.len() < 2 * 512);
            let (rest, word) = end.split_last_chunk::<8>().expect("long enough");
            assert_eq!(
                (word, &rest[rest.len() - 8..]),
                (ETCD_ENVELOPE_MAGIC, &bytes.to_be_bytes()[..])
            );
        }
    }
}
