//! Samples from one repetition: latencies, counts, and the rate over time.

use hdrhistogram::Histogram;

use crate::schedule::{Nanos, SECOND};

/// Longer latencies are recorded as this value.
const LATENCY_MAX: Nanos = 3600 * SECOND;
/// Number of significant decimal digits. Three digits limit the error to 0.1 %.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Width of a bar in the chart of rate over time, in nanoseconds.
pub const BAR_WIDTH: Nanos = SECOND / 10;
/// Maximum number of bars. Replies after the last bar do not appear in the chart.
const BARS_MAX: usize = 36_000;
/// Maximum length of the recorded error message, in bytes.
const ERROR_BYTES: usize = 200;

/// Latencies in nanoseconds, with the resolution of an HDR histogram.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX, SIGNIFICANT_DIGITS);
        Self(histogram.expect("the bounds are right"))
    }
}

impl Latencies {
    pub fn record(&mut self, latency: Nanos) {
        self.0.saturating_record(latency.max(1));
    }

    /// Adds all latencies of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency in microseconds that a `share` (0 to 1) of all latencies does not
    /// exceed.
    pub fn quantile_us(&self, share: f64) -> f64 {
        to_us(self.0.value_at_quantile(share))
    }

    pub fn max_us(&self) -> f64 {
        to_us(self.0.max())
    }

    /// Returns the number of latencies of at most `us` microseconds.
    pub fn count_to_us(&self, us: u64) -> u64 {
        self.0.count_between(0, us.saturating_mul(1000))
    }

    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1000.0
    }

    pub fn deviation_us(&self) -> f64 {
        self.0.stdev() / 1000.0
    }

    /// Returns a few points of the distribution as (share of all, microseconds).
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        const SHARES: [f64; 21] = [
            0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98,
            0.99, 0.995, 0.999, 0.9999, 1.0,
        ];
        if self.0.is_empty() {
            return Vec::new();
        }
        SHARES.map(|share| (share, self.quantile_us(share))).into()
    }
}

#[expect(clippy::cast_precision_loss, reason = "an hour has 42 bits of ns")]
fn to_us(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// Gaps between successful replies. Retains only the gaps needed to find the longest one after any
/// given time.
#[derive(Clone, Debug, Default)]
pub struct ReplyGaps {
    /// End of the last gap, in nanoseconds since the start.
    last_gap_end: Nanos,
    /// End and length of each retained gap. Invariant: lengths decrease. A gap followed by a longer
    /// one is never an answer of `longest_after`.
    longest_gaps: Vec<(Nanos, Nanos)>,
}

impl ReplyGaps {
    /// Ends the current gap, because a reply arrived or the wait for replies ended.
    pub fn end_gap_at(&mut self, since_start: Nanos) {
        let length = since_start.saturating_sub(self.last_gap_end);
        if length == 0 {
            return;
        }
        self.last_gap_end = since_start;
        while self.longest_gaps.pop_if(|(_, other)| *other <= length).is_some() {}
        self.longest_gaps.push((since_start, length));
    }

    /// Returns the length of the longest gap that ended after `moment`. The whole gap counts, even
    /// if it began before `moment`.
    pub fn longest_after(&self, moment: Nanos) -> Option<Nanos> {
        let mut gaps = self.longest_gaps.iter();
        gaps.find_map(|(end, length)| (*end > moment).then_some(*length))
    }
}

/// Counts and latencies of one repetition.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Latencies of commands sent within the measured time, from the intended (open loop) or actual
    /// (closed loop) send time to the reply.
    pub latencies: Latencies,
    /// Number of successful replies within the measured time.
    pub completed: u64,
    pub measured_ns: Nanos,
    /// Number of error replies, including those outside the measured time.
    pub errors: u64,
    /// Number of commands without a reply, including those outside the measured time.
    pub lost: u64,
    /// Message of the first error reply.
    pub first_error: Option<String>,
    /// Number of commands sent within the measured time.
    pub sent_count: u64,
    /// Number of commands within the measured time that were sent more than
    /// [`crate::load::LATE_AFTER`] late.
    pub late_count: u64,
    /// Longest delay with which a command was sent.
    pub worst_lateness: Nanos,
    /// Number of replies in each [`BAR_WIDTH`] since the start, including warm-up.
    pub replies_over_time: Vec<u32>,
    /// Gaps between successful replies, including those of the warm-up.
    pub gaps: ReplyGaps,
}

