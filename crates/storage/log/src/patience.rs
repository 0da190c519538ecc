//! Retry backoff. Stores have no clock, so it counts calls instead of time.

/// Backoff after failures: skips a number of calls that doubles each time, up to a bound.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
    skips_left: u32,
}

impl Backoff {
    /// Returns whether this call may retry. If not, counts it as skipped.
    pub const fn try_or_skip(&mut self) -> bool {
        if self.skips_left == 0 {
            return true;
        }
        self.skips_left -= 1;
        false
    }

    /// Records another failure. At most `skips_max` calls are skipped before the next attempt.
    pub fn record_failure(&mut self, skips_max: u32) {
        self.skips_left = (1 << self.failures.min(10)).min(skips_max);
        self.failures += 1;
    }

    /// Ends the wait, so that the next call may retry.
    pub const fn end_wait(&mut self) {
        self.skips_left = 0;
    }

    /// Returns whether the last attempt failed.
    pub const fn has_failed(&self) -> bool {
        self.failures > 0
    }

    pub const fn record_success(&mut self) {
        (self.failures, self.skips_left) = (0, 0);
    }

    pub const fn skip_next(&mut self, skips: u32) {
        self.skips_left = skips;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_grows_with_each_failure_up_to_a_bound() {
        let mut patience = Backoff::default();
        let mut waits = |fails: bool| {
            let waited = (0..).take_while(|_| !patience.try_or_skip()).count();
            if fails {
                patience.record_failure(6);
            } else {
                patience.record_success();
            }
            waited
        };
        let waited = [true, true, true, true, true, false, true, true].map(&mut waits);
        assert_eq!(waited, [0, 1, 2, 4, 6, 6, 0, 1]);
    }
}
