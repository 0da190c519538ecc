//! Open or closed load: clients send at a fixed rate, or as fast as they get replies.
//!
//! By Little's law a fixed number of clients achieves more throughput the less it waits: the
//! logarithm of the throughput falls with slope −1 over that of the latency. The throughput of
//! commands that arrive regardless of latency does not depend on it, so the slope is 0. Clients
//! that pause between two commands lie in between.

use crate::epoch::EpochScore;

/// Factor by which the weight of earlier pairs of measurements decays with each new pair.
const PAIR_DECAY: f64 = 0.95;
/// Minimum sum of squared logarithms of latency ratios before a slope is trusted.
const LATENCY_SPREAD_MIN: f64 = 0.6;
/// A load with this slope or a flatter one gains nothing from another setting.
const OPEN_SLOPE_MIN: f64 = -0.2;
/// A load with this slope or a steeper one consists of clients that wait for replies.
const CLOSED_SLOPE_MAX: f64 = -0.6;
/// Upper limit for the influence of one measurement, as a logarithm.
const LOG_RATIO_MAX: f64 = 1.0;

/// Sums of a regression through the origin, of throughput over latency.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DemandSlope {
    latency_squares: f64,
    cross_products: f64,
}

impl DemandSlope {
    /// Adds two measurements of the same load, under two settings or one.
    pub(super) fn add_pair(&mut self, old: &EpochScore, new: &EpochScore) {
        let part = |new: f64, old: f64| {
            (new.max(1e-9) / old.max(1e-9)).ln().clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)
        };
        let latency = part(new.latency_ns, old.latency_ns);
        let rate = part(new.commands_per_s, old.commands_per_s);
        self.latency_squares = self.latency_squares * PAIR_DECAY + latency * latency;
        self.cross_products = self.cross_products * PAIR_DECAY + latency * rate;
    }

    /// Returns whether commands arrive regardless of latency, as far as the measurements show.
    pub(super) fn is_open_loop(&self) -> bool {
        self.latency_squares > LATENCY_SPREAD_MIN
            && self.cross_products / self.latency_squares > OPEN_SLOPE_MIN
    }

    /// Returns whether clients send more when they wait less, as far as the measurements show.
    pub(super) fn is_closed_loop(&self) -> bool {
        self.latency_squares > LATENCY_SPREAD_MIN
            && self.cross_products / self.latency_squares < CLOSED_SLOPE_MAX
    }
}
