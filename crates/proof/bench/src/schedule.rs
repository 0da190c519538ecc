//! Open-loop schedule, whose rate does not depend on the system under test.

/// Nanoseconds since the start of the caller's clock.
pub type Nanos = u64;

pub const SECOND: Nanos = 1_000_000_000;
/// Minimum interval between wake-ups. At higher rates commands are sent in bursts, because a
/// generator that woke up for each command would take CPU time from the system under test.
pub const WAKEUP_INTERVAL_MIN: Nanos = 20_000;

/// Evenly spaced times. Each is computed exactly, so that no error accumulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSchedule {
    start: Nanos,
    per_second: u64,
    next: u64,
}

impl SendSchedule {
    /// Returns a schedule of `per_second` (at least one) commands per second that begins at
    /// `start`.
    pub fn new(start: Nanos, per_second: u64) -> Self {
        Self { start, per_second: per_second.max(1), next: 0 }
    }

    /// Returns the time at which the next command should be sent.
    pub fn next_time(&self) -> Nanos {
        let after = u128::from(self.next) * u128::from(SECOND) / u128::from(self.per_second);
        let after = u64::try_from(after).unwrap_or(u64::MAX);
        let dense = self.per_second > SECOND / WAKEUP_INTERVAL_MIN;
        let after = if dense { after - after % WAKEUP_INTERVAL_MIN } else { after };
        self.start.saturating_add(after)
    }

    /// Returns the time of the next command and advances past it, if that time has been reached.
    pub fn take_due(&mut self, now: Nanos) -> Option<Nanos> {
        let intended = self.next_time();
        (intended <= now).then(|| {
            self.next += 1;
            intended
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_rate_is_met_to_the_exact_command() {
        for rate in [1, 3, 997, 49_999, 50_001, 333_333, 2_000_000] {
            let mut schedule = SendSchedule::new(7, rate);
            let seconds = 3;
            let mut sent = 0;
            while schedule.take_due(7 + seconds * SECOND - 1).is_some() {
                sent += 1;
            }
            assert_eq!(sent, rate * seconds, "{rate}");
        }
    }

    #[test]
    fn commands_are_not_due_early() {
        let mut schedule = SendSchedule::new(0, 1000);
        assert_eq!(schedule.take_due(0), Some(0));
        assert_eq!(schedule.take_due(999_999), None);
        assert_eq!(schedule.take_due(1_000_000), Some(1_000_000));
    }
}
