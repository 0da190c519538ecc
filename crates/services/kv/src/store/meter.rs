//! Counts a command's visits (units of work, defined in `commands/visits.rs`), and stops the
//! command at its limit.

use std::cell::Cell;

/// Number of bytes of a value that count as one more visit.
const BYTES_PER_VISIT: u64 = 1024;

/// Counter of a command's remaining visits.
#[derive(Debug)]
pub struct Meter {
    left: Cell<u64>,
    /// Number of bytes of keys' values that commands have read or written.
    moved_bytes: Cell<u64>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { left: u64::MAX.into(), moved_bytes: 0.into() }
    }
}

impl Meter {
    /// Sets the number of allowed visits. `None` removes the limit.
    pub fn allow(&self, visits: Option<u64>) {
        self.left.set(visits.map_or(u64::MAX, |visits| visits + 1));
    }

    /// Counts visits and returns whether they are within the limit.
    pub fn count_visits(&self, visits: u64) -> bool {
        let left = self.left.get();
        if left < u64::MAX {
            self.left.set(left.saturating_sub(visits));
        }
        !self.is_limit_exceeded()
    }

    /// Counts the visit of an item with `bytes` bytes. Returns whether it is within the limit.
    pub fn count_item(&self, bytes: usize) -> bool {
        self.count_visits(1 + bytes as u64 / BYTES_PER_VISIT)
    }

    /// Returns the number of remaining visits, plus one.
    pub(crate) const fn left(&self) -> u64 {
        self.left.get()
    }

    /// Counts the bytes of a key's value that a command reads or writes.
    pub(crate) fn count_moved(&self, bytes: usize) {
        self.moved_bytes.set(self.moved_bytes.get().wrapping_add(bytes as u64));
    }

    /// Returns the total number of bytes moved. Wraps around.
    pub(crate) const fn moved_bytes(&self) -> u64 {
        self.moved_bytes.get()
    }

    pub fn is_limit_exceeded(&self) -> bool {
        self.left.get() == 0
    }

    /// Returns the number of visits used, given the number that was allowed.
    pub(crate) fn used(&self, allowed: u64) -> u64 {
        (allowed + 1).saturating_sub(self.left.get())
    }
}
