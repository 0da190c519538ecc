//! Tests whether a lower rate reduces losses, to distinguish an overloaded link from a lossy one
//! ([rate-2]).

use crate::rate::losses::{MILLION, PeriodLosses};

/// Number of periods before reports can reflect a lower rate.
const PERIODS_MIN: u32 = 2;
/// Maximum number of periods in a trial. If it ends with too few losses to judge, the rate is
/// restored.
const PERIODS_MAX: u32 = 100;
/// Maximum number of steps down in one trial.
const STEPS_MAX: u32 = 12;
/// Minimum number of expected losses before the outcome of a trial is decided.
const EXPECTED_LOSSES_MIN: u64 = 6;
/// Minimum number of expected losses before a slight decrease counts as no effect.
const EXPECTED_LOSSES_ENOUGH: u64 = 36;
/// Fixed-point scale of decaying sums.
const SUM_SCALE: u64 = 256;
/// Divisor of a sum that gives its decay per period.
const DECAY_DIVISOR: u64 = 16;

/// Decaying sums of recent losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentLosses {
    lost: u64,
    expected_receptions: u64,
}

impl RecentLosses {
    pub(crate) fn add(&mut self, period: PeriodLosses) {
        let faded = |sum: u64, new: u64| {
            let kept = sum - sum.div_ceil(DECAY_DIVISOR);
            kept.saturating_add(new.min(1 << 32) * SUM_SCALE)
        };
        self.lost = faded(self.lost, period.reported_lost);
        self.expected_receptions = faded(self.expected_receptions, period.expected_receptions);
    }

    /// Returns the mean loss of a receiver, in millionths.
    pub(crate) fn mean_loss_ppm(self) -> u64 {
        let lost = u128::from(self.lost) * u128::from(MILLION);
        let ppm = lost / u128::from(self.expected_receptions.max(1));
        u64::try_from(ppm).unwrap_or(MILLION).min(MILLION)
    }

    /// Returns whether the loss exceeds `baseline_ppm` by more than chance explains: three standard
    /// deviations, and a quarter of the baseline.
    pub(crate) fn is_above_baseline(self, baseline_ppm: u64) -> bool {
        let expected =
            u128::from(self.expected_receptions) * u128::from(baseline_ppm) / u128::from(MILLION);
        let lost = u128::from(self.lost);
        let excess = lost.saturating_sub(expected);
        excess * excess > 9 * expected * u128::from(SUM_SCALE) && 4 * excess > expected
    }
}

/// A trial of a lower rate whose effect has yet to be determined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateTrial {
    /// Rate before the trial, in bytes per second.
    pub(crate) restore_bytes_s: u64,
    loss_before_ppm: u64,
    /// Number of remaining steps down.
    steps_left: u32,
    /// Number of periods since the last step.
    periods_waited: u32,
    /// Number of losses since the effect could show.
    losses: u64,
    expected_receptions: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrialStep {
    LowerFurther,
    Wait,
    /// The losses fell by a third, so the link was overloaded.
    LossReduced,
    /// The trial had no effect. Contains the loss that occurs at any rate, in millionths.
    NoEffect(u64),
}

impl RateTrial {
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
            loss_before_ppm: before,
            steps_left: steps.max(1),
            periods_waited: 0,
            losses: 0,
            expected_receptions: 0,
        }
    }

    /// Ends a period and returns what to do next.
    pub(crate) fn end_period(&mut self, period: PeriodLosses) -> TrialStep {
        if self.steps_left > 0 {
            self.steps_left -= 1;
            return TrialStep::LowerFurther;
        }
        self.periods_waited += 1;
        if self.periods_waited <= PERIODS_MIN {
            return TrialStep::Wait;
        }
        self.losses = self.losses.saturating_add(period.reported_lost);
        self.expected_receptions =
            self.expected_receptions.saturating_add(period.expected_receptions);
        let expected = self.expected_receptions.saturating_mul(self.loss_before_ppm) / MILLION;
        let fewer = expected.saturating_sub(self.losses);
        let after = self.losses.saturating_mul(MILLION) / self.expected_receptions.max(1);
        // Two standard deviations, because small counts decrease by chance.
        let surely = fewer.saturating_mul(fewer) >= 4 * expected;
        if expected >= EXPECTED_LOSSES_MIN && 3 * fewer >= expected && surely {
            return TrialStep::LossReduced;
        }
        let clear = expected >= EXPECTED_LOSSES_MIN && self.losses >= expected;
        if clear || expected >= EXPECTED_LOSSES_ENOUGH {
            return TrialStep::NoEffect(after);
        }
        if self.periods_waited < PERIODS_MAX {
            return TrialStep::Wait;
        }
        TrialStep::NoEffect(self.loss_before_ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_has_enough_steps_for_a_visible_effect() {
        let steps = |ppm| RateTrial::new(1, ppm, 85).steps_left;
        let seen = [0, 50_000, 500_000, 900_000, 1_000_000].map(steps);
        assert_eq!(seen, [1, 1, 3, 11, 12]);
    }

    /// [rate-2] A trial of a lower rate succeeds if losses fall by a third. Too few losses decide
    /// nothing.
    #[test]
    fn trial_ends_after_enough_losses() {
        let after = |lost, judged| {
            let mut trial = RateTrial::new(1, 100_000, 85);
            let period =
                PeriodLosses { common_losses: 0, expected_receptions: judged, reported_lost: lost };
            let mut seen = vec![trial.end_period(period)];
            for _ in 0..3 {
                seen.push(trial.end_period(period));
            }
            seen
        };
        let begin = [TrialStep::LowerFurther, TrialStep::Wait, TrialStep::Wait];
        for (lost, judged, last) in [
            (0, 59, TrialStep::Wait),
            (0, 60, TrialStep::LossReduced),
            (6, 60, TrialStep::NoEffect(100_000)),
            (24, 360, TrialStep::LossReduced),
            (25, 360, TrialStep::NoEffect(69_444)),
            (25, 300, TrialStep::Wait),
        ] {
            let seen = after(lost, judged);
            assert_eq!((&seen[..3], seen[3]), (&begin[..], last), "{lost} of {judged}");
        }
    }

    #[test]
    fn a_trial_without_reports_ends() {
        let mut trial = RateTrial::new(1, 100_000, 85);
        let nothing = PeriodLosses::default();
        let waited =
            (0..).take_while(|_| trial.end_period(nothing) != TrialStep::NoEffect(100_000));
        assert_eq!(waited.count(), 100);
    }

    /// [rate-2] Random variation of the losses does not count as an increase over the baseline.
    #[test]
    fn random_variation_is_not_above_the_baseline() {
        let mut recent = RecentLosses::default();
        for lost in [1, 0, 2, 0, 0, 3, 1, 0, 1, 0, 0, 2, 1, 1, 0, 1] {
            recent.add(PeriodLosses {
                common_losses: 1,
                expected_receptions: 83,
                reported_lost: lost,
            });
            assert!(recent.is_above_baseline(0));
            assert!(!recent.is_above_baseline(10_000), "{recent:?}");
        }
        for _ in 0..8 {
            recent.add(PeriodLosses {
                common_losses: 1,
                expected_receptions: 83,
                reported_lost: 10,
            });
        }
        assert!(recent.is_above_baseline(10_000));
        assert!((50_000..100_000).contains(&recent.mean_loss_ppm()));
    }
}
