//! What is known when something is decided, and from where on times count as long.

use std::cell::OnceCell;

use crate::{
    channel::Drained,
    estimate::{Estimator, Parameters},
};

/// With a round trip shorter than this measuring is quick enough.
pub(super) const JUMP_NS: f64 = 3e6;
/// Where a batch takes longer than this, an epoch is long.
pub(super) const VETO_NS: f64 = 30e6;

/// What the controller is told beside epochs. Worked out when it is asked for: most looks ask for
/// next to nothing.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(super) estimator: &'a Estimator,
    known: OnceCell<Parameters>,
    pub(super) nodes: usize,
    /// Commands that wait or are in flight.
    pub(super) outstanding: f64,
}

impl<'a> View<'a> {
    pub(crate) const fn new(estimator: &'a Estimator, nodes: usize, outstanding: f64) -> Self {
        Self { estimator, known: OnceCell::new(), nodes, outstanding }
    }

    pub(super) fn known(&self) -> &Parameters {
        self.known.get_or_init(|| self.estimator.parameters())
    }

    pub(super) fn round_trip_ns(&self) -> Option<f64> {
        self.estimator.round_trip().map(|round_trip| round_trip.value)
    }

    pub(super) fn drained(&self) -> Option<Drained> {
        self.estimator.drained()
    }
}
