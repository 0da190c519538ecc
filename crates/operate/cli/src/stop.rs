//! Requests to stop the node, before and after its reactor exists.

use super::sync::{Arc, AtomicBool, Mutex, Ordering, PoisonError};

/// Stop request shared by the signal thread and the starting thread. `stop` ends the reactor and is
/// absent until the reactor exists.
pub(crate) struct Stop<F> {
    asked: Arc<AtomicBool>,
    stop: Arc<Mutex<Option<F>>>,
}

impl<F> Clone for Stop<F> {
    fn clone(&self) -> Self {
        Self { asked: Arc::clone(&self.asked), stop: Arc::clone(&self.stop) }
    }
}

impl<F: Fn()> Stop<F> {
    pub(crate) fn new() -> Self {
        Self { asked: Arc::new(AtomicBool::new(false)), stop: Arc::new(Mutex::new(None)) }
    }

    /// Requests a stop, even before the reactor exists.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.pass_on();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Registers the function that stops the reactor, and calls it if a stop has already been
    /// requested.
    pub(crate) fn tell(&self, stop: F) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
        self.pass_on();
    }

    fn pass_on(&self) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = &*stop
            && self.is_asked()
        {
            stop();
        }
    }
}
