//! Controls batch size and window by measurement: a bounded search that starts from the model.
//!
//! A setting is measured for an *epoch* ([`crate::epoch`]); the one in force is the *base*. From
//! time to time another one is tried for an epoch, a *probe*. It becomes the base if it is better
//! by more than the noise, and is left at once if it is much worse. Probes come
//!
//! 1. from the model ([`crate::choice`]), as soon as it knows enough;
//! 2. from the ends of the window, once: throughput over the window may have two maxima;
//! 3. from the neighbours of the base, in steps of 4, 2 and 1.5, until none is better;
//! 4. then from the neighbours again, ever more rarely.
//!
//! A changed load restarts the search. On links with a high round-trip time, the bytes in flight
//! are limited to what the channel drains in one round trip, so that a link's buffer never
//! overflows; a setting that exceeds the limit is undone at once.
//!
//! This file holds the current stage. `search` chooses the next candidate, `record` stores
//! measurements of other settings, `judge`, `noise` and `demand` interpret measurements, `drain`
//! handles high round-trip times, `start` makes the first step, and `regroup` lets batches gather
//! after a change.
//!
//! Nothing here can harm safety: batch size and window only determine when a command is sent, and
//! with which others.

mod demand;
mod drain;
mod judge;
mod noise;
mod record;
mod regroup;
mod search;
mod start;
mod view;

pub(crate) use self::view::ControllerView;
use self::{
    demand::DemandSlope,
    drain::QueueControl,
    noise::Noise,
    record::MeasurementRecord,
    regroup::{RegroupState, WindowRegroup},
    search::{Candidate, Search, SearchInputs},
    start::{StartOutcome, StartPhase},
    view::LONG_BATCH_NS,
};
use crate::{
    epoch::{CompletedBatch, Epoch, EpochScore},
    setting::{ChangeReason, Setting, SettingBounds, SettingChange},
    time::Moment,
};

/// If a probe seems better than the base by more than this factor, the base is measured again.
const REMEASURE_FACTOR: f64 = 1.3;
/// Time after a change during which measurements still reflect the previous setting and are
/// ignored, as a multiple of a batch's duration. Applies only if a batch takes less than
/// `SETTLE_NS`.
const SETTLE_DURATIONS: f64 = 2.0;
const SETTLE_NS: f64 = 25e6;

#[derive(Clone, Copy, Debug, PartialEq)]
enum MeasurementStage {
    /// The base is being measured.
    Base,
    /// A candidate is being measured.
    Probe(Candidate),
}

/// The search for the best setting.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    bounds: SettingBounds,
    goal_ns: Option<f64>,
    start: StartPhase,
    base_setting: Setting,
    base_score: Option<EpochScore>,
    /// Number of completed epochs of the base.
    base_epochs: u32,
    /// Number of consecutive epochs that indicate a change of load.
    shifted_epochs: u32,
    stage: MeasurementStage,
    /// First score of the probe that is being measured a second time.
    first_probe_score: Option<EpochScore>,
    /// The base has been measured again because a probe seemed too good to be true.
    base_was_rechecked: bool,
    epoch: Epoch,
    /// Recent duration of a batch in nanoseconds.
    batch_duration_ns: f64,
    search: Search,
    measurements: MeasurementRecord,
    noise: Noise,
    demand: DemandSlope,
    queue_control: QueueControl,
    regroup: WindowRegroup,
    base_changes: u64,
    last_change: Option<SettingChange>,
}

impl Controller {
    pub(crate) fn new(bounds: SettingBounds, goal_ns: Option<u64>, start: Setting) -> Self {
        let (start, base) = StartPhase::new(bounds.clamp(start));
        let mut epoch = Epoch::new(base, Moment(0));
        if goal_ns.is_some() {
            epoch.require_percentile();
        }
        Self {
            bounds,
            goal_ns: goal_ns.map(|ns| ns as f64),
            start,
            base_setting: base,
            base_score: None,
            base_epochs: 0,
            shifted_epochs: 0,
            stage: MeasurementStage::Base,
            first_probe_score: None,
            base_was_rechecked: false,
            epoch,
            batch_duration_ns: f64::INFINITY,
            search: Search::default(),
            measurements: MeasurementRecord::default(),
            noise: Noise::default(),
            demand: DemandSlope::default(),
            queue_control: QueueControl::new(base),
            regroup: WindowRegroup::default(),
            base_changes: 0,
            last_change: None,
        }
    }

    pub(crate) fn setting(&self) -> Setting {
        self.regroup.effective_setting(self.target_setting())
    }

    /// Returns the setting in force, or the one that takes effect after regrouping.
    fn target_setting(&self) -> Setting {
        match self.stage {
            MeasurementStage::Base => self.base_setting,
            MeasurementStage::Probe(candidate) => candidate.setting,
        }
    }

