//! Choice of the next candidate: from the model, the ends of the window, or the neighbours of the
//! base.

use std::collections::VecDeque;

use super::{
    drain::QueueControl,
    regroup::REGROUP_BATCH_NS_MAX,
    view::{ControllerView, LONG_BATCH_NS},
};
use crate::{
    choice::{FittedModel, GRID_BATCH_BYTES, GRID_WINDOWS, smallest_batch_for},
    epoch::EpochScore,
    setting::{Setting, SettingBounds},
};

/// Maximum number of consecutive probes between two measurements of the base.
const PROBES_BETWEEN_BASES: u32 = 3;
/// Number of base epochs between probes when nothing is better. It doubles up to `REST_EPOCHS_MAX`.
const REST_EPOCHS: u32 = 12;
const REST_EPOCHS_MAX: u32 = 256;
/// Number of base epochs after a failed probe if epochs are long. It doubles up to
/// `PAUSE_EPOCHS_MAX`.
const PAUSE_EPOCHS: u32 = 2;
const PAUSE_EPOCHS_MAX: u32 = 64;
/// Factors by which neighbours differ from the base.
const NEIGHBOUR_FACTORS: [f64; 3] = [4.0, 2.0, 1.5];
/// Ratio of a candidate's predicted throughput to the base's below which the candidate is vetoed.
/// The constants apply to short epochs, to long ones if the model has been right, and to long ones
/// if it has not.
const VETO_SHORT: f64 = 0.6;
const VETO_LONG: f64 = 1.01;
const VETO_DOUBT: f64 = 0.4;
/// Fraction of the model's prediction that the base must reach for the model to be trusted.
const TRUSTED_PREDICTION_FRACTION: f64 = 0.85;
const SHORT_EPOCH_NS: f64 = 10e6;
/// Maximum duration of a batch, in nanoseconds, for which the ends of the window are tried.
const WINDOW_ENDS_NS_MAX: f64 = 45e6;
/// Minimum share of a batch's duration that the flush must take in order to matter.
const FLUSH_SHARE_MIN: f64 = 0.25;

/// A setting to probe, and the step that led to it. The step is repeated if it helps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) setting: Setting,
    /// Factors of batch size and window by which the candidate differs from the base; 1 and 1 for a
    /// jump.
    pub(super) step_factors: (f64, f64),
}

impl Candidate {
    const fn new_jump(setting: Setting) -> Self {
        Self { setting, step_factors: (1.0, 1.0) }
    }

    /// Returns whether another step in the same direction may help.
    pub(super) fn has_direction(&self) -> bool {
        self.step_factors != (1.0, 1.0)
    }
}

/// Inputs for choosing and assessing candidates, borrowed for one decision.
#[derive(Debug)]
pub(super) struct SearchInputs<'a> {
    pub(super) bounds: &'a SettingBounds,
    pub(super) base_setting: Setting,
    pub(super) score: Option<EpochScore>,
    /// Recent duration of a batch in nanoseconds.
    pub(super) batch_duration_ns: f64,
    /// The goal is throughput without a latency bound.
    pub(super) for_throughput: bool,
    pub(super) drain: &'a QueueControl,
    pub(super) view: &'a ControllerView<'a>,
}

impl SearchInputs<'_> {
    fn in_flight_max(&self) -> f64 {
        self.drain.in_flight_max(self.view)
    }

    /// Returns whether the model predicts too little gain for `setting` to be worth an epoch.
    fn is_vetoed(&self, setting: Setting) -> bool {
        let Some(score) = self.score else {
            return false;
        };
        let Some(fitted) = FittedModel::new(
            self.view.parameters(),
            self.view.nodes,
            self.view.outstanding_commands,
        ) else {
            return false;
        };
        let base = fitted.predict(self.base_setting).throughput;
        let trusted = score.commands_per_s > base * TRUSTED_PREDICTION_FRACTION;
        let round_trip = self.view.round_trip_ns().unwrap_or(0.0);
        let short = round_trip < SHORT_EPOCH_NS && score.batch_duration_ns < 10.0 * SHORT_EPOCH_NS;
        let part = match () {
            () if score.batch_duration_ns <= LONG_BATCH_NS => VETO_SHORT,
            // With a short round trip, long durations come from a queue or a disk, which the model
            // does not predict well.
            () if short => VETO_SHORT,
            () if trusted => VETO_LONG,
            () => VETO_DOUBT,
        };
        fitted.predict(setting).throughput < base * part
    }
}

/// Queue of candidates, and the pauses between probes.
#[derive(Clone, Debug)]
pub(super) struct Search {
    candidates: VecDeque<Candidate>,
    tried_settings: Vec<Setting>,
    step_index: usize,
    ends_tried: bool,
    was_model_asked: bool,
    /// Number of probes since the base was measured.
    probes_since_base: u32,
    /// Number of base epochs between probes.
    rest_epochs: u32,
    /// Number of base epochs left in the current pause.
    rest_epochs_left: u32,
    /// Number of base epochs after the next failed probe, if epochs are long.
    pause_epochs: u32,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            candidates: VecDeque::new(),
            tried_settings: Vec::new(),
            step_index: 0,
            ends_tried: false,
            was_model_asked: false,
            probes_since_base: 0,
            rest_epochs: REST_EPOCHS,
            rest_epochs_left: 0,
            pause_epochs: PAUSE_EPOCHS,
        }
    }
}

