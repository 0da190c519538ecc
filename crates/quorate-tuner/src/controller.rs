//! Batch and window, set by what was measured: a bounded search that the model starts.
//!
//! A setting is measured for an *epoch* ([`crate::epoch`]); the one in force is the *base*. Every
//! now and then another one is tried for an epoch, a *probe*: it becomes the base if it is better by
//! more than the noise, and is left at once if it is much worse. Probes come
//!
//! 1. from the model ([`crate::choice`]), as soon as it knows enough;
//! 2. from the ends of the window, once: throughput over the window may have two hills;
//! 3. from the neighbours of the base, in steps of 4, 2 and 1.5, until none is better;
//! 4. then rarely, and ever more rarely, from the neighbours again.
//!
//! A load that changed begins the search anew. Where the way is long, what is on its way is bounded
//! by what the channel drains in one round trip, so that a link's buffer never overflows; what
//! exceeds it is taken back at once.
//!
//! Here: which stage it is in. What is tried next is in `probes`, what a measurement means in
//! `judge`, whether there is anything to gain in `demand`, what long ways need in `way`.
//!
//! Nothing here can harm safety: batch and window say only when a command leaves and with whom.

mod demand;
mod judge;
mod probes;
mod way;

use std::{cell::OnceCell, collections::VecDeque};

use self::demand::Demand;
use crate::{
    epoch::{Done, Epoch, Score},
    estimate::{Drained, Estimator, Parameters},
    setting::{Bounds, Change, Reason, Setting},
    time::Moment,
};

/// Probes in a row before the base is measured again.
const IN_A_ROW: u32 = 3;
/// Epochs of the base between probes when nothing is better; they double up to the second.
const REST: u32 = 12;
/// Batches before it is known how long the way is: a link with a small buffer survives them. It is
/// known with the first answer to a heartbeat; nobody waits for longer than this.
const CAREFUL_BYTES: usize = 64 << 10;
const CAREFUL_NS: u64 = 300_000_000;
/// A probe that seems so many times better asks for a second look at the base.
const DOUBT: f64 = 1.3;
/// On ways shorter than this measuring is quick enough.
const JUMP_NS: f64 = 3e6;
/// Jumps in a row at most.
const JUMPS: u32 = 10;
const VETO_NS: f64 = 30e6;
/// Batches regroup for so many times what one takes, where that is short enough to be worth it.
const REGROUP_WALLS: f64 = 2.5;
const REGROUP_NS: f64 = 50e6;
const REGROUP_MOST_NS: u64 = 300_000_000;
/// What was measured so soon after a change still shows what was before it.
const SETTLE_WALLS: f64 = 2.0;
const SETTLE_NS: f64 = 25e6;
/// A window is held for one batch's time, if that is shorter than this.
const HOLD_NS: f64 = 200e6;
/// Epochs of the base after a probe that failed, where epochs are long; they double.
const PAUSE: u32 = 2;
const PAUSE_MOST: u32 = 64;

/// A setting that was measured and left.
#[derive(Clone, Copy, Debug)]
struct Seen {
    setting: Setting,
    rate: f64,
    again: u32,
}

/// Which way a probe went, to go on in case it helped.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    setting: Setting,
    /// Factors of batch and window that led here from the base; 1 and 1 if it was a jump.
    step: (f64, f64),
}

