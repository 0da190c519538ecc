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
    is_wanted, keep,
    load::{self, Ask, Offer, Row, WINDOWS_PER_SECOND},
    rounds,
    series::{by_windows, end, in_parts_of, mean, settled},
};
use crate::{nodes, shell::Failed};

/// A cluster that runs through all phases.
struct Scenario {
    name: &'static str,
    class: &'static str,
    flush: &'static str,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario { name: "durable", class: "durable", flush: "0" },
    Scenario { name: "NVMe", class: "durable", flush: "1" },
    Scenario { name: "volatile", class: "volatile", flush: "0" },
];

struct Phase {
    name: &'static str,
    value_bytes: u32,
    outstanding: u32,
}

const PHASES: [Phase; 5] = [
    phase("idle -> 64 B x 256", 64, 256),
    phase("-> 8 KiB x 16", 8192, 16),
    phase("-> 64 B x 1", 64, 1),
    phase("-> 1 KiB x 1000", 1024, 1000),
    phase("-> 64 B x 256", 64, 256),
];

const fn phase(name: &'static str, value_bytes: u32, outstanding: u32) -> Phase {
    Phase { name, value_bytes, outstanding }
}

/// Duration of each phase.
const DURATION: Duration = Duration::from_secs(5);
/// Idle time before the first phase.
const IDLE: Duration = Duration::from_secs(1);
const CONNECTIONS: u32 = 4;
/// Windows of a phase's last two seconds, whose mean is its final level.
const END: usize = 2 * WINDOWS_PER_SECOND;
/// Number of windows whose mean must stay above a share of the final level.
const SPAN: usize = 3;
const LEAST: f64 = 0.90;
/// Maximum number of windows that a series may take to settle.
const SETTLED_MAX: usize = 2 * WINDOWS_PER_SECOND;

/// A phase of one turn, with its results.
struct Seen {
    row: Row,
    /// The leader's tuning after the phase.
    tuning: Value,
}

/// A turn through all phases, with the leader's log lines.
struct Turn {
    phases: Vec<Seen>,
    changes: Vec<String>,
}

/// Runs `[--rounds N] [NAME…]`.
pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let (rounds, names) = rounds(words, 5)?;
    println!("until throughput stays above 90 % of its end; {rounds} rounds in turns");
    println!(
        "{:<10} {:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}  settings in the end",
        "cluster", "step", "own", "rounds", "fixed", "rounds", "end", "first 2 s"
    );
    let mut missed = Vec::new();
    for scenario in SCENARIOS.iter().filter(|one| is_wanted(one.name, names)) {
        let (mut own, mut fixed) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            own.push(turn(scenario, true)?);
            fixed.push(turn(scenario, false)?);
        }
        let all = json!({ "own": json(&own), "fixed": json(&fixed) });
        keep(&format!("step {}", scenario.name), &all)?;
        for (number, phase) in PHASES.iter().enumerate() {
            let name = format!("{}, {}", scenario.name, phase.name);
            missed.extend(judge(scenario.name, &name, number, &own, &fixed));
        }
    }
    missed.iter().for_each(|fault| println!("  {fault}"));
    match missed.len() {
        0 => Ok(()),
        count => Err(Failed(format!("step: {count} targets missed"))),
    }
}

/// Prints a phase. Returns its failures.
fn judge(cluster: &str, name: &str, phase: usize, own: &[Turn], fixed: &[Turn]) -> Vec<String> {
    let series = |turns: &[Turn]| -> Vec<Vec<f64>> {
        let of = |turn: &Turn| turn.phases[phase].row.over_time.clone();
        turns.iter().map(of).collect()
    };
    let (mine, theirs) = (series(own), series(fixed));
    let times = (joint(&mine), joint(&theirs));
    let ratio = |figure: fn(&[f64]) -> f64| {
        let both = mine.iter().zip(&theirs);
        median(both.map(|(own, fixed)| figure(own) / figure(fixed)))
    };
    let at_end = ratio(|series| end(series, END));
    let first = ratio(|series| mean(&series[..SETTLED_MAX.min(series.len())]));
    let settings: Vec<String> =
        own.iter().map(|turn| shown(&turn.phases[phase].tuning["chosen"])).collect();
    println!(
        "{cluster:<10} {:<20} {:>9} {:>9} {:>9} {:>9} {at_end:>9.2} {first:>10.2}  {}",
        PHASES[phase].name,
        seconds(times.0),
        seconds(single(&mine)),
        seconds(times.1),
        seconds(single(&theirs)),
        settings.join(", ")
    );
    let mut missed = Vec::new();
    if times.0.is_none_or(|windows| windows > SETTLED_MAX) {
        // If a setting that never changes takes as long, the machine is the cause.
        let noise = times.1.is_none_or(|windows| windows > SETTLED_MAX);
        missed.push(format!(
            "{name}: {} until it stays at 90 % of its end, {}",
            seconds(times.0),
            if noise {
                format!("but {} with a fixed setting: no result", seconds(times.1))
            } else {
                format!("wanted 2 s ({} with a fixed setting)", seconds(times.1))
            }
        ));
    }
    for (part, what) in [(first, "in the first 2 s"), (at_end, "in the end")] {
        if part.is_nan() || part < LEAST {
            missed.push(format!("{name}: {part:.2} of the fixed default {what}"));
        }
    }
    missed
}

