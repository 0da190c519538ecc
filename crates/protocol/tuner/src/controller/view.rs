//! Inputs of a decision, and the thresholds above which durations count as long.

use std::cell::OnceCell;

use crate::{
    channel::ChannelThroughput,
    estimate::{Estimator, Parameters},
};

/// Round trip in nanoseconds below which measuring is so fast that no jumps are needed.
pub(super) const JUMP_ROUND_TRIP_NS_MIN: f64 = 3e6;
/// Batch duration in nanoseconds above which epochs count as long.
pub(super) const LONG_BATCH_NS: f64 = 30e6;

/// The controller's inputs other than epochs. Computed on demand, because most decisions need
/// almost none of them.
#[derive(Debug)]
pub(crate) struct ControllerView<'a> {
    pub(super) estimator: &'a Estimator,
    parameters: OnceCell<Parameters>,
    pub(super) nodes: usize,
    /// Number of commands that wait or are in flight.
    pub(super) outstanding_commands: f64,
}

impl<'a> ControllerView<'a> {
    pub(crate) const fn new(estimator: &'a Estimator, nodes: usize, outstanding: f64) -> Self {
        Self { estimator, parameters: OnceCell::new(), nodes, outstanding_commands: outstanding }
    }

    pub(super) fn parameters(&self) -> &Parameters {
        self.parameters.get_or_init(|| self.estimator.parameters())
    }

    pub(super) fn round_trip_ns(&self) -> Option<f64> {
        self.estimator.round_trip().map(|round_trip| round_trip.value)
    }

    pub(super) fn drained(&self) -> Option<ChannelThroughput> {
        self.estimator.majority_throughput()
    }
}
