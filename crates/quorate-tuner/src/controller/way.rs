//! Where the way is long: jumps instead of steps, and never more on its way than drains.

use super::{Controller, JUMP_NS, JUMPS, View};
use crate::{
    choice::Fitted,
    epoch::Score,
    setting::{Change, Reason},
    time::Moment,
};

/// What may be on its way, in parts of what drains in one round trip.
const QUEUE: f64 = 2.0;
/// More than so many times that is taken back at once.
const QUEUE_MOST: f64 = 1.6;
/// Looks in a row.
const QUEUE_SEEN: u32 = 2;
/// Round trips at least.
const QUEUE_WAYS: f64 = 2.0;
/// So many commands may be on their way in any case.
const COMMANDS: f64 = 4.0;
/// It is given so long to drain.
const DRAIN_MOST_NS: f64 = 5e9;
/// The model must predict so much more.
const JUMP_GAIN: f64 = 1.15;
/// The part of what drained before that must drain after a jump.
const TOO_FAR: f64 = 0.75;
/// So often it is cut back before something else is thought of.
const CUTS: u32 = 3;
/// Ways shorter than this drain faster than anything can be decided about them.
const LONG_NS: f64 = 1e6;
/// What is on its way grows at most by this factor at a time.
const GROWTH: f64 = 4.0;

impl Controller {
    /// Before anything was measured, on a long way: the model's choice at once, because an epoch
    /// takes several round trips. What is on its way may grow only by so much at a time, so there
    /// may be several jumps, each when the one before shows in the rate.
    pub(super) fn jump(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if view.round_trip_ns()? < JUMP_NS {
            return None;
        }
        let samples = view.drained().map_or(0, |drained| drained.samples);
        if self.jumps > 0 && samples < self.jumped_at + 2 {
            return None;
        }
        let fitted = Fitted::new(view.known(), view.nodes, view.outstanding)?;
        let chosen = fitted.choose(&self.bounds, self.in_flight_max(view))?;
        let predicted = |setting| fitted.predict(setting).throughput;
        let gain = predicted(chosen) / predicted(self.base).max(1e-9);
        if gain < JUMP_GAIN {
            return None;
        }
        if let Some(drained) = view.drained()
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
    pub(super) fn check_jumps(
        &mut self,
        now: Moment,
        score: &Score,
        view: &View<'_>,
    ) -> Option<Change> {
        let command = view.known().command_bytes?.value;
        let (setting, most) = self.drained_most.take()?;
        if score.rate * command >= most * TOO_FAR || setting == self.base {
            return None;
        }
        self.jumps = JUMPS;
        self.grown = setting.batch_bytes as f64 * setting.window as f64 / GROWTH;
        self.move_to(now, setting, Reason::TooFar)
    }

    /// What is on its way beyond what drains in a round trip only waits, and may overflow a buffer.
    pub(super) fn unqueue(&mut self, now: Moment, view: &View<'_>) -> Option<Change> {
        if self.cuts >= CUTS || view.round_trip_ns()? <= LONG_NS {
            return None;
        }
        let drained = view.drained()?;
        let (samples, over) = self.queue_seen;
        if drained.samples == samples || now < self.drains_until {
            return None;
        }
        let most = self.drains(view)?;
        let excess = drained.ahead / most;
        let over = if excess > QUEUE_MOST { over + 1 } else { 0 };
        self.queue_seen = (drained.samples, over);
        if over <= 1 {
            self.over_since = now;
        }
        // A load that just came drains no sooner than a round trip later, and that shows in the rate
        // after another one.
        let patience = QUEUE_WAYS * view.round_trip_ns()?;
        if over < QUEUE_SEEN || (now.since(self.over_since) as f64) < patience {
            return None;
        }
        let fitted = Fitted::new(view.known(), view.nodes, view.outstanding)?;
        let chosen = fitted.choose(&self.bounds, most)?;
        if fitted.in_flight(chosen) >= fitted.in_flight(self.wanted()) {
            return None;
        }
        self.queue_seen.1 = 0;
        self.cuts += 1;
        let drain = drained.ahead / drained.rate * 1e9 + view.round_trip_ns()?;
        self.drains_until = Moment(now.0 + (2.0 * drain).min(DRAIN_MOST_NS) as u64);
        self.grown = most;
        let cuts = self.cuts;
        self.forget();
        (self.cuts, self.jumps) = (cuts, JUMPS);
        self.move_to(now, chosen, Reason::Queue(excess * QUEUE))
    }

    /// What may be on its way where the way is long: what drains in a few round trips.
    pub(super) fn drains(&self, view: &View<'_>) -> Option<f64> {
        let drained = view.drained()?;
        let way = view.round_trip_ns()?;
        if way < LONG_NS {
            return None;
        }
        let flush = view.known().flush_ns.map_or(0.0, |flush| flush.value);
        let command = view.known().command_bytes?.value;
        Some((QUEUE * drained.rate * (way + 2.0 * flush) / 1e9).max(COMMANDS * command))
    }

    pub(super) fn in_flight_max(&self, view: &View<'_>) -> f64 {
        match self.drains(view) {
            Some(drains) => drains.min(self.grown * GROWTH),
            None if view.round_trip_ns().is_some_and(|way| way > LONG_NS) => self.grown,
            None => self.grown * GROWTH,
        }
    }
}
