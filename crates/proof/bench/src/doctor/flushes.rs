//! Flush-time check: the fastest round, the distribution, and whether the slowest flushes are too
//! slow.

use std::{io, path::Path, time::Duration};

use crate::{probe::disk::measure_flushes, samples::Latencies};
use serde::Serialize;

use crate::doctor::{finding::Finding, plane::Plane};

/// Number of flushes in a round. The fastest round counts, because on a busy machine a flush waits
/// longer for a processor than for the disk.
const FLUSHES_PER_ROUND: usize = 40;
const ROUND_COUNT: usize = 5;
/// Time after which a round stops early.
const ROUND_TIMEOUT: Duration = Duration::from_millis(500);
/// Default heartbeat interval in µs. Flushes that take longer noticeably delay every command.
pub const SLOW_US: f64 = 20_000.0;
/// Default minimum of the election timeout, in µs.
const ELECTION_US: f64 = 100_000.0;
/// Ratio of the slowest flushes to the median at which the distribution has a long tail.
const LONG_TAIL_RATIO: f64 = 10.0;
/// Flush time below which a long tail does not matter, in µs.
const TAIL_US_LEAST: f64 = 1_000.0;
/// Upper bound of the first histogram bar in µs. Each further bound is twice the previous one.
const FIRST_BAR_BOUND_US: u64 = 16;

/// Distribution of flush times, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlushTimes {
    pub count: u64,
    /// Median of the fastest round.
    pub quietest_us: f64,
    /// Median of the slowest round.
    pub slowest_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    /// Histogram bars from the first to the last non-empty one, including empty ones between them.
    pub histogram: Vec<Bar>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// Inclusive upper bound of the bar. Its lower bound is the previous bar's upper bound.
    pub to_us: u64,
    pub count: u64,
}

impl FlushTimes {
    /// Measures flushes of small writes to this folder.
    pub fn measure(folder: &Path) -> io::Result<Self> {
        let mut rounds = Vec::new();
        for _ in 0..ROUND_COUNT {
            rounds.push(measure_flushes(folder, FLUSHES_PER_ROUND, ROUND_TIMEOUT)?);
        }
        Ok(Self::from_rounds(&rounds))
    }

    fn from_rounds(rounds: &[Latencies]) -> Self {
        let mut all = Latencies::default();
        let (mut quietest_us, mut slowest_us) = (f64::INFINITY, 0.0_f64);
        for round in rounds {
            let median = round.quantile_us(0.5);
            (quietest_us, slowest_us) = (quietest_us.min(median), slowest_us.max(median));
            all.add(round);
        }
        Self {
            count: all.count(),
            quietest_us: round_to_tenths(quietest_us),
            slowest_us: round_to_tenths(slowest_us),
            p50_us: round_to_tenths(all.quantile_us(0.5)),
            p90_us: round_to_tenths(all.quantile_us(0.9)),
            p99_us: round_to_tenths(all.quantile_us(0.99)),
            max_us: round_to_tenths(all.max_us()),
            histogram: to_histogram(&all),
        }
    }

    pub fn flush_findings(&self) -> [Finding; 2] {
        let Self { quietest_us: median, slowest_us: worst, p99_us: high, count, .. } = self;
        let what = format!("writing and flushing 4 KiB takes {median:.0} µs");
        let detail = format!(
            "median of the quietest of {ROUND_COUNT} rounds; slowest round {worst:.0} µs; 99 % of {count} within {high:.0} µs"
        );
        let flush = if *median > SLOW_US {
            let hint = "disks with power-loss protection flush in well below 1 ms; raise --election-ms for this one";
            Finding::warning("flush", what, hint).with_planes(&Plane::ALL)
        } else {
            Finding::ok("flush", what)
        };
        [flush.with_detail(detail), self.tail_finding()]
    }

    fn tail_finding(&self) -> Finding {
        let Self { p50_us: middle, p99_us: high, max_us: max, .. } = self;
        let what = format!("one in a hundred takes {high:.0} µs or more, half take {middle:.0} µs");
        let detail = format!("the slowest took {max:.0} µs");
        let far = *high >= middle * LONG_TAIL_RATIO && *high >= TAIL_US_LEAST;
        let found = if *high >= ELECTION_US {
            let hint =
                "other nodes take over meanwhile: use a dedicated disk, or raise --election-ms";
            Finding::warning("flush tail", what, hint)
        } else if far {
            let hint = "find out what else writes to this disk or uses the CPUs; see load";
            Finding::warning("flush tail", what, hint)
        } else {
            Finding::ok("flush tail", what)
        };
        found.with_detail(detail)
    }
}

pub fn failed_finding(error: &io::Error) -> Finding {
    let hint = "check whether the disk is full or read-only";
    Finding::failing("flush", "cannot flush", hint)
        .with_detail(error.to_string())
        .blocking(&Plane::ALL)
}

fn to_histogram(all: &Latencies) -> Vec<Bar> {
    let mut bars = Vec::new();
    let (mut to_us, mut before) = (FIRST_BAR_BOUND_US, 0);
    while before < all.count() {
        let up_to = all.count_to_us(to_us);
        let count = up_to - before;
        if count > 0 || !bars.is_empty() {
            bars.push(Bar { to_us, count });
        }
        (before, to_us) = (up_to, to_us.saturating_mul(2));
    }
    bars
}

fn round_to_tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    fn latencies(all: &[u64]) -> Latencies {
        let mut latencies = Latencies::default();
        all.iter().for_each(|us| latencies.record(us * 1000));
        latencies
    }

    #[test]
    fn the_quietest_round_counts_and_every_flush_has_a_bar() {
        let flushes =
            FlushTimes::from_rounds(&[latencies(&[10, 90, 90]), latencies(&[300, 300, 5000])]);
        assert_eq!((flushes.count, flushes.quietest_us.round()), (6, 90.0));
        assert_eq!(flushes.slowest_us.round(), 300.0);
        let bars: Vec<_> = flushes.histogram.iter().map(|bar| (bar.to_us, bar.count)).collect();
        let expected = [(16, 1), (32, 0), (64, 0), (128, 2), (256, 0), (512, 2)];
        assert_eq!(bars[..6], expected);
        assert_eq!(bars.last(), Some(&(8192, 1)));
        assert_eq!(FlushTimes::from_rounds(&[]).histogram, []);
    }

    #[test]
    fn slow_flushes_and_long_tails_are_separate_warnings() {
        let of = |median, high| {
            let flushes = FlushTimes {
                quietest_us: median,
                p50_us: median,
                p99_us: high,
                ..FlushTimes::default()
            };
            flushes.flush_findings().map(|finding| finding.state)
        };
        assert_eq!(of(800.0, 2000.0), [FindingState::Ok, FindingState::Ok]);
        assert_eq!(of(30_000.0, 40_000.0), [FindingState::Warning, FindingState::Ok]);
        assert_eq!(of(800.0, 8000.0), [FindingState::Ok, FindingState::Warning]);
        assert_eq!(of(30.0, 900.0), [FindingState::Ok, FindingState::Ok], "no client feels it");
        assert_eq!(of(15_000.0, 100_000.0), [FindingState::Ok, FindingState::Warning]);
        let failed = failed_finding(&io::ErrorKind::StorageFull.into());
        assert!(failed.state == FindingState::Failing && failed.blocks);
    }
}
