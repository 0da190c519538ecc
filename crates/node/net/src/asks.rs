//! Bounded queue of requests from other threads to the reactor, with a descriptor that wakes it.

use std::io;

use super::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    wake::Wake,
};

/// The sending end of the queue, for threads of the program.
#[derive(Debug)]
pub struct RequestSender<T> {
    queue: SyncSender<T>,
    wake: Arc<Wake>,
}

/// The receiving end of the queue, owned by the reactor.
#[derive(Debug)]
pub struct RequestReceiver<T> {
    queue: Receiver<T>,
    wake: Arc<Wake>,
}

/// A request that was not queued, and why.
#[derive(Debug)]
pub enum NotQueued<T> {
    Full(T),
    /// The reactor has ended.
    Gone(T),
}

/// Creates a queue of capacity `waiting_max`; [`RequestSender::send_request`] blocks while it is
/// full. Fails if no descriptor is available.
pub fn request_queue<T>(waiting_max: usize) -> io::Result<(RequestSender<T>, RequestReceiver<T>)> {
    let wake = Arc::new(Wake::new()?);
    let (queue, requests) = sync_channel(waiting_max);
    let sender = RequestSender { queue, wake: Arc::clone(&wake) };
    let receiver = RequestReceiver { queue: requests, wake };
    Ok((sender, receiver))
}

impl<T> RequestSender<T> {
    /// Queues a request and then signals, so that a reader woken by the signal finds the request.
    /// Returns `false` if the reactor has ended.
    pub fn send_request(&self, ask: T) -> bool {
        let put = self.queue.send(ask).is_ok();
        self.wake.signal();
        put
    }

    /// Queues a request without blocking, or returns it if the queue is full or the reactor ended.
    pub fn try_put(&self, ask: T) -> Result<(), NotQueued<T>> {
        let put = self.queue.try_send(ask);
        self.wake.signal();
        put.map_err(|error| match error {
            TrySendError::Full(ask) => NotQueued::Full(ask),
            TrySendError::Disconnected(ask) => NotQueued::Gone(ask),
        })
    }
}

impl<T> RequestReceiver<T> {
    /// Returns the descriptor that becomes readable when a request may be queued.
    pub fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Clears the signal. Call it before draining: a request queued during the drain signals again.
    pub fn clear_signal(&self) {
        self.wake.drain();
    }

    pub fn next_request(&self) -> Option<T> {
        self.queue.try_recv().ok()
    }
}
