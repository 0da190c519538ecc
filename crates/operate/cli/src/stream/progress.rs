//! Reports the progress of a writer on standard error.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use quorate_admin::{progress::ProgressReport, units::bytes};
use quorate_client::stream::Watch;

use crate::reporting::Reporter;

/// Time span over which the rate is averaged.
const SPAN: Duration = Duration::from_secs(3);

/// Progress of the writer at one point in time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// First position that this writer wrote.
    first: u64,
    durable: u64,
    written: u64,
    /// Position after the last byte, if the length of the input is known.
    end: Option<u64>,
    bytes_per_second: u64,
}

/// Starts reporting. `end` is the position after the last byte of the input, if its length is
/// known.
pub(super) fn start(watch: Watch, end: Option<u64>) -> io::Result<Reporter> {
    let first = watch.progress().durable;
    let mut seen = VecDeque::from([(Instant::now(), first)]);
    Reporter::start(move |told| {
        let now = watch.progress();
        let sample = Sample {
            first,
            durable: now.durable,
            written: now.written,
            end,
            bytes_per_second: rate(&mut seen, now.durable),
        };
        told.report(|| sample.progress_report());
    })
}

fn rate(seen: &mut VecDeque<(Instant, u64)>, durable: u64) -> u64 {
    let now = Instant::now();
    seen.push_back((now, durable));
    while seen.len() > 2 && now.duration_since(seen[1].0) >= SPAN {
        seen.pop_front();
    }
    let (since, before) = seen[0];
    per_second(durable - before, now.duration_since(since))
}

pub(super) fn per_second(count: u64, time: Duration) -> u64 {
    let all = u128::from(count) * 1_000_000 / time.as_micros().max(1);
    u64::try_from(all).unwrap_or(u64::MAX)
}

impl Sample {
    fn progress_report(&self) -> ProgressReport {
        let rate = bytes(self.bytes_per_second);
        let lag = bytes(self.written - self.durable);
        let rest = format!("{rate}/s, durable {}, lag {lag}", self.durable);
        match self.end {
            Some(end) => {
                ProgressReport::share("", (self.durable - self.first, end - self.first), rest)
            }
            None => ProgressReport::text(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_needs_a_known_end() {
        let mut sample = Sample {
            first: 1000,
            durable: 3000,
            written: 3512,
            end: Some(5000),
            bytes_per_second: 2 << 20,
        };
        let rest = "2 MiB/s, durable 3000, lag 512 B";
        let half = ProgressReport::share("", (2000, 4000), rest);
        assert_eq!(sample.progress_report(), half);
        sample.end = None;
        assert_eq!(sample.progress_report(), ProgressReport::text(rest));
    }

    #[test]
    fn rate_is_bytes_per_elapsed_second() {
        assert_eq!(per_second(500, Duration::from_millis(250)), 2000);
        assert_eq!(per_second(500, Duration::ZERO), 500_000_000);
    }
}
