//! Judgement of a measurement: comparison with the base, other measurements and earlier settings,
//! and the reaction to a load that needs more room or has nothing to gain.

use super::{
    Controller, DemandSlope,
    view::{ControllerView, JUMP_ROUND_TRIP_NS_MIN, LONG_BATCH_NS},
};
use crate::{
    epoch::EpochScore,
    setting::{ChangeReason, Setting, SettingChange},
    time::Moment,
};

/// Minimum relative gain in latency at equal throughput. Smaller gains would cause oscillation.
const LATENCY_GAIN_MIN: f64 = 0.10;
/// Relative change of the base's throughput that indicates a change of load.
const LOAD_SHIFT: f64 = 0.25;
/// Relative margin for retrying an abandoned setting. The setting must have beaten the current base
/// by this margin in addition to the required gain.
const RETRY_MARGIN: f64 = 0.02;
const QUICK_EPOCH_NS: f64 = 4e6;
/// Room that counts as ample, as a multiple of the commands in flight.
const AMPLE_ROOM_FACTOR: f64 = 8.0;
/// Fraction of full batches above which batches may be too small.
const FULL_BATCHES_FRACTION: f64 = 0.1;

impl Controller {
    /// Returns to the best base that has lasted, if the current one turns out to be worse.
    pub(super) fn return_to_best_base(&mut self) {
        let Some(score) = self.base_score else {
            return;
        };
        let (lasted, gain) = (self.base_epochs >= 2, self.required_gain());
        let best =
            self.measurements.record_base(self.base_setting, score.commands_per_s, lasted, gain);
        if let Some(setting) = best {
            self.search.push_front(setting);
        }
    }

    /// Retries a setting that lost to the base, once the base has lasted. Batches that circulated
    /// together under the previous setting continue to do so for a while under the next one, and
    /// inflate the result of the next one.
    pub(super) fn retry_abandoned(&mut self) {
        let Some(score) = self.base_score.filter(|_| self.base_epochs >= 2) else {
            return;
        };
        let least = score.commands_per_s * (1.0 + self.required_gain() + RETRY_MARGIN);
        if let Some(setting) = self.measurements.next_retry(least) {
            self.search.push_front(setting);
        }
    }

    /// Handles another measurement of the base. Smooths the score, or detects a change of load.
    pub(super) fn compare_base_epochs(&mut self, old: &EpochScore, new: &EpochScore) {
        self.demand.add_pair(old, new);
        let off = (new.commands_per_s - old.commands_per_s) / old.commands_per_s.max(1e-9);
        if off.abs() > LOAD_SHIFT.max(3.0 * self.required_gain()) {
            self.shifted_epochs += 1;
            self.record_difference(off.clamp(-1.0, 1.0));
            if self.shifted_epochs >= 2 {
                self.restart_search();
                self.base_score = Some(*new);
                self.search.ask_model_again();
                if let Some(setting) =
                    self.measurements.take_better_base(self.base_setting, new.commands_per_s)
                {
                    self.search.push_front(setting);
                }
            }
            return;
        }
        self.shifted_epochs = 0;
        self.record_difference(off);
        let rate = old.commands_per_s + 0.5 * (new.commands_per_s - old.commands_per_s);
        let latency_ns = old.latency_ns + 0.5 * (new.latency_ns - old.latency_ns);
        let p99_ns = old.p99_ns + 0.5 * (new.p99_ns - old.p99_ns);
        self.base_score = Some(EpochScore { commands_per_s: rate, latency_ns, p99_ns, ..*new });
    }

    /// Restarts the search after a change of load.
    pub(super) fn restart_search(&mut self) {
        self.queue_control.reset_counts();
        self.restart_search_only();
    }

    /// Restarts the search, but keeps the knowledge about the round trip.
    pub(super) fn restart_search_only(&mut self) {
        self.shifted_epochs = 0;
        self.demand = DemandSlope::default();
        self.measurements.forget_abandoned();
        self.search.restart();
    }

    pub(super) fn required_gain(&self) -> f64 {
        self.noise.required_gain(self.has_quick_epochs())
    }

    /// Returns whether one epoch is not enough to decide, and another one is cheap.
    pub(super) fn needs_second_epoch(&self, new: &EpochScore, old: &EpochScore) -> bool {
        let clear = self.noise.clear(self.has_quick_epochs());
        new.commands_per_s < old.commands_per_s * clear && old.batch_duration_ns < LONG_BATCH_NS
    }

    /// Returns whether epochs are short enough to show the machine's own fluctuations. If they are,
    /// epochs may last longer, and more gain is required. If a batch takes a long time, an epoch is
    /// already long.
    fn has_quick_epochs(&self) -> bool {
        self.batch_duration_ns < QUICK_EPOCH_NS && self.goal_ns.is_none()
    }

    /// Records that two consecutive measurements of one setting differ by the fraction `off`.
    pub(super) fn record_difference(&mut self, off: f64) {
        let times = self.noise.record_difference(off, self.has_quick_epochs());
        self.epoch.lengthen(times);
    }

    /// Records the difference between two measurements of a probe.
    pub(super) fn record_probe_difference(&mut self, off: f64) {
        if self.has_quick_epochs() {
            self.record_difference(off);
        }
    }