    /// Enters a stage, whose measurements start now.
    fn enter_stage(&mut self, now: Moment, stage: MeasurementStage) {
        let from = self.target_setting();
        self.stage = stage;
        let to = self.target_setting();
        let split = from.batch_bytes < to.batch_bytes
            && (self.epoch.has_full_size_batch() || to.batch_bytes == self.bounds.batch_bytes_max);
        self.regroup.begin(now, from, to, split, self.batch_duration_ns);
        self.epoch.restart(to, now);
        if self.base_score.is_some_and(|score| score.is_piling_up()) {
            self.ignore_settling(now);
        }
    }

    /// Ignores the first measurements, which still reflect the previous setting.
    fn ignore_settling(&mut self, now: Moment) {
        if self.batch_duration_ns < SETTLE_NS {
            self.epoch.ignore_until(now.later(self.batch_duration_ns * SETTLE_DURATIONS));
        }
    }

    pub(crate) fn base_score(&self) -> Option<&EpochScore> {
        self.base_score.as_ref()
    }

    /// Returns the last change of the setting that was not part of a probe.
    pub(crate) fn last_change(&self) -> Option<&SettingChange> {
        self.last_change.as_ref()
    }

    /// Returns the number of times that the base changed.
    pub(crate) fn base_changes(&self) -> u64 {
        self.base_changes
    }

    pub(crate) fn on_turn(&mut self, waiting: usize, in_flight: usize) {
        self.epoch.on_turn(waiting, in_flight);
    }

    pub(crate) fn on_done(&mut self, now: Moment, done: &CompletedBatch) {
        self.epoch.on_done(now, done);
    }

    /// Restarts an interrupted epoch, because its measurements are meaningless. Ignores the first
    /// measurements of the new one, which include the commands that queued up during the
    /// interruption.
    pub(crate) fn restart_epoch(&mut self, now: Moment) {
        let setting = self.target_setting();
        self.epoch.restart(setting, now);
        self.ignore_settling(now);
    }

    /// Decides whether to change the setting. Returns the change, if any.
    pub(crate) fn decide_change(
        &mut self,
        now: Moment,
        view: &ControllerView<'_>,
    ) -> Option<SettingChange> {
        if let Some(wall) = view.estimator.batch_duration_estimate() {
            self.batch_duration_ns = wall.value;
        }
        match self.regroup.end_if_due(now) {
            RegroupState::Inactive => {}
            RegroupState::InProgress => return None,
            RegroupState::Over => {
                self.epoch.restart(self.target_setting(), now);
                return None;
            }
        }
        match self.start.first_step(now, self.base_setting, view) {
            StartOutcome::Begun => {}
            StartOutcome::Waiting => return None,
            StartOutcome::StartWith(setting, gather_ns) => {
                self.queue_control.start(setting);
                let change = self.change_base(now, setting, ChangeReason::ShortRoundTrip);
                self.regroup.limit_to_one_batch(now, gather_ns);
                return change;
            }
        }
        if let Some(change) = self.reduce_queue(now, view) {
            return Some(change);
        }
        match self.stage {
            MeasurementStage::Base
                if self.base_score.is_none() && self.queue_control.may_jump() =>
            {
                if let Some(change) = self.jump_to_model(now, view) {
                    return Some(change);
                }
                self.on_base_epoch(now, view)
            }
            MeasurementStage::Base => self.on_base_epoch(now, view),
            MeasurementStage::Probe(candidate) => self.on_probe_epoch(now, candidate, view),
        }
    }

    /// Reduces the setting if more bytes are in flight than the channel drains.
    fn reduce_queue(&mut self, now: Moment, view: &ControllerView<'_>) -> Option<SettingChange> {
        let wanted = self.target_setting();
        let (to, excess) = self.queue_control.reduced_setting(now, wanted, &self.bounds, view)?;
        self.restart_search_only();
        self.change_base(now, to, ChangeReason::ExcessQueue(excess))
    }

    fn jump_to_model(&mut self, now: Moment, view: &ControllerView<'_>) -> Option<SettingChange> {
        let (to, gain) = self.queue_control.jump_to_model(self.base_setting, &self.bounds, view)?;
        self.change_base(now, to, ChangeReason::Model(gain))
    }

    fn on_base_epoch(&mut self, now: Moment, view: &ControllerView<'_>) -> Option<SettingChange> {
        if !self.epoch.is_complete() {
            return None;
        }
        let score = self.epoch.score();
        self.epoch.restart(self.base_setting, now);
        self.search.base_measured();
        if let Some(change) = self.on_queueing(now, &score, view) {
            return Some(change);
        }
        self.queue_control.record_in_flight(view, &score);
        self.base_epochs += 1;
        match self.base_score {
            Some(old) if self.base_epochs > 1 => self.compare_base_epochs(&old, &score),
            // The score of a probe is a setting's initial performance, and the luckiest of several
            // measurements. So the first epoch as the base replaces it.
            _ => self.base_score = Some(score),
        }
        self.return_to_best_base();
        self.retry_abandoned();
        if let Some(to) = self.queue_control.setting_to_return_to(self.base_setting, &score, view) {
            return self.change_base(now, to, ChangeReason::JumpTooFar);
        }
        if self.search.count_rest_epoch() {
            return None;
        }
        self.start_next_probe(now, view)
    }

