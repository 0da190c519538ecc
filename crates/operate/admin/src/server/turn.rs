//! Exclusive turn for an activity that must not run twice at the same time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A turn that at most one task has at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn(Arc<AtomicBool>);

impl Turn {
    /// Takes the turn; `None` if it is taken.
    pub(super) fn take(&self) -> Option<Taken> {
        let before = self.0.swap(true, Ordering::AcqRel);
        (!before).then(|| Taken(Arc::clone(&self.0)))
    }
}

/// Guard that holds the turn until it is dropped.
#[derive(Debug)]
pub(super) struct Taken(Arc<AtomicBool>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