impl Candidate {
    const fn jump(setting: Setting) -> Self {
        Self {
            setting,
            step: (1.0, 1.0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Measuring the base.
    Base,
    /// Measuring something else.
    Probe(Candidate),
}

/// What the controller is told beside epochs. Worked out when it is asked for: most looks ask for
/// next to nothing.
#[derive(Debug)]
pub(crate) struct View<'a> {
    estimator: &'a Estimator,
    known: OnceCell<Parameters>,
    nodes: usize,
    /// Commands that wait or are in flight.
    outstanding: f64,
}

impl<'a> View<'a> {
    pub(crate) const fn new(estimator: &'a Estimator, nodes: usize, outstanding: f64) -> Self {
        Self {
            estimator,
            known: OnceCell::new(),
            nodes,
            outstanding,
        }
    }

    fn known(&self) -> &Parameters {
        self.known.get_or_init(|| self.estimator.parameters())
    }

    fn round_trip_ns(&self) -> Option<f64> {
        self.estimator.round_trip().map(|way| way.value)
    }

    fn drained(&self) -> Option<Drained> {
        self.estimator.drained()
    }
}

/// The search.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    bounds: Bounds,
    goal_ns: Option<f64>,
    /// Where to start in earnest, while it is not known how long the way is.
    careful: Option<Setting>,
    began: Option<Moment>,
    base: Setting,
    score: Option<Score>,
    /// The best base that lasted, and its throughput.
    record: Option<(Setting, f64)>,
    /// Jumps to the model's choice since the search began.
    jumps: u32,
    /// Times that it was cut back because of a queue, since then.
    cuts: u32,
    /// Epochs of the base after the next probe that fails, where epochs are long.
    pause: u32,
    /// Looks at the channels' rates at the last jump.
    jumped_at: u64,
    /// Of the settings that it jumped from, the one that drained most, in bytes per second.
    drained_most: Option<(Setting, f64)>,
    stage: Stage,
    epoch: Epoch,
    queue: VecDeque<Candidate>,
    tried: Vec<Setting>,
    /// What was measured of settings that did not become the base, and how often that was tried
    /// again.
    seen: Vec<Seen>,
    step: usize,
    ends_tried: bool,
    model_asked: bool,
    in_a_row: u32,
    rest: u32,
    rest_left: u32,
    shifted: u32,
    /// Whether as many commands come whatever the setting is.
    demand: Demand,
    /// Epochs of the base.
    lasted: u32,
    /// The probe is measured a second time.
    confirming: Option<Score>,
    /// The base was measured again because a probe seemed far too good.
    doubted: bool,
    noise: f64,
    /// Most that was on its way and did no harm, in bytes.
    grown: f64,
    queue_seen: (u64, u32),
    /// Since when it has been too much.
    over_since: Moment,
    /// What was on its way when it was too much has not drained before.
    drains_until: Moment,
    /// With fewer batches in flight until then: what was split gathers again, or what was on its
    /// way before makes room.
    regroups_until: Option<(Moment, usize)>,
    /// What a batch took lately.
    wall_ns: f64,
    moves: u64,
    last: Option<Change>,
}

impl Controller {
    pub(crate) fn new(bounds: Bounds, goal_ns: Option<u64>, start: Setting) -> Self {
        let start = bounds.clamp(start);
        let base = Setting {
            batch_bytes: start.batch_bytes.min(CAREFUL_BYTES),
            ..start
        };
        let mut epoch = Epoch::new(base, Moment(0));
        if goal_ns.is_some() {
            epoch.last_for_percentile();
        }
        Self {
            careful: Some(start),
            began: None,
            bounds,
            goal_ns: goal_ns.map(|ns| ns as f64),
            base,
            score: None,
            record: None,
            jumps: 0,
            cuts: 0,
            pause: PAUSE,
            jumped_at: 0,
            drained_most: None,
            stage: Stage::Base,
            epoch,
            queue: VecDeque::new(),
            tried: Vec::new(),
            seen: Vec::new(),
            step: 0,
            ends_tried: false,
            model_asked: false,
            in_a_row: 0,
            rest: REST,
            rest_left: 0,
            shifted: 0,
            demand: Demand::default(),
            lasted: 0,
            confirming: None,
            doubted: false,
            noise: 0.0,
            grown: base.batch_bytes as f64 * base.window as f64,
            queue_seen: (0, 0),
            over_since: Moment(0),
            drains_until: Moment(0),
            regroups_until: None,
            wall_ns: f64::INFINITY,
            moves: 0,
            last: None,
        }
    }

