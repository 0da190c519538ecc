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
//! Nothing here can harm safety: batch and window say only when a command leaves and with whom.

use std::{collections::VecDeque, fmt};

use crate::{
    choice::{BATCHES, Fitted, WINDOWS, batch_least},
    epoch::{Done, Epoch, Score},
    estimate::{Drained, Parameters},
    time::Moment,
};

/// How large a batch may be and how many may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// A batch is closed at this size; one larger command travels alone.
    pub batch_bytes: usize,
    /// Own batches in flight.
    pub window: usize,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            batch_bytes,
            window,
        } = self;
        if batch_bytes.is_multiple_of(1024) {
            write!(f, "{} KiB x {window}", batch_bytes >> 10)
        } else {
            write!(f, "{batch_bytes} B x {window}")
        }
    }
}

/// What a setting never exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// `--batch-max`, in bytes.
    pub batch_bytes_max: usize,
    /// `--window-max`.
    pub window_max: usize,
}

impl Bounds {
    /// The nearest setting within the bounds; both parts are at least 1.
    pub fn clamp(&self, setting: Setting) -> Setting {
        Setting {
            batch_bytes: setting.batch_bytes.clamp(1, self.batch_bytes_max.max(1)),
            window: setting.window.clamp(1, self.window_max.max(1)),
        }
    }
}

/// Why a setting was changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The way is short: from the first small step to where it starts.
    Short,
    /// The model predicts more there: parts of the predicted throughput of before.
    Model(f64),
    /// It is tried for a short while.
    Probe,
    /// It was tried and is not better: back.
    Worse,
    /// It was tried and gives more: the ratio of the throughputs.
    Faster(f64),
    /// It was tried and gives as much, sooner: the ratio of the latencies.
    Sooner(f64),
    /// It is the larger batch of two that meet the latency goal.
    Goal,
    /// Less came through than at an earlier step towards it.
    TooFar,
    /// More was on its way than a round trip needs: it only waited. Parts of what is needed.
    Queue(f64),
}

impl Reason {
    /// Whether this is part of trying things out rather than a decision.
    pub const fn is_probing(&self) -> bool {
        matches!(self, Self::Probe | Self::Worse)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the way is short"),
            Self::Model(gain) => write!(f, "the model predicts {gain:.2} x the throughput"),
            Self::Probe => f.write_str("trying"),
            Self::Worse => f.write_str("tried, not better"),
            Self::Faster(gain) => write!(f, "measured {gain:.2} x the throughput"),
            Self::Sooner(part) => write!(f, "as much, at {part:.2} x the latency"),
            Self::Goal => f.write_str("the larger batch that meets the latency goal"),
            Self::TooFar => f.write_str("less came through than at an earlier step"),
            Self::Queue(over) => {
                write!(f, "{over:.1} x what a round trip needs was on its way")
            }
        }
    }
}

/// A change of the setting, to be put in force and logged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// What was in force.
    pub from: Setting,
    /// What is from now on.
    pub to: Setting,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}: {}", self.from, self.to, self.reason)
    }
}

