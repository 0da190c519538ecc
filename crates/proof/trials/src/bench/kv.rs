//! The key-value service under redis-benchmark, alternating with one unreplicated Redis.
//!
//! Each row is measured A B A B, so that other load on the machine affects both. A durable cluster
//! is compared with a Redis that syncs every write, a volatile cluster with a Redis that never
//! syncs. A trial run determines the number of requests, so that every run takes about the same
//! time.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use quorate_bench::figure::median;
use quorate_testbed::resp::answers_ping;
use serde::Serialize;

use super::{BenchOptions, Report, cpu_count, load_average};
use crate::{
    nodes::{self, wait_for},
    shell::{self, Failed, is_installed, report_skip},
};

const RUN_COUNT: usize = 5;
const QUICK_RUN_COUNT: usize = 5;
/// Target duration of a run, in seconds.
const RUN_SECONDS: f64 = 0.35;
const QUICK_RUN_SECONDS: f64 = 0.2;
/// Connections and pipeline depth of each load.
const LOADS: [(u32, u32); 6] = [(1, 1), (1, 16), (50, 1), (50, 16), (256, 1), (256, 16)];
const QUICK_LOADS: [(u32, u32); 3] = [(1, 1), (50, 1), (256, 16)];
const COMMANDS: [&str; 2] = ["SET", "GET"];
const VALUE_BYTES: u32 = 64;
/// Number of distinct keys.
const KEY_COUNT: u32 = 100_000;
/// Minimum number of requests in a trial run.
const TRIAL_REQUESTS_MIN: u32 = 512;
const REQUESTS_MAX: u32 = 2_000_000;
/// Class and store of each cluster, with the sync options of the Redis compared with it.
const CLUSTER_KINDS: [(&str, &str, &[&str]); 4] = [
    ("durable", "memory", &["--appendonly", "yes", "--appendfsync", "always"]),
    ("durable", "lsm", &["--appendonly", "yes", "--appendfsync", "always"]),
    ("volatile", "memory", &["--appendonly", "no"]),
    ("volatile", "lsm", &["--appendonly", "no"]),
];

/// Result of one run of redis-benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BenchmarkRun {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

struct Row {
    command: &'static str,
    connections: u32,
    pipeline: u32,
    quorate_runs: Vec<BenchmarkRun>,
    /// Runs of Redis; empty if Redis is not installed.
    redis_runs: Vec<BenchmarkRun>,
}

impl Row {
    /// Returns our throughput divided by Redis', run by run.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.quorate_runs.iter().zip(&self.redis_runs);
        pairs.map(|(our, their)| our.per_second / their.per_second).collect()
    }
}

fn figure_of_runs(runs: &[BenchmarkRun], field: fn(&BenchmarkRun) -> f64) -> f64 {
    median(runs.iter().map(field))
}

pub(super) fn run(wish: BenchOptions) -> Result<(), Failed> {
    if !is_installed("redis-benchmark") {
        return report_skip("bench kv", "redis-benchmark is not installed; ./setup installs it");
    }
    if !is_installed("redis-server") {
        let why = "redis-server is not installed";
        if wish.json {
            eprintln!("SKIPPED Redis for comparison: {why}");
        } else {
            println!("SKIPPED Redis for comparison: {why}");
        }
    }
    shell::build_release()?;
    let began = Instant::now();
    if !wish.json {
        println!(
            "redis-benchmark, values of {VALUE_BYTES} bytes, {KEY_COUNT} keys; three nodes on loopback, clients at the"
        );
        println!(
            "leader, in turns with one unreplicated Redis; medians of {} runs; {} CPUs\n",
            run_count(wish),
            cpu_count()
        );
    }
    let mut reports = Vec::new();
    for (class, store, sync) in CLUSTER_KINDS {
        if wish.quick && store == "lsm" {
            continue;
        }
        let rows = measure_cluster_kind(wish, class, store, sync)?;
        if wish.json {
            reports.extend(rows.iter().map(|row| to_figures(class, store, row)));
        } else {
            print_table(class, store, sync, &rows);
        }
    }
    if wish.json {
        let report = Report {
            bench: "kv",
            instructions_by: None,
            runs: run_count(wish),
            value_bytes: Some(VALUE_BYTES),
            cpus: Some(cpu_count()),
            load: load_average(),
            rows: reports,
        };
        report.print();
    } else {
        println!("{:.0} s", began.elapsed().as_secs_f64());
    }
    Ok(())
}

