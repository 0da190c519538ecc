//! A histogram of durations with fixed buckets. An earlier state can be subtracted from a later
//! one.

/// Upper bound of the first bucket, in microseconds. Bounds double from bucket to bucket.
const FIRST_BOUND_US: u64 = 64;
/// Number of buckets with an upper bound. The last bound is 8.4 s.
const BUCKETS: usize = 18;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    bucket_counts: [u64; BUCKETS],
    pub count: u64,
    pub sum_us: u64,
}

impl DurationHistogram {
    pub fn add_us(&mut self, us: u64) {
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        let doublings = us.div_ceil(FIRST_BOUND_US).max(1);
        let class = (u64::BITS - (doublings - 1).leading_zeros()) as usize;
        if let Some(class) = self.bucket_counts.get_mut(class) {
            *class += 1;
        }
    }

    /// Returns the upper bound of each bucket in microseconds, with the cumulative number of
    /// durations.
    pub fn cumulative_buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut sum = 0;
        self.bucket_counts.iter().enumerate().map(move |(class, count)| {
            sum += count;
            (FIRST_BOUND_US << class, sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_count_all_durations_up_to_their_bound() {
        let mut durations = DurationHistogram::default();
        for us in [0, 64, 65, 128, 129, FIRST_BOUND_US << 17, (FIRST_BOUND_US << 17) + 1] {
            durations.add_us(us);
        }
        let counts: Vec<_> = durations.cumulative_buckets().collect();
        assert_eq!(counts[..4], [(64, 2), (128, 4), (256, 5), (512, 5)]);
        assert_eq!(counts[17], (8_388_608, 6));
        assert_eq!((durations.count, durations.sum_us), (7, 386 + 2 * 8_388_608 + 1));
        durations.add_us(u64::MAX);
        assert_eq!((durations.count, durations.sum_us), (8, u64::MAX));
    }
}