    /// Starts the next probe; `None` if there is no candidate.
    fn start_next_probe(
        &mut self,
        now: Moment,
        view: &ControllerView<'_>,
    ) -> Option<SettingChange> {
        if let Some(change) = self.on_open_load(now, view) {
            return Some(change);
        }
        if self.has_nothing_to_gain() {
            self.search.start_rest();
            return None;
        }
        let closed = self.demand.is_closed_loop();
        let (search, ground) = self.search_with_inputs(view);
        let candidate = search.next(&ground, closed)?;
        let from = self.target_setting();
        self.enter_stage(now, MeasurementStage::Probe(candidate));
        Some(SettingChange { from, to: candidate.setting, reason: ChangeReason::Probe })
    }

    /// Returns the search, and the inputs for choosing its candidates.
    fn search_with_inputs<'a>(
        &'a mut self,
        view: &'a ControllerView<'a>,
    ) -> (&'a mut Search, SearchInputs<'a>) {
        let ground = SearchInputs {
            bounds: &self.bounds,
            base_setting: self.base_setting,
            score: self.base_score,
            batch_duration_ns: self.batch_duration_ns,
            for_throughput: self.goal_ns.is_none(),
            drain: &self.queue_control,
            view,
        };
        (&mut self.search, ground)
    }

    fn on_probe_epoch(
        &mut self,
        now: Moment,
        candidate: Candidate,
        view: &ControllerView<'_>,
    ) -> Option<SettingChange> {
        let Some(base) = self.base_score else {
            return self.end_probe(now, view);
        };
        let hopeless = self.epoch.cannot_reach(now, base.commands_per_s, base.batch_duration_ns);
        let waits = self.goal_ns.is_none() && self.epoch.adds_waiting(&base);
        if hopeless || waits {
            return self.end_probe(now, view);
        }
        if !self.epoch.is_complete() {
            return None;
        }
        let mut score = self.epoch.score();
        self.demand.add_pair(&base, &score);
        if let Some(first) = self.first_probe_score.take() {
            self.record_probe_difference(
                score.commands_per_s / first.commands_per_s.max(1e-9) - 1.0,
            );
            score.commands_per_s = (score.commands_per_s + first.commands_per_s) / 2.0;
            score.latency_ns = (score.latency_ns + first.latency_ns) / 2.0;
        } else if self.needs_second_epoch(&score, &base)
            && self.reason_if_better(&score, &base, candidate.setting, view).is_some()
        {
            self.first_probe_score = Some(score);
            self.epoch.restart(candidate.setting, now);
            return None;
        }
        let Some(reason) = self.reason_if_better(&score, &base, candidate.setting, view) else {
            self.base_was_rechecked = false;
            self.measurements.record_abandoned(candidate.setting, score.commands_per_s);
            return self.end_probe(now, view);
        };
        if self.goal_ns.is_none()
            && score.commands_per_s > base.commands_per_s * REMEASURE_FACTOR
            && !self.base_was_rechecked
        {
            // More likely, the base was measured at a bad moment. Measure both again in sequence.
            self.base_was_rechecked = true;
            self.search.requeue(candidate);
            self.base_score = None;
            self.base_epochs = 0;
            let from = self.target_setting();
            self.record_difference(1.0 - base.commands_per_s / score.commands_per_s.max(1e-9));
            self.enter_stage(now, MeasurementStage::Base);
            return Some(SettingChange {
                from,
                to: self.base_setting,
                reason: ChangeReason::ProbeFailed,
            });
        }
        self.base_was_rechecked = false;
        let from = self.base_setting;
        self.search.record_found();
        self.queue_control.record_in_flight(view, &score);
        let change = self.change_base(now, candidate.setting, reason);
        self.base_score = Some(score);
        if candidate.has_direction() {
            // Continue in a direction that improved the score.
            let (search, ground) = self.search_with_inputs(view);
            search.push(candidate.step_factors, &ground);
        }
        change.map(|change| SettingChange { from, ..change })
    }

    /// Ends a probe, and continues with the next one or with the base.
    fn end_probe(&mut self, now: Moment, view: &ControllerView<'_>) -> Option<SettingChange> {
        self.first_probe_score = None;
        self.measurements.record_retry_failed(self.target_setting());
        if self.search.record_failed_probe(self.batch_duration_ns > LONG_BATCH_NS)
            && let Some(change) = self.start_next_probe(now, view)
        {
            return Some(change);
        }
        let from = self.target_setting();
        self.enter_stage(now, MeasurementStage::Base);
        Some(SettingChange { from, to: self.base_setting, reason: ChangeReason::ProbeFailed })
    }

    fn change_base(
        &mut self,
        now: Moment,
        to: Setting,
        reason: ChangeReason,
    ) -> Option<SettingChange> {
        let from = self.target_setting();
        let moved = to != self.base_setting;
        self.base_setting = to;
        self.base_score = None;
        self.base_epochs = 0;
        self.first_probe_score = None;
        self.enter_stage(now, MeasurementStage::Base);
        self.base_changes += u64::from(moved);
        let change = SettingChange { from, to, reason };
        self.last_change = Some(change);
        (from != to || moved).then_some(change)
    }
}
