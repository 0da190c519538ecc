//! Traffic statistics: executed and answered commands with their latencies, as totals since the
//! start and as samples of about a second.

use quorate_replica::{latencies::Latencies, status::Traffic};
use serde::{Deserialize, Serialize};

/// Maximum number of samples that a node retains. There is about one per second.
pub const SAMPLES_MAX: usize = 300;

/// Command counts, either since the process started or between two points in time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficView {
    /// Number of commands that this node executed, from clients of any node.
    pub applied: u64,
    /// Number of commands that this node answered to its own clients.
    pub answered: u64,
    /// Total latency of the answered commands from acceptance to answer, in microseconds.
    pub answered_us: u64,
    /// Latency histogram, as pairs of an upper bound in microseconds and the number of commands
    /// between the preceding bound and this one. Empty classes are omitted. The last class includes
    /// all longer latencies.
    #[serde(default)]
    pub latencies: Vec<(u64, u64)>,
}

impl TrafficView {
    pub(crate) fn new(traffic: Traffic) -> Self {
        Self {
            applied: traffic.applied_commands,
            answered: traffic.answered_commands,
            answered_us: traffic.answer_time_us,
            latencies: non_empty_buckets(&traffic.latencies),
        }
    }

    /// Returns the increase since `before`, or `None` if a restart has reset a counter.
    pub fn increase_since(&self, before: &Self) -> Option<Self> {
        let mut latencies = Vec::new();
        let mut old = before.latencies.iter().peekable();
        for &(under_us, count) in &self.latencies {
            let was = old.next_if(|(edge, _)| *edge == under_us);
            let added = count.checked_sub(was.map_or(0, |(_, count)| *count))?;
            if added > 0 {
                latencies.push((under_us, added));
            }
        }
        if old.next().is_some() {
            return None;
        }
        Some(Self {
            applied: self.applied.checked_sub(before.applied)?,
            answered: self.answered.checked_sub(before.answered)?,
            answered_us: self.answered_us.checked_sub(before.answered_us)?,
            latencies,
        })
    }

    /// Adds the counts of `other` to this one.
    pub fn add(&mut self, other: &Self) {
        self.applied = self.applied.saturating_add(other.applied);
        self.answered = self.answered.saturating_add(other.answered);
        self.answered_us = self.answered_us.saturating_add(other.answered_us);
        for &(under_us, count) in &other.latencies {
            let place = self.latencies.binary_search_by_key(&under_us, |(edge, _)| *edge);
            match place {
                Ok(at) => self.latencies[at].1 = self.latencies[at].1.saturating_add(count),
                Err(at) => self.latencies.insert(at, (under_us, count)),
            }
        }
    }

    /// Returns a latency percentile in microseconds, accurate to a quarter, or `None` if no command
    /// was answered. `part` is 0.5 for the median.
    pub fn percentile_us(&self, part: f64) -> Option<f64> {
        let counts = self.latencies.iter().map(|(_, count)| *count as f64);
        let total: f64 = counts.sum();
        let mut left = total * part;
        for &(under_us, count) in &self.latencies {
            let count = count as f64;
            if left <= count && count > 0.0 {
                // Interpolate: a class is as wide as a quarter of the power of two below it.
                let width = (1u64 << (under_us.max(2) - 1).ilog2()) as f64 / 4.0;
                return Some(under_us as f64 - width * (1.0 - left / count));
            }
            left -= count;
        }
        None
    }
}

fn non_empty_buckets(latencies: &Latencies) -> Vec<(u64, u64)> {
    latencies.iter().filter(|(_, count)| *count > 0).collect()
}

/// Traffic during about one second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleView {
    /// End of the sample by the node's clock, in Unix milliseconds.
    pub at_ms: u64,
    /// Length of the sample in milliseconds.
    pub span_ms: u64,
    /// Leader that the node knew at the end of the sample.
    pub leader: Option<u32>,
    #[serde(flatten)]
    pub traffic: TrafficView,
}

/// Traffic history of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryView {
    pub node: u32,
    /// Samples, oldest first, at most [`SAMPLES_MAX`], with gaps while the node did not respond.
    pub samples: Vec<SampleView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(commands: &[(u64, u64, u64)]) -> TrafficView {
        let mut latencies = Latencies::default();
        for &(count, shortest_us, longest_us) in commands {
            latencies.add(count, shortest_us, longest_us);
        }
        let answered = commands.iter().map(|(count, ..)| count).sum();
        TrafficView {
            applied: 2 * answered,
            answered,
            answered_us: 100 * answered,
            latencies: non_empty_buckets(&latencies),
        }
    }

    #[test]
    fn difference_of_two_snapshots_is_what_was_added() {
        let before = traffic(&[(10, 100, 100), (1, 5000, 5000)]);
        let added = traffic(&[(3, 40, 40), (7, 100, 100), (1, 9_000_000, 9_000_000)]);
        let mut after = before.clone();
        after.add(&added);
        assert_eq!(after.increase_since(&before), Some(added));
        assert_eq!(before.increase_since(&before).unwrap().percentile_us(0.5), None);
        // Counts of another process: the same number of commands, all with shorter latencies.
        let mut other = traffic(&[(12, 100, 100)]);
        assert_eq!(other.increase_since(&before), None);
        other.latencies.clear();
        assert_eq!(other.increase_since(&before), None);
    }

    #[test]
    fn percentiles_are_within_a_quarter() {
        let even = traffic(&[(100_000, 1000, 2000)]);
        for (part, expected) in [(0.5, 1500.0), (0.99, 1990.0), (0.1, 1100.0)] {
            let found = even.percentile_us(part).unwrap();
            let error = (found - expected).abs() / expected;
            assert!(error < 0.13, "{part}: {found}");
        }
        let most = traffic(&[(990, 200, 200), (10, 40_000, 40_000)]);
        let (median, most) = (most.percentile_us(0.5), most.percentile_us(0.995));
        assert!((150.0..250.0).contains(&median.unwrap()), "{median:?}");
        assert!((32_000.0..50_000.0).contains(&most.unwrap()), "{most:?}");
        assert_eq!(TrafficView::default().percentile_us(0.99), None);
    }

    #[test]
    fn fields_missing_from_older_nodes_have_defaults() {
        let said = r#"{"applied":4,"answered":2,"answered_us":9}"#;
        let view: TrafficView = serde_json::from_str(said).unwrap();
        assert_eq!((view.applied, view.latencies.len()), (4, 0));
    }
}