impl Samples {
    /// Returns the number of successful replies per second of the measured time.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn completed_per_second(&self) -> f64 {
        self.completed as f64 * SECOND as f64 / self.measured_ns.max(1) as f64
    }

    /// Returns the share of commands that the generator sent late, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn late_share(&self) -> f64 {
        self.late_count as f64 / self.sent_count.max(1) as f64
    }

    /// Returns the bars that lie entirely between `from` and `to`, with zeros for bars after the
    /// last reply.
    pub(crate) fn bars_between(&self, from: Nanos, to: Nanos) -> Vec<u32> {
        let bar = |index: Nanos| usize::try_from(index).unwrap_or(BARS_MAX);
        let (from, to) = (bar(from.div_ceil(BAR_WIDTH)), bar(to / BAR_WIDTH));
        let kept = self.replies_over_time.iter().copied();
        let all = kept.chain(std::iter::repeat(0));
        all.skip(from).take(to.saturating_sub(from)).collect()
    }

    /// Returns the replies per second in the bars that lie entirely between `from` and `to`,
    /// because partial bars would distort the rate.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn rate_between(&self, from: Nanos, to: Nanos) -> f64 {
        let bars = self.bars_between(from, to);
        let sum: u64 = bars.iter().copied().map(u64::from).sum();
        let nanos = bars.len().max(1) as u64 * BAR_WIDTH;
        sum as f64 * SECOND as f64 / nanos as f64
    }

    pub(crate) fn count_reply_at(&mut self, since_start: Nanos) {
        self.gaps.end_gap_at(since_start);
        let bucket = usize::try_from(since_start / BAR_WIDTH).unwrap_or(usize::MAX);
        if bucket < BARS_MAX {
            if self.replies_over_time.len() <= bucket {
                self.replies_over_time.resize(bucket + 1, 0);
            }
            self.replies_over_time[bucket] += 1;
        }
    }

    pub(crate) fn error(&mut self, text: &[u8]) {
        self.errors += 1;
        if self.first_error.is_none() {
            let text = &text[..text.len().min(ERROR_BYTES)];
            self.first_error = Some(String::from_utf8_lossy(text).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_between_two_times_uses_whole_buckets() {
        let samples = Samples { replies_over_time: vec![9, 1, 2, 3, 9], ..Samples::default() };
        let bars = |from, to| samples.bars_between(from * BAR_WIDTH / 10, to * BAR_WIDTH / 10);
        assert_eq!(bars(5, 45), [1, 2, 3]);
        assert_eq!(bars(30, 70), [3, 9, 0, 0]);
        assert!(bars(31, 39).is_empty() && bars(40, 20).is_empty());
        let rate = samples.rate_between(BAR_WIDTH, 4 * BAR_WIDTH);
        assert!((rate - 20.0).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn longest_gap_is_known_after_every_time() {
        // The gaps are 10, 50, 5, 30, 30 and 1 long.
        let ends = [10, 60, 65, 95, 95, 125, 126];
        let mut gaps = ReplyGaps::default();
        ends.into_iter().for_each(|end| gaps.end_gap_at(end));
        let plainly = |moment| {
            let all = ends.windows(2).map(|pair| (pair[1], pair[1] - pair[0]));
            let after = all.chain([(10, 10)]).filter(|(end, _)| *end > moment);
            after.map(|(_, length)| length).max()
        };
        for moment in 0..130 {
            assert_eq!(gaps.longest_after(moment), plainly(moment), "{moment}");
        }
    }
}
