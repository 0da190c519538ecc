//! Settings that the model would choose for the measured parameters.
//!
//! The model evaluates every point of a grid of batch sizes and windows. Its prediction is only a
//! starting point for the search (`controller`). Unknown quantities are left out: a link whose
//! bandwidth was not measured is not treated as the bottleneck.

use crate::{
    estimate::Parameters,
    model::{
        Bandwidth, Bytes, Cores, Disk, LinearCost, Micros, Model, Network, Prediction, Workload,
    },
    setting::{Setting, SettingBounds},
};

/// Window sizes on the grid.
pub(crate) const GRID_WINDOWS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Batch sizes on the grid, in bytes.
pub(crate) const GRID_BATCH_BYTES: [usize; 11] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
];
/// Predictions of at least this fraction of the best one count as equal.
const EQUAL_FRACTION: f64 = 0.98;
/// Fraction of a window, except for its first batch, that is assumed to be late.
const LATE_FRACTION: f64 = 0.3;
/// Overhead in bytes of a batch sent to a peer: the batch header and the frame header.
const BATCH_OVERHEAD_BYTES: f64 = 145.0;
/// Minimum batch size to recommend, in bytes. The headers of smaller batches cost too much.
const RECOMMENDED_BYTES_MIN: f64 = 8192.0;
/// Maximum number of bytes in one log write.
const LOG_WRITE_BYTES_MAX: f64 = 1_048_576.0;

/// A point of the grid, and the model's prediction for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub setting: Setting,
    pub predicted: Prediction,
}

/// The model with the measured parameters and the current load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FittedModel {
    pub(crate) model: Model,
    pub(crate) load: Workload,
}

impl FittedModel {
    /// Creates the model; `None` while the round trip or the size of a command is unknown.
    pub(crate) fn new(known: &Parameters, nodes: usize, outstanding: f64) -> Option<Self> {
        let round_trip = known.round_trip_ns?.value;
        let command = known.command_bytes?.value;
        let us = |estimate: Option<crate::fit::Estimate>| {
            Micros(estimate.map_or(0.0, |estimate| estimate.value / 1e3))
        };
        let peers = (nodes.max(2) - 1) as f64;
        let disk = known.flush_ns.map(|flush| Disk {
            flush: Micros(flush.value / 1e3),
            bandwidth: known
                .disk_bandwidth
                .map_or(Bandwidth::UNLIMITED, |bandwidth| Bandwidth(bandwidth.value)),
            writes_in_flight_max: 2.0,
            write_max: Bytes(LOG_WRITE_BYTES_MAX),
        });
        let model = Model {
            nodes: nodes.max(2) as f64,
            // The bandwidth was measured on a channel to one peer, so it already accounts for
            // sharing.
            network: Network::Wan,
            bandwidth: known
                .channel_bytes_per_s
                .map_or(Bandwidth::UNLIMITED, |bandwidth| Bandwidth(bandwidth.value)),
            one_way_delay: Micros(round_trip / 2e3),
            client_cost: LinearCost { fixed: us(known.command_ns), per_byte: us(known.byte_ns) },
            replica_cost: LinearCost {
                fixed: us(known.batch_ns) * (1.0 / peers),
                per_byte: Micros(0.0),
            },
            disk,
            cores: Cores::ONE,
        };
        let load = Workload {
            request: Bytes(command),
            answer: Bytes(0.0),
            batch_header: Bytes(BATCH_OVERHEAD_BYTES),
            vote: Bytes(0.0),
            execute: Micros(0.0),
            outstanding: Some(outstanding.max(1.0)),
        };
        Some(Self { model, load })
    }

    pub(crate) fn predict(&self, setting: Setting) -> Prediction {
        let commands = (setting.batch_bytes as f64 / self.load.request.0).floor();
        self.model.predict(&self.load, commands.max(1.0), setting.window as f64)
    }

