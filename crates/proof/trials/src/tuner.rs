//! `tuner`: evaluates the settings that nodes choose automatically, on real processes.
//!
//! Each scenario is three nodes on loopback, optionally with a modelled disk, and the load of
//! `quorate bench` or `quorate tune --sweep`. The result is a ratio of two loads that alternate:
//! another program on the same machine slows down both.

mod default;
mod grid;
mod load;
mod overload;
mod series;
mod step;
mod watch;

use std::fs;

use quorate_testbed::interrupt;
use serde_json::Value;

use crate::shell::{self, Failed, run_cargo};

/// Load and settings of a cluster.
struct TunerScenario {
    name: &'static str,
    class: &'static str,
    /// Duration of the modelled disk's flush, in milliseconds.
    flush_ms: &'static str,
    value_bytes: u32,
    outstanding: u32,
    connections: u32,
}

impl TunerScenario {
    /// Returns the flags of the scenario's nodes.
    fn node_flags(&self) -> [&'static str; 6] {
        ["--store", "none", "--durability", self.class, "--disk-flush-ms", self.flush_ms]
    }
}

const SCENARIOS: [TunerScenario; 10] = [
    scenario("64 B, 256 outstanding", "durable", "0", 64, 256, 4),
    scenario("64 B, 1 outstanding", "durable", "0", 64, 1, 1),
    scenario("64 B, volatile", "volatile", "0", 64, 256, 4),
    scenario("1 KiB, 256 outstanding", "durable", "0", 1024, 256, 4),
    scenario("64 B, SSD", "durable", "0.1", 64, 256, 4),
    scenario("1 KiB, SSD, 1000 outstanding", "durable", "0.1", 1024, 1000, 8),
    scenario("64 B, NVMe", "durable", "1", 64, 256, 4),
    scenario("8 KiB, NVMe, 64 outstanding", "durable", "1", 8192, 64, 4),
    scenario("64 B, disk, 1000 outstanding", "durable", "8", 64, 1000, 8),
    scenario("64 KiB, disk, 16 outstanding", "durable", "8", 65_536, 16, 4),
];

const fn scenario(
    name: &'static str,
    class: &'static str,
    flush: &'static str,
    value_bytes: u32,
    outstanding: u32,
    connections: u32,
) -> TunerScenario {
    TunerScenario { name, class, flush_ms: flush, value_bytes, outstanding, connections }
}

/// Runs `[overload|step|default] [FLAG…] [NAME…]`: scenarios whose name contains one of the words.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    interrupt::clean_up_on_signals()?;
    run_cargo(&["build", "--release", "--bin", "quorate", "--bin", "quorate-tools"])?;
    match words {
        ["overload", rest @ ..] => overload::run(rest),
        ["step", rest @ ..] => step::run(rest),
        ["default", rest @ ..] => default::run(rest),
        rest => grid::run(rest),
    }
}

/// Parses `[--rounds N] [NAME…]`.
fn parse_rounds<'a>(words: &'a [&'a str], usual: usize) -> Result<(usize, &'a [&'a str]), Failed> {
    match words {
        ["--rounds", count, names @ ..] => match count.parse() {
            Ok(count) if count > 0 => Ok((count, names)),
            _ => Err(Failed(format!("{count} is no number of rounds"))),
        },
        names => Ok((usual, names)),
    }
}

/// Returns whether a scenario was requested.
fn is_wanted(name: &str, names: &[&str]) -> bool {
    names.is_empty() || names.iter().any(|word| name.contains(word))
}

/// Saves all results for later inspection.
fn save_results(name: &str, json: &Value) -> Result<(), Failed> {
    let folder = shell::build_folder().join("tuner");
    fs::create_dir_all(&folder)?;
    let file = name.replace('/', "-");
    fs::write(folder.join(format!("{file}.json")), format!("{json:#}\n"))?;
    Ok(())
}
