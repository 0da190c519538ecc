//! Tests whether a lower rate reduces losses, to distinguish an overloaded link from a lossy one
//! ([rate-2]).

use crate::rate::losses::{MILLION, Period};

/// Number of periods before reports can reflect a lower rate.
const WAITS_MIN: u32 = 2;
/// Maximum number of periods in a trial. If it ends with too few losses to judge, the rate is
/// restored.
const WAITS_MAX: u32 = 100;
/// Maximum number of steps down in one trial.
const STEPS_MAX: u32 = 12;
/// Minimum number of expected losses before the outcome of a trial is decided.
const EXPECTED_MIN: u64 = 6;
/// Minimum number of expected losses before a slight decrease counts as no effect.
const EXPECTED_ENOUGH: u64 = 36;
/// Fixed-point scale of decaying sums.
const SCALE: u64 = 256;
/// Divisor of a sum that gives its decay per period.
const DECAY_DIVISOR: u64 = 16;

/// Decaying sums of recent losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    lost: u64,
    judged: u64,
}

impl Recent {
    pub(crate) fn add(&mut self, period: Period) {
        let faded = |sum: u64, new: u64| {
            let kept = sum - sum.div_ceil(DECAY_DIVISOR);
            kept.saturating_add(new.min(1 << 32) * SCALE)
        };
        self.lost = faded(self.lost, period.lost);
        self.judged = faded(self.judged, period.judged);
    }

    /// Returns the mean loss of a receiver, in millionths.
    pub(crate) fn ppm(self) -> u64 {
        let lost = u128::from(self.lost) * u128::from(MILLION);
        let ppm = lost / u128::from(self.judged.max(1));
        u64::try_from(ppm).unwrap_or(MILLION).min(MILLION)
    }

    /// Returns whether the loss exceeds `baseline_ppm` by more than chance explains: three standard
    /// deviations, and a quarter of the baseline.
    pub(crate) fn is_above(self, baseline_ppm: u64) -> bool {
        let expected = u128::from(self.judged) * u128::from(baseline_ppm) / u128::from(MILLION);
        let lost = u128::from(self.lost);
        let excess = lost.saturating_sub(expected);
        excess * excess > 9 * expected * u128::from(SCALE) && 4 * excess > expected
    }
}

/// A trial of a lower rate whose effect has yet to be determined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// Rate before the trial, in bytes per second.
    pub(crate) restore_bytes_s: u64,
    before_ppm: u64,
    /// Number of remaining steps down.
    steps: u32,
    /// Number of periods since the last step.
    periods_waited: u32,
    /// Number of losses since the effect could show.
    losses: u64,
    judged: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrialStep {
    Lower,
    Wait,
    /// The losses fell by a third, so the link was overloaded.
    Helped,
    /// The trial had no effect. Contains the loss that occurs at any rate, in millionths.
    InVain(u64),
}

impl Trial {
    /// Creates a trial with enough steps of `down_percent` that, if the link caused this loss, the
    /// loss would halve: one step, unless the loss is large. With fewer steps, a severely
    /// overloaded link would improve by less than a third and be mistaken for a lossy one.
    pub(crate) fn new(restore_bytes_s: u64, before_ppm: u64, down_percent: u64) -> Self {
        let before = before_ppm.min(MILLION);
        let (passed, wanted) = (MILLION - before, MILLION - before / 2);
        let mut part = MILLION;
        let mut steps = 0;
        while steps < STEPS_MAX && part * wanted > passed * MILLION {
            part = part * down_percent / 100;
            steps += 1;
        }
        Self {
            restore_bytes_s,
            before_ppm: before,
            steps: steps.max(1),
            periods_waited: 0,
            losses: 0,
            judged: 0,
        }
    }

    /// Ends a period and returns what to do next.
    pub(crate) fn end_period(&mut self, period: Period) -> TrialStep {
        if self.steps > 0 {
            self.steps -= 1;
            return TrialStep::Lower;
        }
        self.periods_waited += 1;
        if self.periods_waited <= WAITS_MIN {
            return TrialStep::Wait;
        }
        self.losses = self.losses.saturating_add(period.lost);
        self.judged = self.judged.saturating_add(period.judged);
        let expected = self.judged.saturating_mul(self.before_ppm) / MILLION;
        let fewer = expected.saturating_sub(self.losses);
        let after = self.losses.saturating_mul(MILLION) / self.judged.max(1);
        // Two standard deviations, because small counts decrease by chance.
        let surely = fewer.saturating_mul(fewer) >= 4 * expected;
        if expected >= EXPECTED_MIN && 3 * fewer >= expected && surely {
            return TrialStep::Helped;
        }
        let clear = expected >= EXPECTED_MIN && self.losses >= expected;
        if clear || expected >= EXPECTED_ENOUGH {
            return TrialStep::InVain(after);
        }
        if self.periods_waited < WAITS_MAX {
            return TrialStep::Wait;
        }
        TrialStep::InVain(self.before_ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_has_enough_steps_for_a_visible_effect() {
        let steps = |ppm| Trial::new(1, ppm, 85).steps;
        let seen = [0, 50_000, 500_000, 900_000, 1_000_000].map(steps);
        assert_eq!(seen, [1, 1, 3, 11, 12]);
    }

    /// [rate-2] A trial of a lower rate succeeds if losses fall by a third. Too few losses decide
    /// nothing.
    #[test]
    fn trial_ends_after_enough_losses() {
        let after = |lost, judged| {
            let mut trial = Trial::new(1, 100_000, 85);
            let period = Period { common: 0, judged, lost };
            let mut seen = vec![trial.end_period(period)];
            for _ in 0..3 {
                seen.push(trial.end_period(period));
            }
            seen
        };
        let begin = [TrialStep::Lower, TrialStep::Wait, TrialStep::Wait];
        for (lost, judged, last) in [
            (0, 59, TrialStep::Wait),
            (0, 60, TrialStep::Helped),
            (6, 60, TrialStep::InVain(100_000)),
            (24, 360, TrialStep::Helped),
            (25, 360, TrialStep::InVain(69_444)),
            (25, 300, TrialStep::Wait),
        ] {
            let seen = after(lost, judged);
            assert_eq!((&seen[..3], seen[3]), (&begin[..], last), "{lost} of {judged}");
        }
    }

    #[test]
    fn a_trial_without_reports_ends() {
        let mut trial = Trial::new(1, 100_000, 85);
        let nothing = Period::default();
        let waited = (0..).take_while(|_| trial.end_period(nothing) != TrialStep::InVain(100_000));
        assert_eq!(waited.count(), 100);
    }

    /// [rate-2] Random variation of the losses does not count as an increase over the baseline.
    #[test]
    fn random_variation_is_not_above_the_baseline() {
        let mut recent = Recent::default();
        for lost in [1, 0, 2, 0, 0, 3, 1, 0, 1, 0, 0, 2, 1, 1, 0, 1] {
            recent.add(Period { common: 1, judged: 83, lost });
            assert!(recent.is_above(0));
            assert!(!recent.is_above(10_000), "{recent:?}");
        }
        for _ in 0..8 {
            recent.add(Period { common: 1, judged: 83, lost: 10 });
        }
        assert!(recent.is_above(10_000));
        assert!((50_000..100_000).contains(&recent.ppm()));
    }
}
