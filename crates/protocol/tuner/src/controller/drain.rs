//! Control of links with a high round-trip time: jumps instead of steps, and never more bytes in
//! flight than the link drains.

use super::view::{JUMP_NS, View};
use crate::{
    choice::Fitted,
    epoch::Score,
    setting::{Bounds, Setting},
    time::Moment,
};

/// Maximum number of bytes in flight, as a multiple of the bytes that drain in one round trip.
const QUEUE: f64 = 2.0;
/// Factor by which the bytes in flight must exceed the maximum for the setting to be reduced.
const QUEUE_MOST: f64 = 1.6;
/// Number of consecutive rate samples that must show the excess.
const QUEUE_SEEN: u32 = 2;
/// Minimum duration of the excess, as a number of round trips.
const QUEUE_ROUND_TRIPS: f64 = 2.0;
/// Number of commands that may be in flight even if their bytes exceed the maximum.
const COMMANDS: f64 = 4.0;
/// Maximum time to wait for the excess to drain, in nanoseconds.
const DRAIN_MOST_NS: f64 = 5e9;
/// Minimum predicted throughput gain for a jump, as a factor.
const JUMP_GAIN: f64 = 1.15;
/// Fraction of the previous throughput below which a jump counts as having gone too far.
const TOO_FAR: f64 = 0.75;
/// Maximum number of reductions before the search tries something else.
const CUTS: u32 = 3;
/// Minimum round trip in nanoseconds for which the limits apply. Links with a shorter round trip
/// drain faster than a decision can be made.
const LONG_NS: f64 = 1e6;
/// Maximum factor by which the bytes in flight grow in one jump.
const GROWTH: f64 = 4.0;

/// Maximum number of jumps in one search.
const JUMPS: u32 = 10;

/// Bytes in flight in the past, and their effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// Highest number of bytes in flight that has done no harm.
    grown: f64,
    /// Number of jumps to the model's choice since the search began.
    jumps: u32,
    /// Number of rate samples at the last jump.
    jumped_at: u64,
    /// Setting with the highest throughput among those that jumps have left, and that throughput in
    /// bytes per second.
    drained_most: Option<(Setting, f64)>,
    /// Number of reductions made because of a queue, since the search began.
    cuts: u32,
    /// Number of rate samples at the last check, and the number of consecutive samples that showed
    /// an excess.
    queue_seen: (u64, u32),
    /// Start of the current excess.
    over_since: Moment,
    /// Time by which the excess should have drained.
    drains_until: Moment,
}

impl Drain {
    /// Creates the state with nothing in flight. The setting `start` counts as harmless.
    pub(super) fn new(start: Setting) -> Self {
        Self {
            grown: bytes(start),
            jumps: 0,
            jumped_at: 0,
            drained_most: None,
            cuts: 0,
            queue_seen: (0, 0),
            over_since: Moment(0),
            drains_until: Moment(0),
        }
    }

    /// Resets the counts for a new search.
    pub(super) fn forget(&mut self) {
        self.cuts = 0;
        self.jumps = 0;
    }

    pub(super) fn start(&mut self, setting: Setting) {
        self.grown = bytes(setting);
    }

    pub(super) fn may_jump(&self) -> bool {
        self.jumps < JUMPS
    }

    /// Records the number of bytes in flight during an epoch.
    pub(super) fn record_in_flight(&mut self, view: &View<'_>, score: &Score) {
        let command = view.known().command_bytes.map_or(0.0, |bytes| bytes.value);
        let outstanding = view.outstanding * command;
        let used = score.bytes_most as f64 * score.in_flight_most as f64;
        self.grown = self.grown.max(used.min(outstanding));
    }