/// Least gain that counts, in parts, however quiet it is; and most that is asked for.
const GAIN_LEAST: f64 = 0.02;
const GAIN_MOST: f64 = 0.08;
/// A gain of latency at equal throughput must be larger, or things would swing to and fro.
const SOONER: f64 = 0.10;
/// A base that changes by so much belongs to another load.
const SHIFT: f64 = 0.25;
/// A setting that was left is tried again if it was so much better than the base is now, beyond
/// what counts as a gain; so often, for so many of them.
const AGAIN: f64 = 0.02;
const AGAIN_MOST: u32 = 3;
const SEEN_MOST: usize = 64;
/// Factors of the steps to the neighbours.
const STEPS: [f64; 3] = [4.0, 2.0, 1.5];
/// Probes in a row before the base is measured again.
const IN_A_ROW: u32 = 3;
/// Epochs of the base between probes when nothing is better; they double up to the second.
const REST: u32 = 12;
const REST_MOST: u32 = 256;
/// What may be on its way, in parts of what drains in one round trip.
const QUEUE: f64 = 2.0;
/// More than so many times that is taken back at once.
const QUEUE_MOST: f64 = 1.6;
/// Looks in a row.
const QUEUE_SEEN: u32 = 2;
/// So many commands may be on their way in any case.
const COMMANDS: f64 = 4.0;
/// It is given so long to drain.
const DRAIN_MOST_NS: f64 = 5e9;
/// Batches before it is known how long the way is: a link with a small buffer survives them. It is
/// known with the first answer to a heartbeat; nobody waits for longer than this.
const CAREFUL_BYTES: usize = 64 << 10;
const CAREFUL_NS: u64 = 300_000_000;
/// On ways shorter than this measuring is quick enough.
const JUMP_NS: f64 = 3e6;
/// The model must predict so much more.
const JUMP_GAIN: f64 = 1.15;
/// The part of what drained before that must drain after a jump.
const TOO_FAR: f64 = 0.75;
/// Jumps in a row at most.
const JUMPS: u32 = 10;
/// The model keeps the search from what it predicts to be not so good, in parts of the base: where
/// an epoch is short, where it is long and the model was right so far, and where it was not.
const VETO_SHORT: f64 = 0.6;
const VETO_LONG: f64 = 1.01;
const VETO_DOUBT: f64 = 0.4;
/// The model is trusted if the base reaches so much of what it predicts.
const TRUST: f64 = 0.85;
const VETO_NS: f64 = 30e6;
const SHORT_NS: f64 = 10e6;
/// A gain below this is measured twice, where epochs are short.
const CONFIRM: f64 = 1.15;
/// The ends of the window are tried where an epoch is not too long.
const ENDS_NS: f64 = 45e6;
/// Batches regroup for so many times what one takes, where that is short enough to be worth it.
const REGROUP_WALLS: f64 = 2.5;
const REGROUP_NS: f64 = 50e6;
const REGROUP_MOST_NS: u64 = 300_000_000;
/// What was measured so soon after a change still shows what was before it.
const SETTLE_WALLS: f64 = 2.0;
const SETTLE_NS: f64 = 25e6;
/// A window is held for one batch's time, if that is shorter than this.
const HOLD_NS: f64 = 200e6;
/// So often it is cut back before something else is thought of.
const CUTS: u32 = 3;
/// Epochs of the base after a probe that failed, where epochs are long; they double.
const PAUSE: u32 = 2;
const PAUSE_MOST: u32 = 64;
/// Ways shorter than this drain faster than anything can be decided about them.
const LONG_NS: f64 = 1e6;
/// What is on its way grows at most by this factor at a time.
const GROWTH: f64 = 4.0;

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

