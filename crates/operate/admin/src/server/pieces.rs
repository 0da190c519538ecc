//! The body of an answer that comes piece by piece.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use tokio::sync::mpsc::Receiver;

/// In the extensions of an answer that takes its time: its connection is not over while this lives.
#[derive(Clone, Debug)]
pub(super) struct Lasting(pub(super) Weak<()>);

/// A body that ends when all senders are gone.
pub(super) struct Pieces {
    pieces: Receiver<io::Result<Bytes>>,
    _lasts: Option<Arc<()>>,
}

impl Pieces {
    /// `lasts` lives as long as the body, if it is given.
    pub(super) const fn new(pieces: Receiver<io::Result<Bytes>>, lasts: Option<Arc<()>>) -> Self {
        Self { pieces, _lasts: lasts }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = self.pieces.poll_recv(cx);
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
