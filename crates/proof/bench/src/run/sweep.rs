//! `--sweep`: measures every batch size and window of a grid under a generated load.
//!
//! Each setting is fixed on the node only for a limited time, so that the node returns to its own
//! choice even if this process dies.

use std::{io, net::SocketAddr, time::Duration};

use crate::{
    generator::RunningLoad,
    load::{LoadPlan, OfferedLoad},
    protocol::{Protocol, framed::FramedEncoder, resp::RespEncoder},
    samples::Samples,
};
use quorate_admin::{
    client,
    tuning::{HoldRequest, HoldView, PointView, SettingView, TuningView},
    units::format_thousands,
    view::{Answer, ClusterView, NodeView},
};
use serde::Serialize;

use quorate_testbed::progress;

use super::resolve_address;
use crate::{
    log_service,
    problem::{Kind, Problem},
};

/// Timeout for a request to the node's admin server.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);
const BATCH_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const WINDOW_SIZES: [usize; 6] = [1, 2, 4, 8, 16, 64];
const KEY_COUNT: u64 = 100_000;
/// Time before each measurement, in which the setting takes effect and the load starts; at most the
/// time of a point.
const WARMUP_MAX: Duration = Duration::from_millis(250);
/// Factor by which the warm-up is longer when the node chooses for itself, because it has to learn
/// the load.
const LEARNING_WARMUP_FACTOR: u32 = 16;
/// Number of times that the best point and the node's choice are measured alternately.
const ALTERNATIONS: usize = 5;
/// Maximum time to wait for replies after the last command.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time allowed for connecting, querying the node, and measuring again if no command completed.
const OVERHEAD_MS: u64 = 25_000;
/// Time in milliseconds to which a measurement is extended as long as no command completes, for
/// example on a disk that pauses.
const MEASUREMENT_MS_MAX: u64 = 5_000;

#[derive(Clone, Debug, Serialize)]
pub struct SweepView {
    outstanding: u32,
    connections: u32,
    value_bytes: u32,
    measured: Vec<MeasuredPoint>,
    /// Setting with the highest rate in the grid.
    best: SettingView,
    /// Commands per second at the best point, as the median of the repeated measurements that
    /// alternate with the node's choice.
    best_throughput: f64,
    /// Setting that the node chose by itself under the same load.
    chosen: SettingView,
    /// Commands per second with the setting that the node chose.
    chosen_throughput: f64,
    /// Rate with the node's choice relative to the rate at the best point, as the median over all
    /// alternations.
    chosen_by_best: f64,
    /// Median error of the model's predictions, relative to the measurements; null without
    /// predictions.
    model_error_median: Option<f64>,
    model_error_max: Option<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct MeasuredPoint {
    batch_bytes: usize,
    window: usize,
    throughput: f64,
    p50_us: f64,
    p99_us: f64,
    predicted: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
pub struct SweepLoad {
    pub outstanding: u32,
    pub connections: u32,
    pub value_bytes: u32,
    pub point_duration_ms: u64,
}

/// A sweep of the settings of one node.
#[derive(Debug)]
pub struct Sweep<'a> {
    load: SweepLoad,
    admin_address: &'a str,
    client_address: SocketAddr,
    /// Set if the service is the key-value service, not the log service.
    is_kv_service: bool,
}

impl<'a> Sweep<'a> {
    /// Returns a sweep of the node with status `view`. `admin` is its admin address.
    pub fn new(load: SweepLoad, admin: &'a str, view: &NodeView) -> Result<Self, Problem> {
        let own = view.members.iter().find(|member| member.node == view.node);
        let client = own.and_then(|member| member.client.as_deref());
        let unknown = || {
            let what = format_args!("node {} has no client address", view.node);
            Problem::new(Kind::Failed, "no_client_address", what)
        };
        Ok(Self {
            load,
            admin_address: admin,
            client_address: resolve_address(client.ok_or_else(unknown)?)?,
            is_kv_service: view.store != log_service::STORE_NAME,
        })
    }

