//! A histogram of durations with fixed buckets. An earlier state can be subtracted from a later
//! one.

/// Upper bound of the first bucket, in microseconds. Bounds double from bucket to bucket.
const FIRST_US: u64 = 64;
/// Number of buckets with an upper bound. The last bound is 8.4 s.
const CLASSES: usize = 18;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    classes: [u64; CLASSES],
    pub count: u64,
    pub sum_us: u64,
}

impl Durations {
    pub fn add_us(&mut self, us: u64) {
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        let doublings = us.div_ceil(FIRST_US).max(1);
        let class = (u64::BITS - (doublings - 1).leading_zeros()) as usize;
        if let Some(class) = self.classes.get_mut(class) {
            *class += 1;
        }
    }

    /// Returns the upper bound of each bucket in microseconds, with the cumulative number of
    /// durations.
    pub fn up_to(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut sum = 0;
        self.classes.iter().enumerate().map(move |(class, count)| {
            sum += count;
            (FIRST_US << class, sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_count_all_durations_up_to_their_bound() {
        let mut durations = Durations::default();
        for us in [0, 64, 65, 128, 129, FIRST_US << 17, (FIRST_US << 17) + 1] {
            durations.add_us(us);
        }
        let counts: Vec<_> = durations.up_to().collect();
        assert_eq!(counts[..4], [(64, 2), (128, 4), (256, 5), (512, 5)]);
        assert_eq!(counts[17], (8_388_608, 6));
        assert_eq!((durations.count, durations.sum_us), (7, 386 + 2 * 8_388_608 + 1));
        durations.add_us(u64::MAX);
        assert_eq!((durations.count, durations.sum_us), (8, u64::MAX));
    }
}
