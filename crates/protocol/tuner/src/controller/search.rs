//! Choice of the next candidate: from the model, the ends of the window, or the neighbours of the
//! base.

use std::collections::VecDeque;

use super::{
    drain::Drain,
    regroup::REGROUP_NS,
    view::{VETO_NS, View},
};
use crate::{
    choice::{BATCHES, Fitted, WINDOWS, batch_least},
    epoch::Score,
    setting::{Bounds, Setting},
};

/// Maximum number of consecutive probes between two measurements of the base.
const IN_A_ROW: u32 = 3;
/// Number of base epochs between probes when nothing is better. It doubles up to `REST_MOST`.
const REST: u32 = 12;
const REST_MOST: u32 = 256;
/// Number of base epochs after a failed probe if epochs are long. It doubles up to `PAUSE_MOST`.
const PAUSE: u32 = 2;
const PAUSE_MOST: u32 = 64;
/// Factors by which neighbours differ from the base.
const STEPS: [f64; 3] = [4.0, 2.0, 1.5];
/// Ratio of a candidate's predicted throughput to the base's below which the candidate is vetoed.
/// The constants apply to short epochs, to long ones if the model has been right, and to long ones
/// if it has not.
const VETO_SHORT: f64 = 0.6;
const VETO_LONG: f64 = 1.01;
const VETO_DOUBT: f64 = 0.4;
/// Fraction of the model's prediction that the base must reach for the model to be trusted.
const TRUST: f64 = 0.85;
const SHORT_NS: f64 = 10e6;
/// Maximum duration of a batch, in nanoseconds, for which the ends of the window are tried.
const ENDS_NS: f64 = 45e6;
/// Minimum share of a batch's duration that the flush must take in order to matter.
const FLUSH_LEAST: f64 = 0.25;

/// A setting to probe, and the step that led to it. The step is repeated if it helps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) setting: Setting,
    /// Factors of batch size and window by which the candidate differs from the base; 1 and 1 for a
    /// jump.
    pub(super) step: (f64, f64),
}

impl Candidate {
    const fn jump(setting: Setting) -> Self {
        Self { setting, step: (1.0, 1.0) }
    }

    /// Returns whether another step in the same direction may help.
    pub(super) fn has_direction(&self) -> bool {
        self.step != (1.0, 1.0)
    }
}

/// Inputs for choosing and assessing candidates, borrowed for one decision.
#[derive(Debug)]
pub(super) struct SearchInputs<'a> {
    pub(super) bounds: &'a Bounds,
    pub(super) base: Setting,
    pub(super) score: Option<Score>,
    /// Recent duration of a batch in nanoseconds.
    pub(super) wall_ns: f64,
    /// The goal is throughput without a latency bound.
    pub(super) for_throughput: bool,
    pub(super) drain: &'a Drain,
    pub(super) view: &'a View<'a>,
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
        let Some(fitted) = Fitted::new(self.view.known(), self.view.nodes, self.view.outstanding)
        else {
            return false;
        };
        let base = fitted.predict(self.base).throughput;
        let trusted = score.rate > base * TRUST;
        let round_trip = self.view.round_trip_ns().unwrap_or(0.0);
        let short = round_trip < SHORT_NS && score.wall_ns < 10.0 * SHORT_NS;
        let part = match () {
            () if score.wall_ns <= VETO_NS => VETO_SHORT,
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
    queue: VecDeque<Candidate>,
    tried: Vec<Setting>,
    step: usize,
    ends_tried: bool,
    model_asked: bool,
    /// Number of probes since the base was measured.
    in_a_row: u32,
    /// Number of base epochs between probes.
    rest: u32,
    /// Number of base epochs left in the current pause.
    rest_left: u32,
    /// Number of base epochs after the next failed probe, if epochs are long.
    pause: u32,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            tried: Vec::new(),
            step: 0,
            ends_tried: false,
            model_asked: false,
            in_a_row: 0,
            rest: REST,
            rest_left: 0,
            pause: PAUSE,
        }
    }
}

impl Search {
    /// Restarts the search. The model's choice has already been tried and is not requested again.
    pub(super) fn forget(&mut self) {
        *self = Self { model_asked: self.model_asked, in_a_row: self.in_a_row, ..Self::default() };
    }

    /// Allows the model to be queried again, because it may know more by now.
    pub(super) fn ask_model_again(&mut self) {
        self.model_asked = false;
    }

    pub(super) fn base_measured(&mut self) {
        self.in_a_row = 0;
    }

    /// Returns whether the search pauses after this epoch of the base. No candidate is tried in a
    /// pause.
    pub(super) fn rests(&mut self) -> bool {
        let rests = self.rest_left > 0;
        self.rest_left -= u32::from(rests);
        rests
    }

    /// Pauses the search, because there is nothing to gain at the moment.
    pub(super) fn rest(&mut self) {
        self.queue.clear();
        self.rest_left = REST;
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Records that a better setting was found, so that its neighbours are next.
    pub(super) fn found(&mut self) {
        self.queue.clear();
        self.rest = REST;
        self.rest_left = 0;
    }

    /// Records a failed probe. `long` means that epochs are long. Returns whether another probe may
    /// follow at once.
    pub(super) fn failed(&mut self, long: bool) -> bool {
        self.in_a_row += 1;
        if long {
            self.rest_left = self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MOST);
        }
        self.in_a_row < IN_A_ROW && self.rest == REST && self.rest_left == 0
    }

    /// Puts this setting at the front of the queue, to be probed after the next measurement of the
    /// base.
    pub(super) fn first(&mut self, setting: Setting) {
        self.queue.retain(|candidate| candidate.setting != setting);
        self.again(Candidate::jump(setting));
    }

