//! Guard against running an activity twice at the same time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A lock that a task holds while it performs the activity.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn(Arc<AtomicBool>);

impl Turn {
    /// Acquires the lock. Returns `None` if another task holds it.
    pub(super) fn take(&self) -> Option<Taken> {
        let before = self.0.swap(true, Ordering::AcqRel);
        (!before).then(|| Taken(Arc::clone(&self.0)))
    }
}

/// A guard that releases the lock on drop.
#[derive(Debug)]
pub(super) struct Taken(Arc<AtomicBool>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
