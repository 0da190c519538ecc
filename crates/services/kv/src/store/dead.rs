//! The number of stored keys that exist no longer ([time-2]): counted on request, each once.

use std::cell::Cell;

/// Keys whose deadline has passed and that were not removed yet.
#[derive(Debug, Default)]
pub(super) struct Dead {
    /// Deadlines below are counted.
    counted_to: Cell<u64>,
    keys: Cell<u64>,
}

impl Dead {
    /// Returns the lowest deadline that is not counted yet, if those below `to` are requested.
    pub(super) fn uncounted(&self, to: u64) -> Option<u64> {
        let from = self.counted_to.get();
        (from < to).then_some(from)
    }

    /// Adds keys; deadlines below `to` are counted now.
    pub(super) fn counted(&self, to: u64, keys: u64) {
        self.counted_to.set(to);
        self.keys.set(self.keys.get() + keys);
    }

    /// Returns the number of keys counted.
    pub(super) fn keys(&self) -> u64 {
        self.keys.get()
    }

    /// Adjusts the count for a key with another deadline.
    pub(super) fn moved(&mut self, old: Option<u64>, new: Option<u64>) {
        let counted_to = self.counted_to.get();
        let is_counted = |deadline: Option<u64>| deadline.is_some_and(|at| at < counted_to);
        let keys = self.keys.get() + u64::from(is_counted(new));
        self.keys.set(keys.saturating_sub(u64::from(is_counted(old))));
    }
}
