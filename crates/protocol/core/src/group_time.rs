//! The group's time ([time-1]), derived from the commands *now is T* in the log. Nothing here reads
//! a clock.

/// The largest T of all applied commands *now is T*, as Unix time in milliseconds. It only grows,
/// even across leaders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupTime(u64);

impl GroupTime {
    /// The time before the first command.
    pub const START: Self = Self(0);

    /// Restores the time that a snapshot or a commit stored, in Unix milliseconds.
    pub const fn restored(ms: u64) -> Self {
        Self(ms)
    }

    /// Returns the Unix time in milliseconds.
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// Applies a command *now is T*. Returns whether the time changed. A T from an earlier leader,
    /// or from one with a slow clock, may not be above the current time and then changes nothing.
    pub fn apply(&mut self, ms: u64) -> bool {
        let before = self.0;
        self.0 = self.0.max(ms);
        self.0 > before
    }

    /// Returns the T for a leader to propose. `clock_ms` is the leader's clock, and `deadline` is
    /// the earliest deadline of any applied key. Returns `None` before that deadline, or while the
    /// clock is not above the group's time.
    pub fn stamp(self, clock_ms: u64, deadline: Option<u64>) -> Option<u64> {
        let due = deadline.is_some_and(|deadline| deadline <= clock_ms);
        (due && clock_ms > self.0).then_some(clock_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [time-1] The group's time never goes back, even if leaders with different clocks succeed
    /// each other and values of earlier leaders are decided late.
    #[test]
    fn group_time_never_goes_back() {
        let mut time = GroupTime::START;
        for (ms, after, changes) in [
            (100, 100, true),
            (90, 100, false),
            (100, 100, false),
            (101, 101, true),
            (0, 101, false),
        ] {
            assert_eq!(time.apply(ms), changes, "{ms}");
            assert_eq!(time.ms(), after, "{ms}");
        }
    }

    #[test]
    fn time_is_proposed_only_when_a_deadline_is_due() {
        let time = GroupTime::restored(100);
        assert_eq!(time.stamp(200, None), None);
        assert_eq!(time.stamp(200, Some(201)), None);
        assert_eq!(time.stamp(200, Some(200)), Some(200));
        assert_eq!(time.stamp(200, Some(101)), Some(200));
        // The clock was set back, so the group's time does not change until the clock has passed
        // it.
        assert_eq!(time.stamp(100, Some(50)), None);
        assert_eq!(time.stamp(99, Some(50)), None);
    }
}
