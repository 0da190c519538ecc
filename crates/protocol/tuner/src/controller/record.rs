//! Measurements of settings that are not in force, for returning to the better ones.

use crate::setting::Setting;

/// Maximum number of retries of an abandoned setting, and maximum number of such settings.
const RETRIES_MAX: u32 = 3;
const ABANDONED_MAX: usize = 64;

/// A setting that was measured and abandoned.
#[derive(Clone, Copy, Debug)]
struct AbandonedSetting {
    setting: Setting,
    rate: f64,
    retries: u32,
}

/// Measurements of the best base and of abandoned settings.
#[derive(Clone, Debug, Default)]
pub(super) struct MeasurementRecord {
    /// The best base that has lasted, and its throughput in commands per second.
    best_base: Option<(Setting, f64)>,
    /// Settings that did not become the base, with the throughput and the number of retries of
    /// each.
    abandoned: Vec<AbandonedSetting>,
}

impl MeasurementRecord {
    /// Records that the base reaches `rate`, and whether it has `lasted`. Stores the best base that
    /// has lasted. If the current one is worse by more than `gain`, returns the best one: a setting
    /// that was better for one epoch may not be better in the long run.
    pub(super) fn record_base(
        &mut self,
        base: Setting,
        rate: f64,
        lasted: bool,
        gain: f64,
    ) -> Option<Setting> {
        match self.best_base {
            Some((setting, best)) if setting != base && rate < best => {
                (rate < best * (1.0 - gain)).then_some(setting)
            }
            _ => {
                if lasted {
                    self.best_base = Some((base, rate));
                }
                None
            }
        }
    }

    /// Records that this setting was retried and did not perform as before.
    pub(super) fn record_retry_failed(&mut self, setting: Setting) {
        if self.best_base.is_some_and(|(best, _)| best == setting) {
            self.best_base = None;
        }
    }

    /// Removes and returns the best setting of the previous load, if it is not `base` and reached
    /// more than `rate`.
    pub(super) fn take_better_base(&mut self, base: Setting, rate: f64) -> Option<Setting> {
        let (setting, best) = self.best_base.take()?;
        (setting != base && best > rate).then_some(setting)
    }

    /// Records the throughput of an abandoned setting.
    pub(super) fn record_abandoned(&mut self, setting: Setting, rate: f64) {
        if let Some(seen) = self.abandoned.iter_mut().find(|seen| seen.setting == setting) {
            seen.rate = rate;
            return;
        }
        if self.abandoned.len() == ABANDONED_MAX {
            self.abandoned.remove(0);
        }
        self.abandoned.push(AbandonedSetting { setting, rate, retries: 0 });
    }

    /// Returns a setting to retry: one that lost to the base and had a throughput above `least`.
    pub(super) fn next_retry(&mut self, least: f64) -> Option<Setting> {
        let better = self
            .abandoned
            .iter_mut()
            .filter(|seen| seen.rate > least && seen.retries < RETRIES_MAX)
            .max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        better.retries += 1;
        Some(better.setting)
    }

    /// Drops settings that lost under another load.
    pub(super) fn forget_abandoned(&mut self) {
        self.abandoned.clear();
    }
}