impl Search {
    /// Restarts the search. The model's choice has already been tried and is not requested again.
    pub(super) fn restart(&mut self) {
        *self = Self {
            was_model_asked: self.was_model_asked,
            probes_since_base: self.probes_since_base,
            ..Self::default()
        };
    }

    /// Allows the model to be queried again, because it may know more by now.
    pub(super) fn ask_model_again(&mut self) {
        self.was_model_asked = false;
    }

    pub(super) fn base_measured(&mut self) {
        self.probes_since_base = 0;
    }

    /// Returns whether the search pauses after this epoch of the base. No candidate is tried in a
    /// pause.
    pub(super) fn count_rest_epoch(&mut self) -> bool {
        let rests = self.rest_epochs_left > 0;
        self.rest_epochs_left -= u32::from(rests);
        rests
    }

    /// Pauses the search, because there is nothing to gain at the moment.
    pub(super) fn start_rest(&mut self) {
        self.candidates.clear();
        self.rest_epochs_left = REST_EPOCHS;
    }

    pub(super) fn clear(&mut self) {
        self.candidates.clear();
    }

    /// Records that a better setting was found, so that its neighbours are next.
    pub(super) fn record_found(&mut self) {
        self.candidates.clear();
        self.rest_epochs = REST_EPOCHS;
        self.rest_epochs_left = 0;
    }

    /// Records a failed probe. `long` means that epochs are long. Returns whether another probe may
    /// follow at once.
    pub(super) fn record_failed_probe(&mut self, long: bool) -> bool {
        self.probes_since_base += 1;
        if long {
            self.rest_epochs_left = self.pause_epochs;
            self.pause_epochs = (self.pause_epochs * 2).min(PAUSE_EPOCHS_MAX);
        }
        self.probes_since_base < PROBES_BETWEEN_BASES
            && self.rest_epochs == REST_EPOCHS
            && self.rest_epochs_left == 0
    }

    /// Puts this setting at the front of the queue, to be probed after the next measurement of the
    /// base.
    pub(super) fn push_front(&mut self, setting: Setting) {
        self.candidates.retain(|candidate| candidate.setting != setting);
        self.requeue(Candidate::new_jump(setting));
    }

    /// Puts this candidate back into the queue, to be probed after the next measurement of the
    /// base.
    pub(super) fn requeue(&mut self, candidate: Candidate) {
        self.candidates.push_front(candidate);
        self.rest_epochs_left = 0;
    }

    /// Returns the next candidate; `None` if there is none. `closed` means that clients send more
    /// when they wait less.
    pub(super) fn next(&mut self, ground: &SearchInputs<'_>, closed: bool) -> Option<Candidate> {
        self.refill_candidates(ground, closed);
        let candidate = self.candidates.pop_front()?;
        self.tried_settings.push(candidate.setting);
        Some(candidate)
    }

    fn refill_candidates(&mut self, ground: &SearchInputs<'_>, closed: bool) {
        self.ask_model(ground);
        if self.candidates.is_empty() && !self.ends_tried {
            self.ends_tried = true;
            self.push_window_ends(ground);
        }
        while self.candidates.is_empty() && self.step_index < NEIGHBOUR_FACTORS.len() {
            let by = NEIGHBOUR_FACTORS[self.step_index];
            self.step_index += 1;
            for step in [
                (1.0 / by, 1.0),
                (1.0, by),
                (1.0, 1.0 / by),
                (1.0 / by, by),
                (by, 1.0),
                (by, 1.0 / by),
            ] {
                self.push(step, ground);
            }
        }
        if self.candidates.is_empty() {
            // No candidate is better, so pause, and later try the close neighbours again.
            self.rest_epochs_left = self.rest_epochs;
            self.rest_epochs = (self.rest_epochs * 2).min(REST_EPOCHS_MAX);
            self.step_index = 1;
            self.tried_settings.clear();
            if closed {
                self.push_single_batch(ground);
            }
        } else if self.rest_epochs > REST_EPOCHS {
            // From here on, probes are separated by pauses.
            self.rest_epochs_left = self.rest_epochs / 2;
        }
    }

