//! Bodies of requests and responses. They are charged to the memory budget from arrival until they
//! are sent, and their bytes are counted for the metrics.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::codegen::http::HeaderMap;

use super::{
    counters::{Counters, InFlightRequest},
    errors,
    memory::MemoryShare,
};

/// Memory reserved for a request until its response begins. By then the request is no longer in
/// memory, unless it is a stream, whose messages are small.
pub(super) type RequestMemory = Arc<Mutex<Option<MemoryShare>>>;

/// Body of a request, counted as it arrives.
pub(super) struct CountedBody<B> {
    body: B,
    memory_share: RequestMemory,
    counters: Arc<Counters>,
}

impl<B> CountedBody<B> {
    pub(super) const fn new(body: B, share: RequestMemory, counters: Arc<Counters>) -> Self {
        Self { body, memory_share: share, counters }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedBody<B>
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let frame = frame.map(|frame| frame.map_err(Into::into));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let bytes = data.len() as u64;
            self.counters.received_bytes.fetch_add(bytes, Ordering::Relaxed);
            let share = self.memory_share.lock();
            let mut share = share.unwrap_or_else(PoisonError::into_inner);
            let counted = share.as_mut().is_none_or(|share| share.try_grow(data.len()));
            if !counted {
                return Poll::Ready(Some(Err(errors::memory_exceeded().into())));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Body of a response, charged until it is sent or the client disconnects.
pub(super) struct ChargedBody<B> {
    body: B,
    _share: Option<Arc<MemoryShare>>,
    in_flight: Option<InFlightRequest>,
    counters: Arc<Counters>,
}

impl<B> ChargedBody<B> {
    pub(super) const fn new(
        body: B,
        share: Option<Arc<MemoryShare>>,
        in_flight: Option<InFlightRequest>,
        counters: Arc<Counters>,
    ) -> Self {
        Self { body, _share: share, in_flight, counters }
    }
}

/// Returns the gRPC code in the trailers, or 0 if there is none.
pub(super) fn grpc_code(end: &HeaderMap) -> usize {
    let code = end.get("grpc-status").and_then(|code| code.to_str().ok());
    code.and_then(|code| code.parse().ok()).unwrap_or(0)
}

impl<B: Body<Data = Bytes> + Unpin> Body for ChargedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            if let Some(data) = frame.data_ref() {
                let bytes = data.len() as u64;
                self.counters.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            if let (Some(end), Some(under_way)) = (frame.trailers_ref(), &mut self.in_flight) {
                under_way.code = grpc_code(end);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
