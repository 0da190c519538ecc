//! The node's own choice compared with the best of a grid: `quorate tune --sweep` in each scenario.
//!
//! Its last part measures the best point again, alternating with the node's own choice, since the
//! maximum of thirty points is partly luck.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{SCENARIOS, TunerScenario, save_results};
use crate::{
    nodes::{self, program_path},
    shell::Failed,
};

/// Share of the best point that the node's own choice must reach.
const OWN_TO_BEST_MIN: f64 = 0.90;

/// Runs `[--point-ms N] [NAME…]`: scenarios whose name contains one of the words.
pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let (point_ms, names) = match words {
        ["--point-ms", ms, names @ ..] => (*ms, names),
        names => ("500", names),
    };
    println!(
        "{:<30} {:>14} {:>14} {:>12} {:>12}  model off by",
        "scenario", "best", "its own", "of the best", "its own/s"
    );
    let wanted = |name: &str| names.is_empty() || names.iter().any(|word| name.contains(word));
    let mut below = 0;
    for scenario in SCENARIOS.iter().filter(|scenario| wanted(scenario.name)) {
        let sweep = run_sweep(scenario, point_ms)?;
        let number = |key: &str| sweep[key].as_f64().unwrap_or(f64::NAN);
        let part = number("chosen_by_best");
        below += u32::from(part < OWN_TO_BEST_MIN);
        println!(
            "{:<30} {:>14} {:>14} {:>10.1} % {:>12.0}  {:.0} %",
            scenario.name,
            format_setting(&sweep["best"]),
            format_setting(&sweep["chosen"]),
            part * 100.0,
            number("chosen_throughput"),
            number("model_error_median") * 100.0
        );
    }
    if below > 0 {
        let least = OWN_TO_BEST_MIN * 100.0;
        return Err(Failed(format!("{below} scenarios below {least:.0} %")));
    }
    Ok(())
}

fn format_setting(setting: &Value) -> String {
    let kib = setting["batch_bytes"].as_u64().unwrap_or(0) >> 10;
    format!("{kib} KiB x {}", setting["window"])
}

fn run_sweep(scenario: &TunerScenario, point_ms: &str) -> Result<Value, Failed> {
    let TunerScenario { name, value_bytes, outstanding, connections, .. } = scenario;
    let nodes = nodes::start_ready(3, &scenario.node_flags())?;
    let admin = nodes.admin_addresses();
    let output = Command::new(program_path())
        .args(["tune", "--sweep", "--yes", "--json", "--admin"])
        .args(admin.first())
        .args(["--point-ms", point_ms])
        .args(["--value-size", &value_bytes.to_string()])
        .args(["--outstanding", &outstanding.to_string()])
        .args(["--connections", &connections.to_string()])
        .stderr(Stdio::null())
        .output()?;
    let json: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failed(format!("{name}: {error}")))?;
    // Save the whole grid for later inspection.
    save_results(name, &json)?;
    match &json["sweep"] {
        Value::Null => Err(Failed(format!("{name}: {json}"))),
        sweep => Ok(sweep.clone()),
    }
}
