//! JSON form of the tuner's report, for `GET /tuning` and `quorate tune`.

use quorate_replica::{TuningReport, tuner};
use serde::{Deserialize, Serialize};

use crate::units::{format_exact_bytes, format_seconds, format_thousands};

/// Report of a node's tuner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningView {
    /// All parameters that the tuner estimates, including unknown ones.
    pub parameters: Vec<ParameterView>,
    /// Predictions of the model for different settings. Empty until enough parameters are known.
    pub grid: Vec<PointView>,
    /// Bottleneck that the model predicts for the chosen setting.
    pub bottleneck: Option<String>,
    /// Setting that is in use.
    pub chosen: SettingView,
    /// Set if `POST /tuning` has pinned the setting for a limited time.
    pub held: bool,
    /// Performance measured under the chosen setting.
    pub measured: Option<MeasuredView>,
    /// Sentence that explains the choice.
    pub reason: String,
}

/// A batch size and a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingView {
    pub batch_bytes: usize,
    /// Maximum number of batches in flight.
    pub window: usize,
}

/// A parameter that the tuner estimates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParameterView {
    /// Name of the parameter: words joined by `_`.
    pub name: String,
    /// Unit of `value` and `error`.
    pub unit: String,
    /// Estimated value. Null if unknown.
    pub value: Option<f64>,
    /// Standard error of the estimate.
    pub error: Option<f64>,
    /// Confidence in the estimate, from 0 to 1.
    pub confidence: Option<f64>,
}

/// Performance that the model predicts for a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointView {
    pub batch_bytes: usize,
    pub window: usize,
    /// Commands per second.
    pub throughput: f64,
    /// Latency from acceptance to reply, in microseconds.
    pub latency_us: f64,
}

/// Performance measured under a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredView {
    /// Commands per second.
    pub throughput: f64,
    /// Latency from acceptance to reply, in microseconds.
    pub latency_us: f64,
}

/// Body of `POST /tuning`. `{"hold": null}` unpins the setting.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// Setting to pin. Null unpins the setting.
    pub hold: Option<HoldView>,
}

/// A setting to pin, and for how long.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldView {
    pub batch_bytes: usize,
    pub window: usize,
    /// Maximum time for which the setting is pinned, in milliseconds.
    pub ms: u64,
}