/// Returns the settling time of the median of all rounds.
fn joint(rounds: &[Vec<f64>]) -> Option<usize> {
    let parts: Vec<Vec<f64>> =
        rounds.iter().map(|series| in_parts_of(series, end(series, END))).collect();
    settled(&by_windows(&parts), LEAST, SPAN)
}

/// Returns the median of the rounds' own settling times. A round that never settles counts with its
/// whole length.
fn single(rounds: &[Vec<f64>]) -> Option<usize> {
    #[expect(clippy::cast_precision_loss, reason = "a few windows")]
    let time = |series: &Vec<f64>| {
        let least = end(series, END) * LEAST;
        settled(series, least, SPAN).unwrap_or(series.len()) as f64
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few windows")]
    let windows = median(rounds.iter().map(time)) as usize;
    (!rounds.is_empty()).then_some(windows)
}

#[expect(clippy::cast_precision_loss, reason = "a few windows")]
fn seconds(windows: Option<usize>) -> String {
    windows.map_or_else(
        || "never".to_owned(),
        |windows| format!("{:.1} s", windows as f64 / WINDOWS_PER_SECOND as f64),
    )
}

fn shown(setting: &Value) -> String {
    let kib = setting["batch_bytes"].as_f64().unwrap_or(0.0) / 1024.0;
    format!("{kib} KiB x {}", setting["window"])
}

fn turn(scenario: &Scenario, tune: bool) -> Result<Turn, Failed> {
    let flags = [
        "--store",
        "none",
        "--durability",
        scenario.class,
        "--disk-flush-ms",
        scenario.flush,
        "--tune",
        if tune { "on" } else { "off" },
    ];
    let mut nodes = nodes::ready(3, &flags)?;
    let leader = nodes.leader()?;
    let place = usize::try_from(leader).unwrap_or(1) - 1;
    thread::sleep(IDLE);
    let mut phases = Vec::new();
    for phase in &PHASES {
        let ask = Ask {
            service: "log",
            connect: nodes.client_addresses()[place].clone(),
            offer: Offer::Closed(phase.outstanding),
            connections: CONNECTIONS,
            value_bytes: phase.value_bytes,
            warmup: Duration::from_millis(100),
            duration: DURATION,
        };
        let (row, _) = load::run(&mut nodes, None, &ask)?;
        if let Some(harm) = row.harm() {
            return Err(Failed(format!("{}: {harm}", phase.name)));
        }
        let tuning = nodes.tuning(leader);
        phases.push(Seen { row, tuning });
    }
    let log = nodes.log(leader);
    let changes = log.lines().filter(|line| line.contains("batch and window"));
    Ok(Turn { phases, changes: changes.map(str::to_owned).collect() })
}

fn json(turns: &[Turn]) -> Value {
    let phase = |(phase, seen): (&Phase, &Seen)| {
        json!({
            "step": phase.name,
            "over_time": seen.row.over_time,
            "row": seen.row.raw,
            "chosen": seen.tuning["chosen"],
            "reason": seen.tuning["reason"],
            "measured": seen.tuning["measured"],
        })
    };
    let turn = |turn: &Turn| {
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
        assert_eq!(joint(&rounds), Some(8));
        assert_eq!(single(&rounds), Some(8));
        assert_eq!(joint(&[]), None);
        assert_eq!((seconds(Some(8)), seconds(None)), ("0.8 s".into(), "never".into()));
    }
}
