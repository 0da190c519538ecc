//! Reports the progress of a writer on standard error.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use quorate_admin::{progress::ProgressReport, units::format_bytes};
use quorate_client::stream::ProgressHandle;

use crate::reporting::Reporter;

/// Time span over which the rate is averaged.
const RATE_SPAN: Duration = Duration::from_secs(3);

/// Progress of the writer at one point in time.
#[derive(Clone, Copy, Debug)]
struct WriterSample {
    /// First position that this writer wrote.
    first_position: u64,
    durable_position: u64,
    written_position: u64,
    /// Position after the last byte, if the length of the input is known.
    end_position: Option<u64>,
    bytes_per_second: u64,
}

/// Starts reporting. `end` is the position after the last byte of the input, if its length is
/// known.
pub(super) fn start(watch: ProgressHandle, end: Option<u64>) -> io::Result<Reporter> {
    let first = watch.progress().durable_position;
    let mut seen = VecDeque::from([(Instant::now(), first)]);
    Reporter::start(move |told| {
        let now = watch.progress();
        let sample = WriterSample {
            first_position: first,
            durable_position: now.durable_position,
            written_position: now.written_position,
            end_position: end,
            bytes_per_second: durable_rate(&mut seen, now.durable_position),
        };
        told.report(|| sample.progress_report());
    })
}

fn durable_rate(seen: &mut VecDeque<(Instant, u64)>, durable: u64) -> u64 {
    let now = Instant::now();
    seen.push_back((now, durable));
    while seen.len() > 2 && now.duration_since(seen[1].0) >= RATE_SPAN {
        seen.pop_front();
    }
    let (since, before) = seen[0];
    per_second(durable - before, now.duration_since(since))
}

pub(super) fn per_second(count: u64, time: Duration) -> u64 {
    let all = u128::from(count) * 1_000_000 / time.as_micros().max(1);
    u64::try_from(all).unwrap_or(u64::MAX)
}

impl WriterSample {
    fn progress_report(&self) -> ProgressReport {
        let rate = format_bytes(self.bytes_per_second);
        let lag = format_bytes(self.written_position - self.durable_position);
        let rest = format!("{rate}/s, durable {}, lag {lag}", self.durable_position);
        match self.end_position {
            Some(end) => ProgressReport::with_share(
                "",
                (self.durable_position - self.first_position, end - self.first_position),
                rest,
            ),
            None => ProgressReport::text(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_needs_a_known_end() {
        let mut sample = WriterSample {
            first_position: 1000,
            durable_position: 3000,
            written_position: 3512,
            end_position: Some(5000),
            bytes_per_second: 2 << 20,
        };
        let rest = "2 MiB/s, durable 3000, lag 512 B";
        let half = ProgressReport::with_share("", (2000, 4000), rest);
        assert_eq!(sample.progress_report(), half);
        sample.end_position = None;
        assert_eq!(sample.progress_report(), ProgressReport::text(rest));
    }

    #[test]
    fn rate_is_bytes_per_elapsed_second() {
        assert_eq!(per_second(500, Duration::from_millis(250)), 2000);
        assert_eq!(per_second(500, Duration::ZERO), 500_000_000);
    }
}
