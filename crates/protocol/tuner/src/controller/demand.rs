//! Open or closed load: clients send at a fixed rate, or as fast as they get replies.
//!
//! By Little's law a fixed number of clients achieves more throughput the less it waits: the
//! logarithm of the throughput falls with slope −1 over that of the latency. The throughput of
//! commands that arrive regardless of latency does not depend on it, so the slope is 0. Clients
//! that pause between two commands lie in between.

use crate::epoch::Score;

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

    /// Returns whether commands arrive regardless of latency, as far as the measurements show.
    pub(super) fn is_open(&self) -> bool {
        self.latencies > ENOUGH && self.both / self.latencies > FLAT
    }

    /// Returns whether clients send more when they wait less, as far as the measurements show.
    pub(super) fn is_closed(&self) -> bool {
        self.latencies > ENOUGH && self.both / self.latencies < STEEP
    }
}
