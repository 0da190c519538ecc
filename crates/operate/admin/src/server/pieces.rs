//! Response body sent in chunks.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use tokio::sync::mpsc::Receiver;

/// Response extension that marks a long response. The lifetime limit does not apply to its
/// connection while the body exists.
#[derive(Clone, Debug)]
pub(super) struct LongResponse(pub(super) Weak<()>);

/// Body that ends when all senders of its chunks have been dropped.
pub(super) struct ChunkedBody {
    chunks: Receiver<io::Result<Bytes>>,
    _exemption: Option<Arc<()>>,
}

impl ChunkedBody {
    /// Creates a body. `lasts` is kept alive until the body is dropped.
    pub(super) const fn new(pieces: Receiver<io::Result<Bytes>>, lasts: Option<Arc<()>>) -> Self {
        Self { chunks: pieces, _exemption: lasts }
    }
}

impl HttpBody for ChunkedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = self.chunks.poll_recv(cx);
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
