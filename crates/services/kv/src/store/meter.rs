//! Counts what a command looks at, so that it stops where it may not go on.

/// Bytes of a value that cost a visit.
const BYTES_PER_VISIT: u64 = 1024;

/// Counts visits down.
#[derive(Debug)]
pub struct Meter(std::cell::Cell<u64>);

impl Default for Meter {
    fn default() -> Self {
        Self(u64::MAX.into())
    }
}

impl Meter {
    /// Sets the number of visits that are allowed from here on; unlimited, if `None`.
    pub fn allow(&self, visits: Option<u64>) {
        self.0.set(visits.map_or(u64::MAX, |visits| visits + 1));
    }

    /// Counts visits; returns whether they were allowed.
    pub fn spend(&self, visits: u64) -> bool {
        let left = self.0.get();
        if left < u64::MAX {
            self.0.set(left.saturating_sub(visits));
        }
        !self.is_over()
    }

    /// Counts a visit of something with this many bytes.
    pub fn visit(&self, bytes: usize) -> bool {
        self.spend(1 + bytes as u64 / BYTES_PER_VISIT)
    }

    /// Returns whether more visits were made than allowed.
    pub fn is_over(&self) -> bool {
        self.0.get() == 0
    }

    /// Returns how many of these were used.
    pub(crate) fn used(&self, allowed: u64) -> u64 {
        (allowed + 1).saturating_sub(self.0.get())
    }
}
