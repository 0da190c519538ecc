//! Decides which samples are valid. A paused process or a stepped clock must not distort the
//! measurements.
//!
//! A reactor knows the latest time at which it will wake. If its next turn begins much later, if a
//! turn takes longer than any real one, or if time runs backwards, then the process was paused or
//! the clock was set. A measurement that began before and ended after that shows nothing about the
//! system.

use crate::time::Moment;

/// Maximum delay between the announced and the actual start of a turn, in nanoseconds. The
/// scheduler of a busy machine delays processes by a few milliseconds, which is part of the system.
const TURN_DELAY_NS_MAX: u64 = 25_000_000;
/// Maximum duration of a turn in nanoseconds. A longer turn was interrupted.
const TURN_NS_MAX: u64 = 100_000_000;

/// Detects pauses of the process and steps of the clock from the times of turns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InterruptionGuard {
    last_turn_end: Option<Moment>,
    next_wake_by: Option<Moment>,
    uninterrupted_since: Moment,
    interruptions: u64,
}

impl InterruptionGuard {
    /// Records a turn, and returns whether its own times are valid. `wake_by` is the latest start
    /// of the next turn if no event occurs.
    pub(crate) fn record_turn(
        &mut self,
        began: Moment,
        ended: Moment,
        wake_by: Option<Moment>,
    ) -> bool {
        let late = self.next_wake_by.is_some_and(|by| began.since(by) > TURN_DELAY_NS_MAX);
        let back = self.last_turn_end.is_some_and(|last| began < last) || ended < began;
        let long = ended.since(began) > TURN_NS_MAX;
        self.last_turn_end = Some(ended);
        self.next_wake_by = wake_by;
        if back || long {
            self.uninterrupted_since = ended;
        } else if late {
            self.uninterrupted_since = began;
        }
        let stalled = late || back || long;
        self.interruptions += u64::from(stalled);
        !(back || long)
    }

    /// Returns whether a time observed during a turn is too late, or earlier than the last turn.
    pub(crate) fn is_late(&self, now: Moment) -> bool {
        let late = self.next_wake_by.is_some_and(|by| now.since(by) > TURN_DELAY_NS_MAX);
        late || self.last_turn_end.is_some_and(|last| now < last)
    }

    /// Returns whether work ran from `began` until `now` without interruption.
    pub(crate) fn is_uninterrupted(&self, began: Moment, now: Moment) -> bool {
        began >= self.uninterrupted_since && began <= now && !self.is_late(now)
    }

    /// Returns the number of pauses of the process and steps of the clock.
    pub(crate) const fn interruptions(&self) -> u64 {
        self.interruptions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn turn(guard: &mut InterruptionGuard, began_ms: u64) -> bool {
        let began = Moment(began_ms * MS);
        let ended = Moment(began.0 + 50_000);
        guard.record_turn(began, ended, Some(Moment(ended.0 + 20 * MS)))
    }

    #[test]
    fn samples_that_span_a_pause_are_dropped_later_ones_kept() {
        let mut guard = InterruptionGuard::default();
        assert!(turn(&mut guard, 1000));
        assert!(turn(&mut guard, 1020));
        let sent = Moment(1020 * MS);
        assert!(guard.is_uninterrupted(sent, Moment(1030 * MS)));
        assert!(!guard.is_uninterrupted(sent, Moment(1200 * MS)), "not ended yet");
        assert!(turn(&mut guard, 1200));
        assert!(!guard.is_uninterrupted(sent, Moment(1201 * MS)));
        assert!(guard.is_uninterrupted(Moment(1200 * MS), Moment(1201 * MS)));
        assert_eq!(guard.interruptions(), 1);
    }

    #[test]
    fn clock_step_invalidates_only_samples_that_span_it() {
        let mut guard = InterruptionGuard::default();
        assert!(turn(&mut guard, 1000));
        assert!(!turn(&mut guard, 500));
        assert!(!guard.is_uninterrupted(Moment(1000 * MS), Moment(501 * MS)));
        assert!(guard.is_uninterrupted(Moment(501 * MS), Moment(502 * MS)));
        assert!(turn(&mut guard, 90_000));
        assert!(!guard.is_uninterrupted(Moment(501 * MS), Moment(90_001 * MS)));
    }

    #[test]
    fn interrupted_turn_is_not_trusted() {
        let mut guard = InterruptionGuard::default();
        assert!(!guard.record_turn(Moment(0), Moment(300 * MS), None));
        assert!(guard.record_turn(Moment(301 * MS), Moment(302 * MS), None));
        assert_eq!(guard.interruptions(), 1);
    }
}
