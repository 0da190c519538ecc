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

pub(crate) use self::view::View;
use self::{
    demand::Demand,
    drain::Drain,
    noise::Noise,
    record::Record,
    regroup::{Regroup, RegroupState},
    search::{Candidate, Search, SearchInputs},
    start::{Begin, Start},
    view::VETO_NS,
};
use crate::{
    epoch::{Done, Epoch, Score},
    setting::{Bounds, Change, Reason, Setting},
    time::Moment,
};

/// If a probe seems better than the base by more than this factor, the base is measured again.
const DOUBT: f64 = 1.3;
/// Time after a change during which measurements still reflect the previous setting and are
/// ignored, as a multiple of a batch's duration. Applies only if a batch takes less than
/// `SETTLE_NS`.
const SETTLE_WALLS: f64 = 2.0;
const SETTLE_NS: f64 = 25e6;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The base is being measured.
    Base,
    /// A candidate is being measured.
    Probe(Candidate),
}

/// The search for the best setting.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    bounds: Bounds,
    goal_ns: Option<f64>,
    start: Start,
    base: Setting,
    score: Option<Score>,
    /// Number of completed epochs of the base.
    lasted: u32,
    /// Number of consecutive epochs that indicate a change of load.
    shifted: u32,
    stage: Stage,
    /// First score of the probe that is being measured a second time.
    confirming: Option<Score>,
    /// The base has been measured again because a probe seemed too good to be true.
    doubted: bool,
    epoch: Epoch,
    /// Recent duration of a batch in nanoseconds.
    wall_ns: f64,
    search: Search,
    record: Record,
    noise: Noise,
    demand: Demand,
    drain: Drain,
    regroup: Regroup,
    moves: u64,
    last: Option<Change>,
}

impl Controller {
    pub(crate) fn new(bounds: Bounds, goal_ns: Option<u64>, start: Setting) -> Self {
        let (start, base) = Start::new(bounds.clamp(start));
        let mut epoch = Epoch::new(base, Moment(0));
        if goal_ns.is_some() {
            epoch.last_for_percentile();
        }
        Self {
            bounds,
            goal_ns: goal_ns.map(|ns| ns as f64),
            start,
            base,
            score: None,
            lasted: 0,
            shifted: 0,
            stage: Stage::Base,
            confirming: None,
            doubted: false,
            epoch,
            wall_ns: f64::INFINITY,
            search: Search::default(),
            record: Record::default(),
            noise: Noise::default(),
            demand: Demand::default(),
            drain: Drain::new(base),
            regroup: Regroup::default(),
            moves: 0,
            last: None,
        }
    }

    pub(crate) fn setting(&self) -> Setting {
        self.regroup.setting(self.target_setting())
    }

    /// Returns the setting in force, or the one that takes effect after regrouping.
    fn target_setting(&self) -> Setting {
        match self.stage {
            Stage::Base => self.base,
            Stage::Probe(candidate) => candidate.setting,
        }
    }

    /// Enters a stage, whose measurements start now.
    fn enter(&mut self, now: Moment, stage: Stage) {
        let from = self.target_setting();
        self.stage = stage;
        let to = self.target_setting();
        let split = from.batch_bytes < to.batch_bytes
            && (self.epoch.is_split() || to.batch_bytes == self.bounds.batch_bytes_max);
        self.regroup.begin(now, from, to, split, self.wall_ns);
        self.epoch.restart(to, now);
        if self.score.is_some_and(|score| score.piles()) {
            self.settle(now);
        }
    }

    /// Ignores the first measurements, which still reflect the previous setting.
    fn settle(&mut self, now: Moment) {
        if self.wall_ns < SETTLE_NS {
            self.epoch.ignore_until(now.later(self.wall_ns * SETTLE_WALLS));
        }
    }

    pub(crate) fn score(&self) -> Option<&Score> {
        self.score.as_ref()
    }

    /// Returns the last change of the setting that was not part of a probe.
    pub(crate) fn last(&self) -> Option<&Change> {
        self.last.as_ref()
    }

