//! Periodic checks of this replica, which report events to the operator.

use quorate_core::time::Time;
use quorate_log::disk::DiskError;

use crate::{
    observing::{
        events::{Event, Events},
        pace::RateSamples,
        pursuit::{LagTracker, NodeProgress},
    },
    ports::status::Progress,
};

/// Interval in milliseconds between checks.
const CHECK_INTERVAL_MS: u64 = 50;
/// Duration in milliseconds after which a log write is reported as slow. A slow write does not
/// count as failed ([live-3]). Most disks need a hundredth of this time.
const SLOW_WRITE_MS: u64 = 200;
/// Age in milliseconds at which an unfinished write is reported, and again whenever the age
/// doubles.
const HANGING_WRITE_MS: u64 = 2_000;
/// Time in milliseconds without a leader before the first report. More follow after ten seconds and
/// then every minute.
const NO_LEADER_MS: u64 = 1_000;
const NO_LEADER_SECOND_MS: u64 = 10_000;
const NO_LEADER_EVERY_MS: u64 = 60_000;
/// Sampling interval of the log's growth in milliseconds, and number of samples: the last minute.
const GROWTH_SAMPLING: (u64, usize) = (1_000, 60);

/// State of a replica at the moment of a check.
#[derive(Debug)]
pub(crate) struct ReplicaView<'a> {
    /// Progress of the node in applying decided slots.
    pub(crate) progress: NodeProgress,
    /// The node is stopping or was removed, and so needs no leader.
    pub(crate) is_leaving: bool,
    /// Start of the oldest log write in flight.
    pub(crate) oldest_write: Option<Time>,
    /// Total number of bytes that the log has written.
    pub(crate) written_bytes: u64,
    /// Reason why no log segment can be created; `None` if one can.
    pub(crate) segment_failure: Option<&'a DiskError>,
    /// Number of connected members including this node, and number of all members.
    pub(crate) reachable_members: (usize, usize),
}

/// State at the last check, and the conditions already reported.
#[derive(Debug)]
pub(crate) struct ReplicaWatch {
    next_check_at: Time,
    pursuit: LagTracker,
    log_growth: RateSamples,
    /// Last time at which a leader was known, or the node's start.
    last_led_at: Time,
    /// Time without a leader, in milliseconds, at which the next report is due.
    leaderless_report_due_ms: u64,
    /// Start of the period in which no log segment can be created; `None` if one can.
    segments_fail_since: Option<Time>,
    hang_report_due_ms: u64,
}

impl ReplicaWatch {
    pub(crate) fn new(now: Time, pursuit: LagTracker) -> Self {
        Self {
            next_check_at: now,
            pursuit,
            log_growth: RateSamples::new(GROWTH_SAMPLING.0, GROWTH_SAMPLING.1),
            last_led_at: now,
            leaderless_report_due_ms: NO_LEADER_MS,
            segments_fail_since: None,
            hang_report_due_ms: HANGING_WRITE_MS,
        }
    }

    /// Records that this node will lead by itself after `wait_us` microseconds, so that the lack of
    /// a leader is not reported before then ([lie-6]).
    pub(crate) fn expect_own_lead(&mut self, now: Time, wait_us: u64) {
        self.last_led_at = now.plus_us(wait_us);
    }

    pub(crate) fn on_written(&mut self, took_us: u64, bytes: usize, events: &mut Events) {
        self.hang_report_due_ms = HANGING_WRITE_MS;
        let ms = took_us / 1000;
        if ms >= SLOW_WRITE_MS {
            events.push(Event::SlowWrite { ms, bytes });
        }
    }

    pub(crate) fn take_due_check(&mut self, now: Time) -> bool {
        let due = now >= self.next_check_at;
        if due {
            self.next_check_at = now.plus_ms(CHECK_INTERVAL_MS);
        }
        due
    }

    /// Checks the replica, and queues events.
    pub(crate) fn check_replica(
        &mut self,
        now: Time,
        sight: &ReplicaView<'_>,
        events: &mut Events,
    ) {
        let unled_ms = self.check_leader(now, sight.progress.has_leader || sight.is_leaving);
        self.log_growth.record_total(now, sight.written_bytes);
        if !sight.is_leaving {
            self.pursuit.check_progress(now, &sight.progress, events);
        }
        self.check_writes(now, sight.oldest_write, events);
        self.check_segments(now, sight.segment_failure, events);
        if let Some(for_ms) = unled_ms {
            let (connected, members) = sight.reachable_members;
            events.push(Event::NoLeader {
                leaderless_ms: for_ms,
                connected_count: connected,
                member_count: members,
            });
        }
    }

