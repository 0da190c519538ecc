//! Measures bare commits on this machine and compares them with the model's predictions.

use std::{io, path::Path, time::Duration};

use crate::probe::{
    commit::{BareCommit, CommitShape},
    part::PartLauncher,
    wire::ProbeTransport,
};
use quorate_admin::tuning::{MeasuredView, PointView, SettingView, TuningView};
use serde::Serialize;

use crate::doctor::{
    figures::Figures,
    plane::Plane,
    predict::{COMMAND_BYTES, NodePlacement, OUTSTANDING_COMMANDS, predict},
};

/// Warm-up time before each measurement.
const WARMUP_DURATION: Duration = Duration::from_millis(200);
/// Measured time of each run.
const MEASURE_DURATION: Duration = Duration::from_secs(1);
/// Number of nodes in the bare commit.
const NODE_COUNT: u32 = 3;

/// A prediction compared with a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictionCheck {
    pub plane: Plane,
    /// `latency` or `throughput` for a bare program on this machine; `latency of the leader` or
    /// `throughput of the leader` for the members of a cluster.
    pub what: &'static str,
    /// `us` or `per_s`.
    pub unit: &'static str,
    pub predicted: Option<f64>,
    /// Null if it is missing.
    pub measured: Option<f64>,
    /// Error of the prediction, in percent of the measurement.
    pub error_percent: Option<f64>,
    /// Reason why `predicted` or `measured` is missing. Empty if both are present.
    pub why: String,
}

impl PredictionCheck {
    fn new(
        (plane, what, unit): (Plane, &'static str, &'static str),
        predicted: Result<f64, String>,
        measured: Result<f64, String>,
    ) -> Self {
        let error = match (&predicted, &measured) {
            (Ok(predicted), Ok(measured)) if *measured > 0.0 => {
                Some((predicted / measured - 1.0) * 100.0)
            }
            _ => None,
        };
        let reasons: Vec<&str> = [&predicted, &measured]
            .into_iter()
            .filter_map(|figure| figure.as_ref().err().map(|why| &**why))
            .filter(|why| !why.is_empty())
            .collect();
        Self {
            plane,
            what,
            unit,
            why: reasons.join("; "),
            predicted: predicted.ok(),
            measured: measured.ok().map(round_to_tenths),
            error_percent: error.map(round_to_tenths),
        }
    }
}

fn round_to_tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Measures bare commits over TCP and UDP. Commands are flushed to `scratch` if it is given.
pub fn measure_all(
    launcher: Option<&PartLauncher>,
    scratch: Option<&Path>,
    figures: &Figures,
) -> Vec<PredictionCheck> {
    let mut all = Vec::new();
    for (plane, over) in [(Plane::Tcp, ProbeTransport::Tcp), (Plane::Udp, ProbeTransport::Udp)] {
        let predicted = predict(plane, NODE_COUNT, NodePlacement::SameMachine, figures);
        let of = |value: Option<f64>| value.ok_or_else(|| predicted.why.clone());
        let measured = match launcher {
            Some(launcher) => {
                measure_commits(launcher, scratch, over).map_err(|error| error.to_string())
            }
            None => Err("there is no bare program to measure".to_owned()),
        };
        let (latency, throughput) = match measured {
            Ok((latency, throughput)) => (Ok(latency), Ok(throughput)),
            Err(why) => (Err(why.clone()), Err(why)),
        };
        all.push(PredictionCheck::new((plane, "latency", "us"), of(predicted.latency_us), latency));
        let throughput = (throughput, of(predicted.throughput_per_s));
        all.push(PredictionCheck::new((plane, "throughput", "per_s"), throughput.1, throughput.0));
    }
    all
}

