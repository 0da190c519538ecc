//! One run of Quorate: `quorate bench log` on its own segment, and the figures from its report.

use std::process::{Command, Stdio};

use quorate_testbed::segment::Lan;
use serde_json::Value;

use super::{
    MulticastOptions,
    figures::{MeasuredTurn, MulticastCell},
};
use crate::shell::{self, Failed};

/// Bytes of commands in flight.
const IN_FLIGHT_BYTES: usize = 2 << 20;
/// Maximum number of voting members; the rest are learners.
const VOTERS_MAX: u32 = 5;

/// Runs the turn on links of the same speed. The segment of the other systems is idle during this
/// time.
pub(super) fn run_turn(
    wish: &MulticastOptions,
    speed: Lan,
    cell: MulticastCell,
) -> Result<MeasuredTurn, Failed> {
    let mut command = Command::new("setpriv");
    // The command stops its nodes on a signal, which it must also get if this process is killed.
    command
        .args(["--pdeathsig", "TERM"])
        .arg(shell::release_path("quorate"))
        .args(bench_flags(wish, speed, cell));
    let output = command.stdin(Stdio::null()).output()?;
    // An invalid row is a failure of the program. Its report has the reason.
    parse_figures(&String::from_utf8_lossy(&output.stdout), cell.bytes).map_err(|why| {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim().lines().next_back().unwrap_or_default();
        Failed(format!("{why}; it said: {last}"))
    })
}

fn bench_flags(wish: &MulticastOptions, speed: Lan, cell: MulticastCell) -> Vec<String> {
    let voters = VOTERS_MAX.min(cell.receiver_count + 1);
    let millis = |time: std::time::Duration| format!("{}ms", time.as_millis());
    let words = [
        ("--lan", speed.name()),
        ("--nodes", voters.to_string()),
        ("--learners", (cell.receiver_count + 1 - voters).to_string()),
        ("--durability", "volatile".to_owned()),
        ("--plane", "multicast".to_owned()),
        ("--votes", "ring".to_owned()),
        ("--value-size", cell.bytes.to_string()),
        ("--outstanding", outstanding_commands(cell.bytes).to_string()),
        ("--warmup", millis(wish.warmup_duration())),
        ("--duration", millis(wish.duration)),
        ("--repeat", "1".to_owned()),
    ];
    let mut out = vec!["bench".to_owned(), "log".to_owned()];
    for (flag, value) in words {
        out.extend([flag.to_owned(), value]);
    }
    out.push("--json".to_owned());
    out
}

fn outstanding_commands(size: usize) -> usize {
    (IN_FLIGHT_BYTES / size.max(1)).clamp(16, 16_384)
}

/// Parses the figures of the JSON report.
#[expect(clippy::cast_precision_loss, reason = "a size")]
fn parse_figures(document: &str, size: usize) -> Result<MeasuredTurn, String> {
    let document: Value = serde_json::from_str(document).map_err(|error| error.to_string())?;
    let row = &document["rows"][0];
    if row["valid"] != true {
        return Err(format!("no result: {}", row["why_not"]));
    }
    let number = |name: &str| row[name].as_f64().ok_or_else(|| format!("no {name}"));
    // Take the lower of the acknowledged rate and the slowest node's delivered rate.
    let per_second = number("achieved_per_s")?.min(number("delivered_per_s")?);
    let roles = row["roles"].as_array().ok_or("no roles")?;
    // Include the load's CPU time: the other systems have it in their processes.
    let us_per_op: f64 = roles
        .iter()
        .flat_map(|role| [&role["user_us_per_op"], &role["system_us_per_op"]])
        .filter_map(Value::as_f64)
        .sum();
    Ok(MeasuredTurn {
        slowest_mbit: per_second * size as f64 * 8.0 / 1e6,
        cpu_s_per_gb: us_per_op * 1e3 / size as f64,
        foreign_cpu: row["foreign_cpu"].as_f64().unwrap_or(0.0),
        dropped_packets: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_of_the_slowest_node_and_cpu_of_all() {
        let row = |valid: bool| {
            format!(
                r#"{{"rows": [{{"valid": {valid}, "why_not": ["late"], "achieved_per_s": 12000.0, "delivered_per_s": 10000.0,
                "foreign_cpu": 0.05, "roles": [{{"role": "leader", "user_us_per_op": 10.0, "system_us_per_op": 20.0}},
                {{"role": "generator", "user_us_per_op": 1.0, "system_us_per_op": 9.0}}]}}]}}"#
            )
        };
        let measured = parse_figures(&row(true), 1000).unwrap();
        assert!((measured.slowest_mbit - 80.0).abs() < 1e-9);
        assert!((measured.cpu_s_per_gb - 40.0).abs() < 1e-9);
        assert!(parse_figures(&row(false), 1000).unwrap_err().contains("late"));
        assert!(parse_figures("{}", 1000).is_err());
        assert!(parse_figures("no", 1000).is_err());
    }

    #[test]
    fn all_nodes_but_the_leader_are_receivers() {
        let wish = super::super::parse(&[]).unwrap();
        let speed = Lan::parse_speed("1gbit").unwrap();
        let line = |receivers| {
            let cell =
                MulticastCell { link_megabits: 1000, receiver_count: receivers, bytes: 8192 };
            bench_flags(&wish, speed, cell).join(" ")
        };
        assert!(line(25).contains("--lan 1gbit --nodes 5 --learners 21 "));
        assert!(line(4).contains("--nodes 5 --learners 0 "));
        assert!(line(1).contains("--nodes 2 --learners 0 "));
        assert!(line(1).contains("--outstanding 256 "));
        assert_eq!(outstanding_commands(200), 10_485);
        assert_eq!(outstanding_commands(512 << 10), 16);
    }
}
