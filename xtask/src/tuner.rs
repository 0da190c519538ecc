//! `tuner`: what nodes choose by themselves, beside the best of a grid, on real processes.
//!
//! Each scenario is three nodes on loopback with a modelled disk, and `quorate tune --sweep`. Its last
//! part measures the best point again, in turns with the node's own choice, as the greatest of thirty
//! points is partly luck.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    cluster::nodes::{Nodes, program},
    shell::{Failed, cargo},
};

/// What is asked of it: name, class, a flush in milliseconds, bytes of a value, commands under way,
/// connections.
struct Scenario(&'static str, &'static str, &'static str, u32, u32, u32);

const SCENARIOS: [Scenario; 10] = [
    Scenario("64 B, 256 outstanding", "durable", "0", 64, 256, 4),
    Scenario("64 B, 1 outstanding", "durable", "0", 64, 1, 1),
    Scenario("64 B, volatile", "volatile", "0", 64, 256, 4),
    Scenario("1 KiB, 256 outstanding", "durable", "0", 1024, 256, 4),
    Scenario("64 B, SSD", "durable", "0.1", 64, 256, 4),
    Scenario(
        "1 KiB, SSD, 1000 outstanding",
        "durable",
        "0.1",
        1024,
        1000,
        8,
    ),
    Scenario("64 B, NVMe", "durable", "1", 64, 256, 4),
    Scenario("8 KiB, NVMe, 64 outstanding", "durable", "1", 8192, 64, 4),
    Scenario("64 B, disk, 1000 outstanding", "durable", "8", 64, 1000, 8),
    Scenario(
        "64 KiB, disk, 16 outstanding",
        "durable",
        "8",
        65_536,
        16,
        4,
    ),
];

/// The part of the best that the node's own choice must reach.
const LEAST: f64 = 0.90;

/// `[--point-ms N] [NAME…]`: scenarios whose name contains one of the words.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let (point_ms, names) = match words {
        ["--point-ms", ms, names @ ..] => (*ms, names),
        names => ("500", names),
    };
    cargo(&["build", "--release", "--package", "quorate-cli"])?;
    println!(
        "{:<30} {:>14} {:>14} {:>12} {:>12}  model off by",
        "scenario", "best", "its own", "of the best", "its own/s"
    );
    let wanted = |name: &str| names.is_empty() || names.iter().any(|word| name.contains(word));
    let mut below = 0;
    for scenario in SCENARIOS.iter().filter(|scenario| wanted(scenario.0)) {
        let sweep = sweep(scenario, point_ms)?;
        let number = |key: &str| sweep[key].as_f64().unwrap_or(f64::NAN);
        let part = number("chosen_by_best");
        below += u32::from(part < LEAST);
        println!(
            "{:<30} {:>14} {:>14} {:>10.1} % {:>12.0}  {:.0} %",
            scenario.0,
            shown(&sweep["best"]),
            shown(&sweep["chosen"]),
            part * 100.0,
            number("chosen_throughput"),
            number("model_error_median") * 100.0
        );
    }
    if below > 0 {
        let least = LEAST * 100.0;
        return Err(Failed(format!("{below} scenarios below {least:.0} %")));
    }
    Ok(())
}

fn shown(setting: &Value) -> String {
    let kib = setting["batch_bytes"].as_u64().unwrap_or(0) >> 10;
    format!("{kib} KiB x {}", setting["window"])
}

fn sweep(scenario: &Scenario, point_ms: &str) -> Result<Value, Failed> {
    let Scenario(name, class, flush_ms, value_bytes, outstanding, connections) = scenario;
    let flags = [
        "--store",
        "none",
        "--durability",
        class,
        "--disk-flush-ms",
        flush_ms,
    ];
    let nodes = Nodes::start_without_keys(3, &flags)?;
    let admin = nodes.admin_addresses();
    let output = Command::new(program())
        .args(["tune", "--sweep", "--yes", "--json", "--admin"])
        .args(admin.first())
        .args(["--point-ms", point_ms])
        .args(["--value-size", &value_bytes.to_string()])
        .args(["--outstanding", &outstanding.to_string()])
        .args(["--connections", &connections.to_string()])
        .stderr(Stdio::null())
        .output()?;
    keep(name, &output.stdout)?;
    let json: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failed(format!("{name}: {error}")))?;
    match &json["sweep"] {
        Value::Null => Err(Failed(format!("{name}: {json}"))),
        sweep => Ok(sweep.clone()),
    }
}

/// The whole grid, for whoever wonders.
fn keep(name: &str, json: &[u8]) -> Result<(), Failed> {
    let folder = Path::new("target/tuner");
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{name}.json")), json)?;
    Ok(())
}
