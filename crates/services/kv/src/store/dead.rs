//! Number of expired keys still in the store ([time-2]). Counted on demand, each key once.

use std::cell::Cell;

#[derive(Debug, Default)]
pub(super) struct ExpiredKeyCount {
    /// Lowest deadline that has not been counted.
    counted_to: Cell<u64>,
    keys: Cell<u64>,
}

impl ExpiredKeyCount {
    /// Returns the lowest deadline that has not been counted, if it is below `to`.
    pub(super) fn first_uncounted(&self, to: u64) -> Option<u64> {
        let from = self.counted_to.get();
        (from < to).then_some(from)
    }

    /// Adds the newly counted keys, whose deadlines are below `to`.
    pub(super) fn add_counted(&self, to: u64, keys: u64) {
        self.counted_to.set(to);
        self.keys.set(self.keys.get() + keys);
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys.get()
    }

    /// Adjusts the count for a key whose deadline changes from `old` to `new`.
    pub(super) fn adjust_for_deadline(&self, old: Option<u64>, new: Option<u64>) {
        let counted_to = self.counted_to.get();
        let is_counted = |deadline: Option<u64>| deadline.is_some_and(|at| at < counted_to);
        let keys = self.keys.get() + u64::from(is_counted(new));
        self.keys.set(keys.saturating_sub(u64::from(is_counted(old))));
    }
}
