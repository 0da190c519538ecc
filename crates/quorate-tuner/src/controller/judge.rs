//! What was measured, compared: with the base, with itself, with what was left before.

use super::{Candidate, Controller, Demand, PAUSE, REST, Seen, VETO_NS, View};
use crate::{
    epoch::Score,
    setting::{Reason, Setting},
};

/// Least gain that counts, in parts, however quiet it is; and most that is asked for.
const GAIN_LEAST: f64 = 0.02;
const GAIN_MOST: f64 = 0.08;
const GAIN_QUICK: f64 = 0.25;
/// A gain of latency at equal throughput must be larger, or things would swing to and fro.
const SOONER: f64 = 0.10;
/// A base that changes by so much belongs to another load.
const SHIFT: f64 = 0.25;
/// A setting that was left is tried again if it was so much better than the base is now, beyond
/// what counts as a gain; so often, for so many of them.
const AGAIN: f64 = 0.02;
const AGAIN_MOST: u32 = 3;
const SEEN_MOST: usize = 64;
/// Noise below which an epoch is as short as it may be. Above, it lasts longer, as the square: what is
/// left of the noise stays the same.
const QUIET: f64 = 0.05;
const STRETCH_MOST: f64 = 8.0;
const QUICK_NS: f64 = 4e6;
/// A gain of so many times the noise needs no second look.
const CLEAR: f64 = 4.0;
/// A gain below this is measured twice, where epochs are short.
const CONFIRM: f64 = 1.15;

impl Controller {
    /// Keeps the best base that lasted. What was better for one epoch may not be in the long run:
    /// then back to it.
    pub(super) fn remember(&mut self) {
        let Some(score) = self.score else {
            return;
        };
        match self.record {
            Some((setting, rate)) if setting != self.base && score.rate < rate => {
                let worse = score.rate < rate * (1.0 - self.gain());
                if worse {
                    self.queue.retain(|candidate| candidate.setting != setting);
                    self.queue.push_front(Candidate::jump(setting));
                    self.rest_left = 0;
                }
            }
            _ if self.lasted >= 2 => self.record = Some((self.base, score.rate)),
            _ => {}
        }
    }

    /// What was left because the base seemed better: now that the base has lasted, it may be not.
    /// Batches that went round together under the setting before do so for a while under the next
    /// one, and flatter it.
    pub(super) fn try_again(&mut self) {
        let Some(score) = self.score.filter(|_| self.lasted >= 2) else {
            return;
        };
        let least = score.rate * (1.0 + self.gain() + AGAIN);
        let better = self
            .seen
            .iter_mut()
            .filter(|seen| seen.rate > least && seen.again < AGAIN_MOST)
            .max_by(|a, b| a.rate.total_cmp(&b.rate));
        if let Some(seen) = better {
            seen.again += 1;
            let setting = seen.setting;
            self.queue.retain(|candidate| candidate.setting != setting);
            self.queue.push_front(Candidate::jump(setting));
            self.rest_left = 0;
        }
    }

    pub(super) fn see(&mut self, setting: Setting, rate: f64) {
        if let Some(seen) = self.seen.iter_mut().find(|seen| seen.setting == setting) {
            seen.rate = rate;
            return;
        }
        if self.seen.len() == SEEN_MOST {
            self.seen.remove(0);
        }
        self.seen.push(Seen {
            setting,
            rate,
            again: 0,
        });
    }

    pub(super) fn learn(&mut self, view: &View<'_>, score: &Score) {
        let command = view.known().command_bytes.map_or(0.0, |bytes| bytes.value);
        let outstanding = view.outstanding * command;
        let used = score.bytes_most as f64 * score.in_flight_most as f64;
        self.grown = self.grown.max(used.min(outstanding));
    }