/// Rounds to three significant digits.
fn round_to_three(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

impl From<tuner::Setting> for SettingView {
    fn from(setting: tuner::Setting) -> Self {
        Self { batch_bytes: setting.batch_bytes, window: setting.window }
    }
}

impl TuningView {
    /// Converts the report of the tuner to its JSON form.
    pub fn new(report: &TuningReport) -> Self {
        let TuningReport { report, setting, is_fixed: held } = report;
        let point = |point: &tuner::choice::Point| PointView {
            batch_bytes: point.setting.batch_bytes,
            window: point.setting.window,
            throughput: round_to_three(point.predicted.throughput),
            latency_us: round_to_three(point.predicted.latency.0),
        };
        Self {
            parameters: report.parameters.iter().map(ParameterView::new).collect(),
            grid: report.grid_predictions.iter().map(point).collect(),
            bottleneck: report.bottleneck.map(|limit| limit.to_string()),
            chosen: (*setting).into(),
            held: *held,
            measured: report.measured_rate_and_latency.map(|(rate, latency_ns)| MeasuredView {
                throughput: round_to_three(rate),
                latency_us: round_to_three(latency_ns / 1e3),
            }),
            reason: if *held {
                format!("{setting} is held from outside, for a while.")
            } else {
                report.reason.clone()
            },
        }
    }

    /// Returns the performance that the model predicts for a setting, if the grid contains it.
    pub fn predicted_performance(&self, setting: SettingView) -> Option<f64> {
        let mut grid = self.grid.iter();
        let found = grid.find(|point| point.setting() == setting)?;
        Some(found.throughput)
    }
}

impl PointView {
    pub const fn setting(&self) -> SettingView {
        SettingView { batch_bytes: self.batch_bytes, window: self.window }
    }
}

impl ParameterView {
    fn new(parameter: &tuner::report::NamedParameter) -> Self {
        let estimate = parameter.estimate;
        Self {
            name: parameter.name.to_owned(),
            unit: parameter.unit.to_owned(),
            value: estimate.map(|estimate| round_to_three(estimate.value)),
            error: estimate.map(|estimate| round_to_three(estimate.error)),
            confidence: estimate.map(|estimate| round_to_three(estimate.confidence())),
        }
    }

    /// Formats the estimate with its unit and error, such as `1.25 ms ± 4 %`, or as unknown.
    pub fn format_estimate(&self) -> String {
        let (Some(value), Some(error)) = (self.value, self.error) else {
            return "not known yet".to_owned();
        };
        let part = if value == 0.0 { 0.0 } else { (error / value).abs() * 100.0 };
        let value = match &*self.unit {
            "ns" => format_seconds(value / 1e9),
            "bytes/s" => format!("{}B/s", format_thousands(value)),
            unit => format!("{value:.0} {unit}"),
        };
        if part > 100.0 {
            return format!("about {value}, uncertain");
        }
        format!("{value} ± {part:.0} %")
    }
}

impl SettingView {
    /// Formats the batch size and the window, for example as `64 KiB x 4`.
    pub fn format_setting(self) -> String {
        format!("{} x {}", format_exact_bytes(self.batch_bytes), self.window)
    }
}

#[cfg(test)]
mod tests {
    use quorate_replica::tuner::{Moment, ReactorTurn, Setting, Settings, Tuner};

    use super::*;

    fn report(held: bool) -> TuningReport {
        let mut tuner = Tuner::new(Settings::new(3));
        for mark in 1..20 {
            let at = Moment(mark * 20_000_000);
            tuner.on_heartbeat_sent(at, 0, mark);
            tuner.on_heartbeat_reply(Moment(at.0 + 1_000_000), 0, mark);
            let ended = Moment(at.0 + 1_100_000);
            let turn =
                ReactorTurn { woke_at: Moment(at.0 + 1_050_000), ended, ..ReactorTurn::default() };
            let _ = tuner.on_turn(&turn);
        }
        TuningReport {
            report: tuner.report(),
            setting: Setting { batch_bytes: 4096, window: 2 },
            is_fixed: held,
        }
    }

    /// The field names are fixed, because scripts rely on them. Unknown values are null.
    #[test]
    fn a_report_has_the_documented_fields() {
        let view = TuningView::new(&report(true));
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["chosen"], serde_json::json!({"batch_bytes": 4096, "window": 2}));
        let first = &json["parameters"][0];
        assert_eq!((&first["name"], &first["unit"]), (&"round_trip".into(), &"ns".into()));
        assert_eq!(first["value"], 1_000_000.0);
        assert_eq!(json["parameters"][1]["value"], serde_json::Value::Null);
        for key in ["grid", "bottleneck", "reason", "held", "measured"] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(json["held"], true);
        assert!(view.reason.contains("held"), "{}", view.reason);
        assert_eq!(serde_json::from_value::<TuningView>(json).unwrap(), view);
    }

    #[test]
    fn quantities_are_shown_in_a_fitting_unit() {
        let mut parameter = ParameterView {
            name: "flush".to_owned(),
            unit: "ns".to_owned(),
            value: Some(1_250_000.0),
            error: Some(50_000.0),
            confidence: Some(0.96),
        };
        assert_eq!(parameter.format_estimate(), "1.25 ms ± 4 %");
        parameter.unit = "bytes/s".to_owned();
        assert_eq!(parameter.format_estimate(), "1.2 MB/s ± 4 %");
        parameter.error = Some(2e6);
        assert_eq!(parameter.format_estimate(), "about 1.2 MB/s, uncertain");
        parameter.value = None;
        assert_eq!(parameter.format_estimate(), "not known yet");
    }

    #[test]
    fn values_are_rounded_to_four_digits() {
        assert_eq!(round_to_three(1_234_567.0), 1_235_000.0);
        assert_eq!(round_to_three(0.001_234_56), 0.001_235);
        assert_eq!(round_to_three(0.0), 0.0);
    }
}
