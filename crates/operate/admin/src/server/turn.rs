//! Guard against running an activity twice at the same time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A lock that a task holds while it performs the activity.
#[derive(Clone, Debug, Default)]
pub(super) struct ExclusiveTurn(Arc<AtomicBool>);

impl ExclusiveTurn {
    /// Acquires the lock. Returns `None` if another task holds it.
    pub(super) fn try_take(&self) -> Option<TurnGuard> {
        let before = self.0.swap(true, Ordering::AcqRel);
        (!before).then(|| TurnGuard(Arc::clone(&self.0)))
    }
}

/// A guard that releases the lock on drop.
#[derive(Debug)]
pub(super) struct TurnGuard(Arc<AtomicBool>);

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