    /// Queues the ends of the window: one or two batches that contain all waiting commands, and the
    /// widest window. Also queues the largest batch, so that commands that were split can gather.
    fn push_window_ends(&mut self, ground: &SearchInputs<'_>) {
        let all = ground.bounds.batch_bytes_max;
        let Setting { batch_bytes, window } = ground.base_setting;
        let most = ground.bounds.window_max;
        let end = |batch_bytes, window| Setting { batch_bytes, window };
        let is_quick = ground.batch_duration_ns < WINDOW_ENDS_NS_MAX;
        self.push_single_batch(ground);
        // The model does not cover gathering.
        if ground.batch_duration_ns < REGROUP_BATCH_NS_MAX {
            self.push_unvetoed(end(all, window), (1.0, 1.0), ground);
        }
        if is_quick {
            for setting in [end(all, 1), end(all, 2), end(batch_bytes, most)] {
                self.push_setting(setting, (1.0, 1.0), ground);
            }
        }
    }

    /// Queues a window of one batch, in which each batch waits for the clients that got replies
    /// from the previous one. The model does not cover that. It is worthwhile if the disk dominates
    /// a batch's duration. Clients wait longer, so it is not used if latency is the goal.
    fn push_single_batch(&mut self, ground: &SearchInputs<'_>) {
        let flush = ground.view.parameters().flush_ns.map_or(0.0, |flush| flush.value);
        let wall = ground.batch_duration_ns;
        if wall < WINDOW_ENDS_NS_MAX && flush > wall * FLUSH_SHARE_MIN && ground.for_throughput {
            let setting = Setting { batch_bytes: ground.bounds.batch_bytes_max, window: 1 };
            self.push_unvetoed(setting, (1.0, 1.0), ground);
        }
    }

    fn ask_model(&mut self, ground: &SearchInputs<'_>) {
        if self.was_model_asked {
            return;
        }
        let Some(fitted) = FittedModel::new(
            ground.view.parameters(),
            ground.view.nodes,
            ground.view.outstanding_commands,
        ) else {
            return;
        };
        self.was_model_asked = true;
        if let Some(chosen) = fitted.best_setting(ground.bounds, ground.in_flight_max()) {
            self.push_setting(chosen, (1.0, 1.0), ground);
        }
    }

    /// Queues a neighbour of the base if it can have an effect. Batches that are never full need no
    /// more room, and a reduction starts from the actual batch size.
    pub(super) fn push(&mut self, step: (f64, f64), ground: &SearchInputs<'_>) {
        let Some(score) = ground.score else {
            return;
        };
        let (by_batch, by_window) = step;
        let base = ground.base_setting;
        let mut batch = base.batch_bytes;
        if by_batch > 1.0 && score.full_fraction < 0.02 {
            return;
        }
        if by_batch < 1.0 && score.batch_bytes_max > 0 {
            batch = batch.min(score.batch_bytes_max.next_power_of_two());
        }
        let mut window = base.window;
        if by_window > 1.0 && by_batch >= 1.0 && score.blocked_fraction == 0.0 {
            return;
        }
        if by_window < 1.0 {
            window = window.min(score.in_flight_max.max(1));
        }
        let setting = Setting {
            batch_bytes: ladder_neighbour(&GRID_BATCH_BYTES, batch, by_batch),
            window: ladder_neighbour(&GRID_WINDOWS, window, by_window),
        };
        self.push_setting(setting, step, ground);
    }

    fn push_setting(&mut self, setting: Setting, step: (f64, f64), ground: &SearchInputs<'_>) {
        if !ground.is_vetoed(setting) {
            self.push_unvetoed(setting, step, ground);
        }
    }

    /// Queues a setting if it is within the bounds and has not been tried yet.
    fn push_unvetoed(&mut self, setting: Setting, step: (f64, f64), ground: &SearchInputs<'_>) {
        let command = ground.view.parameters().command_bytes.map_or(1.0, |bytes| bytes.value);
        let setting = ground.bounds.clamp(Setting {
            batch_bytes: setting.batch_bytes.max(smallest_batch_for(command)),
            ..setting
        });
        let outstanding = ground.view.outstanding_commands.max(1.0) * command;
        let in_flight = |setting: Setting| {
            let batch = (setting.batch_bytes as f64 / command).floor().max(1.0) * command;
            (batch * setting.window as f64).min(outstanding)
        };
        let most = ground.in_flight_max().max(in_flight(ground.base_setting));
        let too_much = in_flight(setting) > most * 1.05;
        let known = setting == ground.base_setting || self.tried_settings.contains(&setting);
        let waits = self.candidates.iter().any(|other| other.setting == setting);
        if !too_much && !known && !waits {
            self.candidates.push_back(Candidate { setting, step_factors: step });
        }
    }
}

/// Returns the entry of the ladder nearest to `from · by` that is at least one entry away from
/// `from`.
fn ladder_neighbour(ladder: &[usize], from: usize, by: f64) -> usize {
    if by == 1.0 {
        return from;
    }
    let to = from as f64 * by;
    let near = |&step: &usize| ((step as f64 / to).ln()).abs();
    let beyond =
        ladder.iter().copied().filter(|&step| if by > 1.0 { step > from } else { step < from });
    beyond.min_by(|a, b| near(a).total_cmp(&near(b))).unwrap_or(from)
}
