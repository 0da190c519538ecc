//! Published and predicted figures of a document, each next to the one measured here. The papers'
//! experiments in `bench-compare` fill them in; other documents have none.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedComparison {
    pub source: String,
    /// Description of the system, quantity and conditions.
    pub what: String,
    pub published: f64,
    pub unit: String,
    /// Set if the source says "about", or the number was read off a plot or derived.
    pub approximate: bool,
    /// Number measured here; `None` if the row was not run or is invalid.
    pub ours: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelComparison {
    pub what: String,
    /// Commands per second predicted by a model with the parameters measured here.
    pub predicted: f64,
    pub measured: f64,
    /// Relative error of the predicted value.
    pub error: f64,
    /// Number of parallel instances that saturate the leader's processor, by the model.
    pub window_cpu: f64,
    /// Number of parallel instances that saturate the leader's link, by the model.
    pub window_net: f64,
}
