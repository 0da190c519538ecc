//! Judgement of a measurement: comparison with the base, other measurements and earlier settings,
//! and the reaction to a load that needs more room or has nothing to gain.

use super::{
    Controller, Demand,
    view::{JUMP_NS, VETO_NS, View},
};
use crate::{
    epoch::Score,
    setting::{Change, Reason, Setting},
    time::Moment,
};

/// Minimum relative gain in latency at equal throughput. Smaller gains would cause oscillation.
const SOONER: f64 = 0.10;
/// Relative change of the base's throughput that indicates a change of load.
const SHIFT: f64 = 0.25;
/// Relative margin for retrying an abandoned setting. The setting must have beaten the current base
/// by this margin in addition to the required gain.
const AGAIN: f64 = 0.02;
const QUICK_NS: f64 = 4e6;
/// Room that counts as ample, as a multiple of the commands in flight.
const SPARE: f64 = 8.0;
/// Fraction of full batches above which batches may be too small.
const FULL: f64 = 0.1;

impl Controller {
    /// Returns to the best base that has lasted, if the current one turns out to be worse.
    pub(super) fn remember(&mut self) {
        let Some(score) = self.score else {
            return;
        };
        let (lasted, gain) = (self.lasted >= 2, self.gain());
        let best = self.record.remember(self.base, score.rate, lasted, gain);
        if let Some(setting) = best {
            self.search.first(setting);
        }
    }

    /// Retries a setting that lost to the base, once the base has lasted. Batches that circulated
    /// together under the previous setting continue to do so for a while under the next one, and
    /// inflate the result of the next one.
    pub(super) fn try_again(&mut self) {
        let Some(score) = self.score.filter(|_| self.lasted >= 2) else {
            return;
        };
        let least = score.rate * (1.0 + self.gain() + AGAIN);
        if let Some(setting) = self.record.again(least) {
            self.search.first(setting);
        }
    }

    /// Handles another measurement of the base. Smooths the score, or detects a change of load.
    pub(super) fn compare_with_itself(&mut self, old: &Score, new: &Score) {
        self.demand.add_pair(old, new);
        let off = (new.rate - old.rate) / old.rate.max(1e-9);
        if off.abs() > SHIFT.max(3.0 * self.gain()) {
            self.shifted += 1;
            self.record_difference(off.clamp(-1.0, 1.0));
            if self.shifted >= 2 {
                self.forget();
                self.score = Some(*new);
                self.search.ask_model_again();
                if let Some(setting) = self.record.take_better(self.base, new.rate) {
                    self.search.first(setting);
                }
            }
            return;
        }
        self.shifted = 0;
        self.record_difference(off);
        let rate = old.rate + 0.5 * (new.rate - old.rate);
        let latency_ns = old.latency_ns + 0.5 * (new.latency_ns - old.latency_ns);
        let p99_ns = old.p99_ns + 0.5 * (new.p99_ns - old.p99_ns);
        self.score = Some(Score { rate, latency_ns, p99_ns, ..*new });
    }

    /// Restarts the search after a change of load.
    pub(super) fn forget(&mut self) {
        self.drain.forget();
        self.search_again();
    }

    /// Restarts the search, but keeps the knowledge about the round trip.
    pub(super) fn search_again(&mut self) {
        self.shifted = 0;
        self.demand = Demand::default();
        self.record.forget_seen();
        self.search.forget();
    }

    pub(super) fn gain(&self) -> f64 {
        self.noise.gain(self.is_quick())
    }

    /// Returns whether one epoch is not enough to decide, and another one is cheap.
    pub(super) fn is_close(&self, new: &Score, old: &Score) -> bool {
        let clear = self.noise.clear(self.is_quick());
        new.rate < old.rate * clear && old.wall_ns < VETO_NS
    }

    /// Returns whether epochs are short enough to show the machine's own fluctuations. If they are,
    /// epochs may last longer, and more gain is required. If a batch takes a long time, an epoch is
    /// already long.
    fn is_quick(&self) -> bool {
        self.wall_ns < QUICK_NS && self.goal_ns.is_none()
    }

    /// Records that two consecutive measurements of one setting differ by the fraction `off`.
    pub(super) fn record_difference(&mut self, off: f64) {
        let times = self.noise.record_difference(off, self.is_quick());
        self.epoch.stretch(times);
    }

    /// Records the difference between two measurements of a probe.
    pub(super) fn record_probe_difference(&mut self, off: f64) {
        if self.is_quick() {
            self.record_difference(off);
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
                // If no command waits for space in the window, a higher number of commands in one
                // epoch is due to chance.
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
        // While commands queue up, their latency only shows how long they have been queueing. The
        // duration of their batches shows how much of the latency is queueing caused by the
        // setting.
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
    /// Reacts to commands that begin to queue up. This is a change of load even if the throughput
    /// does not change. The best setting for few commands may be far too small for many. On a link
    /// with a high round-trip time nothing changes, because more room would lengthen an existing
    /// queue.
    pub(super) fn on_crowd(&mut self, now: Moment, new: &Score, view: &View<'_>) -> Option<Change> {
        let crowd = new.piles() && self.score.is_some_and(|score| !score.piles());
        if !is_short(view) || !crowd || self.goal_ns.is_some() {
            return None;
        }
        let change = self.make_room(now)?;
        self.forget();
        Some(change)
    }

    /// Reacts to an open load. Commands arrive regardless of the setting, so too little room only
    /// makes them wait.
    pub(super) fn on_open_load(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if !is_short(view) || self.goal_ns.is_some() || !self.demand.is_open() {
            return None;
        }
        let change = self.make_room(now)?;
        self.search.clear();
        Some(change)
    }

    /// Returns whether the setting has ample room compared with the commands in flight under
    /// `base`, so that a backlog drains quickly after a pause.
    pub(super) fn is_roomy(&self, setting: Setting, base: &Score, view: &View<'_>) -> bool {
        let command = view.known().command_bytes.map_or(0.0, |bytes| bytes.value);
        let in_flight = base.rate * base.wall_ns * 1e-9 * command;
        (setting.batch_bytes * setting.window) as f64 >= SPARE * in_flight
    }

    /// Moves to a setting with enough room for nearly any load, unless the base already has that
    /// much.
    pub(super) fn make_room(&mut self, now: Moment) -> Option<Change> {
        let room = |setting: Setting| setting.batch_bytes.saturating_mul(setting.window);
        let roomy = self.bounds.clamp(Setting::ROOMY);
        if room(self.base) >= room(roomy) {
            return None;
        }
        self.move_to(now, roomy, Reason::Room)
    }

    /// Returns whether the load is independent of the setting and nothing delays it. In that case
    /// there is nothing to gain, and a smaller setting would make clients wait.
    pub(super) fn is_at_ease(&self) -> bool {
        let holds_nothing_up = |score: Score| score.full < FULL && !score.piles();
        self.goal_ns.is_none() && self.demand.is_open() && self.score.is_some_and(holds_nothing_up)
    }
}

/// Returns whether the round trip is short. If it is long, other limits apply to the bytes in
/// flight.
fn is_short(view: &View<'_>) -> bool {
    view.round_trip_ns().is_some_and(|round_trip| round_trip < JUMP_NS)
}
