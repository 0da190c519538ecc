//! A bounded queue from any thread of the program to the reactor, which waits for a descriptor and
//! not for a queue.

use std::io;

use super::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    wake::Wake,
};

/// The side of the program.
#[derive(Debug)]
pub struct Asks<T> {
    queue: SyncSender<T>,
    wake: Arc<Wake>,
}

/// The side of the reactor.
#[derive(Debug)]
pub struct Asked<T> {
    queue: Receiver<T>,
    wake: Arc<Wake>,
}

/// A question that is not in the queue.
#[derive(Debug)]
pub enum NotPut<T> {
    /// The queue is full.
    Full(T),
    /// The reactor is gone.
    Gone(T),
}

/// Returns both sides of a queue; while it is full, callers of [`Asks::put`] wait. Fails without a
/// descriptor.
pub fn asks<T>(waiting_max: usize) -> io::Result<(Asks<T>, Asked<T>)> {
    let wake = Arc::new(Wake::new()?);
    let (sender, receiver) = sync_channel(waiting_max);
    let asks = Asks { queue: sender, wake: Arc::clone(&wake) };
    let asked = Asked { queue: receiver, wake };
    Ok((asks, asked))
}

impl<T> Asks<T> {
    /// Queues the question, then signals, so a reader that sees the signal finds the question.
    /// Returns `false` if the reactor is gone.
    pub fn put(&self, ask: T) -> bool {
        let put = self.queue.send(ask).is_ok();
        self.wake.signal();
        put
    }

    /// Queues the question without waiting; returns it if the queue is full or the reactor is gone.
    pub fn try_put(&self, ask: T) -> Result<(), NotPut<T>> {
        let put = self.queue.try_send(ask);
        self.wake.signal();
        put.map_err(|error| match error {
            TrySendError::Full(ask) => NotPut::Full(ask),
            TrySendError::Disconnected(ask) => NotPut::Gone(ask),
        })
    }
}

impl<T> Asked<T> {
    /// Returns the descriptor that is readable while a question may wait.
    pub fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Clears the signal before the queue is read: a question queued in between signals again.
    /// Afterwards take all that are there.
    pub fn begin(&self) {
        self.wake.drain();
    }

    /// Returns the next question.
    pub fn next(&self) -> Option<T> {
        self.queue.try_recv().ok()
    }
}
