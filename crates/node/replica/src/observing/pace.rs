//! Recent growth rate of a counter.

use std::collections::VecDeque;

use quorate_core::time::Time;

/// Samples of a total at equal intervals, the oldest first.
#[derive(Clone, Debug)]
pub(crate) struct RateSamples {
    interval_ms: u64,
    samples_max: usize,
    samples: VecDeque<(Time, u64)>,
}

impl RateSamples {
    /// Creates a rate that covers the last `samples_max` intervals of `every_ms`.
    pub(crate) fn new(every_ms: u64, samples_max: usize) -> Self {
        Self { interval_ms: every_ms, samples_max, samples: VecDeque::new() }
    }

    /// Records the total at this time, if the last sample is old enough.
    pub(crate) fn record_total(&mut self, now: Time, total: u64) {
        let last = self.samples.back();
        if last.is_some_and(|(at, _)| now < at.plus_ms(self.interval_ms)) {
            return;
        }
        if self.samples.len() == self.samples_max {
            self.samples.pop_front();
        }
        self.samples.push_back((now, total));
    }

    /// Returns the growth per second up to this time, once there is an earlier sample.
    pub(crate) fn per_second(&self, now: Time, total: u64) -> Option<u64> {
        let (at, before) = self.samples.front()?;
        let us = now.since_us(*at);
        if us < self.interval_ms * 1000 {
            return None;
        }
        let grown = u128::from(total.saturating_sub(*before)) * 1_000_000;
        Some(u64::try_from(grown / u128::from(us)).unwrap_or(u64::MAX))
    }

    /// Discards all samples, because a different total follows.
    pub(crate) fn restart(&mut self) {
        self.samples.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    #[test]
    fn growth_is_measured_over_the_last_samples() {
        let mut pace = RateSamples::new(100, 3);
        assert_eq!(pace.per_second(at_ms(0), 0), None);
        for ms in (0..1000).step_by(10) {
            pace.record_total(at_ms(ms), ms * 5);
        }
        assert_eq!(pace.samples.len(), 3);
        assert_eq!(pace.per_second(at_ms(1000), 5000), Some(5000));
        // The total no longer grows: the older the samples, the lower the rate.
        for ms in (1000..2000).step_by(10) {
            pace.record_total(at_ms(ms), 5000);
        }
        assert_eq!(pace.per_second(at_ms(2000), 5000), Some(0));
    }

    #[test]
    fn single_sample_is_not_a_rate() {
        let mut pace = RateSamples::new(100, 3);
        pace.record_total(at_ms(50), 7);
        assert_eq!(pace.per_second(at_ms(149), 900), None);
        assert_eq!(pace.per_second(at_ms(150), 107), Some(1000));
        assert_eq!(pace.per_second(at_ms(150), 3), Some(0), "a total that fell");
        pace.restart();
        assert_eq!(pace.per_second(at_ms(900), 107), None);
    }
}