    /// Returns the approximate duration of the sweep in seconds.
    pub fn estimated_seconds(&self) -> u64 {
        let points = (BATCH_BYTES.len() * WINDOW_SIZES.len()) as u64;
        points * (self.load.point_duration_ms + 400) / 1000 + 6
    }

    /// Measures the grid, then returns control of the setting to the node.
    pub fn run(&self) -> Result<SweepView, Problem> {
        let measured = self.measure();
        let released = release_setting(self.admin_address);
        let view = measured?;
        released?;
        Ok(view)
    }

    fn measure(&self) -> Result<SweepView, Problem> {
        let measured = self.measure_grid()?;
        let best = measured
            .iter()
            .max_by(|a, b| a.throughput.total_cmp(&b.throughput))
            .map(MeasuredPoint::setting)
            .ok_or_else(|| Problem::new(Kind::Failed, "no_points", "nothing was measured"))?;
        progress(&format!(
            "{}, the best, and the node's own choice in turns",
            best.format_setting()
        ));
        release_setting(self.admin_address)?;
        self.run_closed_loop(self.warmup_duration() * LEARNING_WARMUP_FACTOR)?;
        // The highest of many rates is partly luck, so the point is measured again.
        let mut turns = Vec::new();
        for _ in 0..ALTERNATIONS {
            set(self.admin_address, Some((best, self.load.point_duration_ms + OVERHEAD_MS)))?;
            let fixed = self.run_closed_loop(self.warmup_duration())?.completed_per_second();
            release_setting(self.admin_address)?;
            turns.push((
                fixed,
                self.run_closed_loop(self.warmup_duration())?.completed_per_second(),
            ));
        }
        let errors = prediction_errors(&measured);
        Ok(SweepView {
            outstanding: self.load.outstanding,
            connections: self.load.connections,
            value_bytes: self.load.value_bytes,
            best,
            best_throughput: median(turns.iter().map(|(fixed, _)| *fixed)),
            chosen: fetch_tuning(self.admin_address)?.chosen,
            chosen_throughput: median(turns.iter().map(|(_, own)| *own)),
            chosen_by_best: median(turns.iter().map(|(fixed, own)| own / fixed.max(1.0))),
            model_error_median: errors.get(errors.len() / 2).copied(),
            model_error_max: errors.last().copied(),
            measured,
        })
    }

    fn warmup_duration(&self) -> Duration {
        WARMUP_MAX.min(Duration::from_millis(self.load.point_duration_ms))
    }

    fn measure_grid(&self) -> Result<Vec<MeasuredPoint>, Problem> {
        let mut points = Vec::new();
        for batch_bytes in BATCH_BYTES {
            for window in WINDOW_SIZES {
                let setting = SettingView { batch_bytes, window };
                points.push(self.measure_point(setting)?);
            }
        }
        Ok(points)
    }

    fn measure_point(&self, setting: SettingView) -> Result<MeasuredPoint, Problem> {
        let held =
            set(self.admin_address, Some((setting, self.load.point_duration_ms + OVERHEAD_MS)))?;
        if held.chosen != setting {
            let what = format_args!(
                "the node holds {} instead of {}",
                held.chosen.format_setting(),
                setting.format_setting()
            );
            return Err(Problem::new(Kind::Failed, "not_held", what));
        }
        let samples = self.run_closed_loop(self.warmup_duration())?;
        // The prediction uses the parameters that the model has just learned under this load.
        let predicted = fetch_tuning(self.admin_address)?.predicted_performance(setting);
        let point = MeasuredPoint {
            batch_bytes: setting.batch_bytes,
            window: setting.window,
            throughput: samples.completed_per_second(),
            p50_us: samples.latencies.quantile_us(0.5),
            p99_us: samples.latencies.quantile_us(0.99),
            predicted,
        };
        progress(&format!(
            "{}: {}/s, p99 {:.0} µs",
            setting.format_setting(),
            format_thousands(point.throughput),
            point.p99_us
        ));
        Ok(point)
    }

