//! What is tried next: from the model, from the ends of the window, from the neighbours.

use super::{Candidate, Controller, REGROUP_NS, REST, Stage, VETO_NS, View};
use crate::{
    choice::{BATCHES, Fitted, WINDOWS, batch_least},
    setting::{Change, Reason, Setting},
    time::Moment,
};

/// Factors of the steps to the neighbours.
const STEPS: [f64; 3] = [4.0, 2.0, 1.5];
const REST_MOST: u32 = 256;
/// The model keeps the search from what it predicts to be not so good, in parts of the base: where
/// an epoch is short, where it is long and the model was right so far, and where it was not.
const VETO_SHORT: f64 = 0.6;
const VETO_LONG: f64 = 1.01;
const VETO_DOUBT: f64 = 0.4;
/// The model is trusted if the base reaches so much of what it predicts.
const TRUST: f64 = 0.85;
const SHORT_NS: f64 = 10e6;
/// The ends of the window are tried where an epoch is not too long.
const ENDS_NS: f64 = 45e6;
/// The part of what a batch takes, from which on its flush counts.
const FLUSH_LEAST: f64 = 0.25;

impl Controller {
    /// Starts the next probe, if there is one.
    pub(super) fn probe_next(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if let Some(change) = self.on_open_load(now, view) {
            return Some(change);
        }
        if self.is_at_ease() {
            self.queue.clear();
            self.rest_left = REST;
            return None;
        }
        self.refill(view);
        let candidate = self.queue.pop_front()?;
        self.tried.push(candidate.setting);
        let from = self.wanted();
        self.enter(now, Stage::Probe(candidate));
        Some(Change {
            from,
            to: candidate.setting,
            reason: Reason::Probe,
        })
    }

    pub(super) fn refill(&mut self, view: &View<'_>) {
        self.ask_model(view);
        if self.queue.is_empty() && !self.ends_tried {
            self.ends_tried = true;
            self.push_ends(view);
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
                self.push(step, view);
            }
        }
        if self.queue.is_empty() {
            // Nothing is better: rest, and look again later, near by.
            self.rest_left = self.rest;
            self.rest = (self.rest * 2).min(REST_MOST);
            self.step = 1;
            self.tried.clear();
            if self.demand.is_closed() {
                self.push_together(view);
            }
        } else if self.rest > REST {
            // One at a time from now on.
            self.rest_left = self.rest / 2;
        }
    }

    /// One or two batches at a time take all that waits; the widest window nothing of it. And the
    /// largest batch, for what was split before and should gather.
    pub(super) fn push_ends(&mut self, view: &View<'_>) {
        let all = self.bounds.batch_bytes_max;
        let Setting {
            batch_bytes,
            window,
        } = self.base;
        let most = self.bounds.window_max;
        let end = |batch_bytes, window| Setting {
            batch_bytes,
            window,
        };
        let is_quick = self.wall_ns < ENDS_NS;
        self.push_together(view);
        // The model knows nothing of what gathers.
        if self.wall_ns < REGROUP_NS {
            self.push_anyway(end(all, window), (1.0, 1.0), view);
        }
        if is_quick {
            for setting in [end(all, 1), end(all, 2), end(batch_bytes, most)] {
                self.push_setting(setting, (1.0, 1.0), view);
            }
        }
    }

    /// One batch at a time, which waits for those whom the one before answered: the model knows
    /// nothing of that. It is worth it where the disk is what a batch takes long for. They wait, so
    /// where latency is the goal it has no precedence.
    fn push_together(&mut self, view: &View<'_>) {
        let flush = view.known().flush_ns.map_or(0.0, |flush| flush.value);
        let wall = self.wall_ns;
        if wall < ENDS_NS && flush > wall * FLUSH_LEAST && self.goal_ns.is_none() {
            let setting = Setting {
                batch_bytes: self.bounds.batch_bytes_max,
                window: 1,
            };
            self.push_anyway(setting, (1.0, 1.0), view);
        }
    }

    pub(super) fn ask_model(&mut self, view: &View<'_>) {
        if self.model_asked {
            return;
        }
        let Some(fitted) = Fitted::new(view.known(), view.nodes, view.outstanding) else {
            return;
        };
        self.model_asked = true;
        if let Some(chosen) = fitted.choose(&self.bounds, self.in_flight_max(view)) {
            self.push_setting(chosen, (1.0, 1.0), view);
        }
    }

    /// A neighbour of the base. What has no effect is not tried: batches that are never full need
    /// no more room, and less room begins below what they have.
    pub(super) fn push(&mut self, step: (f64, f64), view: &View<'_>) {
        let Some(score) = self.score else {
            return;
        };
        let (by_batch, by_window) = step;
        let base = self.base;
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
        self.push_setting(setting, step, view);
    }

    pub(super) fn push_setting(&mut self, setting: Setting, step: (f64, f64), view: &View<'_>) {
        if !self.is_vetoed(setting, view) {
            self.push_anyway(setting, step, view);
        }
    }

    /// As far as it is within the bounds and not known already.
    pub(super) fn push_anyway(&mut self, setting: Setting, step: (f64, f64), view: &View<'_>) {
        let command = view.known().command_bytes.map_or(1.0, |bytes| bytes.value);
        let setting = self.bounds.clamp(Setting {
            batch_bytes: setting.batch_bytes.max(batch_least(command)),
            ..setting
        });
        let outstanding = view.outstanding.max(1.0) * command;
        let in_flight = |setting: Setting| {
            let batch = (setting.batch_bytes as f64 / command).floor().max(1.0) * command;
            (batch * setting.window as f64).min(outstanding)
        };
        let most = self.in_flight_max(view).max(in_flight(self.base));
        let too_much = in_flight(setting) > most * 1.05;
        let known = setting == self.base || self.tried.contains(&setting);
        let waits = self.queue.iter().any(|other| other.setting == setting);
        if !too_much && !known && !waits {
            self.queue.push_back(Candidate { setting, step });
        }
    }

    /// Whether the model predicts so much less that an epoch would be wasted.
    pub(super) fn is_vetoed(&self, setting: Setting, view: &View<'_>) -> bool {
        let Some(score) = self.score else {
            return false;
        };
        let Some(fitted) = Fitted::new(view.known(), view.nodes, view.outstanding) else {
            return false;
        };
        let base = fitted.predict(self.base).throughput;
        let trusted = score.rate > base * TRUST;
        let way = view.round_trip_ns().unwrap_or(0.0);
        let short = way < SHORT_NS && score.wall_ns < 10.0 * SHORT_NS;
        let part = match () {
            () if score.wall_ns <= VETO_NS => VETO_SHORT,
            // What takes long there is a queue or a disk, and the model is no judge of those.
            () if short => VETO_SHORT,
            () if trusted => VETO_LONG,
            () => VETO_DOUBT,
        };
        fitted.predict(setting).throughput < base * part
    }
}

/// The step of a ladder that is nearest to `from · by`, at least one step away from it.
fn along(ladder: &[usize], from: usize, by: f64) -> usize {
    if by == 1.0 {
        return from;
    }
    let to = from as f64 * by;
    let near = |&step: &usize| ((step as f64 / to).ln()).abs();
    let beyond = ladder
        .iter()
        .copied()
        .filter(|&step| if by > 1.0 { step > from } else { step < from });
    beyond
        .min_by(|a, b| near(a).total_cmp(&near(b)))
        .unwrap_or(from)
}
