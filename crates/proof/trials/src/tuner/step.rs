//! `tuner step`: the time from a step in the load until throughput stays near its final level.
//!
//! An idle cluster gets one load after the other, without a pause except for the start of the next
//! generator. Each round runs with the node's own choice and with `--tune off`. The latter changes
//! no setting, so its time shows the effect of the machine's noise alone. The judged time is that
//! of the median of all rounds, window by window, each relative to its final level.

use std::{thread, time::Duration};

use quorate_bench::figure::median;
use serde_json::{Value, json};

use super::{
    is_wanted,
    load::{self, LoadRequest, LoadRow, OfferedLoad, WINDOWS_PER_SECOND},
    parse_rounds, save_results,
    series::{final_level, mean, median_by_window, relative_to, settling_window},
};
use crate::{nodes, shell::Failed};

/// A cluster that runs through all phases.
struct StepScenario {
    name: &'static str,
    class: &'static str,
    flush_ms: &'static str,
}

const SCENARIOS: [StepScenario; 3] = [
    StepScenario { name: "durable", class: "durable", flush_ms: "0" },
    StepScenario { name: "NVMe", class: "durable", flush_ms: "1" },
    StepScenario { name: "volatile", class: "volatile", flush_ms: "0" },
];

struct LoadPhase {
    name: &'static str,
    value_bytes: u32,
    outstanding: u32,
}

const PHASES: [LoadPhase; 5] = [
    phase("idle -> 64 B x 256", 64, 256),
    phase("-> 8 KiB x 16", 8192, 16),
    phase("-> 64 B x 1", 64, 1),
    phase("-> 1 KiB x 1000", 1024, 1000),
    phase("-> 64 B x 256", 64, 256),
];

const fn phase(name: &'static str, value_bytes: u32, outstanding: u32) -> LoadPhase {
    LoadPhase { name, value_bytes, outstanding }
}

/// Duration of each phase.
const PHASE_DURATION: Duration = Duration::from_secs(5);
/// Idle time before the first phase.
const IDLE_DURATION: Duration = Duration::from_secs(1);
const CONNECTIONS: u32 = 4;
/// Windows of a phase's last two seconds, whose mean is its final level.
const FINAL_WINDOWS: usize = 2 * WINDOWS_PER_SECOND;
/// Number of windows whose mean must stay above a share of the final level.
const MEAN_WINDOWS: usize = 3;
const SETTLED_SHARE: f64 = 0.90;
/// Maximum number of windows that a series may take to settle.
const SETTLE_WINDOWS_MAX: usize = 2 * WINDOWS_PER_SECOND;

/// A phase of one turn, with its results.
struct PhaseResult {
    row: LoadRow,
    /// The leader's tuning after the phase.
    tuning: Value,
}

/// A turn through all phases, with the leader's log lines.
struct ScenarioTurn {
    phases: Vec<PhaseResult>,
    changes: Vec<String>,
}

/// Runs `[--rounds N] [NAME…]`.
pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let (rounds, names) = parse_rounds(words, 5)?;
    println!("until throughput stays above 90 % of its end; {rounds} rounds in turns");
    println!(
        "{:<10} {:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}  settings in the end",
        "cluster", "step", "own", "rounds", "fixed", "rounds", "end", "first 2 s"
    );
    let mut missed = Vec::new();
    for scenario in SCENARIOS.iter().filter(|one| is_wanted(one.name, names)) {
        let (mut own, mut fixed) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            own.push(run_turn(scenario, true)?);
            fixed.push(run_turn(scenario, false)?);
        }
        let all = json!({ "own": turns_json(&own), "fixed": turns_json(&fixed) });
        save_results(&format!("step {}", scenario.name), &all)?;
        for (number, phase) in PHASES.iter().enumerate() {
            let name = format!("{}, {}", scenario.name, phase.name);
            missed.extend(judge_phase(scenario.name, &name, number, &own, &fixed));
        }
    }
    missed.iter().for_each(|fault| println!("  {fault}"));
    match missed.len() {
        0 => Ok(()),
        count => Err(Failed(format!("step: {count} targets missed"))),
    }
}

/// Prints a phase. Returns its failures.
fn judge_phase(
    cluster: &str,
    name: &str,
    phase: usize,
    own: &[ScenarioTurn],
    fixed: &[ScenarioTurn],
) -> Vec<String> {
    let series = |turns: &[ScenarioTurn]| -> Vec<Vec<f64>> {
        let of = |turn: &ScenarioTurn| turn.phases[phase].row.replies_over_time.clone();
        turns.iter().map(of).collect()
    };
    let (mine, theirs) = (series(own), series(fixed));
    let times = (joint_settling_time(&mine), joint_settling_time(&theirs));
    let ratio = |figure: fn(&[f64]) -> f64| {
        let both = mine.iter().zip(&theirs);
        median(both.map(|(own, fixed)| figure(own) / figure(fixed)))
    };
    let at_end = ratio(|series| final_level(series, FINAL_WINDOWS));
    let first = ratio(|series| mean(&series[..SETTLE_WINDOWS_MAX.min(series.len())]));
    let settings: Vec<String> =
        own.iter().map(|turn| format_setting(&turn.phases[phase].tuning["chosen"])).collect();
    println!(
        "{cluster:<10} {:<20} {:>9} {:>9} {:>9} {:>9} {at_end:>9.2} {first:>10.2}  {}",
        PHASES[phase].name,
        format_seconds(times.0),
        format_seconds(median_settling_time(&mine)),
        format_seconds(times.1),
        format_seconds(median_settling_time(&theirs)),
        settings.join(", ")
    );
    let mut missed = Vec::new();
    if times.0.is_none_or(|windows| windows > SETTLE_WINDOWS_MAX) {
        // If a setting that never changes takes as long, the machine is the cause.
        let noise = times.1.is_none_or(|windows| windows > SETTLE_WINDOWS_MAX);
        missed.push(format!(
            "{name}: {} until it stays at 90 % of its end, {}",
            format_seconds(times.0),
            if noise {
                format!("but {} with a fixed setting: no result", format_seconds(times.1))
            } else {
                format!("wanted 2 s ({} with a fixed setting)", format_seconds(times.1))
            }
        ));
    }
    for (part, what) in [(first, "in the first 2 s"), (at_end, "in the end")] {
        if part.is_nan() || part < SETTLED_SHARE {
            missed.push(format!("{name}: {part:.2} of the fixed default {what}"));
        }
    }
    missed
}

