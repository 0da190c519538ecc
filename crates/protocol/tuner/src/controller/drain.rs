//! Control of links with a high round-trip time: jumps instead of steps, and never more bytes in
//! flight than the link drains.

use super::view::{ControllerView, JUMP_ROUND_TRIP_NS_MIN};
use crate::{
    choice::FittedModel,
    epoch::EpochScore,
    setting::{Setting, SettingBounds},
    time::Moment,
};

/// Maximum number of bytes in flight, as a multiple of the bytes that drain in one round trip.
const IN_FLIGHT_ROUND_TRIPS: f64 = 2.0;
/// Factor by which the bytes in flight must exceed the maximum for the setting to be reduced.
const EXCESS_FACTOR: f64 = 1.6;
/// Number of consecutive rate samples that must show the excess.
const EXCESS_SAMPLES: u32 = 2;
/// Minimum duration of the excess, as a number of round trips.
const EXCESS_ROUND_TRIPS: f64 = 2.0;
/// Number of commands that may be in flight even if their bytes exceed the maximum.
const COMMANDS_ALWAYS_ALLOWED: f64 = 4.0;
/// Maximum time to wait for the excess to drain, in nanoseconds.
const DRAIN_WAIT_NS_MAX: f64 = 5e9;
/// Minimum predicted throughput gain for a jump, as a factor.
const JUMP_GAIN_MIN: f64 = 1.15;
/// Fraction of the previous throughput below which a jump counts as having gone too far.
const JUMP_LOSS_FRACTION: f64 = 0.75;
/// Maximum number of reductions before the search tries something else.
const REDUCTIONS_MAX: u32 = 3;
/// Minimum round trip in nanoseconds for which the limits apply. Links with a shorter round trip
/// drain faster than a decision can be made.
const LONG_ROUND_TRIP_NS: f64 = 1e6;
/// Maximum factor by which the bytes in flight grow in one jump.
const JUMP_GROWTH_MAX: f64 = 4.0;

/// Maximum number of jumps in one search.
const JUMPS_MAX: u32 = 10;

/// Bytes in flight in the past, and their effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueControl {
    /// Highest number of bytes in flight that has done no harm.
    harmless_bytes_in_flight: f64,
    /// Number of jumps to the model's choice since the search began.
    jump_count: u32,
    /// Number of rate samples at the last jump.
    rate_samples_at_jump: u64,
    /// Setting with the highest throughput among those that jumps have left, and that throughput in
    /// bytes per second.
    best_left_by_jump: Option<(Setting, f64)>,
    /// Number of reductions made because of a queue, since the search began.
    reduction_count: u32,
    /// Number of rate samples at the last check, and the number of consecutive samples that showed
    /// an excess.
    excess_samples: (u64, u32),
    /// Start of the current excess.
    excess_since: Moment,
    /// Time by which the excess should have drained.
    drained_by: Moment,
}

impl QueueControl {
    /// Creates the state with nothing in flight. The setting `start` counts as harmless.
    pub(super) fn new(start: Setting) -> Self {
        Self {
            harmless_bytes_in_flight: bytes(start),
            jump_count: 0,
            rate_samples_at_jump: 0,
            best_left_by_jump: None,
            reduction_count: 0,
            excess_samples: (0, 0),
            excess_since: Moment(0),
            drained_by: Moment(0),
        }
    }

    /// Resets the counts for a new search.
    pub(super) fn reset_counts(&mut self) {
        self.reduction_count = 0;
        self.jump_count = 0;
    }

    pub(super) fn start(&mut self, setting: Setting) {
        self.harmless_bytes_in_flight = bytes(setting);
    }

    pub(super) fn may_jump(&self) -> bool {
        self.jump_count < JUMPS_MAX
    }

    /// Records the number of bytes in flight during an epoch.
    pub(super) fn record_in_flight(&mut self, view: &ControllerView<'_>, score: &EpochScore) {
        let command = view.parameters().command_bytes.map_or(0.0, |bytes| bytes.value);
        let outstanding = view.outstanding_commands * command;
        let used = score.batch_bytes_max as f64 * score.in_flight_max as f64;
        self.harmless_bytes_in_flight = self.harmless_bytes_in_flight.max(used.min(outstanding));
    }

    /// Returns a jump to the model's choice, and the predicted gain. On links with a high
    /// round-trip time, where an epoch takes several round trips, jumps are made before any
    /// measurement. A single jump may increase the bytes in flight only by a limited factor, so
    /// several jumps may be needed. Each follows once the previous one shows in the rate.
    pub(super) fn jump_to_model(
        &mut self,
        base: Setting,
        bounds: &SettingBounds,
        view: &ControllerView<'_>,
    ) -> Option<(Setting, f64)> {
        if view.round_trip_ns()? < JUMP_ROUND_TRIP_NS_MIN {
            return None;
        }
        let samples = view.drained().map_or(0, |drained| drained.samples);
        if self.jump_count > 0 && samples < self.rate_samples_at_jump + 2 {
            return None;
        }
        let fitted = FittedModel::new(view.parameters(), view.nodes, view.outstanding_commands)?;
        let chosen = fitted.best_setting(bounds, self.in_flight_max(view))?;
        let predicted = |setting| fitted.predict(setting).throughput;
        let gain = predicted(chosen) / predicted(base).max(1e-9);
        if gain < JUMP_GAIN_MIN {
            return None;
        }
        if let Some(drained) = view.drained()
            && self.best_left_by_jump.is_none_or(|(_, most)| drained.bytes_per_s > most)
        {
            self.best_left_by_jump = Some((base, drained.bytes_per_s));
        }
        self.jump_count += 1;
        self.rate_samples_at_jump = samples;
        self.harmless_bytes_in_flight =
            self.harmless_bytes_in_flight.max(fitted.bytes_in_flight(chosen));
        Some((chosen, gain))
    }

