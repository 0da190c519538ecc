//! The tuner's measurements, predictions and choice, as plain data for display.

use crate::{
    choice::{FittedModel, Point},
    controller::Controller,
    estimate::Parameters,
    fit::Estimate,
    model::Bottleneck,
    setting::Setting,
    settings::Settings,
};

/// A named quantity of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedParameter {
    /// Name of the quantity in the JSON of `quorate tune`.
    pub name: &'static str,
    pub unit: &'static str,
    /// Estimate of the quantity; `None` while unknown.
    pub estimate: Option<Estimate>,
}

/// Response to `quorate tune`.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// All quantities of the model, known or not.
    pub parameters: Vec<NamedParameter>,
    /// Prediction for each combination of batch size and window; empty while too little is known.
    pub grid_predictions: Vec<Point>,
    /// Predicted bottleneck of the setting in force.
    pub bottleneck: Option<Bottleneck>,
    /// The setting in force.
    pub chosen: Setting,
    /// Throughput in commands per second and mean latency in nanoseconds, as last measured under
    /// the setting in force.
    pub measured_rate_and_latency: Option<(f64, f64)>,
    /// Reason for the setting in force, in one sentence.
    pub reason: String,
}

impl Report {
    pub(crate) fn new(
        settings: &Settings,
        chosen: Setting,
        known: &Parameters,
        outstanding: f64,
        controller: &Controller,
    ) -> Self {
        let fitted = FittedModel::new(known, settings.nodes, outstanding);
        let grid = fitted.map_or_else(Vec::new, |fitted| fitted.predict_grid(&settings.bounds));
        let bottleneck = fitted.map(|fitted| fitted.predict(chosen).bottleneck);
        let measured = controller
            .base_score()
            .filter(|_| !settings.fixed)
            .map(|score| (score.commands_per_s, score.latency_ns));
        Self {
            parameters: known.list(),
            grid_predictions: grid,
            bottleneck,
            chosen,
            measured_rate_and_latency: measured,
            reason: reason_text(settings, chosen, controller, bottleneck),
        }
    }
}

fn reason_text(
    settings: &Settings,
    chosen: Setting,
    controller: &Controller,
    bottleneck: Option<Bottleneck>,
) -> String {
    if settings.fixed {
        return format!("{chosen} is fixed: tuning is off.");
    }
    let why = match controller.last_change() {
        None if controller.base_score().is_none() => {
            return format!("{chosen} is where it starts: nothing was measured yet.");
        }
        None => "nothing that was tried is better".to_owned(),
        Some(change) => change.reason.to_string(),
    };
    match bottleneck {
        Some(bottleneck) => format!("{chosen}: {why}; the model holds {bottleneck} for the limit."),
        None => format!("{chosen}: {why}; the model does not know enough yet."),
    }
}

impl Parameters {
    /// Returns all parameters with their names in the report.
    pub fn list(&self) -> Vec<NamedParameter> {
        let of = |name, unit, estimate| NamedParameter { name, unit, estimate };
        vec![
            of("round_trip", "ns", self.round_trip_ns),
            of("bandwidth", "bytes/s", self.channel_bytes_per_s),
            of("cpu_per_command", "ns", self.command_ns),
            of("cpu_per_batch", "ns", self.batch_ns),
            of("cpu_per_byte", "ns", self.byte_ns),
            of("flush", "ns", self.flush_ns),
            of("disk_bandwidth", "bytes/s", self.disk_bandwidth),
            of("command_bytes", "bytes", self.command_bytes),
            of("batch_wall", "ns", self.batch_duration_ns),
        ]
    }
}