/// Returns the settling time of the median of all rounds.
fn joint_settling_time(rounds: &[Vec<f64>]) -> Option<usize> {
    let parts: Vec<Vec<f64>> = rounds
        .iter()
        .map(|series| relative_to(series, final_level(series, FINAL_WINDOWS)))
        .collect();
    settling_window(&median_by_window(&parts), SETTLED_SHARE, MEAN_WINDOWS)
}

/// Returns the median of the rounds' own settling times. A round that never settles counts with its
/// whole length.
fn median_settling_time(rounds: &[Vec<f64>]) -> Option<usize> {
    #[expect(clippy::cast_precision_loss, reason = "a few windows")]
    let time = |series: &Vec<f64>| {
        let least = final_level(series, FINAL_WINDOWS) * SETTLED_SHARE;
        settling_window(series, least, MEAN_WINDOWS).unwrap_or(series.len()) as f64
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few windows")]
    let windows = median(rounds.iter().map(time)) as usize;
    (!rounds.is_empty()).then_some(windows)
}

#[expect(clippy::cast_precision_loss, reason = "a few windows")]
fn format_seconds(windows: Option<usize>) -> String {
    windows.map_or_else(
        || "never".to_owned(),
        |windows| format!("{:.1} s", windows as f64 / WINDOWS_PER_SECOND as f64),
    )
}

fn format_setting(setting: &Value) -> String {
    let kib = setting["batch_bytes"].as_f64().unwrap_or(0.0) / 1024.0;
    format!("{kib} KiB x {}", setting["window"])
}

fn run_turn(scenario: &StepScenario, tune: bool) -> Result<ScenarioTurn, Failed> {
    let flags = [
        "--store",
        "none",
        "--durability",
        scenario.class,
        "--disk-flush-ms",
        scenario.flush_ms,
        "--tune",
        if tune { "on" } else { "off" },
    ];
    let mut nodes = nodes::start_ready(3, &flags)?;
    let leader = nodes.leader()?;
    let place = usize::try_from(leader).unwrap_or(1) - 1;
    thread::sleep(IDLE_DURATION);
    let mut phases = Vec::new();
    for phase in &PHASES {
        let ask = LoadRequest {
            service: "log",
            client_addresses: nodes.client_addresses()[place].clone(),
            offer: OfferedLoad::Closed(phase.outstanding),
            connections: CONNECTIONS,
            value_bytes: phase.value_bytes,
            warmup: Duration::from_millis(100),
            duration: PHASE_DURATION,
        };
        let (row, _) = load::run(&mut nodes, None, &ask)?;
        if let Some(harm) = row.harmful_errors() {
            return Err(Failed(format!("{}: {harm}", phase.name)));
        }
        let tuning = nodes.tuner_status(leader);
        phases.push(PhaseResult { row, tuning });
    }
    let log = nodes.log_path(leader);
    let changes = log.lines().filter(|line| line.contains("batch and window"));
    Ok(ScenarioTurn { phases, changes: changes.map(str::to_owned).collect() })
}

fn turns_json(turns: &[ScenarioTurn]) -> Value {
    let phase = |(phase, seen): (&LoadPhase, &PhaseResult)| {
        json!({
            "step": phase.name,
            "over_time": seen.row.replies_over_time,
            "row": seen.row.raw_report,
            "chosen": seen.tuning["chosen"],
            "reason": seen.tuning["reason"],
            "measured": seen.tuning["measured"],
        })
    };
    let turn = |turn: &ScenarioTurn| {
        json!({
            "phases": PHASES.iter().zip(&turn.phases).map(phase).collect::<Value>(),
            "changes": turn.changes,
        })
    };
    turns.iter().map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(slow: usize, level: f64) -> Vec<f64> {
        let at = |window| if window < slow { level / 2.0 } else { level };
        (0..50).map(at).collect()
    }

    #[test]
    fn settling_time_is_that_of_the_median_round() {
        let rounds = [round(5, 10.0), round(8, 70.0), round(30, 20.0)];
        // In a mean of three windows, two may still be slow if the third is at the final level.
        assert_eq!(joint_settling_time(&rounds), Some(8));
        assert_eq!(median_settling_time(&rounds), Some(8));
        assert_eq!(joint_settling_time(&[]), None);
        assert_eq!(
            (format_seconds(Some(8)), format_seconds(None)),
            ("0.8 s".into(), "never".into())
        );
    }
}
