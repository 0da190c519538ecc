//! `GET /backup`: streams the node's own snapshot as a file, with the byte streams if `streams` is
//! set.
//!
//! The reactor only selects and retains the files, which a separate thread reads. Bytes of streams
//! are requested from the reactor chunk by chunk, because only the store knows their location, and
//! other nodes may have to replace damaged ones. The hold on them is taken before the snapshot, so
//! that everything the snapshot refers to is available. The client sets the pace: a few chunks are
//! buffered, and the backup is aborted if the client reads nothing for a minute.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use quorate_core::{slot::Slot, value::StreamName};
use quorate_net::{Backup, Handle, HeldReadError, SnapshotError, Unanswered, host::PartFiles};
use quorate_replica::{
    NotRead, StreamHold,
    backup::{EncodedBackup, HeldStreamReader, SnapshotUnreadable},
};
use tokio::{
    runtime,
    sync::mpsc::{Sender, channel},
    time::timeout,
};

use super::{
    Admin,
    failure::Failure,
    pieces::{ChunkedBody, LongResponse},
};

/// Maximum number of chunks buffered for the client, about a megabyte in total.
const QUEUED_CHUNKS_MAX: usize = 4;
/// Time after which the backup is aborted if the client reads nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time to wait for missing stream bytes, during which the client receives nothing.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);
const STREAM_RETRY_PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn handle_backup(
    State(admin): State<Admin>,
    uri: Uri,
) -> Result<Response, Failure> {
    let BackupRequest { slot_min: mut at, with_streams: streams } = parse_query(&uri)?;
    let taken = admin.backup_turn.try_take().ok_or_else(|| {
        Failure::unavailable("busy", "another backup is being taken from this node")
    })?;
    let hold = match streams {
        true => Some(acquire_hold(&admin).await?),
        false => None,
    };
    if let Some(hold) = &hold {
        at = at.max(Some(hold.from));
    }
    let snapshot = admin.run_blocking(move |handle, _| handle.snapshot(at)).await?;
    if let Err(SnapshotError::Unanswered(Unanswered::TimedOut)) = snapshot {
        // Kept for the client's retry, along with the snapshot that it covers.
        *admin.backup_hold() = hold;
        return Err(Failure::from_snapshot_error(SnapshotError::Unanswered(Unanswered::TimedOut)));
    }
    snapshot.map_err(Failure::from_snapshot_error)?;
    let backup = admin.run_blocking(|handle, _| handle.backup()).await?;
    let backup = backup
        .map_err(Failure::unanswered)?
        .ok_or_else(|| Failure::unavailable("no_snapshot", "the node has lost its snapshot"))?;
    let (sender, pieces) = channel(QUEUED_CHUNKS_MAX);
    let lasts = Arc::new(());
    let lasting = LongResponse(Arc::downgrade(&lasts));
    let handle = admin.run_blocking(|handle, _| handle.clone()).await?;
    let streams = hold.map(|hold| HeldStreams { handle, hold, renewed_at: Instant::now() });
    tokio::task::spawn_blocking(move || {
        let to = ChunkSender { sender };
        if let Err(error) = send_all(backup, streams, &to) {
            tracing::warn!(%error, "backup failed");
            // The truncated response reports the error to a client that is still connected.
            let _ = to.send_chunk(Err(error));
        }
        drop(taken);
    });
    let body = Body::new(ChunkedBody::new(pieces, Some(lasts)));
    let mut response = ([(CONTENT_TYPE, "application/octet-stream")], body).into_response();
    response.extensions_mut().insert(lasting);
    Ok(response)
}

/// Returns the hold of an earlier attempt that timed out, else a new hold.
async fn acquire_hold(admin: &Admin) -> Result<StreamHold, Failure> {
    let earlier = admin.backup_hold().take();
    let held = admin.run_blocking(|handle, _| handle.hold_streams(earlier)).await?;
    held.map_err(Failure::unanswered)?.map_err(|why| {
        let why = format!("this node cannot back up the bytes of streams: {why}");
        Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "streams_missing",
            &why,
            "back up another node, or wait until 'quorate status' says that nothing is missing",
        )
    })
}

#[derive(Debug, PartialEq, Eq)]
struct BackupRequest {
    /// Minimum slot that the snapshot must cover.
    slot_min: Option<Slot>,
    /// Set if the bytes of streams are included.
    with_streams: bool,
}

