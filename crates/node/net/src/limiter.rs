//! Rate limiter for repeated log lines. Logs the first few lines, suppresses further ones for a
//! while, then logs the latest with the number of suppressed lines.
//!
//! The latest line is never lost: lines describe a state, and the last one logged must be true.

use std::collections::BTreeMap;

use quorate_core::time::Time;

/// Maximum number of remembered kinds. Each caller uses a handful.
const KINDS_MAX: usize = 256;

/// Rate limiter for log lines, by kind.
#[derive(Debug)]
pub struct Limiter<K, L> {
    window_ms: u64,
    kinds: BTreeMap<K, KindState<L>>,
    /// Time at which the first buffered line is due.
    next_due_at: Option<Time>,
}

/// Rate-limiter state for one kind of log line, in the current window.
#[derive(Debug)]
struct KindState<L> {
    window_start: Time,
    line_count: u32,
    suppressed_line: Option<L>,
    suppressed_count: u64,
}

impl<K: Ord, L> Limiter<K, L> {
    /// Creates a limiter with windows of `every_ms` milliseconds.
    pub const fn new(every_ms: u64) -> Self {
        Self { window_ms: every_ms, kinds: BTreeMap::new(), next_due_at: None }
    }

    /// Offers a line of kind `kind`. Up to `burst` lines of a kind are logged per window. Returns
    /// the line if it should be logged now, with the number of lines suppressed before it.
    /// Otherwise buffers the line until a later one replaces it or the window ends.
    pub fn admit_line(&mut self, now: Time, kind: K, burst: u32, line: L) -> Option<(L, u64)> {
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&kind) {
            // A kind without a buffered line whose window has ended can be forgotten.
            let every_ms = self.window_ms;
            self.kinds.retain(|_, said| {
                said.suppressed_line.is_some()
                    || said.suppressed_count > 0
                    || now < said.window_start.plus_ms(every_ms)
            });
            if self.kinds.len() >= KINDS_MAX {
                return None;
            }
        }
        let said = self.kinds.entry(kind).or_insert(KindState {
            window_start: now,
            line_count: 0,
            suppressed_line: None,
            suppressed_count: 0,
        });
        let end = said.window_start.plus_ms(self.window_ms);
        if now >= end {
            (said.window_start, said.line_count) = (now, 0);
        }
        if said.line_count < burst {
            said.line_count += 1;
            said.suppressed_count += u64::from(said.suppressed_line.take().is_some());
            return Some((line, std::mem::take(&mut said.suppressed_count)));
        }
        said.suppressed_count += u64::from(said.suppressed_line.replace(line).is_some());
        self.next_due_at = Some(self.next_due_at.map_or(end, |due| due.min(end)));
        None
    }

    /// Returns the next buffered line whose window has ended, with the number of suppressed lines.
    pub fn next_due(&mut self, now: Time) -> Option<(L, u64)> {
        if self.next_due_at.is_none_or(|due| now < due) {
            return None;
        }
        let every_ms = self.window_ms;
        let mut held = self.kinds.values_mut().filter(|said| said.suppressed_line.is_some());
        let ended = held.find(|said| now >= said.window_start.plus_ms(every_ms));
        let Some(said) = ended else {
            let held = self.kinds.values().filter(|said| said.suppressed_line.is_some());
            self.next_due_at = held.map(|said| said.window_start.plus_ms(every_ms)).min();
            return None;
        };
        (said.window_start, said.line_count) = (now, 1);
        Some((said.suppressed_line.take()?, std::mem::take(&mut said.suppressed_count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    #[test]
    fn repeated_lines_are_logged_a_few_times_then_counted() {
        let mut limiter = Limiter::new(1_000);
        let mut said = Vec::new();
        for ms in (0..3_000).step_by(30) {
            while let Some((line, left_out)) = limiter.next_due(at_ms(ms)) {
                said.push((ms, line, left_out));
            }
            if let Some((line, left_out)) = limiter.admit_line(at_ms(ms), "slow", 2, ms) {
                said.push((ms, line, left_out));
            }
        }
        // The last line of a window is logged at its end, although it happened earlier.
        let expected = [
            (0, 0, 0),
            (30, 30, 0),
            (1_020, 990, 31),
            (1_020, 1_020, 0),
            (2_040, 2_010, 32),
            (2_040, 2_040, 0),
        ];
        assert_eq!(said, expected);
    }

    /// The latest buffered line is logged in the end: operators may read only the last line.
    #[test]
    fn latest_buffered_line_is_logged_in_the_end() {
        let mut limiter = Limiter::new(1_000);
        assert!(limiter.admit_line(at_ms(0), "room", 1, "full").is_some());
        assert_eq!(limiter.admit_line(at_ms(1), "room", 1, "room again"), None);
        assert_eq!(limiter.admit_line(at_ms(2), "room", 1, "full again"), None);
        assert_eq!(limiter.next_due(at_ms(999)), None);
        assert_eq!(limiter.next_due(at_ms(1_000)), Some(("full again", 1)));
        assert_eq!(limiter.next_due(at_ms(9_000)), None);
        assert_eq!(limiter.admit_line(at_ms(9_000), "room", 1, "room"), Some(("room", 0)));
    }

    #[test]
    fn kinds_are_limited_independently() {
        let mut limiter = Limiter::new(1_000);
        assert_eq!(limiter.admit_line(at_ms(0), "a", 1, 1), Some((1, 0)));
        assert_eq!(limiter.admit_line(at_ms(0), "a", 1, 2), None);
        assert_eq!(limiter.admit_line(at_ms(500), "b", 1, 3), Some((3, 0)));
        assert_eq!(limiter.admit_line(at_ms(500), "b", 1, 4), None);
        // A line that may be logged replaces the buffered one.
        assert_eq!(limiter.admit_line(at_ms(1_400), "a", 1, 5), Some((5, 1)));
        assert_eq!(limiter.next_due(at_ms(1_400)), None);
        assert_eq!(limiter.next_due(at_ms(1_500)), Some((4, 0)));
    }

    #[test]
    fn number_of_kinds_is_bounded() {
        let mut limiter = Limiter::new(1_000);
        let said = (0..10_000).filter(|kind| limiter.admit_line(at_ms(0), *kind, 1, ()).is_some());
        assert_eq!(said.count(), KINDS_MAX);
    }

    /// Unused kinds are forgotten: over the years, nodes join and leave under new ids.
    #[test]
    fn old_kinds_are_evicted() {
        let mut limiter = Limiter::new(1_000);
        for kind in 0..10 * KINDS_MAX as u64 {
            let said = limiter.admit_line(at_ms(10 * kind), kind, 1, ());
            assert_eq!(said, Some(((), 0)), "{kind}");
        }
        assert!(limiter.kinds.len() <= KINDS_MAX);
    }
}