    /// Returns a jump to the model's choice, and the predicted gain. On links with a high
    /// round-trip time, where an epoch takes several round trips, jumps are made before any
    /// measurement. A single jump may increase the bytes in flight only by a limited factor, so
    /// several jumps may be needed. Each follows once the previous one shows in the rate.
    pub(super) fn jump(
        &mut self,
        base: Setting,
        bounds: &Bounds,
        view: &View<'_>,
    ) -> Option<(Setting, f64)> {
        if view.round_trip_ns()? < JUMP_NS {
            return None;
        }
        let samples = view.drained().map_or(0, |drained| drained.samples);
        if self.jumps > 0 && samples < self.jumped_at + 2 {
            return None;
        }
        let fitted = Fitted::new(view.known(), view.nodes, view.outstanding)?;
        let chosen = fitted.choose(bounds, self.in_flight_max(view))?;
        let predicted = |setting| fitted.predict(setting).throughput;
        let gain = predicted(chosen) / predicted(base).max(1e-9);
        if gain < JUMP_GAIN {
            return None;
        }
        if let Some(drained) = view.drained()
            && self.drained_most.is_none_or(|(_, most)| drained.rate > most)
        {
            self.drained_most = Some((base, drained.rate));
        }
        self.jumps += 1;
        self.jumped_at = samples;
        self.grown = self.grown.max(fitted.in_flight(chosen));
        Some((chosen, gain))
    }

    /// Returns the setting to return to if the unmeasured jumps went too far. If throughput is
    /// lower than before one of the jumps, the last jump overran a buffer.
    pub(super) fn check_jumps(
        &mut self,
        base: Setting,
        score: &Score,
        view: &View<'_>,
    ) -> Option<Setting> {
        let command = view.known().command_bytes?.value;
        let (setting, most) = self.drained_most.take()?;
        if score.rate * command >= most * TOO_FAR || setting == base {
            return None;
        }
        self.jumps = JUMPS;
        self.grown = bytes(setting) / GROWTH;
        Some(setting)
    }

    /// Returns a reduced setting, and the excess as a factor, if more bytes are in flight than
    /// drain in a round trip. Excess bytes only wait, and may overflow a buffer.
    pub(super) fn unqueue(
        &mut self,
        now: Moment,
        wanted: Setting,
        bounds: &Bounds,
        view: &View<'_>,
    ) -> Option<(Setting, f64)> {
        if self.cuts >= CUTS || view.round_trip_ns()? <= LONG_NS {
            return None;
        }
        let drained = view.drained()?;
        let (samples, over) = self.queue_seen;
        if drained.samples == samples || now < self.drains_until {
            return None;
        }
        let most = drains(view)?;
        let excess = drained.ahead / most;
        let over = if excess > QUEUE_MOST { over + 1 } else { 0 };
        self.queue_seen = (drained.samples, over);
        if over <= 1 {
            self.over_since = now;
        }
        // A new load drains no sooner than a round trip later, and shows in the rate after another
        // round trip.
        let patience = QUEUE_ROUND_TRIPS * view.round_trip_ns()?;
        if over < QUEUE_SEEN || (now.since(self.over_since) as f64) < patience {
            return None;
        }
        let fitted = Fitted::new(view.known(), view.nodes, view.outstanding)?;
        let chosen = fitted.choose(bounds, most)?;
        if fitted.in_flight(chosen) >= fitted.in_flight(wanted) {
            return None;
        }
        self.queue_seen.1 = 0;
        self.cuts += 1;
        // After a careful reduction, no jump may undo it.
        self.jumps = JUMPS;
        let drain = drained.ahead / drained.rate * 1e9 + view.round_trip_ns()?;
        self.drains_until = Moment(now.0 + (2.0 * drain).min(DRAIN_MOST_NS) as u64);
        self.grown = most;
        Some((chosen, excess * QUEUE))
    }

    /// Returns the maximum number of bytes in flight.
    pub(super) fn in_flight_max(&self, view: &View<'_>) -> f64 {
        match drains(view) {
            Some(drains) => drains.min(self.grown * GROWTH),
            None if view.round_trip_ns().is_some_and(|round_trip| round_trip > LONG_NS) => {
                self.grown
            }
            None => self.grown * GROWTH,
        }
    }
}

/// Returns the number of bytes that should be in flight on a link with a high round-trip time, so
/// that they drain in a few round trips; `None` on other links.
fn drains(view: &View<'_>) -> Option<f64> {
    let drained = view.drained()?;
    let round_trip = view.round_trip_ns()?;
    if round_trip < LONG_NS {
        return None;
    }
    let flush = view.known().flush_ns.map_or(0.0, |flush| flush.value);
    let command = view.known().command_bytes?.value;
    Some((QUEUE * drained.rate * (round_trip + 2.0 * flush) / 1e9).max(COMMANDS * command))
}

/// Returns the number of bytes in a full window of full batches.
fn bytes(setting: Setting) -> f64 {
    setting.batch_bytes as f64 * setting.window as f64
}