    pub(super) fn reason_if_better(
        &self,
        new: &EpochScore,
        old: &EpochScore,
        setting: Setting,
        view: &ControllerView<'_>,
    ) -> Option<ChangeReason> {
        let ratio = new.commands_per_s / old.commands_per_s.max(1e-9);
        let gain = self.required_gain();
        if let Some(goal) = self.goal_ns {
            let (meets, met) = (new.p99_ns <= goal, old.p99_ns <= goal);
            if meets && met {
                let larger = setting.batch_bytes > self.base_setting.batch_bytes;
                let safely = new.p99_ns <= goal * 0.9;
                if ratio > 1.0 - gain && larger && safely {
                    return Some(ChangeReason::LatencyGoal);
                }
                // If no command waits for space in the window, a higher number of commands in one
                // epoch is due to chance.
                let faster = ratio > 1.0 + gain && old.is_holding_up();
                return faster.then_some(ChangeReason::HigherThroughput(ratio));
            }
            if met || (meets && ratio > 0.5) {
                return (meets).then_some(ChangeReason::LatencyGoal);
            }
            let sooner = new.p99_ns / old.p99_ns.max(1.0);
            if sooner < 1.0 - LATENCY_GAIN_MIN && ratio > 1.0 - gain {
                return Some(ChangeReason::LowerLatency(sooner));
            }
        }
        if ratio > 1.0 + gain {
            return Some(ChangeReason::HigherThroughput(ratio));
        }
        // While commands queue up, their latency only shows how long they have been queueing. The
        // duration of their batches shows how much of the latency is queueing caused by the
        // setting.
        let sooner = if old.is_piling_up() {
            new.batch_duration_ns / old.batch_duration_ns.max(1.0)
        } else {
            new.latency_ns / old.latency_ns.max(1.0)
        };
        let as_much = ratio > 1.0 - gain / 2.0;
        let sooner_by_far = sooner < 1.0 - LATENCY_GAIN_MIN.max(self.required_gain());
        (as_much
            && sooner_by_far
            && (old.is_piling_up() || self.has_ample_room(setting, old, view)))
        .then_some(ChangeReason::LowerLatency(sooner))
    }
    /// Reacts to commands that begin to queue up. This is a change of load even if the throughput
    /// does not change. The best setting for few commands may be far too small for many. On a link
    /// with a high round-trip time nothing changes, because more room would lengthen an existing
    /// queue.
    pub(super) fn on_queueing(
        &mut self,
        now: Moment,
        new: &EpochScore,
        view: &ControllerView<'_>,
    ) -> Option<SettingChange> {
        let crowd =
            new.is_piling_up() && self.base_score.is_some_and(|score| !score.is_piling_up());
        if !has_short_round_trip(view) || !crowd || self.goal_ns.is_some() {
            return None;
        }
        let change = self.move_to_roomy(now)?;
        self.restart_search();
        Some(change)
    }

    /// Reacts to an open load. Commands arrive regardless of the setting, so too little room only
    /// makes them wait.
    pub(super) fn on_open_load(
        &mut self,
        now: Moment,
        view: &ControllerView<'_>,
    ) -> Option<SettingChange> {
        if !has_short_round_trip(view) || self.goal_ns.is_some() || !self.demand.is_open_loop() {
            return None;
        }
        let change = self.move_to_roomy(now)?;
        self.search.clear();
        Some(change)
    }

    /// Returns whether the setting has ample room compared with the commands in flight under
    /// `base`, so that a backlog drains quickly after a pause.
    pub(super) fn has_ample_room(
        &self,
        setting: Setting,
        base: &EpochScore,
        view: &ControllerView<'_>,
    ) -> bool {
        let command = view.parameters().command_bytes.map_or(0.0, |bytes| bytes.value);
        let in_flight = base.commands_per_s * base.batch_duration_ns * 1e-9 * command;
        (setting.batch_bytes * setting.window) as f64 >= AMPLE_ROOM_FACTOR * in_flight
    }

    /// Moves to a setting with enough room for nearly any load, unless the base already has that
    /// much.
    pub(super) fn move_to_roomy(&mut self, now: Moment) -> Option<SettingChange> {
        let room = |setting: Setting| setting.batch_bytes.saturating_mul(setting.window);
        let roomy = self.bounds.clamp(Setting::ROOMY);
        if room(self.base_setting) >= room(roomy) {
            return None;
        }
        self.change_base(now, roomy, ChangeReason::NeedsRoom)
    }

    /// Returns whether the load is independent of the setting and nothing delays it. In that case
    /// there is nothing to gain, and a smaller setting would make clients wait.
    pub(super) fn has_nothing_to_gain(&self) -> bool {
        let holds_nothing_up = |score: EpochScore| {
            score.full_fraction < FULL_BATCHES_FRACTION && !score.is_piling_up()
        };
        self.goal_ns.is_none()
            && self.demand.is_open_loop()
            && self.base_score.is_some_and(holds_nothing_up)
    }
}

/// Returns whether the round trip is short. If it is long, other limits apply to the bytes in
/// flight.
fn has_short_round_trip(view: &ControllerView<'_>) -> bool {
    view.round_trip_ns().is_some_and(|round_trip| round_trip < JUMP_ROUND_TRIP_NS_MIN)
}