    /// Runs a closed loop with the current setting.
    fn run_closed_loop(&self, warmup: Duration) -> Result<Samples, Problem> {
        extend_until_completed(self.load.point_duration_ms, |ms| {
            self.run_closed_loop_for(ms, warmup)
        })
    }

    fn run_closed_loop_for(&self, ms: u64, warmup: Duration) -> Result<Samples, Problem> {
        fn run<P: Protocol + Send + 'static>(
            plan: LoadPlan,
            client: SocketAddr,
            protocol: P,
        ) -> io::Result<Samples> {
            RunningLoad::start(plan, vec![client.into()], protocol)?.finish()
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let plan = LoadPlan {
            offer: OfferedLoad::Closed { outstanding: self.load.outstanding },
            connections: self.load.connections,
            warmup_ns: nanos(warmup),
            measure_ns: ms * 1_000_000,
            reply_timeout_ns: nanos(REPLY_TIMEOUT),
        };
        let size = self.load.value_bytes as usize;
        let samples = match self.is_kv_service {
            true => run(plan, self.client_address, RespEncoder::new(size, KEY_COUNT, 0)),
            false => run(plan, self.client_address, FramedEncoder::new(size)),
        };
        let failed = |why: &str| {
            let what = format_args!("the load at {} failed: {why}", self.client_address);
            Problem::new(Kind::Failed, "load_failed", what).with_hint("see 'quorate status'")
        };
        let samples = samples.map_err(|error| failed(&error.to_string()))?;
        match &samples.first_error {
            Some(error) => Err(failed(error)),
            None => Ok(samples),
        }
    }
}

impl MeasuredPoint {
    const fn setting(&self) -> SettingView {
        SettingView { batch_bytes: self.batch_bytes, window: self.window }
    }
}

impl SweepView {
    /// Returns the measured points for display as a grid.
    pub fn grid_points(&self) -> Vec<PointView> {
        let point = |point: &MeasuredPoint| PointView {
            batch_bytes: point.batch_bytes,
            window: point.window,
            throughput: point.throughput,
            latency_us: point.p50_us,
        };
        self.measured.iter().map(point).collect()
    }

