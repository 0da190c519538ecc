//! How much memory requests and answers take together: whatever is above the bound is refused.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::errors;

#[derive(Debug)]
struct Use {
    used: AtomicUsize,
    most: usize,
}

/// The memory of all connections.
#[derive(Clone, Debug)]
pub(super) struct Memory(Arc<Use>);

impl Memory {
    pub(super) fn new(most: usize) -> Self {
        let used = AtomicUsize::new(0);
        Self(Arc::new(Use { used, most }))
    }

    /// A part of it, until that is dropped. `None`: there is not so much left.
    pub(super) fn take(&self, bytes: usize) -> Option<Share> {
        let mut share = self.share();
        share.grow(bytes).then_some(share)
    }

    /// Nothing of it yet.
    pub(super) fn share(&self) -> Share {
        Share {
            memory: self.clone(),
            bytes: 0,
        }
    }
}

/// A part of the memory.
#[derive(Debug)]
pub(super) struct Share {
    memory: Memory,
    bytes: usize,
}

impl Share {
    fn grow(&mut self, bytes: usize) -> bool {
        let Use { used, most } = &*self.memory.0;
        let add = |now: usize| now.checked_add(bytes).filter(|after| after <= most);
        let grown = used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok();
        if grown {
            self.bytes += bytes;
        }
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a request has come to; `None` once its answer has begun: then it is not kept, or it is a stream, whose messages are
/// small.
pub(super) type Counted = Arc<Mutex<Option<Share>>>;

/// A request whose bytes are counted as they come.
pub(super) struct Counting<B> {
    body: B,
    share: Counted,
}

impl<B> Counting<B> {
    pub(super) const fn new(body: B, share: Counted) -> Self {
        Self { body, share }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counting<B>
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
            let share = self.share.lock();
            let mut share = share.unwrap_or_else(PoisonError::into_inner);
            let counted = share.as_mut().is_none_or(|share| share.grow(data.len()));
            if !counted {
                return Poll::Ready(Some(Err(errors::too_many().into())));
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

/// An answer that is counted until it is sent, or nobody wants it any more.
pub(super) struct Sending<B> {
    body: B,
    _share: Option<Arc<Share>>,
}

impl<B> Sending<B> {
    pub(super) const fn new(body: B, share: Option<Arc<Share>>) -> Self {
        Self {
            body,
            _share: share,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Sending<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_the_bound_is_refused_until_something_is_given_back() {
        let memory = Memory::new(100);
        let first = memory.take(60).expect("there is room");
        assert!(memory.take(41).is_none());
        let second = memory.take(40).expect("there is room");
        assert!(memory.take(1).is_none());
        drop(first);
        assert!(memory.take(61).is_none());
        assert!(memory.take(60).is_some());
        drop(second);
        assert_eq!(memory.0.used.load(Ordering::Relaxed), 0);
    }
}