    /// Returns the number of times that the base changed.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    pub(crate) fn on_turn(&mut self, waiting: usize, in_flight: usize) {
        self.epoch.on_turn(waiting, in_flight);
    }

    pub(crate) fn on_done(&mut self, now: Moment, done: &Done) {
        self.epoch.on_done(now, done);
    }

    /// Restarts an interrupted epoch, because its measurements are meaningless. Ignores the first
    /// measurements of the new one, which include the commands that queued up during the
    /// interruption.
    pub(crate) fn interrupted(&mut self, now: Moment) {
        let setting = self.target_setting();
        self.epoch.restart(setting, now);
        self.settle(now);
    }

    /// Decides whether to change the setting. Returns the change, if any.
    pub(crate) fn decide(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if let Some(wall) = view.estimator.wall() {
            self.wall_ns = wall.value;
        }
        match self.regroup.look(now) {
            RegroupState::No => {}
            RegroupState::Goes => return None,
            RegroupState::Over => {
                self.epoch.restart(self.target_setting(), now);
                return None;
            }
        }
        match self.start.begin(now, self.base, view) {
            Begin::Begun => {}
            Begin::Waits => return None,
            Begin::With(setting, gather_ns) => {
                self.drain.start(setting);
                let change = self.move_to(now, setting, Reason::Short);
                self.regroup.one_at_a_time(now, gather_ns);
                return change;
            }
        }
        if let Some(change) = self.unqueue(now, view) {
            return Some(change);
        }
        match self.stage {
            Stage::Base if self.score.is_none() && self.drain.may_jump() => {
                if let Some(change) = self.jump(now, view) {
                    return Some(change);
                }
                self.on_base(now, view)
            }
            Stage::Base => self.on_base(now, view),
            Stage::Probe(candidate) => self.on_probe(now, candidate, view),
        }
    }

    /// Reduces the setting if more bytes are in flight than the channel drains.
    fn unqueue(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        let wanted = self.target_setting();
        let (to, excess) = self.drain.unqueue(now, wanted, &self.bounds, view)?;
        self.search_again();
        self.move_to(now, to, Reason::Queue(excess))
    }

    fn jump(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        let (to, gain) = self.drain.jump(self.base, &self.bounds, view)?;
        self.move_to(now, to, Reason::Model(gain))
    }

    fn on_base(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if !self.epoch.is_complete() {
            return None;
        }
        let score = self.epoch.score();
        self.epoch.restart(self.base, now);
        self.search.base_measured();
        if let Some(change) = self.on_crowd(now, &score, view) {
            return Some(change);
        }
        self.drain.record_in_flight(view, &score);
        self.lasted += 1;
        match self.score {
            Some(old) if self.lasted > 1 => self.compare_with_itself(&old, &score),
            // The score of a probe is a setting's initial performance, and the luckiest of several
            // measurements. So the first epoch as the base replaces it.
            _ => self.score = Some(score),
        }
        self.remember();
        self.try_again();
        if let Some(to) = self.drain.check_jumps(self.base, &score, view) {
            return self.move_to(now, to, Reason::TooFar);
        }
        if self.search.rests() {
            return None;
        }
        self.probe_next(now, view)
    }

    /// Starts the next probe; `None` if there is no candidate.
    fn probe_next(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if let Some(change) = self.on_open_load(now, view) {
            return Some(change);
        }
        if self.is_at_ease() {
            self.search.rest();
            return None;
        }
        let closed = self.demand.is_closed();
        let (search, ground) = self.ground(view);
        let candidate = search.next(&ground, closed)?;
        let from = self.target_setting();
        self.enter(now, Stage::Probe(candidate));
        Some(Change { from, to: candidate.setting, reason: Reason::Probe })
    }

    /// Returns the search, and the inputs for choosing its candidates.
    fn ground<'a>(&'a mut self, view: &'a View<'a>) -> (&'a mut Search, SearchInputs<'a>) {
        let ground = SearchInputs {
            bounds: &self.bounds,
            base: self.base,
            score: self.score,
            wall_ns: self.wall_ns,
            for_throughput: self.goal_ns.is_none(),
            drain: &self.drain,
            view,
        };
        (&mut self.search, ground)
    }

    fn on_probe(&mut self, now: Moment, candidate: Candidate, view: &View<'_>) -> Option<Change> {
        let Some(base) = self.score else {
            return self.end_probe(now, view);
        };
        let hopeless = self.epoch.is_hopeless(now, base.rate, base.wall_ns);
        let waits = self.goal_ns.is_none() && self.epoch.makes_wait(&base);
        if hopeless || waits {
            return self.end_probe(now, view);
        }
        if !self.epoch.is_complete() {
            return None;
        }
        let mut score = self.epoch.score();
        self.demand.add_pair(&base, &score);
        if let Some(first) = self.confirming.take() {
            self.record_probe_difference(score.rate / first.rate.max(1e-9) - 1.0);
            score.rate = (score.rate + first.rate) / 2.0;
            score.latency_ns = (score.latency_ns + first.latency_ns) / 2.0;
        } else if self.is_close(&score, &base)
            && self.is_better(&score, &base, candidate.setting, view).is_some()
        {
            self.confirming = Some(score);
            self.epoch.restart(candidate.setting, now);
            return None;
        }
        let Some(reason) = self.is_better(&score, &base, candidate.setting, view) else {
            self.doubted = false;
            self.record.record_abandoned(candidate.setting, score.rate);
            return self.end_probe(now, view);
        };
        if self.goal_ns.is_none() && score.rate > base.rate * DOUBT && !self.doubted {
            // More likely, the base was measured at a bad moment. Measure both again in sequence.
            self.doubted = true;
            self.search.again(candidate);
            self.score = None;
            self.lasted = 0;
            let from = self.target_setting();
            self.record_difference(1.0 - base.rate / score.rate.max(1e-9));
            self.enter(now, Stage::Base);
            return Some(Change { from, to: self.base, reason: Reason::Worse });
        }
        self.doubted = false;
        let from = self.base;
        self.search.found();
        self.drain.record_in_flight(view, &score);
        let change = self.move_to(now, candidate.setting, reason);
        self.score = Some(score);
        if candidate.has_direction() {
            // Continue in a direction that improved the score.
            let (search, ground) = self.ground(view);
            search.push(candidate.step, &ground);
        }
        change.map(|change| Change { from, ..change })
    }

    /// Ends a probe, and continues with the next one or with the base.
    fn end_probe(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        self.confirming = None;
        self.record.disappoints(self.target_setting());
        if self.search.failed(self.wall_ns > VETO_NS)
            && let Some(change) = self.probe_next(now, view)
        {
            return Some(change);
        }
        let from = self.target_setting();
        self.enter(now, Stage::Base);
        Some(Change { from, to: self.base, reason: Reason::Worse })
    }

    fn move_to(&mut self, now: Moment, to: Setting, reason: Reason) -> Option<Change> {
        let from = self.target_setting();
        let moved = to != self.base;
        self.base = to;
        self.score = None;
        self.lasted = 0;
        self.confirming = None;
        self.enter(now, Stage::Base);
        self.moves += u64::from(moved);
        let change = Change { from, to, reason };
        self.last = Some(change);
        (from != to || moved).then_some(change)
    }
}
