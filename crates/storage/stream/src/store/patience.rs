//! Retry backoff. The store has no clock, so it counts calls.

/// Maximum number of calls to skip.
const SKIPS_MAX: u32 = 256;

/// Backoff after failures: skips a number of calls that doubles each time, up to a bound.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    skips: u32,
}

impl Backoff {
    /// Returns whether this call may retry. If not, counts it as skipped.
    pub(super) const fn may_try(&mut self) -> bool {
        if self.skips == 0 {
            return true;
        }
        self.skips -= 1;
        false
    }

    /// Records another failure.
    pub(super) fn failed(&mut self) {
        self.skips = (1 << self.failures.min(10)).min(SKIPS_MAX);
        self.failures += 1;
    }

    /// Records a success.
    pub(super) const fn succeeded(&mut self) {
        (self.failures, self.skips) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_makes_it_wait_longer_within_a_bound() {
        let mut patience = Backoff::default();
        let mut waited = Vec::new();
        for _ in 0..11 {
            waited.push((0..).take_while(|_| !patience.may_try()).count());
            patience.failed();
        }
        assert_eq!(waited, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 256]);
        patience.succeeded();
        assert!(patience.may_try());
    }
}
