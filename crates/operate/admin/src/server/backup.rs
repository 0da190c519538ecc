//! `GET /backup`: the node's own snapshot as one file, for as long as its reader takes.
//!
//! A thread of its own reads the files; the reactor only says which, and keeps them meanwhile. The reader sets
//! the pace: a few pieces wait for it, and if it takes none of them for a minute it is given up.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use quorate_core::slot::Slot;
use quorate_net::Backup;
use quorate_replica::backup::{Encoded, Unreadable};
use tokio::{
    runtime,
    sync::mpsc::{Sender, channel},
    time::timeout,
};

use super::{
    Admin,
    failure::Failure,
    pieces::{Lasting, Pieces},
};

/// Pieces that wait for the reader: a megabyte.
const PIECES_MAX: usize = 4;
/// A reader that takes nothing for so long is gone.
const STALL: Duration = Duration::from_secs(60);

pub(super) async fn backup(State(admin): State<Admin>, uri: Uri) -> Result<Response, Failure> {
    let at = wanted(&uri)?;
    let taken = admin.backups().take().ok_or_else(|| {
        Failure::unavailable("busy", "another backup is being taken from this node")
    })?;
    let snapshot = admin.ask(move |handle, _| handle.snapshot(at)).await?;
    snapshot.map_err(Failure::snapshot)?;
    let backup = admin.ask(|handle, _| handle.backup()).await?;
    let backup = backup
        .map_err(Failure::unanswered)?
        .ok_or_else(|| Failure::unavailable("no_snapshot", "the node has lost its snapshot"))?;
    let (sender, pieces) = channel(PIECES_MAX);
    let lasts = Arc::new(());
    let lasting = Lasting(Arc::downgrade(&lasts));
    tokio::task::spawn_blocking(move || {
        let to = Reader { sender };
        if let Err(error) = send(backup, &to) {
            tracing::warn!(%error, "backup failed");
            // Who reads it is told by a connection that breaks; it may be gone itself.
            let _ = to.piece(Err(error));
        }
        drop(taken);
    });
    let body = Body::new(Pieces::new(pieces, Some(lasts)));
    let mut response = ([(CONTENT_TYPE, "application/octet-stream")], body).into_response();
    response.extensions_mut().insert(lasting);
    Ok(response)
}

/// `at=SLOT`: a snapshot at this slot or behind it.
fn wanted(uri: &Uri) -> Result<Option<Slot>, Failure> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else {
        return Ok(None);
    };
    let slot = query.strip_prefix("at=").and_then(|at| at.parse().ok());
    slot.map(|slot| Some(Slot(slot))).ok_or_else(|| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            "bad_request",
            "GET /backup accepts only at=SLOT",
            "docs/operate.md shows it",
        )
    })
}

fn send(mut backup: Backup, to: &Reader) -> io::Result<()> {
    let (header, files) = backup.header().map_err(unreadable)?;
    let mut bytes = 0;
    let mut encoded = Encoded::begin(&mut backup.snapshot, &header, files);
    loop {
        let piece = encoded.next_piece().map_err(unreadable)?;
        if piece.is_empty() {
            break;
        }
        bytes += piece.len();
        to.piece(Ok(piece.into()))?;
    }
    tracing::info!(slot = header.slot.0, bytes, "backup taken");
    Ok(())
}

fn unreadable(why: Unreadable) -> io::Error {
    match why {
        Unreadable::Io(error) => error,
        Unreadable::Damaged(what) => io::Error::new(io::ErrorKind::InvalidData, what),
    }
}

/// Whom the pieces are for.
struct Reader {
    sender: Sender<io::Result<Bytes>>,
}

impl Reader {
    fn piece(&self, piece: io::Result<Bytes>) -> io::Result<()> {
        let sent = async { timeout(STALL, self.sender.send(piece)).await };
        match runtime::Handle::current().block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::Error::other("its reader is gone")),
            Err(_) => Err(io::Error::other("its reader takes no more of it")),
        }
    }
}
