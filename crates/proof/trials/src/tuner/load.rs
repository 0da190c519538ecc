//! Load from `quorate bench` on running nodes, and its parsed report.

use std::{
    io::Read as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use quorate_testbed::{cpus::CpuDivision, nodes::NodeCluster};
use serde_json::Value;

use super::watch::UsageWatch;
use crate::{nodes::program_path, shell::Failed};

/// Interval between samples of the processes.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// Windows of `replies_over_time` per second.
pub(super) const WINDOWS_PER_SECOND: usize = 10;

/// Offered load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfferedLoad {
    /// Number of outstanding commands.
    Closed(u32),
    /// Number of commands per second.
    Open(u64),
}

/// A load, and the nodes that receive it.
#[derive(Clone, Debug)]
pub(super) struct LoadRequest {
    /// `kv` or `log`.
    pub(super) service: &'static str,
    /// Client addresses.
    pub(super) client_addresses: String,
    pub(super) offer: OfferedLoad,
    pub(super) connections: u32,
    pub(super) value_bytes: u32,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
}

/// Result of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LoadRow {
    pub(super) achieved_per_s: f64,
    pub(super) p99_us: f64,
    pub(super) errors: f64,
    pub(super) lost: f64,
    pub(super) late: f64,
    /// Reasons why the benchmark considers the result invalid.
    pub(super) invalid_reasons: Vec<String>,
    /// Successful replies per tenth of a second while commands were sent, including the warm-up.
    pub(super) replies_over_time: Vec<f64>,
    /// Total of successful replies.
    pub(super) reply_count: f64,
    /// Raw report.
    pub(super) raw_report: Value,
}

/// Runs the load, on the generator's CPU if CPUs are divided, and samples the processes while it
/// runs.
pub(super) fn run(
    nodes: &mut NodeCluster,
    cpus: Option<&CpuDivision>,
    ask: &LoadRequest,
) -> Result<(LoadRow, UsageWatch), Failed> {
    let mut command = bench_command(ask);
    let mut start = || command.spawn();
    let mut child = match cpus {
        Some(cpus) => cpus.with_generator_cpu(start)?,
        None => start()?,
    };
    let mut watch = UsageWatch::new(nodes.process_ids(), child.id());
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.map(|mut stdout| stdout.read_to_string(&mut text));
        read.and_then(Result::ok).map(|_| text)
    });
    while !reader.is_finished() {
        watch.add_sample();
        thread::sleep(SAMPLE_INTERVAL);
    }
    child.wait()?;
    nodes.check_alive()?;
    let text = reader.join().ok().flatten().unwrap_or_default();
    let windows = (ask.warmup + ask.duration).as_millis() / 100;
    let row = serde_json::from_str(&text).ok().and_then(|document: Value| {
        LoadRow::parse(&document, usize::try_from(windows).unwrap_or(usize::MAX))
    });
    let row = row.ok_or_else(|| Failed(format!("the load gave no row: {}", text.trim())))?;
    Ok((row, watch))
}

fn bench_command(ask: &LoadRequest) -> Command {
    let mut command = Command::new(program_path());
    let (flag, amount) = match ask.offer {
        OfferedLoad::Closed(outstanding) => ("--outstanding", u64::from(outstanding)),
        OfferedLoad::Open(rate) => ("--rate", rate),
    };
    let time = |time: Duration| format!("{}ms", time.as_millis().max(1));
    command
        .args(["bench", ask.service, "--repeat", "1", "--json"])
        .args(["--connect", &ask.client_addresses])
        .args([flag, &amount.to_string()])
        .args(["--connections", &ask.connections.to_string()])
        .args(["--value-size", &ask.value_bytes.to_string()])
        .args(["--warmup", &time(ask.warmup)])
        .args(["--duration", &time(ask.duration)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

impl LoadRow {
    /// Parses the only row of a report.
    fn parse(document: &Value, windows: usize) -> Option<Self> {
        let raw = document["rows"].as_array()?.first()?.clone();
        let number = |name: &str| raw[name].as_f64();
        let words = raw["why_not"].as_array()?.iter();
        let why_not = words.filter_map(|word| Some(word.as_str()?.to_owned()));
        let counts = raw["over_time"].as_array()?.iter();
        let mut over_time: Vec<f64> = counts.filter_map(Value::as_f64).collect();
        let done = over_time.iter().sum();
        // Trailing windows without a reply count as well.
        over_time.resize(windows, 0.0);
        Some(Self {
            achieved_per_s: number("achieved_per_s")?,
            p99_us: number("p99_us")?,
            errors: number("errors")?,
            lost: number("lost")?,
            late: number("late_share")?,
            invalid_reasons: why_not.collect(),
            replies_over_time: over_time,
            reply_count: done,
            raw_report: raw.clone(),
        })
    }

    /// Returns the share of `-BUSY` replies, if that was the first error.
    pub(super) fn busy_share(&self) -> f64 {
        if self.is_busy() { self.errors / (self.errors + self.reply_count).max(1.0) } else { 0.0 }
    }

    fn is_busy(&self) -> bool {
        let mut words = self.invalid_reasons.iter();
        words.any(|word| word.contains("(the first: BUSY"))
    }

    /// Returns a description of errors that clients must never see: any error but a refusal, or a
    /// missing reply; `None` if there were none.
    pub(super) fn harmful_errors(&self) -> Option<String> {
        let words = || self.invalid_reasons.join("; ");
        let harmed = self.lost > 0.0 || (self.errors > 0.0 && !self.is_busy());
        harmed.then(words)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(errors: u32, lost: u32, why_not: &str) -> LoadRow {
        let row = json!({
            "achieved_per_s": 100.0, "p99_us": 5.0, "errors": errors, "lost": lost,
            "late_share": 0.5, "why_not": [why_not], "over_time": [10, 20, 30, 40]
        });
        LoadRow::parse(&json!({ "rows": [row] }), 3).unwrap()
    }

    #[test]
    fn row_is_parsed() {
        let row = row(0, 0, "late");
        assert_eq!(row.replies_over_time, [10.0, 20.0, 30.0], "while it sent");
        assert_eq!((row.reply_count, row.achieved_per_s, row.late), (100.0, 100.0, 0.5));
        assert_eq!((row.busy_share(), row.harmful_errors()), (0.0, None));
        assert_eq!(LoadRow::parse(&json!({"error": "unreachable"}), 3), None);
    }

    #[test]
    fn windows_without_a_reply_count() {
        let row = json!({
            "achieved_per_s": 1.0, "p99_us": 5.0, "errors": 0, "lost": 0,
            "late_share": 0.0, "why_not": [], "over_time": [10]
        });
        let row = LoadRow::parse(&json!({ "rows": [row] }), 3).unwrap();
        assert_eq!(row.replies_over_time, [10.0, 0.0, 0.0]);
    }

    #[test]
    fn refused_commands_do_not_count_as_harm() {
        let refused = row(100, 0, "100 errors (the first: BUSY not executed: later)");
        assert_eq!((refused.busy_share(), refused.harmful_errors()), (0.5, None));
        assert!(row(1, 0, "1 errors (the first: UNKNOWN)").harmful_errors().is_some());
        let unknown = row(0, 1, "1 replies lost");
        assert_eq!(unknown.harmful_errors(), Some("1 replies lost".to_owned()));
    }
}
