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
use quorate_net::{Backup, Handle, HeldError, SnapshotError, Unanswered, host::PartFiles};
use quorate_replica::{
    NotRead, StreamHold,
    backup::{Encoded, StreamBytes, Unreadable},
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
const PIECES_MAX: usize = 4;
/// Time after which the backup is aborted if the client reads nothing.
const STALL: Duration = Duration::from_secs(60);
/// Maximum time to wait for missing stream bytes, during which the client receives nothing.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn backup(State(admin): State<Admin>, uri: Uri) -> Result<Response, Failure> {
    let BackupRequest { mut at, streams } = parse_query(&uri)?;
    let taken = admin.backups.take().ok_or_else(|| {
        Failure::unavailable("busy", "another backup is being taken from this node")
    })?;
    let hold = match streams {
        true => Some(take_hold(&admin).await?),
        false => None,
    };
    if let Some(hold) = &hold {
        at = at.max(Some(hold.from));
    }
    let snapshot = admin.run_blocking(move |handle, _| handle.snapshot(at)).await?;
    if let Err(SnapshotError::Unanswered(Unanswered::TimedOut)) = snapshot {
        // Kept for the client's retry, along with the snapshot that it covers.
        *admin.backup_hold() = hold;
        return Err(Failure::snapshot(SnapshotError::Unanswered(Unanswered::TimedOut)));
    }
    snapshot.map_err(Failure::snapshot)?;
    let backup = admin.run_blocking(|handle, _| handle.backup()).await?;
    let backup = backup
        .map_err(Failure::no_answer)?
        .ok_or_else(|| Failure::unavailable("no_snapshot", "the node has lost its snapshot"))?;
    let (sender, pieces) = channel(PIECES_MAX);
    let lasts = Arc::new(());
    let lasting = LongResponse(Arc::downgrade(&lasts));
    let handle = admin.run_blocking(|handle, _| handle.clone()).await?;
    let streams = hold.map(|hold| HeldStreams { handle, hold, stayed: Instant::now() });
    tokio::task::spawn_blocking(move || {
        let to = Reader { sender };
        if let Err(error) = send(backup, streams, &to) {
            tracing::warn!(%error, "backup failed");
            // The truncated response reports the error to a client that is still connected.
            let _ = to.piece(Err(error));
        }
        drop(taken);
    });
    let body = Body::new(ChunkedBody::new(pieces, Some(lasts)));
    let mut response = ([(CONTENT_TYPE, "application/octet-stream")], body).into_response();
    response.extensions_mut().insert(lasting);
    Ok(response)
}

/// Returns the hold of an earlier attempt that timed out, else a new hold.
async fn take_hold(admin: &Admin) -> Result<StreamHold, Failure> {
    let earlier = admin.backup_hold().take();
    let held = admin.run_blocking(|handle, _| handle.hold_streams(earlier)).await?;
    held.map_err(Failure::no_answer)?.map_err(|why| {
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
    at: Option<Slot>,
    /// Set if the bytes of streams are included.
    streams: bool,
}

/// Parses the query parameters `at=SLOT` and `streams`, which are both optional.
fn parse_query(uri: &Uri) -> Result<BackupRequest, Failure> {
    let mut wanted = BackupRequest { at: None, streams: false };
    let parts = uri.query().unwrap_or_default().split('&');
    for part in parts.filter(|part| !part.is_empty()) {
        let slot = part.strip_prefix("at=").and_then(|at| at.parse().ok());
        match slot {
            Some(slot) => wanted.at = Some(Slot(slot)),
            None if part == "streams" => wanted.streams = true,
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

fn send(mut backup: Backup, streams: Option<HeldStreams>, to: &Reader) -> io::Result<()> {
    let (slot, bytes) = match streams {
        None => {
            let (header, files) = backup.header().map_err(unreadable)?;
            let encoded = Encoded::begin(&mut backup.snapshot, &header, files);
            (header.slot, send_backup(encoded, to)?)
        }
        Some(mut streams) => {
            let (header, files, table) = backup.header_with_streams().map_err(unreadable)?;
            let snapshot = &mut backup.snapshot;
            let encoded = Encoded::with_streams(snapshot, &header, files, &table, &mut streams);
            (header.slot, send_backup(encoded, to)?)
        }
    };
    tracing::info!(slot = slot.0, bytes, "backup taken");
    Ok(())
}

fn send_backup(mut encoded: Encoded<'_, PartFiles>, to: &Reader) -> io::Result<usize> {
    let mut bytes = 0;
    loop {
        let piece = encoded.next_piece().map_err(unreadable)?;
        if piece.is_empty() {
            return Ok(bytes);
        }
        bytes += piece.len();
        to.piece(Ok(piece.into()))?;
    }
}

/// Interval at which the hold is renewed. It would expire after 120 s.
const STAY: Duration = Duration::from_secs(20);

/// Reads the bytes of streams through the reactor, under a hold that keeps them from being deleted.
struct HeldStreams {
    handle: Handle,
    hold: StreamHold,
    /// Time at which the hold was last renewed.
    stayed: Instant,
}

impl StreamBytes for HeldStreams {
    fn extend_hold(&mut self) -> io::Result<()> {
        if self.stayed.elapsed() < STAY {
            return Ok(());
        }
        match self.handle.hold_streams(Some(self.hold.clone())) {
            Ok(Ok(hold)) if hold.id == self.hold.id => self.stayed = Instant::now(),
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
            let why = match self.handle.held(&self.hold, stream, position, bytes_max) {
                Ok(bytes) => return Ok(bytes),
                Err(HeldError::NotRead(NotRead::LetGo)) => {
                    return failed(
                        "the node needed the room that it takes, or another backup began",
                    );
                }
                Err(HeldError::Unanswered(Unanswered::Stopped)) => {
                    return failed("the node is stopping");
                }
                Err(HeldError::NotRead(NotRead::NotHere)) => "this node has lost it",
                Err(HeldError::NotRead(NotRead::Busy) | HeldError::Unanswered(_)) => {
                    "the node has too much to do"
                }
            };
            // Damaged bytes are being fetched from another node.
            if began.elapsed() > PATIENCE {
                return failed(why);
            }
            thread::sleep(PAUSE);
        }
    }
}

fn unreadable(why: Unreadable) -> io::Error {
    match why {
        Unreadable::Io(error) => error,
        Unreadable::Damaged(what) => io::Error::new(io::ErrorKind::InvalidData, what),
    }
}

/// Sends the chunks of the response body, and fails if the client stops reading.
struct Reader {
    sender: Sender<io::Result<Bytes>>,
}

impl Reader {
    fn piece(&self, piece: io::Result<Bytes>) -> io::Result<()> {
        let sent = async { timeout(STALL, self.sender.send(piece)).await };
        match runtime::Handle::current().block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::Error::other("its reader is gone")),
            Err(_) => Err(io::Error::other("the client stopped reading")),
        }
    }
}