const fn run_count(wish: BenchOptions) -> usize {
    if wish.quick { QUICK_RUN_COUNT } else { RUN_COUNT }
}

fn measure_cluster_kind(
    wish: BenchOptions,
    class: &str,
    store: &str,
    sync: &[&str],
) -> Result<Vec<Row>, Failed> {
    let nodes = nodes::start_serving(3, &["--store", store, "--durability", class])?;
    let leader = nodes.leader()?;
    let place = nodes.ids().iter().position(|id| *id == leader).unwrap_or(0);
    let ours = nodes.client_ports()[place];
    // Keep Redis' files on the same file system as the nodes.
    let redis = is_installed("redis-server")
        .then(|| Redis::start(nodes.data_folder(), sync))
        .transpose()?;
    let theirs = redis.as_ref().map(|redis| redis.port);
    let loads: &[(u32, u32)] = if wish.quick { &QUICK_LOADS } else { &LOADS };
    let mut rows = Vec::new();
    for command in COMMANDS {
        for &(connections, pipeline) in loads {
            eprintln!(
                "{class}, {store}: {command}, {connections} connections, pipeline {pipeline}"
            );
            rows.push(measure_row(wish, ours, theirs, command, connections, pipeline)?);
        }
    }
    Ok(rows)
}

fn measure_row(
    wish: BenchOptions,
    ours: u16,
    theirs: Option<u16>,
    command: &'static str,
    connections: u32,
    pipeline: u32,
) -> Result<Row, Failed> {
    let go = |port, requests| run_redis_benchmark(port, command, connections, pipeline, requests);
    let seconds = if wish.quick { QUICK_RUN_SECONDS } else { RUN_SECONDS };
    let trial = TRIAL_REQUESTS_MIN.max(connections * pipeline * 4);
    let enough = |port| {
        let rate = go(port, trial)?.per_second;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
        let requests = (rate * seconds) as u32;
        Ok::<_, Failed>(requests.clamp(trial, REQUESTS_MAX))
    };
    let our_requests = enough(ours)?;
    let their_requests = theirs.map(enough).transpose()?;
    let mut row =
        Row { command, connections, pipeline, quorate_runs: Vec::new(), redis_runs: Vec::new() };
    for _ in 0..run_count(wish) {
        row.quorate_runs.push(go(ours, our_requests)?);
        if let (Some(port), Some(requests)) = (theirs, their_requests) {
            row.redis_runs.push(go(port, requests)?);
        }
    }
    Ok(row)
}

/// Runs redis-benchmark once. Fails on an error reply.
fn run_redis_benchmark(
    port: u16,
    command: &str,
    connections: u32,
    pipeline: u32,
    requests: u32,
) -> Result<BenchmarkRun, Failed> {
    let mut program = Command::new("redis-benchmark");
    program.args(["-h", "127.0.0.1", "--csv", "-e", "-t", &command.to_lowercase()]);
    for (flag, number) in [
        ("-p", u32::from(port)),
        ("-c", connections),
        ("-P", pipeline),
        ("-n", requests),
        ("-d", VALUE_BYTES),
        ("-r", KEY_COUNT),
    ] {
        program.arg(flag).arg(number.to_string());
    }
    let output = program.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let run = parse_run(&text, command);
    match run {
        Some(run) if output.status.success() && !said.contains("rror from server") => Ok(run),
        _ => Err(Failed(format!("{program:?}: {}\n{text}{said}", output.status))),
    }
}

/// Parses a line `"test","rps","avg_latency_ms","min_…","p50_…","p95_…","p99_…","max_…"`.
fn parse_run(text: &str, command: &str) -> Option<BenchmarkRun> {
    let quoted = format!("\"{command}\",");
    let line = text.lines().find_map(|line| line.strip_prefix(&quoted))?;
    let fields: Vec<f64> =
        line.split(',').filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    let [per_second, _average, _min, p50_ms, _p95, p99_ms, _max] = fields[..] else {
        return None;
    };
    Some(BenchmarkRun { per_second, p50_ms, p99_ms })
}

