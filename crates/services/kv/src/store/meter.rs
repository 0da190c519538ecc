//! Counts the data that a command visits, so that the command stops at its limit.

/// Number of bytes of a value that count as one additional visit.
const BYTES_PER_VISIT: u64 = 1024;

/// Counter of the visits that a command has left.
#[derive(Debug)]
pub struct Meter(std::cell::Cell<u64>);

impl Default for Meter {
    fn default() -> Self {
        Self(u64::MAX.into())
    }
}

impl Meter {
    /// Sets the number of visits allowed from now on; `None` removes the limit.
    pub fn allow(&self, visits: Option<u64>) {
        self.0.set(visits.map_or(u64::MAX, |visits| visits + 1));
    }

    /// Counts visits. Returns whether they are within the limit.
    pub fn spend(&self, visits: u64) -> bool {
        let left = self.0.get();
        if left < u64::MAX {
            self.0.set(left.saturating_sub(visits));
        }
        !self.is_over()
    }

    /// Counts the visit of an item with `bytes` bytes. Returns whether it is within the limit.
    pub fn visit(&self, bytes: usize) -> bool {
        self.spend(1 + bytes as u64 / BYTES_PER_VISIT)
    }

    /// Returns whether the limit has been exceeded.
    pub fn is_over(&self) -> bool {
        self.0.get() == 0
    }

    /// Returns the number of visits used, given the number allowed at the start.
    pub(crate) fn used(&self, allowed: u64) -> u64 {
        (allowed + 1).saturating_sub(self.0.get())
    }
}