    /// Predicts as if a fraction of the window were always late, because the model has no jitter.
    fn predict_with_slack(&self, setting: Setting) -> Prediction {
        let commands = (setting.batch_bytes as f64 / self.load.request.0).floor();
        let window = setting.window as f64;
        self.model.predict(&self.load, commands.max(1.0), window - LATE_FRACTION * (window - 1.0))
    }

    /// Returns the number of bytes that would be in flight at once.
    pub(crate) fn bytes_in_flight(&self, setting: Setting) -> f64 {
        let command = self.load.request.0;
        let most = self.load.outstanding.unwrap_or(f64::INFINITY) * command;
        let batch = (setting.batch_bytes as f64 / command).floor().max(1.0) * command;
        (batch * setting.window as f64).min(most)
    }

    /// Returns every grid point within the bounds.
    pub(crate) fn predict_grid(&self, bounds: &SettingBounds) -> Vec<Point> {
        let mut points = Vec::new();
        let least = smallest_batch_for(self.load.request.0);
        for batch_bytes in GRID_BATCH_BYTES.into_iter().filter(|&batch| batch >= least) {
            for window in GRID_WINDOWS {
                let setting = Setting { batch_bytes, window };
                if bounds.clamp(setting) == setting {
                    let predicted = self.predict(setting);
                    points.push(Point { setting, predicted });
                }
            }
        }
        points
    }

    /// Returns the setting that the model prefers. Among the settings that are nearly as good as
    /// the best one, it is the one with the fewest bytes in flight. `in_flight_max` limits the
    /// bytes in flight.
    pub(crate) fn best_setting(
        &self,
        bounds: &SettingBounds,
        in_flight_max: f64,
    ) -> Option<Setting> {
        let least = self.load.request.0;
        let mut points = self.predict_grid(bounds);
        points.retain(|point| self.bytes_in_flight(point.setting) <= in_flight_max.max(least));
        for point in &mut points {
            point.predicted = self.predict_with_slack(point.setting);
        }
        let best = points.iter().map(|point| point.predicted.throughput).fold(0.0, f64::max);
        let chosen = points
            .iter()
            .filter(|point| point.predicted.throughput >= best * EQUAL_FRACTION)
            .min_by(|a, b| {
                let bytes = |point: &Point| self.bytes_in_flight(point.setting);
                let window = |point: &Point| point.setting.window;
                bytes(a).total_cmp(&bytes(b)).then(window(a).cmp(&window(b)))
            })?;
        let fitting = bounds.clamp(self.fit_batch_to_load(chosen.setting));
        let fits = self.bytes_in_flight(fitting) <= in_flight_max.max(least);
        Some(if fits { fitting } else { chosen.setting })
    }

    /// Returns the setting with batches sized for 1.5 times the commands per batch that the load
    /// provides. Smaller batches would split commands that arrive together. With much larger ones,
    /// commands would gather into one batch after a hiccup and keep circulating together.
    fn fit_batch_to_load(&self, setting: Setting) -> Setting {
        let outstanding = self.load.outstanding.unwrap_or(f64::INFINITY);
        let commands = (outstanding / setting.window as f64).max(1.0) * 1.5;
        let bytes = (commands * self.load.request.0).max(RECOMMENDED_BYTES_MIN);
        let batch = GRID_BATCH_BYTES.into_iter().find(|&step| step as f64 >= bytes);
        Setting { batch_bytes: batch.unwrap_or(setting.batch_bytes), ..setting }
    }
}

/// Returns the smallest batch size on the grid that has room for a command of `command` bytes.
/// Smaller sizes would have no effect.
pub(crate) fn smallest_batch_for(command: f64) -> usize {
    let holds = |&step: &usize| step as f64 >= command;
    let last = GRID_BATCH_BYTES[GRID_BATCH_BYTES.len() - 1];
    GRID_BATCH_BYTES.into_iter().find(holds).unwrap_or(last)
}