    /// The first step: as small as on a long way, until it is known that the way is short.
    fn begin(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        let start = self.careful?;
        let since = *self.began.get_or_insert(now);
        let way = view.round_trip_ns();
        if way.is_none() && now.since(since) < CAREFUL_NS {
            return None;
        }
        self.careful = None;
        if way.is_some_and(|way| way >= JUMP_NS) || start == self.base {
            return None;
        }
        self.grown = start.batch_bytes as f64 * start.window as f64;
        let change = self.move_to(now, start, Reason::Short);
        // Commands came in small groups so far, and no batch ended yet that would tell.
        let moment = way.map_or(0.0, |way| 3.0 * way);
        self.regroups_until = Some((Moment(now.0.saturating_add(moment as u64)), 1));
        change
    }

    /// What is in force.
    pub(crate) fn setting(&self) -> Setting {
        let wanted = self.wanted();
        match self.regroups_until {
            Some((_, window)) => Setting { window, ..wanted },
            None => wanted,
        }
    }

    /// What is in force, or will be as soon as batches have gathered.
    fn wanted(&self) -> Setting {
        match self.stage {
            Stage::Base => self.base,
            Stage::Probe(candidate) => candidate.setting,
        }
    }

    /// Another stage, measured from now on. Commands that were split into small batches come back
    /// in small groups, and would go on so for long with larger ones: for a moment, one batch at a
    /// time may leave, so that the rest gathers.
    fn enter(&mut self, now: Moment, stage: Stage) {
        let from = self.wanted();
        self.stage = stage;
        let to = self.wanted();
        let split = from.batch_bytes < to.batch_bytes
            && (self.epoch.is_split() || to.batch_bytes == self.bounds.batch_bytes_max);
        let wall = self.wall_ns;
        let until = |walls| self.walls_later(now, walls);
        // The batches of before are still on their way: a wider window of smaller ones would come
        // on top of them.
        let on_top = to.window > from.window && to.batch_bytes < from.batch_bytes;
        self.regroups_until = match () {
            () if split && to.window > 1 && wall < REGROUP_NS => Some((until(REGROUP_WALLS), 1)),
            () if on_top && wall < HOLD_NS => Some((until(1.0), from.window)),
            () => None,
        };
        self.epoch.restart(to, now);
        let piles = self.score.is_some_and(|score| score.piles());
        if piles && wall < SETTLE_NS {
            self.epoch.settle(self.walls_later(now, SETTLE_WALLS));
        }
    }

    pub(crate) fn score(&self) -> Option<&Score> {
        self.score.as_ref()
    }

    /// The last change that was not part of a probe.
    pub(crate) fn last(&self) -> Option<&Change> {
        self.last.as_ref()
    }

    /// How often the base changed.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    pub(crate) fn on_turn(&mut self, waiting: usize, in_flight: usize) {
        self.epoch.on_turn(waiting, in_flight);
    }

    pub(crate) fn on_done(&mut self, now: Moment, done: &Done) {
        self.epoch.on_done(now, done);
    }

    /// An epoch that was interrupted says nothing: it begins again, behind the commands that waited
    /// meanwhile.
    pub(crate) fn interrupted(&mut self, now: Moment) {
        let setting = self.wanted();
        self.epoch.restart(setting, now);
        if self.wall_ns < SETTLE_NS {
            self.epoch.settle(self.walls_later(now, SETTLE_WALLS));
        }
    }

    /// So many times later what a batch takes.
    fn walls_later(&self, now: Moment, walls: f64) -> Moment {
        Moment(now.0.saturating_add((self.wall_ns * walls) as u64))
    }

    /// Decides, if there is something to decide.
    pub(crate) fn decide(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if let Some(wall) = view.estimator.wall() {
            self.wall_ns = wall.value;
        }
        if let Some((until, _)) = self.regroups_until {
            if now >= until || until.since(now) > REGROUP_MOST_NS {
                self.regroups_until = None;
                self.epoch.restart(self.wanted(), now);
            }
            return None;
        }
        if let Some(change) = self.begin(now, view) {
            return Some(change);
        }
        if self.careful.is_some() {
            return None;
        }
        if let Some(change) = self.unqueue(now, view) {
            return Some(change);
        }
        match self.stage {
            Stage::Base if self.score.is_none() && self.jumps < JUMPS => {
                if let Some(change) = self.jump(now, view) {
                    return Some(change);
                }
                self.on_base(now, view)
            }
            Stage::Base => self.on_base(now, view),
            Stage::Probe(candidate) => self.on_probe(now, candidate, view),
        }
    }