    fn check_segments(&mut self, now: Time, failure: Option<&DiskError>, events: &mut Events) {
        match (failure, self.segments_fail_since) {
            (Some(failure), None) => {
                self.segments_fail_since = Some(now);
                events.push(Event::NoSegment {
                    is_waiting: failure.exhausted.is_some(),
                    why: failure.to_string(),
                });
            }
            (None, Some(since)) => {
                self.segments_fail_since = None;
                let ms = now.since_us(since) / 1000;
                events.push(Event::SegmentsRecovered { ms });
            }
            _ => {}
        }
    }

    /// Returns the activity that keeps this node from being caught up, if any.
    pub(crate) fn progress(&self, now: Time, standing: &NodeProgress) -> Option<Progress> {
        self.pursuit.progress(now, standing)
    }

    /// Returns the growth rate of the log in bytes per second; `None` before enough samples.
    pub(crate) fn log_growth(&self, now: Time, written_bytes: u64) -> Option<u64> {
        self.log_growth.per_second(now, written_bytes)
    }

    fn check_leader(&mut self, now: Time, led: bool) -> Option<u64> {
        if led {
            (self.last_led_at, self.leaderless_report_due_ms) = (now, NO_LEADER_MS);
            return None;
        }
        let for_ms = now.since_us(self.last_led_at) / 1000;
        if for_ms < self.leaderless_report_due_ms {
            return None;
        }
        self.leaderless_report_due_ms = match for_ms {
            ..NO_LEADER_SECOND_MS => NO_LEADER_SECOND_MS,
            _ => for_ms + NO_LEADER_EVERY_MS,
        };
        Some(for_ms)
    }

    fn check_writes(&mut self, now: Time, oldest: Option<Time>, events: &mut Events) {
        let ms = oldest.map_or(0, |began| now.since_us(began) / 1000);
        if ms >= self.hang_report_due_ms {
            self.hang_report_due_ms = ms * 2;
            events.push(Event::WriteHangs { ms });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_core::slot::Slot;

    fn at_ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    fn watch() -> ReplicaWatch {
        ReplicaWatch::new(at_ms(0), LagTracker::new(at_ms(0), Slot(1), 0, 0))
    }

    #[test]
    fn missing_leader_is_reported_at_growing_intervals() {
        let mut watch = watch();
        let mut told = Vec::new();
        for ms in (0..200_000).step_by(50) {
            told.extend(watch.check_leader(at_ms(ms), ms < 500));
        }
        // The last leader was seen at 450 ms.
        assert_eq!(told, [1_000, 10_000, 70_000, 130_000, 190_000]);
    }

    /// A single node waits before it leads. This planned wait is not reported as a missing leader.
    #[test]
    fn planned_wait_is_not_reported_as_a_missing_leader() {
        let mut watch = watch();
        watch.expect_own_lead(at_ms(100), 2_000_000);
        let told = (0..4_000).step_by(50).map(|ms| watch.check_leader(at_ms(ms), false));
        assert_eq!(told.flatten().collect::<Vec<_>>(), [1_000], "at 3100 ms");
    }

    #[test]
    fn hanging_write_is_reported_before_it_ends() {
        let (mut watch, mut events) = (watch(), Events::default());
        for ms in (0..10_000).step_by(50) {
            watch.check_writes(at_ms(ms), Some(at_ms(0)), &mut events);
        }
        watch.on_written(10_000_000, 4096, &mut events);
        watch.on_written(199_000, 4096, &mut events);
        let told: Vec<_> = std::iter::from_fn(|| events.next()).collect();
        let expected = [
            Event::WriteHangs { ms: 2000 },
            Event::WriteHangs { ms: 4000 },
            Event::WriteHangs { ms: 8000 },
            Event::SlowWrite { ms: 10_000, bytes: 4096 },
        ];
        assert_eq!(told, expected);
    }
}
