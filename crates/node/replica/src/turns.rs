//! Lateness of this node's turns, as reported to the core ([live-5]): the duration of a turn, and
//! the delay of the next one after its due time.

use quorate_core::time::Time;

/// A turn that is late by less is on time.
const ON_TIME_US: u64 = 5_000;

/// The last turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    began: Time,
    ended: Time,
    /// Latest due time of the next turn.
    due: Option<Time>,
    /// Lateness of this turn.
    late_us: u64,
}

impl Turns {
    /// Begins a turn, or continues it. Returns its lateness in microseconds, if that is relevant;
    /// once.
    pub(crate) fn begin(&mut self, now: Time) -> Option<u64> {
        if now <= self.began {
            return None;
        }
        let took = self.ended.since_us(self.began);
        let waited = self.due.map_or(0, |due| now.since_us(due.max(self.ended)));
        *self = Self { began: now, ended: now, due: None, late_us: took + waited };
        Some(self.late_us).filter(|late| *late >= ON_TIME_US)
    }

    /// Returns the time without a turn before this one, in microseconds: events in that time may
    /// have happened at its beginning.
    pub(crate) const fn late_us(&self) -> u64 {
        self.late_us
    }

    /// Ends the turn at this time; the next one is due by then.
    pub(crate) fn end(&mut self, now: Time, due: Option<Time>) {
        self.ended = now.max(self.began);
        self.due = due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    #[test]
    fn late_is_what_a_turn_took_and_what_the_next_one_waited() {
        let mut turns = Turns::default();
        assert_eq!(turns.begin(ms(1_000)), None, "the first is due whenever it comes");
        turns.end(ms(1_001), Some(ms(1_020)));
        // Woken by something before it was due.
        assert_eq!(turns.begin(ms(1_010)), None);
        turns.end(ms(1_011), Some(ms(1_020)));
        assert_eq!(turns.begin(ms(1_220)), Some(201_000));
        assert_eq!(turns.begin(ms(1_220)), None, "once a turn");
        assert_eq!(turns.late_us(), 201_000);
        // There was work left, and the turn itself took long.
        turns.end(ms(1_300), Some(ms(1_220)));
        assert_eq!(turns.begin(ms(1_350)), Some(130_000));
        turns.end(ms(1_351), None);
        assert_eq!(turns.begin(ms(9_000)), None, "nothing was due");
    }
}