    /// Formats the result for people.
    pub fn format_summary(&self) -> String {
        let mut text = format!(
            "best: {} with {}/s; the node itself chose {}, with {}/s: {:.0} % of it\n",
            self.best.format_setting(),
            format_thousands(self.best_throughput),
            self.chosen.format_setting(),
            format_thousands(self.chosen_throughput),
            self.chosen_by_best * 100.0
        );
        if let (Some(median), Some(max)) = (self.model_error_median, self.model_error_max) {
            text.push_str(&format!(
                "the model is off by {:.0} % (median), {:.0} % at most\n",
                median * 100.0,
                max * 100.0
            ));
        }
        text
    }
}

/// Repeats a measurement with more time until a command completes, because a rate of zero is
/// uninformative. Fails if no command completes within the longest time.
fn extend_until_completed(
    mut ms: u64,
    mut measure: impl FnMut(u64) -> Result<Samples, Problem>,
) -> Result<Samples, Problem> {
    loop {
        let samples = measure(ms)?;
        if samples.completed > 0 {
            return Ok(samples);
        }
        if ms >= MEASUREMENT_MS_MAX {
            let what = format_args!("no command was done within {ms} ms");
            return Err(Problem::new(Kind::Failed, "nothing_done", what)
                .with_hint("see 'quorate status'; a longer --point-ms tolerates pauses"));
        }
        ms = (ms * 4).min(MEASUREMENT_MS_MAX);
    }
}

/// Returns the relative errors of the predictions in ascending order.
fn prediction_errors(measured: &[MeasuredPoint]) -> Vec<f64> {
    let mut errors: Vec<f64> = measured
        .iter()
        .filter(|point| point.throughput > 0.0)
        .filter_map(|point| Some((point.predicted? / point.throughput - 1.0).abs()))
        .collect();
    errors.sort_by(f64::total_cmp);
    errors
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Fetches the tuner status of the node with admin address `admin`.
pub fn fetch_tuning(admin: &str) -> Result<TuningView, Problem> {
    parse_tuning(admin, client::get(admin, "/tuning", ADMIN_TIMEOUT))
}

/// Returns control of the setting to the node.
pub fn release_setting(admin: &str) -> Result<(), Problem> {
    set(admin, None).map(drop)
}

/// Fixes a setting for some milliseconds. `None` returns control to the node.
fn set(admin: &str, hold: Option<(SettingView, u64)>) -> Result<TuningView, Problem> {
    let hold = hold.map(|(setting, ms)| HoldView {
        batch_bytes: setting.batch_bytes,
        window: setting.window,
        ms,
    });
    let body = serde_json::to_string(&HoldRequest { hold }).expect("plain data");
    parse_tuning(admin, client::post(admin, "/tuning", &body, ADMIN_TIMEOUT))
}

fn parse_tuning(
    admin: &str,
    response: Result<client::Response, client::Error>,
) -> Result<TuningView, Problem> {
    let response = response.map_err(|error| Problem::unreachable_node(admin, error))?;
    response.parse_json().map_err(|refusal| {
        Problem::new(Kind::Unreachable, "tuning_failed", refusal.message).with_hint(refusal.hint)
    })
}

/// Returns the total number of client connections to all nodes that reply.
pub fn client_count(cluster: &ClusterView) -> Result<u64, Problem> {
    let views = cluster.nodes.iter().filter_map(Answer::node_view);
    let mut count = 0;
    for view in views {
        let own = view.members.iter().find(|member| member.node == view.node);
        let Some(admin) = own.and_then(|member| member.admin.as_deref()) else {
            continue;
        };
        let metrics = client::get(admin, "/metrics", ADMIN_TIMEOUT)
            .map_err(|error| Problem::unreachable_node(admin, error))?
            .body;
        count += parse_connections(&metrics);
    }
    Ok(count)
}

fn parse_connections(metrics: &str) -> u64 {
    let mut lines = metrics.lines();
    let found = lines.find_map(|line| line.strip_prefix("quorate_connections "));
    found.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(throughput: f64, predicted: Option<f64>) -> MeasuredPoint {
        MeasuredPoint {
            batch_bytes: 4096,
            window: 1,
            throughput,
            p50_us: 1.0,
            p99_us: 2.0,
            predicted,
        }
    }

    #[test]
    fn model_error_is_relative_to_the_measurement() {
        let points = [
            point(100.0, Some(150.0)),
            point(100.0, Some(90.0)),
            point(100.0, None),
            point(0.0, Some(5.0)),
        ];
        let errors = prediction_errors(&points);
        assert_eq!(errors.len(), 2);
        assert!((errors[0] - 0.1).abs() < 1e-9 && (errors[1] - 0.5).abs() < 1e-9);
    }

    #[test]
    fn paused_run_is_repeated_and_a_stalled_one_is_an_error() {
        let mut asked = Vec::new();
        let mut pauses_below = |done_from: u64| {
            asked.clear();
            let samples = extend_until_completed(50, |ms| {
                asked.push(ms);
                Ok(Samples { completed: u64::from(ms >= done_from), ..Samples::default() })
            });
            (samples.map(|samples| samples.completed), asked.clone())
        };
        assert_eq!(pauses_below(50).1, [50]);
        let (done, asked) = pauses_below(500);
        assert_eq!((done.unwrap(), asked), (1, vec![50, 200, 800]));
        let (failed, asked) = pauses_below(u64::MAX);
        assert_eq!(failed.unwrap_err().code, "nothing_done");
        assert_eq!(asked, [50, 200, 800, 3200, 5000]);
    }

    #[test]
    fn connections_are_read_from_the_metrics() {
        let text = "# TYPE quorate_connections gauge\nquorate_connections 12\n";
        assert_eq!(parse_connections(text), 12);
        assert_eq!(parse_connections(""), 0);
    }
}
