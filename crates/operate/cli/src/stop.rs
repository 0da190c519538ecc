//! Requests to stop the node, before and after there is a reactor.

use super::sync::{Arc, AtomicBool, Mutex, Ordering, PoisonError};

/// The request, shared by the thread that receives signals and the one that starts the node. `stop`
/// ends the reactor, once there is one.
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

    /// The node is asked to stop.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.pass_on();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Registers the reactor. The second of the two, this or the request, passes it on.
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
