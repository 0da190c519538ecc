//! Choice among paths by predicted cost, without oscillation ([plane-3]).
//!
//! `update` repeatedly receives a prediction for each path. It switches once another path has been
//! better by a fifth for a second, but no sooner than two seconds after the last change. A quick
//! return lengthens the minimum time before the next change. A path that no longer works is left at
//! once.

use crate::time::Moment;

/// Minimum gain of a switch, as a percentage of the cost of the new path.
const GAIN_PERCENT: u64 = 20;
/// Time for which the gain must last, in nanoseconds.
const GAIN_LASTS_NS: u64 = 1_000_000_000;
/// Minimum time between changes in nanoseconds: the initial value, and the upper bound.
const HOLD_OFF_NS: (u64, u64) = (2_000_000_000, 60_000_000_000);
/// A return to the previous path within this time, in nanoseconds, shows that the change was wrong.
const REVERSAL_NS: u64 = 10_000_000_000;

/// The current choice, the time since which it applies, and the candidate to replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DampedChoice<W> {
    chosen: W,
    chosen_since: Moment,
    /// The previous choice.
    previous: Option<W>,
    /// The candidate that is sufficiently better, and the time since which it has been better.
    candidate: Option<(W, Moment)>,
    hold_off_ns: u64,
}

impl<W: Copy + Eq> DampedChoice<W> {
    /// Creates a choice whose initial path is `first`.
    pub const fn new(first: W, now: Moment) -> Self {
        Self {
            chosen: first,
            chosen_since: now,
            previous: None,
            candidate: None,
            hold_off_ns: HOLD_OFF_NS.0,
        }
    }

    pub const fn chosen(&self) -> W {
        self.chosen
    }

    /// Returns the minimum time for which the current choice applies, counted from the time at
    /// which it was made.
    pub const fn hold_off_ns(&self) -> u64 {
        self.hold_off_ns
    }

    /// Updates the choice with the predicted cost of each path, in any unit. A path that is not
    /// listed does not work; if it is the chosen one, it is left at once. Returns whether the
    /// choice changed.
    pub fn update(&mut self, now: Moment, costs: &[(W, u64)]) -> bool {
        let Some(&(best, least)) = costs.iter().min_by_key(|(_, cost)| *cost) else {
            return false;
        };
        let own = costs.iter().find(|(way, _)| *way == self.chosen);
        let Some((_, own)) = own else {
            self.switch_to(best, now, true);
            return true;
        };
        let gains = own.saturating_mul(100) >= least.saturating_mul(100 + GAIN_PERCENT);
        if best == self.chosen || !gains {
            self.candidate = None;
            return false;
        }
        let since = match self.candidate {
            // A different path may have been best at first, but the chosen one has been too
            // expensive since then.
            Some((_, since)) => since,
            None => now,
        };
        self.candidate = Some((best, since));
        let waited =
            now.since(since) >= GAIN_LASTS_NS && now.since(self.chosen_since) >= self.hold_off_ns;
        if waited {
            self.switch_to(best, now, false);
        }
        waited
    }

    fn switch_to(&mut self, way: W, now: Moment, fault: bool) {
        let stood_ns = now.since(self.chosen_since);
        let reverted =
            self.previous == Some(way) && stood_ns <= REVERSAL_NS.max(2 * self.hold_off_ns);
        self.hold_off_ns = match (reverted, fault) {
            (true, _) => (2 * self.hold_off_ns).min(HOLD_OFF_NS.1),
            // The path may start to work again as suddenly as it stopped.
            (false, true) => self.hold_off_ns,
            (false, false) => HOLD_OFF_NS.0,
        };
        self.previous = Some(self.chosen);
        self.chosen = way;
        self.chosen_since = now;
        self.candidate = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u8 = 1;
    const B: u8 = 2;
    const C: u8 = 3;

    fn at(ms: u64) -> Moment {
        Moment(ms * 1_000_000)
    }

    /// Judges every 100 ms within a span, and returns the times at which the choice changed.
    fn changes(
        choice: &mut DampedChoice<u8>,
        ms: std::ops::Range<u64>,
        costs: &[(u8, u64)],
    ) -> Vec<u64> {
        ms.step_by(100).filter(|ms| choice.update(at(*ms), costs)).collect()
    }

    /// [plane-3] A path is chosen after it has been better by a fifth for a second.
    #[test]
    fn path_is_chosen_after_being_a_fifth_better_for_a_second() {
        let mut choice = DampedChoice::new(A, at(0));
        assert!(changes(&mut choice, 0..9_000, &[(A, 119), (B, 100)]).is_empty());
        assert_eq!(changes(&mut choice, 9_000..11_000, &[(A, 120), (B, 100)]), [10_000]);
        assert_eq!(choice.chosen(), B);
    }

    /// [plane-3] A path that is better for less than a second changes nothing.
    #[test]
    fn path_that_is_better_only_briefly_is_not_chosen() {
        let mut choice = DampedChoice::new(A, at(0));
        for round in 0..20 {
            let from = 2_000 + 1_000 * round;
            let good = [(A, 500), (B, 100)];
            assert!(changes(&mut choice, from..from + 900, &good).is_empty());
            assert!(!choice.update(at(from + 900), &[(A, 100), (B, 100)]));
        }
    }

    /// [plane-3] Changes are at least two seconds apart. The interval doubles each time a change is
    /// soon reverted.
    #[test]
    fn interval_doubles_when_a_change_is_soon_reverted() {
        let mut choice = DampedChoice::new(A, at(0));
        let mut taken = Vec::new();
        for ms in (0..400_000).step_by(100) {
            // The chosen path is always the worse one.
            let costs = match choice.chosen() {
                A => [(A, 200), (B, 100)],
                _ => [(A, 100), (B, 200)],
            };
            if choice.update(at(ms), &costs) {
                taken.push(ms);
            }
        }
        let stood: Vec<u64> = taken.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(
            stood,
            [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000, 60_000, 60_000]
        );
    }

    /// [plane-3] A path that fails is left at once, and has to wait before it is chosen again.
    #[test]
    fn failed_path_is_left_at_once() {
        let mut choice = DampedChoice::new(A, at(0));
        assert!(choice.update(at(100), &[(B, 900), (C, 800)]));
        assert_eq!(choice.chosen(), C);
        let back = [(A, 1), (C, 800)];
        assert_eq!(changes(&mut choice, 200..5_000, &back), [2_100]);
        assert_eq!(choice.hold_off_ns(), 4_000_000_000);
        assert!(!choice.update(at(5_000), &[]), "nothing works: it stays");
        assert_eq!(choice.chosen(), A);
    }
}
