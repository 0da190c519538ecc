//! Rate limit of one log line per second for events whose frequency remote peers control.

use quorate_core::time::Time;

/// Minimum interval in milliseconds between two log lines.
const LOG_INTERVAL_MS: u64 = 1000;

/// Rate limiter for a log line, with the number of suppressed lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seldom {
    silent_until: Time,
    suppressed_count: u64,
}

impl Seldom {
    /// Returns the number of lines suppressed since the last one; `None` if no line may be logged
    /// now.
    pub fn allow_line(&mut self, now: Time) -> Option<u64> {
        // A clock that was set back does not extend the silence.
        let until = self.silent_until.min(now.plus_ms(LOG_INTERVAL_MS));
        if now < until {
            self.suppressed_count += 1;
            return None;
        }
        self.silent_until = now.plus_ms(LOG_INTERVAL_MS);
        Some(std::mem::take(&mut self.suppressed_count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_lines_are_logged_once_a_second_with_a_count() {
        let mut seldom = Seldom::default();
        assert_eq!(seldom.allow_line(Time(5)), Some(0));
        assert_eq!(seldom.allow_line(Time(6)), None);
        assert_eq!(seldom.allow_line(Time(1_000_004)), None);
        assert_eq!(seldom.allow_line(Time(1_000_005)), Some(2));
        assert_eq!(seldom.allow_line(Time(9_000_000)), Some(0));
    }
}
