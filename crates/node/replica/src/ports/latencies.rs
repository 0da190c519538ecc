//! Histogram of command latencies. The number of classes is fixed, so counting is cheap, and
//! histograms of different nodes and times can be added and subtracted.

use std::fmt;

/// Number of classes per doubling of the latency.
const CLASSES_PER_DOUBLING: u64 = 4;
/// Base-2 logarithm of the width, in microseconds, of the first classes.
const FIRST_CLASS_BITS: u32 = 2;
/// Number of classes; the last one begins at 58.7 seconds.
pub const CLASS_COUNT: usize = 88;

/// Command counts by latency class. A class is never wider than a quarter of its lower bound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Latencies([u64; CLASS_COUNT]);

impl Default for Latencies {
    fn default() -> Self {
        Self([0; CLASS_COUNT])
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = self.iter().filter(|(_, count)| *count > 0);
        f.debug_map().entries(some).finish()
    }
}

impl Latencies {
    /// Counts `commands` commands of one batch. Their latencies are spread evenly from the shortest
    /// to the longest, both in microseconds.
    pub fn add(&mut self, commands: u64, shortest_us: u64, longest_us: u64) {
        let (first, last) = (class_of(shortest_us), class_of(longest_us));
        let span = longest_us.saturating_sub(shortest_us).max(1);
        let mut left = commands;
        for number in first..last {
            let under = upper_edge_us(number).saturating_sub(shortest_us);
            let share = u128::from(commands) * u128::from(under) / u128::from(span);
            // This share of all commands is below the upper edge; the rest belongs to later
            // classes.
            let share = u64::try_from(share).unwrap_or(u64::MAX).min(commands);
            let here = share.saturating_sub(commands - left);
            self.0[number] += here;
            left -= here;
        }
        self.0[last.max(first)] += left;
    }

    /// Iterates over the classes: the upper bound in microseconds and the number of commands of
    /// each. The last class includes all longer latencies.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.0.iter().enumerate();
        counts.map(|(number, count)| (upper_edge_us(number), *count))
    }
}

fn class_of(us: u64) -> usize {
    let quarters = (us >> FIRST_CLASS_BITS).max(CLASSES_PER_DOUBLING);
    let doublings = quarters.ilog2() - CLASSES_PER_DOUBLING.ilog2();
    let quarter = (quarters >> doublings) - CLASSES_PER_DOUBLING;
    (doublings as usize * CLASSES_PER_DOUBLING as usize + quarter as usize).min(CLASS_COUNT - 1)
}

/// Returns the upper bound of a class in microseconds, equal to the lower bound of the next class.
fn upper_edge_us(class: usize) -> u64 {
    let (doublings, quarter) =
        (class as u64 / CLASSES_PER_DOUBLING, class as u64 % CLASSES_PER_DOUBLING);
    ((CLASSES_PER_DOUBLING + quarter + 1) << doublings) << FIRST_CLASS_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(latencies: &Latencies) -> Vec<(u64, u64)> {
        latencies.iter().filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn classes_contain_their_values_and_span_at_most_a_quarter() {
        assert_eq!((class_of(0), class_of(19), class_of(20)), (0, 0, 1));
        let mut us = 16;
        while us < 58_000_000 {
            let number = class_of(us);
            let from = number.checked_sub(1).map_or(16, upper_edge_us);
            let to = upper_edge_us(number);
            assert!(from <= us && us < to, "{us}: {from} to {to}");
            assert!(to - from <= from / 4, "{us}: {from} to {to}");
            us += us / 37 + 1;
        }
        assert_eq!(class_of(u64::MAX), CLASS_COUNT - 1);
        assert_eq!(upper_edge_us(CLASS_COUNT - 2), 7 << 23);
    }

    #[test]
    fn commands_of_a_batch_are_spread_over_classes_without_loss() {
        let mut latencies = Latencies::default();
        latencies.add(1, 100, 100);
        assert_eq!(some(&latencies), [(112, 1)]);
        // From 96 to 192 us: equal numbers in each 16 us.
        let mut latencies = Latencies::default();
        latencies.add(60, 96, 192);
        assert_eq!(some(&latencies), [(112, 10), (128, 10), (160, 20), (192, 20)]);
        for (commands, shortest, longest) in [
            (1, 0, u64::MAX),
            (u64::from(u32::MAX), 0, u64::MAX),
            (7, 5, 5_000_000),
            (3, 200, 100),
            (0, 1, 2),
        ] {
            let mut latencies = Latencies::default();
            latencies.add(commands, shortest, longest);
            let sum: u64 = latencies.iter().map(|(_, count)| count).sum();
            assert_eq!(sum, commands, "{latencies:?}");
        }
    }
}
