//! Passes results of threads to the log, which waits for a descriptor and not for a queue.

use std::sync::Arc;

use super::{
    event::Event,
    sync::mpsc::{Receiver, Sender, channel},
};

/// The threads' end of the queue.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    done: Sender<T>,
    event: Arc<Event>,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self { done: self.done.clone(), event: Arc::clone(&self.event) }
    }
}

/// The log's end of the queue. The event is readable while there may be a result.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    done: Receiver<T>,
    event: Arc<Event>,
}

impl<T> Mailbox<T> {
    pub(super) fn new(event: &Arc<Event>) -> (Self, Inbox<T>) {
        let (done, receiver) = channel();
        let (put, take) = (Arc::clone(event), Arc::clone(event));
        let mailbox = Self { done, event: put };
        let inbox = Inbox { done: receiver, event: take };
        (mailbox, inbox)
    }

    /// Sends a result, then signals: a receiver that sees the signal finds the result.
    pub(super) fn put(&self, finished: T) {
        // The receiver is gone while the disk is being dropped.
        if self.done.send(finished).is_ok() {
            self.event.signal();
        }
    }
}

impl<T> Inbox<T> {
    /// Returns the next result. After `None`, the event is readable only if a result has arrived
    /// since.
    pub(super) fn take(&self) -> Option<T> {
        if let Some(finished) = self.try_receive() {
            return Some(finished);
        }
        // Drained before the last check: any later result signals again.
        self.event.drain();
        self.try_receive()
    }

    /// Returns the next result, for a caller that has already drained the event.
    pub(super) fn try_receive(&self) -> Option<T> {
        self.done.try_recv().ok()
    }
}
