//! Measurements of settings that are not in force, for returning to the better ones.

use crate::setting::Setting;

/// Maximum number of retries of an abandoned setting, and maximum number of such settings.
const AGAIN_MOST: u32 = 3;
const SEEN_MOST: usize = 64;

/// A setting that was measured and abandoned.
#[derive(Clone, Copy, Debug)]
struct Seen {
    setting: Setting,
    rate: f64,
    again: u32,
}

/// Measurements of the best base and of abandoned settings.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// The best base that has lasted, and its throughput in commands per second.
    best: Option<(Setting, f64)>,
    /// Settings that did not become the base, with the throughput and the number of retries of
    /// each.
    seen: Vec<Seen>,
}

impl Record {
    /// Records that the base reaches `rate`, and whether it has `lasted`. Stores the best base that
    /// has lasted. If the current one is worse by more than `gain`, returns the best one: a setting
    /// that was better for one epoch may not be better in the long run.
    pub(super) fn remember(
        &mut self,
        base: Setting,
        rate: f64,
        lasted: bool,
        gain: f64,
    ) -> Option<Setting> {
        match self.best {
            Some((setting, best)) if setting != base && rate < best => {
                (rate < best * (1.0 - gain)).then_some(setting)
            }
            _ => {
                if lasted {
                    self.best = Some((base, rate));
                }
                None
            }
        }
    }

    /// Records that this setting was retried and did not perform as before.
    pub(super) fn disappoints(&mut self, setting: Setting) {
        if self.best.is_some_and(|(best, _)| best == setting) {
            self.best = None;
        }
    }

    /// Removes and returns the best setting of the previous load, if it is not `base` and reached
    /// more than `rate`.
    pub(super) fn take_better(&mut self, base: Setting, rate: f64) -> Option<Setting> {
        let (setting, best) = self.best.take()?;
        (setting != base && best > rate).then_some(setting)
    }

    /// Records the throughput of an abandoned setting.
    pub(super) fn record_abandoned(&mut self, setting: Setting, rate: f64) {
        if let Some(seen) = self.seen.iter_mut().find(|seen| seen.setting == setting) {
            seen.rate = rate;
            return;
        }
        if self.seen.len() == SEEN_MOST {
            self.seen.remove(0);
        }
        self.seen.push(Seen { setting, rate, again: 0 });
    }

    /// Returns a setting to retry: one that lost to the base and had a throughput above `least`.
    pub(super) fn again(&mut self, least: f64) -> Option<Setting> {
        let better = self
            .seen
            .iter_mut()
            .filter(|seen| seen.rate > least && seen.again < AGAIN_MOST)
            .max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        better.again += 1;
        Some(better.setting)
    }

    /// Drops settings that lost under another load.
    pub(super) fn forget_seen(&mut self) {
        self.seen.clear();
    }
}