/// Compares the leader's predictions for the current setting with the leader's measurements on this
/// plane.
pub fn compare_leader(plane: Plane, tuning: &Result<TuningView, String>) -> [PredictionCheck; 2] {
    let expected = |tuning: &TuningView| {
        let SettingView { batch_bytes, window } = tuning.chosen;
        let mut grid = tuning.grid.iter();
        let point = grid.find(|point| (point.batch_bytes, point.window) == (batch_bytes, window));
        point.copied()
    };
    let figures = tuning.as_ref().map_err(Clone::clone).and_then(|tuning| {
        let silent = "the leader has not measured it yet: put some load on the cluster";
        let point = expected(tuning).ok_or(silent)?;
        let measured = tuning.measured.ok_or(silent)?;
        Ok((point, measured))
    });
    let of = |what, unit, value: fn(&(PointView, MeasuredView)) -> (f64, f64)| {
        let both = figures.as_ref().map(value).map_err(Clone::clone);
        let predicted = both.as_ref().map(|both| both.0).map_err(Clone::clone);
        // Both values have the same reason, which is reported once.
        let measured = both.map(|both| both.1).or(Err(String::new()));
        PredictionCheck::new((plane, what, unit), predicted, measured)
    };
    [
        of("latency of the leader", "us", |(point, measured)| {
            (point.latency_us, measured.latency_us)
        }),
        of("throughput of the leader", "per_s", |(point, measured)| {
            (point.throughput, measured.throughput)
        }),
    ]
}

/// Measures the latency of a single command in microseconds, and the number of commands per second
/// with many outstanding.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn measure_commits(
    launcher: &PartLauncher,
    scratch: Option<&Path>,
    over: ProbeTransport,
) -> io::Result<(f64, f64)> {
    let shape = CommitShape {
        value_bytes: COMMAND_BYTES,
        window_commands: 1,
        is_durable: scratch.is_some(),
        flush_time: Duration::ZERO,
        transport: over,
    };
    let folder = scratch.unwrap_or(Path::new("."));
    let mut bare = BareCommit::start(launcher, folder, shape)?;
    let alone = bare.run_repetition(WARMUP_DURATION, MEASURE_DURATION)?;
    bare.set_window(OUTSTANDING_COMMANDS)?;
    let many = bare.run_repetition(WARMUP_DURATION, MEASURE_DURATION)?;
    let rate = many.samples.completed as f64 * 1e9 / many.samples.measured_ns.max(1) as f64;
    Ok((alone.samples.latencies.quantile_us(0.5), rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_relative_to_the_measured_value() {
        let of = |predicted, measured| {
            PredictionCheck::new((Plane::Tcp, "latency", "us"), predicted, measured)
        };
        assert_eq!(of(Ok(110.0), Ok(100.0)).error_percent, Some(10.0));
        assert_eq!(of(Ok(50.0), Ok(100.0)).error_percent, Some(-50.0));
        assert_eq!(of(Ok(50.0), Ok(0.0)).error_percent, None);
        let unknown = of(Err("a".to_owned()), Err("b".to_owned()));
        assert_eq!(
            (unknown.predicted, unknown.measured, unknown.error_percent),
            (None, None, None)
        );
        assert_eq!(unknown.why, "a; b");
    }

    #[test]
    fn leader_is_compared_with_its_own_prediction() {
        let point = |window, latency_us| PointView {
            batch_bytes: 100,
            window,
            throughput: 1000.0,
            latency_us,
        };
        let mut tuning = TuningView {
            parameters: Vec::new(),
            grid: vec![point(1, 50.0), point(2, 110.0)],
            bottleneck: None,
            chosen: SettingView { batch_bytes: 100, window: 2 },
            held: false,
            measured: Some(MeasuredView { throughput: 800.0, latency_us: 100.0 }),
            reason: String::new(),
        };
        let [latency, throughput] = compare_leader(Plane::Ethernet, &Ok(tuning.clone()));
        assert_eq!((latency.plane, latency.error_percent), (Plane::Ethernet, Some(10.0)));
        assert_eq!((throughput.predicted, throughput.error_percent), (Some(1000.0), Some(25.0)));
        tuning.measured = None;
        let [idle, _] = compare_leader(Plane::Udp, &Ok(tuning));
        assert_eq!((idle.predicted, idle.measured), (None, None));
        assert_eq!(idle.why, "the leader has not measured it yet: put some load on the cluster");
        let [gone, _] = compare_leader(Plane::Udp, &Err("gone".to_owned()));
        assert_eq!(gone.why, "gone");
    }

    #[test]
    fn without_a_program_nothing_is_measured_and_why_is_stated() {
        let all = measure_all(None, None, &Figures::default());
        assert_eq!(all.len(), 4);
        for compared in all {
            assert!(
                compared.measured.is_none() && compared.why.contains("no bare program"),
                "{compared:?}"
            );
        }
    }
}
