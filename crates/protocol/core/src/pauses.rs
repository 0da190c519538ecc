//! Late event-loop turns, and the extra silence tolerated because of them ([live-5]).
//!
//! Liveness only ([model-5]): nothing here can write a promise or a vote.

use crate::time::Time;

/// Lateness of a turn, in microseconds, above which the node counts as stopped. Such turns do not
/// raise the tolerance.
const STOPPED_LATENESS_US: u64 = 1_000_000;
/// Maximum tolerated silence in microseconds, unless the configured timeouts are longer.
const TOLERANCE_US_MAX: u64 = 1_000_000;
/// Length of a span in microseconds. The worst lateness of the current and the previous span
/// counts.
const SPAN_US: u64 = 60_000_000;

/// Lateness of this node's turns, and the leader's lateness as the leader reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pauses {
    /// Start of the current span.
    span_start: Time,
    /// Worst lateness in the current span, in microseconds. `previous_worst_us` is the worst
    /// lateness in the previous span.
    worst_lateness_us: u64,
    previous_worst_us: u64,
    /// Lateness that the leader last reported, in microseconds.
    leader_lateness_us: u64,
}

impl Pauses {
    /// Records that a turn of this node was late by `us` microseconds.
    pub fn record_lateness(&mut self, now: Time, us: u64) {
        self.drop_old_spans(now);
        if us <= STOPPED_LATENESS_US {
            self.worst_lateness_us = self.worst_lateness_us.max(us);
        }
    }

    /// Records the leader's report of its own lateness.
    pub fn record_leader_lateness(&mut self, us: u32) {
        self.leader_lateness_us = us.into();
    }

    /// Returns the lateness that the leader last reported, in microseconds.
    pub fn leader_lateness_us(&self) -> u64 {
        self.leader_lateness_us
    }

    /// Returns the worst lateness in the last one to two minutes, in microseconds, for use in
    /// heartbeats.
    pub fn worst_lateness_us(&mut self, now: Time) -> u32 {
        self.drop_old_spans(now);
        #[expect(clippy::cast_possible_truncation, reason = "at most STOP_US")]
        let worst_us = self.worst_lateness_us.max(self.previous_worst_us) as u32;
        worst_us
    }

    /// Returns the silence to tolerate beyond a timeout of `timeout_us`, if another node is
    /// `other_us` late. A message may be delayed twice: at the sender and at the receiver.
    pub fn tolerated_silence_us(&mut self, now: Time, other_us: u64, timeout_us: u64) -> u64 {
        let worst_us = other_us.max(self.worst_lateness_us(now).into());
        let most_us = TOLERANCE_US_MAX.saturating_sub(timeout_us);
        worst_us.saturating_mul(2).min(most_us)
    }

    fn drop_old_spans(&mut self, now: Time) {
        if now >= self.span_start.plus_us(2 * SPAN_US) {
            (self.previous_worst_us, self.worst_lateness_us) = (0, 0);
        } else if now >= self.span_start.plus_us(SPAN_US) {
            (self.previous_worst_us, self.worst_lateness_us) = (self.worst_lateness_us, 0);
        } else {
            return;
        }
        self.span_start = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    fn at_s(s: u64) -> Time {
        Time(0).plus_ms(s * 1000)
    }

    #[test]
    fn worst_lateness_counts_for_one_to_two_minutes() {
        let mut pauses = Pauses::default();
        pauses.record_lateness(at_s(1), 30 * MS);
        pauses.record_lateness(at_s(2), 80 * MS);
        pauses.record_lateness(at_s(3), 50 * MS);
        assert_eq!(pauses.worst_lateness_us(at_s(59)), 80_000);
        pauses.record_lateness(at_s(61), 10 * MS);
        assert_eq!(pauses.worst_lateness_us(at_s(119)), 80_000);
        assert_eq!(pauses.worst_lateness_us(at_s(121)), 10_000);
        assert_eq!(pauses.worst_lateness_us(at_s(300)), 0);
    }

    #[test]
    fn lateness_as_long_as_a_stop_does_not_count() {
        let mut pauses = Pauses::default();
        pauses.record_lateness(at_s(1), STOPPED_LATENESS_US + 1);
        assert_eq!(pauses.worst_lateness_us(at_s(1)), 0);
        pauses.record_lateness(at_s(1), STOPPED_LATENESS_US);
        assert_eq!(u64::from(pauses.worst_lateness_us(at_s(1))), STOPPED_LATENESS_US);
    }

    /// The tolerated silence is bounded, whatever lateness a peer reports.
    #[test]
    fn patience_is_bounded_for_any_reported_lateness() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.tolerated_silence_us(at_s(1), 0, 200 * MS), 0);
        assert_eq!(pauses.tolerated_silence_us(at_s(1), 90 * MS, 200 * MS), 180 * MS);
        pauses.record_lateness(at_s(1), 100 * MS);
        assert_eq!(pauses.tolerated_silence_us(at_s(1), 90 * MS, 200 * MS), 200 * MS);
        for told in [500 * MS, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(pauses.tolerated_silence_us(at_s(1), told, 200 * MS), 800 * MS);
            assert_eq!(pauses.tolerated_silence_us(at_s(1), told, 2_000 * MS), 0);
        }
    }
}