    fn on_base(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if !self.epoch.is_complete() {
            return None;
        }
        let score = self.epoch.score();
        self.epoch.restart(self.base, now);
        self.in_a_row = 0;
        if let Some(change) = self.on_crowd(now, &score, view) {
            return Some(change);
        }
        self.learn(view, &score);
        self.lasted += 1;
        match self.score {
            Some(old) if self.lasted > 1 => self.compare_with_itself(&old, &score),
            // What a probe promised is what a setting does at first, and the luckiest of several
            // measurements. The first epoch as the base counts instead.
            _ => self.score = Some(score),
        }
        self.remember();
        self.try_again();
        if let Some(change) = self.check_jumps(now, &score, view) {
            return Some(change);
        }
        if self.rest_left > 0 {
            self.rest_left -= 1;
            return None;
        }
        self.probe_next(now, view)
    }

    fn on_probe(&mut self, now: Moment, candidate: Candidate, view: &View<'_>) -> Option<Change> {
        let Some(base) = self.score else {
            return self.back(now, view);
        };
        let hopeless = self.epoch.is_hopeless(now, base.rate, base.wall_ns);
        let waits = self.goal_ns.is_none() && self.epoch.makes_wait(&base);
        if hopeless || waits {
            return self.back(now, view);
        }
        if !self.epoch.is_complete() {
            return None;
        }
        let mut score = self.epoch.score();
        self.demand.hear(&base, &score);
        if let Some(first) = self.confirming.take() {
            self.hear_probe(score.rate / first.rate.max(1e-9) - 1.0);
            score.rate = (score.rate + first.rate) / 2.0;
            score.latency_ns = (score.latency_ns + first.latency_ns) / 2.0;
        } else if self.is_close(&score, &base)
            && self
                .is_better(&score, &base, candidate.setting, view)
                .is_some()
        {
            self.confirming = Some(score);
            self.epoch.restart(candidate.setting, now);
            return None;
        }
        let Some(reason) = self.is_better(&score, &base, candidate.setting, view) else {
            self.doubted = false;
            self.see(candidate.setting, score.rate);
            return self.back(now, view);
        };
        if self.goal_ns.is_none() && score.rate > base.rate * DOUBT && !self.doubted {
            // More likely the base was measured in a bad moment: both again, one after the other.
            self.doubted = true;
            self.queue.push_front(candidate);
            self.score = None;
            self.lasted = 0;
            self.rest_left = 0;
            let from = self.wanted();
            self.hear(1.0 - base.rate / score.rate.max(1e-9));
            self.enter(now, Stage::Base);
            return Some(Change {
                from,
                to: self.base,
                reason: Reason::Worse,
            });
        }
        self.doubted = false;
        let from = self.base;
        self.queue.clear();
        self.rest = REST;
        self.rest_left = 0;
        self.learn(view, &score);
        let change = self.move_to(now, candidate.setting, reason);
        self.score = Some(score);
        if candidate.step != (1.0, 1.0) {
            // What helped once may help again.
            self.push(candidate.step, view);
        }
        change.map(|change| Change { from, ..change })
    }

    /// Leaves a probe: for the next one, or for the base.
    fn back(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        self.confirming = None;
        if let Some((setting, _)) = self.record
            && setting == self.wanted()
        {
            // It is not what it was.
            self.record = None;
        }
        self.in_a_row += 1;
        if self.wall_ns > VETO_NS {
            self.rest_left = self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MOST);
        }
        if self.in_a_row < IN_A_ROW
            && self.rest == REST
            && self.rest_left == 0
            && let Some(change) = self.probe_next(now, view)
        {
            return Some(change);
        }
        let from = self.wanted();
        self.enter(now, Stage::Base);
        Some(Change {
            from,
            to: self.base,
            reason: Reason::Worse,
        })
    }

    fn move_to(&mut self, now: Moment, to: Setting, reason: Reason) -> Option<Change> {
        let from = self.wanted();
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