fn print_table(class: &str, store: &str, sync: &[&str], rows: &[Row]) {
    let sync = sync.join(" ").replace("--", "");
    println!("{class}, store {store}                          compared with redis-server {sync}");
    println!(
        "  {:7} {:>5} {:>4} {:>12} {:>9} {:>9} {:>12} {:>9}  {:>6}  {:>13}",
        "",
        "conns",
        "pipe",
        "quorate/s",
        "p50 ms",
        "p99 ms",
        "redis/s",
        "p99 ms",
        "ratio",
        "of the runs"
    );
    for row in rows {
        let ratios = row.ratios();
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        let (redis, redis_p99, ratio, spread) = if ratios.is_empty() {
            ("-".to_owned(), "-".to_owned(), "-".to_owned(), String::new())
        } else {
            (
                format!("{:.0}", figure_of_runs(&row.redis_runs, |run| run.per_second)),
                format!("{:.3}", figure_of_runs(&row.redis_runs, |run| run.p99_ms)),
                format!("{:.2}", median(ratios)),
                format!("{low:.2} - {high:.2}"),
            )
        };
        println!(
            "  {:7} {:5} {:4} {:12.0} {:9.3} {:9.3} {redis:>12} {redis_p99:>9}  {ratio:>6}  {spread:>13}",
            row.command,
            row.connections,
            row.pipeline,
            figure_of_runs(&row.quorate_runs, |run| run.per_second),
            figure_of_runs(&row.quorate_runs, |run| run.p50_ms),
            figure_of_runs(&row.quorate_runs, |run| run.p99_ms),
        );
    }
    println!("  load of the machine {}\n", load_average());
}

/// JSON form of a row.
#[derive(Serialize)]
struct Figures {
    durability: &'static str,
    store: &'static str,
    command: &'static str,
    connections: u32,
    pipeline: u32,
    quorate_per_s: f64,
    quorate_p50_ms: f64,
    quorate_p99_ms: f64,
    redis_per_s: f64,
    redis_p50_ms: f64,
    redis_p99_ms: f64,
    ratio: f64,
}

fn to_figures(class: &'static str, store: &'static str, row: &Row) -> Figures {
    Figures {
        durability: class,
        store,
        command: row.command,
        connections: row.connections,
        pipeline: row.pipeline,
        quorate_per_s: figure_of_runs(&row.quorate_runs, |run| run.per_second),
        quorate_p50_ms: figure_of_runs(&row.quorate_runs, |run| run.p50_ms),
        quorate_p99_ms: figure_of_runs(&row.quorate_runs, |run| run.p99_ms),
        redis_per_s: figure_of_runs(&row.redis_runs, |run| run.per_second),
        redis_p50_ms: figure_of_runs(&row.redis_runs, |run| run.p50_ms),
        redis_p99_ms: figure_of_runs(&row.redis_runs, |run| run.p99_ms),
        ratio: median(row.ratios()),
    }
}

/// A Redis process for this benchmark, killed when dropped.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start(folder: &Path, sync: &[&str]) -> Result<Self, Failed> {
        let folder = folder.join("redis");
        std::fs::create_dir_all(&folder)?;
        let port = quorate_testbed::process::free_port()?;
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&folder)
            .args(sync)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let redis = Self { child, port };
        let address = format!("127.0.0.1:{port}");
        wait_for("redis-server", || answers_ping(&address).then_some(()))?;
        Ok(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_redis_benchmark_is_parsed() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
            \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET\",\"100000.00\",\"0.2\",\"0.1\",\"0.3\",\"0.4\",\"0.5\",\"0.6\"\n";
        let run = BenchmarkRun { per_second: 100_000.0, p50_ms: 0.3, p99_ms: 0.5 };
        assert_eq!(parse_run(text, "SET"), Some(run));
        assert_eq!(parse_run(text, "GET"), None);
    }
}
