//! Output queue of a stream: responses to its client, with their memory reservations.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::sync::mpsc;
use tonic::{Status, codegen::tokio_stream::Stream};

use super::memory::MemoryShare;

/// A queued response, or the error that ends the stream.
#[derive(Debug)]
pub(super) struct Queued<T> {
    response: Result<T, Status>,
    /// Memory reserved for the response itself, and for the batch that it is part of.
    _held: (Option<MemoryShare>, Option<Arc<MemoryShare>>),
}

impl<T> Queued<T> {
    /// Creates a response with its own memory reservation and a reference to that of its batch.
    pub(super) const fn with_memory(
        answer: T,
        own: MemoryShare,
        of: Option<Arc<MemoryShare>>,
    ) -> Self {
        Self { response: Ok(answer), _held: (Some(own), of) }
    }
}

impl<T> From<Result<T, Status>> for Queued<T> {
    /// Creates a response that is too small to be charged.
    fn from(answer: Result<T, Status>) -> Self {
        let _held = (None, None);
        Self { response: answer, _held }
    }
}

#[derive(Debug)]
pub(super) struct ResponseStream<T>(pub(super) mpsc::Receiver<Queued<T>>);

impl<T> Stream for ResponseStream<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let queued = ready!(self.0.poll_recv(context));
        Poll::Ready(queued.map(|queued| queued.response))
    }
}
