//! Open or closed load: whether clients send at a fixed rate, or as fast as they get replies.
//!
//! By Little's law a fixed number of clients achieves more throughput the less it waits: the
//! logarithm of the throughput falls with slope −1 over that of the latency. The throughput of
//! commands that arrive regardless of latency does not depend on it, so the slope is 0. Clients
//! that pause between two commands lie in between.

use super::{
    Controller,
    view::{JUMP_NS, View},
};
use crate::{
    epoch::Score,
    setting::{Change, Reason, Setting},
    time::Moment,
};

/// Factor by which the weight of earlier pairs of measurements decays with each new pair.
const FADES: f64 = 0.95;
/// Minimum sum of squared logarithms of latency ratios before a slope is trusted.
const ENOUGH: f64 = 0.6;
/// A load with this slope or a flatter one gains nothing from another setting.
const FLAT: f64 = -0.2;
/// A load with this slope or a steeper one consists of clients that wait for replies.
const STEEP: f64 = -0.6;
/// Upper limit for the influence of one measurement, as a logarithm.
const MOST: f64 = 1.0;
/// Space that counts as ample, as a multiple of the commands in flight.
const SPARE: f64 = 8.0;
/// Fraction of full batches above which batches may be too small.
const FULL: f64 = 0.1;

/// Sums of a regression through the origin, of throughput over latency.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    latencies: f64,
    both: f64,
}

impl Demand {
    /// Adds two measurements of the same load, under two settings or one.
    pub(super) fn add_pair(&mut self, old: &Score, new: &Score) {
        let part = |new: f64, old: f64| (new.max(1e-9) / old.max(1e-9)).ln().clamp(-MOST, MOST);
        let latency = part(new.latency_ns, old.latency_ns);
        let rate = part(new.rate, old.rate);
        self.latencies = self.latencies * FADES + latency * latency;
        self.both = self.both * FADES + latency * rate;
    }

    fn is_open(&self) -> bool {
        self.latencies > ENOUGH && self.both / self.latencies > FLAT
    }

    /// Returns whether clients send more when they wait less, as far as the measurements show.
    pub(super) fn is_closed(&self) -> bool {
        self.latencies > ENOUGH && self.both / self.latencies < STEEP
    }
}

impl Controller {
    /// Reacts to commands that begin to queue up. This is a change of load even if the throughput
    /// does not change. The best setting for few commands may be far too small for many. On a link
    /// with a high round-trip time nothing changes, because more space would lengthen an existing
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

    /// Reacts to an open load. Commands arrive regardless of the setting, so too little space only
    /// makes them wait.
    pub(super) fn on_open_load(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if !is_short(view) || self.goal_ns.is_some() || !self.demand.is_open() {
            return None;
        }
        let change = self.make_room(now)?;
        self.search.clear();
        Some(change)
    }

    /// Returns whether the setting has ample space compared with the commands in flight under
    /// `base`, so that a backlog drains quickly after a pause.
    pub(super) fn is_roomy(&self, setting: Setting, base: &Score, view: &View<'_>) -> bool {
        let command = view.known().command_bytes.map_or(0.0, |bytes| bytes.value);
        let in_flight = base.rate * base.wall_ns * 1e-9 * command;
        (setting.batch_bytes * setting.window) as f64 >= SPARE * in_flight
    }

    /// Moves to a setting with enough space for nearly any load, unless the base already has that
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