/// What the controller is told beside epochs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) known: &'a Parameters,
    pub(crate) drained: Option<Drained>,
    pub(crate) nodes: usize,
    /// Commands that wait or are in flight.
    pub(crate) outstanding: f64,
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
    /// Epochs of the base.
    lasted: u32,
    /// The probe is measured a second time.
    confirming: Option<Score>,
    noise: f64,
    /// Most that was on its way and did no harm, in bytes.
    grown: f64,
    queue_seen: (u64, u32),
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
            epoch: Epoch::new(base, Moment(0)),
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
            lasted: 0,
            confirming: None,
            noise: 0.0,
            grown: base.batch_bytes as f64 * base.window as f64,
            queue_seen: (0, 0),
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
        let way = view.known.round_trip_ns.map(|way| way.value);
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
        let until = |walls: f64| Moment(now.0.saturating_add((wall * walls) as u64));
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
            self.epoch.settle(until(SETTLE_WALLS));
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

    /// An epoch that was interrupted says nothing: it begins again.
    pub(crate) fn interrupted(&mut self, now: Moment) {
        let setting = self.wanted();
        self.epoch.restart(setting, now);
    }

    /// Decides, if there is something to decide.
    pub(crate) fn decide(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if let Some(wall) = view.known.wall_ns {
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

    /// Before anything was measured, on a long way: the model's choice at once, because an epoch
    /// takes several round trips. What is on its way may grow only by so much at a time, so there
    /// may be several jumps, each when the one before shows in the rate.
    fn jump(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if view.known.round_trip_ns?.value < JUMP_NS {
            return None;
        }
        let samples = view.drained.map_or(0, |drained| drained.samples);
        if self.jumps > 0 && samples < self.jumped_at + 2 {
            return None;
        }
        let fitted = Fitted::new(view.known, view.nodes, view.outstanding)?;
        let chosen = fitted.choose(&self.bounds, self.in_flight_max(view))?;
        let predicted = |setting| fitted.predict(setting).throughput;
        let gain = predicted(chosen) / predicted(self.base).max(1e-9);
        if gain < JUMP_GAIN {
            return None;
        }
        if let Some(drained) = view.drained
            && self
                .drained_most
                .is_none_or(|(_, most)| drained.rate > most)
        {
            self.drained_most = Some((self.base, drained.rate));
        }
        self.jumps += 1;
        self.jumped_at = samples;
        self.grown = self.grown.max(fitted.in_flight(chosen));
        self.move_to(now, chosen, Reason::Model(gain))
    }

    /// After jumps, none of which was measured: if less drains than before one of them, the last
    /// one went too far, into a buffer that is too small for it.
    fn check_jumps(&mut self, now: Moment, score: &Score, view: &View<'_>) -> Option<Change> {
        let command = view.known.command_bytes?.value;
        let (setting, most) = self.drained_most.take()?;
        if score.rate * command >= most * TOO_FAR || setting == self.base {
            return None;
        }
        self.jumps = JUMPS;
        self.grown = setting.batch_bytes as f64 * setting.window as f64 / GROWTH;
        self.move_to(now, setting, Reason::TooFar)
    }

    /// What is on its way beyond what drains in a round trip only waits, and may overflow a buffer.
    fn unqueue(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        let drained = view.drained?;
        let long = view.known.round_trip_ns?.value > LONG_NS;
        let (samples, over) = self.queue_seen;
        if !long || self.cuts >= CUTS {
            return None;
        }
        if drained.samples == samples || now < self.drains_until {
            return None;
        }
        let most = self.drains(view)?;
        let excess = drained.ahead / most;
        let over = if excess > QUEUE_MOST { over + 1 } else { 0 };
        self.queue_seen = (drained.samples, over);
        if over < QUEUE_SEEN {
            return None;
        }
        let fitted = Fitted::new(view.known, view.nodes, view.outstanding)?;
        let chosen = fitted.choose(&self.bounds, most)?;
        if fitted.in_flight(chosen) >= fitted.in_flight(self.wanted()) {
            return None;
        }
        self.queue_seen.1 = 0;
        self.cuts += 1;
        let drain = drained.ahead / drained.rate * 1e9 + view.known.round_trip_ns?.value;
        self.drains_until = Moment(now.0 + (2.0 * drain).min(DRAIN_MOST_NS) as u64);
        self.grown = most;
        let cuts = self.cuts;
        self.forget();
        (self.cuts, self.jumps) = (cuts, JUMPS);
        self.move_to(now, chosen, Reason::Queue(excess * QUEUE))
    }

    /// What may be on its way where the way is long: what drains in a few round trips.
    fn drains(&self, view: &View<'_>) -> Option<f64> {
        let drained = view.drained?;
        let way = view.known.round_trip_ns?.value;
        if way < LONG_NS {
            return None;
        }
        let flush = view.known.flush_ns.map_or(0.0, |flush| flush.value);
        let command = view.known.command_bytes?.value;
        Some((QUEUE * drained.rate * (way + 2.0 * flush) / 1e9).max(COMMANDS * command))
    }

    fn in_flight_max(&self, view: &View<'_>) -> f64 {
        match self.drains(view) {
            Some(drains) => drains.min(self.grown * GROWTH),
            None if view
                .known
                .round_trip_ns
                .is_some_and(|way| way.value > LONG_NS) =>
            {
                self.grown
            }
            None => self.grown * GROWTH,
        }
    }

    fn on_base(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if !self.epoch.is_complete() {
            return None;
        }
        let score = self.epoch.score();
        self.epoch.restart(self.base, now);
        self.in_a_row = 0;
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

    /// Keeps the best base that lasted. What was better for one epoch may not be in the long run:
    /// then back to it.
    fn remember(&mut self) {
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
    fn try_again(&mut self) {
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

    fn see(&mut self, setting: Setting, rate: f64) {
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

    fn learn(&mut self, view: &View<'_>, score: &Score) {
        let command = view.known.command_bytes.map_or(0.0, |bytes| bytes.value);
        let outstanding = view.outstanding * command;
        let used = score.bytes_most as f64 * score.in_flight_most as f64;
        self.grown = self.grown.max(used.min(outstanding));
    }

    /// The base was measured before: smooth it, or see that the load is another one.
    fn compare_with_itself(&mut self, old: &Score, new: &Score) {
        let off = (new.rate - old.rate) / old.rate.max(1e-9);
        if off.abs() > SHIFT {
            self.shifted += 1;
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
        self.noise += 0.2 * (off.abs() - self.noise);
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
    fn forget(&mut self) {
        self.shifted = 0;
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

    fn gain(&self) -> f64 {
        (1.5 * self.noise).clamp(GAIN_LEAST, GAIN_MOST)
    }

    fn on_probe(&mut self, now: Moment, candidate: Candidate, view: &View<'_>) -> Option<Change> {
        let Some(base) = self.score else {
            return self.back(now, view);
        };
        if self.epoch.is_hopeless(now, base.rate, base.wall_ns) {
            return self.back(now, view);
        }
        if !self.epoch.is_complete() {
            return None;
        }
        let mut score = self.epoch.score();
        if let Some(first) = self.confirming.take() {
            score.rate = (score.rate + first.rate) / 2.0;
            score.latency_ns = (score.latency_ns + first.latency_ns) / 2.0;
        } else if self.is_close(&score, &base)
            && self.is_better(&score, &base, candidate.setting).is_some()
        {
            self.confirming = Some(score);
            self.epoch.restart(candidate.setting, now);
            return None;
        }
        let Some(reason) = self.is_better(&score, &base, candidate.setting) else {
            self.see(candidate.setting, score.rate);
            return self.back(now, view);
        };
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

    /// Too close to call after one epoch, and another one is cheap.
    fn is_close(&self, new: &Score, old: &Score) -> bool {
        new.rate < old.rate * CONFIRM && old.wall_ns < VETO_NS
    }

    fn is_better(&self, new: &Score, old: &Score, setting: Setting) -> Option<Reason> {
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
                return (ratio > 1.0 + gain).then_some(Reason::Faster(ratio));
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
        (as_much && sooner < 1.0 - SOONER).then_some(Reason::Sooner(sooner))
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

    /// Starts the next probe, if there is one.
    fn probe_next(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
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

    fn refill(&mut self, view: &View<'_>) {
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
        } else if self.rest > REST {
            // One at a time from now on.
            self.rest_left = self.rest / 2;
        }
    }

    /// One or two batches at a time take all that waits; the widest window nothing of it. And the
    /// largest batch, for what was split before and should gather.
    fn push_ends(&mut self, view: &View<'_>) {
        let all = self.bounds.batch_bytes_max;
        let Setting {
            batch_bytes,
            window,
        } = self.base;
        let most = self.bounds.window_max;
        let ends = [(all, window), (all, 1), (all, 2), (batch_bytes, most)];
        let gathers = if self.wall_ns < REGROUP_NS { 1 } else { 0 };
        let count = if self.wall_ns < ENDS_NS {
            ends.len()
        } else {
            gathers
        };
        for (number, &(batch_bytes, window)) in ends[..count].iter().enumerate() {
            let setting = Setting {
                batch_bytes,
                window,
            };
            match number {
                // The model knows nothing of what gathers.
                0 => self.push_anyway(setting, (1.0, 1.0), view),
                _ => self.push_setting(setting, (1.0, 1.0), view),
            }
        }
    }

    fn ask_model(&mut self, view: &View<'_>) {
        if self.model_asked {
            return;
        }
        let Some(fitted) = Fitted::new(view.known, view.nodes, view.outstanding) else {
            return;
        };
        self.model_asked = true;
        if let Some(chosen) = fitted.choose(&self.bounds, self.in_flight_max(view)) {
            self.push_setting(chosen, (1.0, 1.0), view);
        }
    }

    /// A neighbour of the base. What has no effect is not tried: batches that are never full need
    /// no more room, and less room begins below what they have.
    fn push(&mut self, step: (f64, f64), view: &View<'_>) {
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

    fn push_setting(&mut self, setting: Setting, step: (f64, f64), view: &View<'_>) {
        if !self.is_vetoed(setting, view) {
            self.push_anyway(setting, step, view);
        }
    }

    /// As far as it is within the bounds and not known already.
    fn push_anyway(&mut self, setting: Setting, step: (f64, f64), view: &View<'_>) {
        let command = view.known.command_bytes.map_or(1.0, |bytes| bytes.value);
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
}

impl Controller {
    /// Whether the model predicts so much less that an epoch would be wasted.
    fn is_vetoed(&self, setting: Setting, view: &View<'_>) -> bool {
        let Some(score) = self.score else {
            return false;
        };
        let Some(fitted) = Fitted::new(view.known, view.nodes, view.outstanding) else {
            return false;
        };
        let base = fitted.predict(self.base).throughput;
        let trusted = score.rate > base * TRUST;
        let way = view.known.round_trip_ns.map_or(0.0, |way| way.value);
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