    /// Puts this candidate back into the queue, to be probed after the next measurement of the
    /// base.
    pub(super) fn again(&mut self, candidate: Candidate) {
        self.queue.push_front(candidate);
        self.rest_left = 0;
    }

    /// Returns the next candidate; `None` if there is none. `closed` means that clients send more
    /// when they wait less.
    pub(super) fn next(&mut self, ground: &SearchInputs<'_>, closed: bool) -> Option<Candidate> {
        self.refill(ground, closed);
        let candidate = self.queue.pop_front()?;
        self.tried.push(candidate.setting);
        Some(candidate)
    }

    fn refill(&mut self, ground: &SearchInputs<'_>, closed: bool) {
        self.ask_model(ground);
        if self.queue.is_empty() && !self.ends_tried {
            self.ends_tried = true;
            self.push_ends(ground);
        }
        while self.queue.is_empty() && self.step < STEPS.len() {
            let by = STEPS[self.step];
            self.step += 1;
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
        if self.queue.is_empty() {
            // No candidate is better, so pause, and later try the close neighbours again.
            self.rest_left = self.rest;
            self.rest = (self.rest * 2).min(REST_MOST);
            self.step = 1;
            self.tried.clear();
            if closed {
                self.push_together(ground);
            }
        } else if self.rest > REST {
            // From here on, probes are separated by pauses.
            self.rest_left = self.rest / 2;
        }
    }

    /// Queues the ends of the window: one or two batches that contain all waiting commands, and the
    /// widest window. Also queues the largest batch, so that commands that were split can gather.
    fn push_ends(&mut self, ground: &SearchInputs<'_>) {
        let all = ground.bounds.batch_bytes_max;
        let Setting { batch_bytes, window } = ground.base;
        let most = ground.bounds.window_max;
        let end = |batch_bytes, window| Setting { batch_bytes, window };
        let is_quick = ground.wall_ns < ENDS_NS;
        self.push_together(ground);
        // The model does not cover gathering.
        if ground.wall_ns < REGROUP_NS {
            self.push_anyway(end(all, window), (1.0, 1.0), ground);
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
    fn push_together(&mut self, ground: &SearchInputs<'_>) {
        let flush = ground.view.known().flush_ns.map_or(0.0, |flush| flush.value);
        let wall = ground.wall_ns;
        if wall < ENDS_NS && flush > wall * FLUSH_LEAST && ground.for_throughput {
            let setting = Setting { batch_bytes: ground.bounds.batch_bytes_max, window: 1 };
            self.push_anyway(setting, (1.0, 1.0), ground);
        }
    }

    fn ask_model(&mut self, ground: &SearchInputs<'_>) {
        if self.model_asked {
            return;
        }
        let Some(fitted) =
            Fitted::new(ground.view.known(), ground.view.nodes, ground.view.outstanding)
        else {
            return;
        };
        self.model_asked = true;
        if let Some(chosen) = fitted.choose(ground.bounds, ground.in_flight_max()) {
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
        let base = ground.base;
        let mut batch = base.batch_bytes;
        if by_batch > 1.0 && score.full < 0.02 {
            return;
        }
        if by_batch < 1.0 && score.bytes_most > 0 {
            batch = batch.min(score.bytes_most.next_power_of_two());
        }
        let mut window = base.window;
        if by_window > 1.0 && by_batch >= 1.0 && score.blocked == 0.0 {
            return;
        }
        if by_window < 1.0 {
            window = window.min(score.in_flight_most.max(1));
        }
        let setting = Setting {
            batch_bytes: along(&BATCHES, batch, by_batch),
            window: along(&WINDOWS, window, by_window),
        };
        self.push_setting(setting, step, ground);
    }

    fn push_setting(&mut self, setting: Setting, step: (f64, f64), ground: &SearchInputs<'_>) {
        if !ground.is_vetoed(setting) {
            self.push_anyway(setting, step, ground);
        }
    }

    /// Queues a setting if it is within the bounds and has not been tried yet.
    fn push_anyway(&mut self, setting: Setting, step: (f64, f64), ground: &SearchInputs<'_>) {
        let command = ground.view.known().command_bytes.map_or(1.0, |bytes| bytes.value);
        let setting = ground.bounds.clamp(Setting {
            batch_bytes: setting.batch_bytes.max(batch_least(command)),
            ..setting
        });
        let outstanding = ground.view.outstanding.max(1.0) * command;
        let in_flight = |setting: Setting| {
            let batch = (setting.batch_bytes as f64 / command).floor().max(1.0) * command;
            (batch * setting.window as f64).min(outstanding)
        };
        let most = ground.in_flight_max().max(in_flight(ground.base));
        let too_much = in_flight(setting) > most * 1.05;
        let known = setting == ground.base || self.tried.contains(&setting);
        let waits = self.queue.iter().any(|other| other.setting == setting);
        if !too_much && !known && !waits {
            self.queue.push_back(Candidate { setting, step });
        }
    }
}

/// Returns the entry of the ladder nearest to `from · by` that is at least one entry away from
/// `from`.
fn along(ladder: &[usize], from: usize, by: f64) -> usize {
    if by == 1.0 {
        return from;
    }
    let to = from as f64 * by;
    let near = |&step: &usize| ((step as f64 / to).ln()).abs();
    let beyond =
        ladder.iter().copied().filter(|&step| if by > 1.0 { step > from } else { step < from });
    beyond.min_by(|a, b| near(a).total_cmp(&near(b))).unwrap_or(from)
}
