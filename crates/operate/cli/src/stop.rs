//! Requests to stop the node, before and after its reactor exists.

use super::sync::{Arc, AtomicBool, Mutex, Ordering, PoisonError};

/// Stop request shared by the signal thread and the starting thread. `stop` ends the reactor and is
/// absent until the reactor exists.
pub(crate) struct StopRequest<F> {
    is_requested: Arc<AtomicBool>,
    stop: Arc<Mutex<Option<F>>>,
}

impl<F> Clone for StopRequest<F> {
    fn clone(&self) -> Self {
        Self { is_requested: Arc::clone(&self.is_requested), stop: Arc::clone(&self.stop) }
    }
}

impl<F: Fn()> StopRequest<F> {
    pub(crate) fn new() -> Self {
        Self { is_requested: Arc::new(AtomicBool::new(false)), stop: Arc::new(Mutex::new(None)) }
    }

    /// Requests a stop, even before the reactor exists.
    pub(crate) fn request_stop(&self) {
        self.is_requested.store(true, Ordering::SeqCst);
        self.call_stopper();
    }

    pub(crate) fn is_stop_requested(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst)
    }

    /// Registers the function that stops the reactor, and calls it if a stop has already been
    /// requested.
    pub(crate) fn set_stopper(&self, stop: F) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
        self.call_stopper();
    }

    fn call_stopper(&self) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = &*stop
            && self.is_stop_requested()
        {
            stop();
        }
    }
}