    /// Returns the setting to return to if the unmeasured jumps went too far. If throughput is
    /// lower than before one of the jumps, the last jump overran a buffer.
    pub(super) fn setting_to_return_to(
        &mut self,
        base: Setting,
        score: &EpochScore,
        view: &ControllerView<'_>,
    ) -> Option<Setting> {
        let command = view.parameters().command_bytes?.value;
        let (setting, most) = self.best_left_by_jump.take()?;
        if score.commands_per_s * command >= most * JUMP_LOSS_FRACTION || setting == base {
            return None;
        }
        self.jump_count = JUMPS_MAX;
        self.harmless_bytes_in_flight = bytes(setting) / JUMP_GROWTH_MAX;
        Some(setting)
    }

    /// Returns a reduced setting, and the excess as a factor, if more bytes are in flight than
    /// drain in a round trip. Excess bytes only wait, and may overflow a buffer.
    pub(super) fn reduced_setting(
        &mut self,
        now: Moment,
        wanted: Setting,
        bounds: &SettingBounds,
        view: &ControllerView<'_>,
    ) -> Option<(Setting, f64)> {
        if self.reduction_count >= REDUCTIONS_MAX || view.round_trip_ns()? <= LONG_ROUND_TRIP_NS {
            return None;
        }
        let drained = view.drained()?;
        let (samples, over) = self.excess_samples;
        if drained.samples == samples || now < self.drained_by {
            return None;
        }
        let most = bytes_to_drain(view)?;
        let excess = drained.bytes_in_flight / most;
        let over = if excess > EXCESS_FACTOR { over + 1 } else { 0 };
        self.excess_samples = (drained.samples, over);
        if over <= 1 {
            self.excess_since = now;
        }
        // A new load drains no sooner than a round trip later, and shows in the rate after another
        // round trip.
        let patience = EXCESS_ROUND_TRIPS * view.round_trip_ns()?;
        if over < EXCESS_SAMPLES || (now.since(self.excess_since) as f64) < patience {
            return None;
        }
        let fitted = FittedModel::new(view.parameters(), view.nodes, view.outstanding_commands)?;
        let chosen = fitted.best_setting(bounds, most)?;
        if fitted.bytes_in_flight(chosen) >= fitted.bytes_in_flight(wanted) {
            return None;
        }
        self.excess_samples.1 = 0;
        self.reduction_count += 1;
        // After a careful reduction, no jump may undo it.
        self.jump_count = JUMPS_MAX;
        let drain = drained.bytes_in_flight / drained.bytes_per_s * 1e9 + view.round_trip_ns()?;
        self.drained_by = Moment(now.0 + (2.0 * drain).min(DRAIN_WAIT_NS_MAX) as u64);
        self.harmless_bytes_in_flight = most;
        Some((chosen, excess * IN_FLIGHT_ROUND_TRIPS))
    }

    /// Returns the maximum number of bytes in flight.
    pub(super) fn in_flight_max(&self, view: &ControllerView<'_>) -> f64 {
        match bytes_to_drain(view) {
            Some(drains) => drains.min(self.harmless_bytes_in_flight * JUMP_GROWTH_MAX),
            None if view
                .round_trip_ns()
                .is_some_and(|round_trip| round_trip > LONG_ROUND_TRIP_NS) =>
            {
                self.harmless_bytes_in_flight
            }
            None => self.harmless_bytes_in_flight * JUMP_GROWTH_MAX,
        }
    }
}

/// Returns the number of bytes that should be in flight on a link with a high round-trip time, so
/// that they drain in a few round trips; `None` on other links.
fn bytes_to_drain(view: &ControllerView<'_>) -> Option<f64> {
    let drained = view.drained()?;
    let round_trip = view.round_trip_ns()?;
    if round_trip < LONG_ROUND_TRIP_NS {
        return None;
    }
    let flush = view.parameters().flush_ns.map_or(0.0, |flush| flush.value);
    let command = view.parameters().command_bytes?.value;
    Some(
        (IN_FLIGHT_ROUND_TRIPS * drained.bytes_per_s * (round_trip + 2.0 * flush) / 1e9)
            .max(COMMANDS_ALWAYS_ALLOWED * command),
    )
}

/// Returns the number of bytes in a full window of full batches.
fn bytes(setting: Setting) -> f64 {
    setting.batch_bytes as f64 * setting.window as f64
}
