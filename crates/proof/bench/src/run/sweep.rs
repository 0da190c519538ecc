//! `--sweep`: measures every batch size and window of a grid under a generated load.
//!
//! Each setting is fixed on the node only for a limited time, so that the node returns to its own
//! choice even if this process dies.

use std::{io, net::SocketAddr, time::Duration};

use crate::{
    generator::RunningLoad,
    load::{Offer, Plan},
    protocol::{Protocol, framed::Framed, resp::Resp},
    samples::Samples,
};
use quorate_admin::{
    client,
    tuning::{HoldRequest, HoldView, PointView, SettingView, TuningView},
    units::thousands,
    view::{Answer, ClusterView, NodeView},
};
use serde::Serialize;

use quorate_testbed::progress;

use super::resolve;
use crate::{
    log_service,
    problem::{Kind, Problem},
};

/// Timeout for a request to the node's admin server.
const WAIT: Duration = Duration::from_secs(5);
const BATCHES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const WINDOWS: [usize; 6] = [1, 2, 4, 8, 16, 64];
const KEYS: u64 = 100_000;
/// Time before each measurement, in which the setting takes effect and the load starts; at most the
/// time of a point.
const WARMUP: Duration = Duration::from_millis(250);
/// Factor by which the warm-up is longer when the node chooses for itself, because it has to learn
/// the load.
const SETTLE: u32 = 16;
/// Number of times that the best point and the node's choice are measured alternately.
const TURNS: usize = 5;
/// Maximum time to wait for replies after the last command.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time allowed for connecting, querying the node, and measuring again if no command completed.
const SLACK_MS: u64 = 25_000;
/// Time in milliseconds to which a measurement is extended as long as no command completes, for
/// example on a disk that pauses.
const LONGEST_MS: u64 = 5_000;

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
pub struct Load {
    pub outstanding: u32,
    pub connections: u32,
    pub value_bytes: u32,
    pub point_ms: u64,
}

/// A sweep of the settings of one node.
#[derive(Debug)]
pub struct Sweep<'a> {
    load: Load,
    admin: &'a str,
    client: SocketAddr,
    /// Set if the service is the key-value service, not the log service.
    has_keys: bool,
}

impl<'a> Sweep<'a> {
    /// Returns a sweep of the node with status `view`. `admin` is its admin address.
    pub fn new(load: Load, admin: &'a str, view: &NodeView) -> Result<Self, Problem> {
        let own = view.members.iter().find(|member| member.node == view.node);
        let client = own.and_then(|member| member.client.as_deref());
        let unknown = || {
            let what = format_args!("node {} has no client address", view.node);
            Problem::new(Kind::Failed, "no_client_address", what)
        };
        Ok(Self {
            load,
            admin,
            client: resolve(client.ok_or_else(unknown)?)?,
            has_keys: view.store != log_service::STORE,
        })
    }

    /// Returns the approximate duration of the sweep in seconds.
    pub fn seconds(&self) -> u64 {
        let points = (BATCHES.len() * WINDOWS.len()) as u64;
        points * (self.load.point_ms + 400) / 1000 + 6
    }

    /// Measures the grid, then returns control of the setting to the node.
    pub fn run(&self) -> Result<SweepView, Problem> {
        let measured = self.measure();
        let released = release(self.admin);
        let view = measured?;
        released?;
        Ok(view)
    }

    fn measure(&self) -> Result<SweepView, Problem> {
        let measured = self.grid()?;
        let best = measured
            .iter()
            .max_by(|a, b| a.throughput.total_cmp(&b.throughput))
            .map(MeasuredPoint::setting)
            .ok_or_else(|| Problem::new(Kind::Failed, "no_points", "nothing was measured"))?;
        progress(&format!("{}, the best, and the node's own choice in turns", best.shown()));
        release(self.admin)?;
        self.offer(self.warmup() * SETTLE)?;
        // The highest of many rates is partly luck, so the point is measured again.
        let mut turns = Vec::new();
        for _ in 0..TURNS {
            set(self.admin, Some((best, self.load.point_ms + SLACK_MS)))?;
            let fixed = self.offer(self.warmup())?.per_second();
            release(self.admin)?;
            turns.push((fixed, self.offer(self.warmup())?.per_second()));
        }
        let errors = errors(&measured);
        Ok(SweepView {
            outstanding: self.load.outstanding,
            connections: self.load.connections,
            value_bytes: self.load.value_bytes,
            best,
            best_throughput: median(turns.iter().map(|(fixed, _)| *fixed)),
            chosen: ask(self.admin)?.chosen,
            chosen_throughput: median(turns.iter().map(|(_, own)| *own)),
            chosen_by_best: median(turns.iter().map(|(fixed, own)| own / fixed.max(1.0))),
            model_error_median: errors.get(errors.len() / 2).copied(),
            model_error_max: errors.last().copied(),
            measured,
        })
    }

    fn warmup(&self) -> Duration {
        WARMUP.min(Duration::from_millis(self.load.point_ms))
    }

    fn grid(&self) -> Result<Vec<MeasuredPoint>, Problem> {
        let mut points = Vec::new();
        for batch_bytes in BATCHES {
            for window in WINDOWS {
                let setting = SettingView { batch_bytes, window };
                points.push(self.point(setting)?);
            }
        }
        Ok(points)
    }

