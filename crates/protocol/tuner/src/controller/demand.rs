//! Open or closed load: do clients ask for a fixed rate, or for as much as they get?
//!
//! By Little's law a fixed number of clients gets more throughput as it waits less: the logarithm
//! of the throughput falls with slope −1 over that of the latency. Commands that arrive regardless
//! of latency are all answered: slope 0. Clients that pause between two commands lie in between.

use super::{
    Controller,
    view::{JUMP_NS, View},
};
use crate::{
    epoch::Score,
    setting::{Change, Reason, Setting},
    time::Moment,
};

/// Weight of an older pair of measurements relative to the next one.
const FADES: f64 = 0.95;
/// Squares of logarithms of latencies: less tells nothing.
const ENOUGH: f64 = 0.6;
/// A load of this slope or flatter cannot gain from another setting.
const FLAT: f64 = -0.2;
/// Clients that wait for replies show this slope or a steeper one.
const STEEP: f64 = -0.6;
/// One measurement is not everything, in logarithms.
const MOST: f64 = 1.0;
/// Times what is in flight.
const SPARE: f64 = 8.0;
/// The part of full batches from which on they may be too small.
const FULL: f64 = 0.1;

/// Sums of a regression through the origin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    latencies: f64,
    both: f64,
}

impl Demand {
    /// Two measurements of one load, under two settings or the same.
    pub(super) fn hear(&mut self, old: &Score, new: &Score) {
        let part = |new: f64, old: f64| (new.max(1e-9) / old.max(1e-9)).ln().clamp(-MOST, MOST);
        let latency = part(new.latency_ns, old.latency_ns);
        let rate = part(new.rate, old.rate);
        self.latencies = self.latencies * FADES + latency * latency;
        self.both = self.both * FADES + latency * rate;
    }

    fn is_open(&self) -> bool {
        self.latencies > ENOUGH && self.both / self.latencies > FLAT
    }

    /// Returns whether clients get more when they wait less, as far as the samples show.
    pub(super) fn is_closed(&self) -> bool {
        self.latencies > ENOUGH && self.both / self.latencies < STEEP
    }
}

impl Controller {
    /// Commands pile up where they did not: another load, even if no more of them come through.
    /// What was best for a few may be far too small for many. On a link with a high round-trip time
    /// more room would come on top of what is there already.
    pub(super) fn on_crowd(&mut self, now: Moment, new: &Score, view: &View<'_>) -> Option<Change> {
        let crowd = new.piles() && self.score.is_some_and(|score| !score.piles());
        if !is_short(view) || !crowd || self.goal_ns.is_some() {
            return None;
        }
        let change = self.make_room(now)?;
        self.forget();
        Some(change)
    }

    /// As many commands come whatever is done: too little room can only make them wait.
    pub(super) fn on_open_load(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if !is_short(view) || self.goal_ns.is_some() || !self.demand.is_open() {
            return None;
        }
        let change = self.make_room(now)?;
        self.search.clear();
        Some(change)
    }

    /// Room for many times what is in flight under `base`, so that a pause is made good quickly.
    pub(super) fn is_roomy(&self, setting: Setting, base: &Score, view: &View<'_>) -> bool {
        let command = view.known().command_bytes.map_or(0.0, |bytes| bytes.value);
        let in_flight = base.rate * base.wall_ns * 1e-9 * command;
        (setting.batch_bytes * setting.window) as f64 >= SPARE * in_flight
    }

    /// At least as much as nearly any load needs.
    pub(super) fn make_room(&mut self, now: Moment) -> Option<Change> {
        let room = |setting: Setting| setting.batch_bytes.saturating_mul(setting.window);
        let roomy = self.bounds.clamp(Setting::ROOMY);
        if room(self.base) >= room(roomy) {
            return None;
        }
        self.move_to(now, roomy, Reason::Room)
    }

    /// Returns whether load is independent of the setting and nothing holds it up: there is nothing
    /// to gain, and a smaller setting would make clients wait.
    pub(super) fn is_at_ease(&self) -> bool {
        let holds_nothing_up = |score: Score| score.full < FULL && !score.piles();
        self.goal_ns.is_none() && self.demand.is_open() && self.score.is_some_and(holds_nothing_up)
    }
}

/// With a high round-trip time what is in flight has bounds of its own.
fn is_short(view: &View<'_>) -> bool {
    view.round_trip_ns().is_some_and(|round_trip| round_trip < JUMP_NS)
}