    /// The base was measured before: smooth it, or see that the load is another one.
    pub(super) fn compare_with_itself(&mut self, old: &Score, new: &Score) {
        self.demand.hear(old, new);
        let off = (new.rate - old.rate) / old.rate.max(1e-9);
        if off.abs() > SHIFT.max(3.0 * self.gain()) {
            self.shifted += 1;
            self.hear(off.clamp(-1.0, 1.0));
            if self.shifted >= 2 {
                self.forget();
                self.score = Some(*new);
                self.model_asked = false;
                if let Some((setting, rate)) = self.record.take()
                    && setting != self.base
                    && rate > new.rate
                {
                    self.queue.push_front(Candidate::jump(setting));
                }
            }
            return;
        }
        self.shifted = 0;
        self.hear(off);
        let rate = old.rate + 0.5 * (new.rate - old.rate);
        let latency_ns = old.latency_ns + 0.5 * (new.latency_ns - old.latency_ns);
        let p99_ns = old.p99_ns + 0.5 * (new.p99_ns - old.p99_ns);
        self.score = Some(Score {
            rate,
            latency_ns,
            p99_ns,
            ..*new
        });
    }

    /// The search begins anew.
    pub(super) fn forget(&mut self) {
        self.shifted = 0;
        self.demand = Demand::default();
        self.cuts = 0;
        self.jumps = 0;
        self.pause = PAUSE;
        self.step = 0;
        self.ends_tried = false;
        self.tried.clear();
        self.seen.clear();
        self.queue.clear();
        self.rest = REST;
        self.rest_left = 0;
    }

    pub(super) fn gain(&self) -> f64 {
        let most = if self.is_quick() {
            GAIN_QUICK
        } else {
            GAIN_MOST
        };
        (1.5 * self.noise).clamp(GAIN_LEAST, most)
    }

    /// Too close to call after one epoch, and another one is cheap.
    pub(super) fn is_close(&self, new: &Score, old: &Score) -> bool {
        let clear = if self.is_quick() {
            CONFIRM.max(1.0 + CLEAR * self.noise)
        } else {
            CONFIRM
        };
        new.rate < old.rate * clear && old.wall_ns < VETO_NS
    }

    /// Epochs are so short that the machine's own moods show in them: then they may last longer, and
    /// more is asked of a gain. Where a batch takes long an epoch is long already.
    fn is_quick(&self) -> bool {
        self.wall_ns < QUICK_NS && self.goal_ns.is_none()
    }

    /// Two measurements of one setting, one right after the other, differ by so many parts.
    pub(super) fn hear(&mut self, off: f64) {
        self.noise += 0.2 * (off.abs() - self.noise);
        let times = if self.is_quick() {
            (self.noise / QUIET).powi(2).clamp(1.0, STRETCH_MOST)
        } else {
            1.0
        };
        self.epoch.stretch(times);
    }

    /// The same, told by a probe that was measured twice.
    pub(super) fn hear_probe(&mut self, off: f64) {
        if self.is_quick() {
            self.hear(off);
        }
    }

    pub(super) fn is_better(
        &self,
        new: &Score,
        old: &Score,
        setting: Setting,
        view: &View<'_>,
    ) -> Option<Reason> {
        let ratio = new.rate / old.rate.max(1e-9);
        let gain = self.gain();
        if let Some(goal) = self.goal_ns {
            let (meets, met) = (new.p99_ns <= goal, old.p99_ns <= goal);
            if meets && met {
                let larger = setting.batch_bytes > self.base.batch_bytes;
                let safely = new.p99_ns <= goal * 0.9;
                if ratio > 1.0 - gain && larger && safely {
                    return Some(Reason::Goal);
                }
                // Where no command waits for a place, more of them in one epoch is chance.
                let faster = ratio > 1.0 + gain && old.holds_up();
                return faster.then_some(Reason::Faster(ratio));
            }
            if met || (meets && ratio > 0.5) {
                return (meets).then_some(Reason::Goal);
            }
            let sooner = new.p99_ns / old.p99_ns.max(1.0);
            if sooner < 1.0 - SOONER && ratio > 1.0 - gain {
                return Some(Reason::Sooner(sooner));
            }
        }
        if ratio > 1.0 + gain {
            return Some(Reason::Faster(ratio));
        }
        // While commands pile up their latency says only how long that has been going on; what
        // their batches take says how much of it is a queue of our own making.
        let sooner = if old.piles() {
            new.wall_ns / old.wall_ns.max(1.0)
        } else {
            new.latency_ns / old.latency_ns.max(1.0)
        };
        let as_much = ratio > 1.0 - gain / 2.0;
        let sooner_by_far = sooner < 1.0 - SOONER.max(self.gain());
        (as_much && sooner_by_far && (old.piles() || self.is_roomy(setting, old, view)))
            .then_some(Reason::Sooner(sooner))
    }
}