    fn point(&self, setting: SettingView) -> Result<MeasuredPoint, Problem> {
        let held = set(self.admin, Some((setting, self.load.point_ms + SLACK_MS)))?;
        if held.chosen != setting {
            let what = format_args!(
                "the node holds {} instead of {}",
                held.chosen.shown(),
                setting.shown()
            );
            return Err(Problem::new(Kind::Failed, "not_held", what));
        }
        let samples = self.offer(self.warmup())?;
        // The prediction uses the parameters that the model has just learned under this load.
        let predicted = ask(self.admin)?.predicted(setting);
        let point = MeasuredPoint {
            batch_bytes: setting.batch_bytes,
            window: setting.window,
            throughput: samples.per_second(),
            p50_us: samples.latencies.quantile_us(0.5),
            p99_us: samples.latencies.quantile_us(0.99),
            predicted,
        };
        progress(&format!(
            "{}: {}/s, p99 {:.0} µs",
            setting.shown(),
            thousands(point.throughput),
            point.p99_us
        ));
        Ok(point)
    }

    /// Runs a closed loop with the current setting.
    fn offer(&self, warmup: Duration) -> Result<Samples, Problem> {
        until_something_is_done(self.load.point_ms, |ms| self.offer_for(ms, warmup))
    }

    fn offer_for(&self, ms: u64, warmup: Duration) -> Result<Samples, Problem> {
        fn run<P: Protocol + Send + 'static>(
            plan: Plan,
            client: SocketAddr,
            protocol: P,
        ) -> io::Result<Samples> {
            RunningLoad::start(plan, vec![client.into()], protocol)?.finish()
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let plan = Plan {
            offer: Offer::Closed { outstanding: self.load.outstanding },
            connections: self.load.connections,
            warmup: nanos(warmup),
            measure: ms * 1_000_000,
            reply_timeout: nanos(PATIENCE),
        };
        let size = self.load.value_bytes as usize;
        let samples = match self.has_keys {
            true => run(plan, self.client, Resp::new(size, KEYS, 0)),
            false => run(plan, self.client, Framed::new(size)),
        };
        let failed = |why: &str| {
            let what = format_args!("the load at {} failed: {why}", self.client);
            Problem::new(Kind::Failed, "load_failed", what).hint("see 'quorate status'")
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
    pub fn points(&self) -> Vec<PointView> {
        let point = |point: &MeasuredPoint| PointView {
            batch_bytes: point.batch_bytes,
            window: point.window,
            throughput: point.throughput,
            latency_us: point.p50_us,
        };
        self.measured.iter().map(point).collect()
    }

    /// Formats the result for people.
    pub fn summary(&self) -> String {
        let mut text = format!(
            "best: {} with {}/s; the node itself chose {}, with {}/s: {:.0} % of it\n",
            self.best.shown(),
            thousands(self.best_throughput),
            self.chosen.shown(),
            thousands(self.chosen_throughput),
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
fn until_something_is_done(
    mut ms: u64,
    mut measure: impl FnMut(u64) -> Result<Samples, Problem>,
) -> Result<Samples, Problem> {
    loop {
        let samples = measure(ms)?;
        if samples.completed > 0 {
            return Ok(samples);
        }
        if ms >= LONGEST_MS {
            let what = format_args!("no command was done within {ms} ms");
            return Err(Problem::new(Kind::Failed, "nothing_done", what)
                .hint("see 'quorate status'; a longer --point-ms tolerates pauses"));
        }
        ms = (ms * 4).min(LONGEST_MS);
    }
}

/// Returns the relative errors of the predictions in ascending order.
fn errors(measured: &[MeasuredPoint]) -> Vec<f64> {
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
pub fn ask(admin: &str) -> Result<TuningView, Problem> {
    answer(admin, client::get(admin, "/tuning", WAIT))
}

/// Returns control of the setting to the node.
pub fn release(admin: &str) -> Result<(), Problem> {
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
    answer(admin, client::post(admin, "/tuning", &body, WAIT))
}

fn answer(
    admin: &str,
    response: Result<client::Response, client::Error>,
) -> Result<TuningView, Problem> {
    let response = response.map_err(|error| Problem::unreachable(admin, error))?;
    response.json().map_err(|refusal| {
        Problem::new(Kind::Unreachable, "tuning_failed", refusal.message).hint(refusal.hint)
    })
}

/// Returns the total number of client connections to all nodes that reply.
pub fn clients(cluster: &ClusterView) -> Result<u64, Problem> {
    let views = cluster.nodes.iter().filter_map(Answer::view);
    let mut count = 0;
    for view in views {
        let own = view.members.iter().find(|member| member.node == view.node);
        let Some(admin) = own.and_then(|member| member.admin.as_deref()) else {
            continue;
        };
        let metrics = client::get(admin, "/metrics", WAIT)
            .map_err(|error| Problem::unreachable(admin, error))?
            .body;
        count += connections(&metrics);
    }
    Ok(count)
}

fn connections(metrics: &str) -> u64 {
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
        let errors = errors(&points);
        assert_eq!(errors.len(), 2);
        assert!((errors[0] - 0.1).abs() < 1e-9 && (errors[1] - 0.5).abs() < 1e-9);
    }

    #[test]
    fn paused_run_is_repeated_and_a_stalled_one_is_an_error() {
        let mut asked = Vec::new();
        let mut pauses_below = |done_from: u64| {
            asked.clear();
            let samples = until_something_is_done(50, |ms| {
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
        assert_eq!(connections(text), 12);
        assert_eq!(connections(""), 0);
    }
}
