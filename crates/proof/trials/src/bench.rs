//! Component benchmarks: counts taken inside the code, and times compared with other servers in the
//! same run.

mod cluster;
pub(crate) mod core;
mod devices;
mod kv;
pub(crate) mod log;
mod pipeline;
mod recycled;
mod replace;
mod snapshots;
mod sustained;
mod writes;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde::Serialize;

use crate::shell::{Failed, cargo_command, read_output};

const USAGE: &str = "bench [cluster|core|device|log|kv|pipeline|recycled|replace|snapshots [one|behind|lsm]|sustained] [--quick] [--json]";

/// Options for a benchmark and its report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BenchOptions {
    /// Set to measure less and finish sooner.
    quick: bool,
    /// Set to print a JSON document on standard output instead of tables.
    json: bool,
}

/// Runs `cargo xtask bench`.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let (part, flags) = match words {
        [part, flags @ ..] if !part.starts_with("--") => (*part, flags),
        flags => ("cluster", flags),
    };
    let (chosen, flags) = match flags {
        [chosen @ ("one" | "behind" | "lsm"), flags @ ..] if part == "snapshots" => {
            (Some(*chosen), flags)
        }
        flags => (None, flags),
    };
    let mut wish = BenchOptions::default();
    for flag in flags {
        match *flag {
            "--quick" => wish.quick = true,
            "--json" => wish.json = true,
            other => return Err(Failed(format!("{other} is unknown: {USAGE}"))),
        }
    }
    match part {
        "cluster" if !wish.json && !wish.quick => cluster::run(),
        "pipeline" if !wish.json && !wish.quick => pipeline::run(),
        "recycled" if !wish.json => recycled::run(wish),
        "replace" if !wish.json => replace::run(wish),
        "snapshots" if !wish.json => snapshots::run(wish, chosen),
        "sustained" if !wish.json => sustained::run(wish),
        "core" => core::run(wish),
        "device" if !wish.json => devices::run(wish),
        "log" => log::run(wish),
        "kv" => kv::run(wish),
        _ => Err(Failed(USAGE.to_owned())),
    }
}

/// Builds a benchmark for release and returns its path. Cargo's progress goes to standard error.
pub(crate) fn build(package: &str, bench: &str) -> Result<PathBuf, Failed> {
    eprintln!("building {package}'s {bench}");
    let words = ["bench", "--no-run", "--quiet", "--package", package, "--bench", bench];
    let mut command = cargo_command(&words);
    command.arg("--message-format=json");
    // Build the benchmark with the profile of Cargo.toml, even if `.ci/run` overrides it to build
    // faster.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"CARGO_PROFILE_") {
            command.env_remove(name);
        }
    }
    let text = read_output(&mut command)?;
    let path =
        text.split("\"executable\":\"").skip(1).filter_map(|rest| rest.split('"').next()).last();
    path.map(PathBuf::from).ok_or_else(|| Failed(format!("cargo does not say where {bench} is")))
}

/// Runs a benchmark and returns the `name=number` words of its last line.
pub(crate) fn parse_numbers(program: &Path, words: &[&str]) -> Result<Vec<(String, u64)>, Failed> {
    let text = read_output(Command::new(program).args(words))?;
    let line = text.lines().last().unwrap_or_default();
    let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    Ok(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
}

pub(crate) fn find_number(numbers: &[(String, u64)], name: &str) -> Result<u64, Failed> {
    let found = numbers.iter().find(|(other, _)| other == name);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| Failed(format!("a benchmark does not tell its {name}")))
}

#[expect(clippy::cast_precision_loss, reason = "a report")]
pub(crate) const fn to_float(count: u64) -> f64 {
    count as f64
}

/// JSON document on standard output with the measurements.
#[derive(Serialize)]
struct Report<'a, R> {
    bench: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions_by: Option<&'a str>,
    runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<usize>,
    load: String,
    /// One entry per row. Figures that could not be measured are null.
    rows: Vec<R>,
}

impl<R: Serialize> Report<'_, R> {
    fn print(&self) {
        let text = serde_json::to_string(self).expect("plain data");
        println!("{text}");
    }
}

/// Returns the machine's load average over the last minute.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
