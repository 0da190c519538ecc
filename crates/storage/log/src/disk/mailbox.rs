//! Passes results from threads to the log, which waits on a descriptor and cannot wait on a queue.

use std::sync::Arc;

use super::{
    event::Event,
    sync::mpsc::{Receiver, Sender, channel},
};

/// Sending end of the queue, used by the threads.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    results: Sender<T>,
    event: Arc<Event>,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self { results: self.results.clone(), event: Arc::clone(&self.event) }
    }
}

/// Receiving end of the queue. The event is readable while there may be a result.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    results: Receiver<T>,
    event: Arc<Event>,
}

impl<T> Mailbox<T> {
    pub(super) fn new(event: &Arc<Event>) -> (Self, Inbox<T>) {
        let (done, receiver) = channel();
        let (put, take) = (Arc::clone(event), Arc::clone(event));
        let mailbox = Self { results: done, event: put };
        let inbox = Inbox { results: receiver, event: take };
        (mailbox, inbox)
    }

    /// Sends a result and then signals, so that a receiver that sees the signal finds the result.
    pub(super) fn send_result(&self, finished: T) {
        // Sending fails only while the disk is being dropped and the receiver no longer exists.
        if self.results.send(finished).is_ok() {
            self.event.signal();
        }
    }
}

impl<T> Inbox<T> {
    /// Returns the next result. After `None`, the event becomes readable only when another result
    /// arrives.
    pub(super) fn next_result(&self) -> Option<T> {
        if let Some(finished) = self.try_receive() {
            return Some(finished);
        }
        // Draining before the last check makes sure that any later result signals again.
        self.event.drain();
        self.try_receive()
    }

    /// Returns the next result, if any. For a caller that has already drained the event.
    pub(super) fn try_receive(&self) -> Option<T> {
        self.results.try_recv().ok()
    }
}
