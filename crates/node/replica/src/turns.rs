//! Reports late turns to the core ([live-5]): the duration of a turn, and the delay of the next.

use quorate_core::time::Time;

/// Lateness in microseconds below which a turn counts as on time.
const ON_TIME_MAX_US: u64 = 5_000;

/// The current or last turn, and its lateness.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    began_at: Time,
    ended_at: Time,
    next_due_at: Option<Time>,
    /// Lateness of the current turn in microseconds.
    late_us: u64,
}

impl Turns {
    /// Begins or continues a turn. The first call in a late turn returns the lateness in
    /// microseconds.
    pub(crate) fn begin_turn(&mut self, now: Time) -> Option<u64> {
        if now <= self.began_at {
            return None;
        }
        let took = self.ended_at.since_us(self.began_at);
        let waited = self.next_due_at.map_or(0, |due| now.since_us(due.max(self.ended_at)));
        *self = Self { began_at: now, ended_at: now, next_due_at: None, late_us: took + waited };
        Some(self.late_us).filter(|late| *late >= ON_TIME_MAX_US)
    }

    /// Returns the time in microseconds before this turn in which events may have waited for a
    /// turn.
    pub(crate) const fn late_us(&self) -> u64 {
        self.late_us
    }

    /// Ends the turn at this time. `due` is the time of the next one.
    pub(crate) fn end_turn(&mut self, now: Time, due: Option<Time>) {
        self.ended_at = now.max(self.began_at);
        self.next_due_at = due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    #[test]
    fn lateness_includes_long_turns_and_late_starts() {
        let mut turns = Turns::default();
        assert_eq!(turns.begin_turn(ms(1_000)), None, "the first is due whenever it comes");
        turns.end_turn(ms(1_001), Some(ms(1_020)));
        // An event woke the node before the turn was due.
        assert_eq!(turns.begin_turn(ms(1_010)), None);
        turns.end_turn(ms(1_011), Some(ms(1_020)));
        assert_eq!(turns.begin_turn(ms(1_220)), Some(201_000));
        assert_eq!(turns.begin_turn(ms(1_220)), None, "once a turn");
        assert_eq!(turns.late_us(), 201_000);
        // There was work left, and the turn itself took long.
        turns.end_turn(ms(1_300), Some(ms(1_220)));
        assert_eq!(turns.begin_turn(ms(1_350)), Some(130_000));
        turns.end_turn(ms(1_351), None);
        assert_eq!(turns.begin_turn(ms(9_000)), None, "nothing was due");
    }
}