/// Parses the query parameters `at=SLOT` and `streams`, which are both optional.
fn parse_query(uri: &Uri) -> Result<BackupRequest, Failure> {
    let mut wanted = BackupRequest { slot_min: None, with_streams: false };
    let parts = uri.query().unwrap_or_default().split('&');
    for part in parts.filter(|part| !part.is_empty()) {
        let slot = part.strip_prefix("at=").and_then(|at| at.parse().ok());
        match slot {
            Some(slot) => wanted.slot_min = Some(Slot(slot)),
            None if part == "streams" => wanted.with_streams = true,
            None => {
                return Err(Failure::new(
                    StatusCode::BAD_REQUEST,
                    "bad_request",
                    "GET /backup accepts only at=SLOT and streams",
                    "docs/operate/backup.md shows it",
                ));
            }
        }
    }
    Ok(wanted)
}

fn send_all(mut backup: Backup, streams: Option<HeldStreams>, to: &ChunkSender) -> io::Result<()> {
    let (slot, bytes) = match streams {
        None => {
            let (header, files) = backup.header().map_err(unreadable_error)?;
            let encoded = EncodedBackup::begin(&mut backup.snapshot, &header, files);
            (header.slot, send_backup(encoded, to)?)
        }
        Some(mut streams) => {
            let (header, files, table) = backup.header_with_streams().map_err(unreadable_error)?;
            let snapshot = &mut backup.snapshot;
            let encoded =
                EncodedBackup::with_streams(snapshot, &header, files, &table, &mut streams);
            (header.slot, send_backup(encoded, to)?)
        }
    };
    tracing::info!(slot = slot.0, bytes, "backup taken");
    Ok(())
}

fn send_backup(mut encoded: EncodedBackup<'_, PartFiles>, to: &ChunkSender) -> io::Result<usize> {
    let mut bytes = 0;
    loop {
        let piece = encoded.next_piece().map_err(unreadable_error)?;
        if piece.is_empty() {
            return Ok(bytes);
        }
        bytes += piece.len();
        to.send_chunk(Ok(piece.into()))?;
    }
}

/// Interval at which the hold is renewed. It would expire after 120 s.
const HOLD_RENEWAL_INTERVAL: Duration = Duration::from_secs(20);

/// Reads the bytes of streams through the reactor, under a hold that keeps them from being deleted.
struct HeldStreams {
    handle: Handle,
    hold: StreamHold,
    /// Time at which the hold was last renewed.
    renewed_at: Instant,
}

impl HeldStreamReader for HeldStreams {
    fn extend_hold(&mut self) -> io::Result<()> {
        if self.renewed_at.elapsed() < HOLD_RENEWAL_INTERVAL {
            return Ok(());
        }
        match self.handle.hold_streams(Some(self.hold.clone())) {
            Ok(Ok(hold)) if hold.id == self.hold.id => self.renewed_at = Instant::now(),
            // The node is busy. The renewal is retried before the next chunk.
            Err(Unanswered::TimedOut | Unanswered::Busy) => {}
            _ => return Err(io::Error::other("the bytes of streams are held no more")),
        }
        Ok(())
    }

    fn read(&mut self, stream: StreamName, position: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let began = Instant::now();
        let failed = |what: &str| {
            let StreamName { owner, boot, number } = stream;
            let what =
                format!("byte {position} of stream {owner}/{boot}/{number} cannot be read: {what}");
            Err(io::Error::other(what))
        };
        loop {
            let why = match self.handle.read_held_stream(&self.hold, stream, position, bytes_max) {
                Ok(bytes) => return Ok(bytes),
                Err(HeldReadError::NotRead(NotRead::HoldEnded)) => {
                    return failed(
                        "the node needed the room that it takes, or another backup began",
                    );
                }
                Err(HeldReadError::Unanswered(Unanswered::Stopped)) => {
                    return failed("the node is stopping");
                }
                Err(HeldReadError::NotRead(NotRead::NotHere)) => "this node has lost it",
                Err(HeldReadError::NotRead(NotRead::Busy) | HeldReadError::Unanswered(_)) => {
                    "the node has too much to do"
                }
            };
            // Damaged bytes are being fetched from another node.
            if began.elapsed() > STREAM_TIMEOUT {
                return failed(why);
            }
            thread::sleep(STREAM_RETRY_PAUSE);
        }
    }
}

fn unreadable_error(why: SnapshotUnreadable) -> io::Error {
    match why {
        SnapshotUnreadable::Io(error) => error,
        SnapshotUnreadable::Damaged(what) => io::Error::new(io::ErrorKind::InvalidData, what),
    }
}

/// Sends the chunks of the response body, and fails if the client stops reading.
struct ChunkSender {
    sender: Sender<io::Result<Bytes>>,
}

impl ChunkSender {
    fn send_chunk(&self, piece: io::Result<Bytes>) -> io::Result<()> {
        let sent = async { timeout(STALL_TIMEOUT, self.sender.send(piece)).await };
        match runtime::Handle::current().block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::Error::other("its reader is gone")),
            Err(_) => Err(io::Error::other("the client stopped reading")),
        }
    }
}
