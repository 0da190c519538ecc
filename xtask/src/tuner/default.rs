//! `tuner default`: the node's own choice beside `--tune off` with the fixed batch and window.
//!
//! Every turn is a cluster of its own, started afresh: a search that went well once says little.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    SCENARIOS, Scenario, is_wanted, keep,
    load::{self, Ask, Offer, Row, WINDOWS_PER_SECOND},
    rounds,
    series::{least, mean, median},
};
use crate::{cluster::nodes::Nodes, shell::Failed};

/// What the own choice must reach of the fixed one.
const LEAST: f64 = 0.90;
/// Time to choose; the fixed one gets it too.
const SETTLE: Duration = Duration::from_secs(4);
const DURATION: Duration = Duration::from_secs(2);
/// The beginning, in seconds.
const BEGINNING: usize = 2;

/// Both of one round: own, fixed.
struct Round([Row; 2]);

/// `[--rounds N] [NAME…]`
pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let (rounds, names) = rounds(words, 5)?;
    println!("own choice by the fixed default, {rounds} rounds in turns");
    println!(
        "{:<30} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10} {:>10}",
        "scenario", "own/s", "fixed/s", "median", "least", "most", "first 2 s", "p99"
    );
    let mut missed = Vec::new();
    let mut slower = Vec::new();
    for scenario in SCENARIOS.iter().filter(|one| is_wanted(one.name, names)) {
        let seen = measure(scenario, rounds)?;
        keep(&format!("default {}", scenario.name), &json(&seen))?;
        let ratios = ratios(&seen, |row| row.achieved);
        let first = median(self::ratios(&seen, beginning));
        let middle = median(ratios.iter().copied());
        println!(
            "{:<30} {:>10.0} {:>10.0} {:>8.2} {:>8.2} {:>8.2} {:>10.2} {:>10.2}",
            scenario.name,
            median(seen.iter().map(|Round([own, _])| own.achieved)),
            median(seen.iter().map(|Round([_, fixed])| fixed.achieved)),
            middle,
            least(ratios.iter().copied()),
            ratios.iter().copied().fold(0.0, f64::max),
            first,
            median(self::ratios(&seen, |row| row.p99_us)),
        );
        if middle < 1.0 {
            slower.push(format!("{}: {middle:.2}", scenario.name));
        }
        for (part, what) in [(middle, "once settled"), (first, "in the first 2 s")] {
            if part.is_nan() || part < LEAST {
                missed.push(format!("{}: {part:.2} {what}", scenario.name));
            }
        }
    }
    println!("slower than the fixed default: {}", shown(&slower));
    if missed.is_empty() {
        return Ok(());
    }
    let least = LEAST * 100.0;
    let missed = shown(&missed);
    Err(Failed(format!("below {least:.0} % of it: {missed}")))
}

fn shown(all: &[String]) -> String {
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join("; ")
    }
}

fn measure(scenario: &Scenario, rounds: usize) -> Result<Vec<Round>, Failed> {
    let mut seen = Vec::new();
    for round in 0..rounds {
        // Whoever comes first differs, in case it matters.
        let own_first = round % 2 == 0;
        let first = turn(scenario, own_first)?;
        let second = turn(scenario, !own_first)?;
        seen.push(Round(if own_first {
            [first, second]
        } else {
            [second, first]
        }));
    }
    Ok(seen)
}

fn turn(scenario: &Scenario, tune: bool) -> Result<Row, Failed> {
    let mut flags = scenario.flags().to_vec();
    flags.extend(["--tune", if tune { "on" } else { "off" }]);
    let mut nodes = Nodes::start_without_keys(3, &flags)?;
    let leader = usize::try_from(nodes.leader()?).unwrap_or(1);
    let ask = Ask {
        service: "log",
        connect: nodes.client_addresses()[leader - 1].clone(),
        offer: Offer::Closed(scenario.outstanding),
        connections: scenario.connections,
        value_bytes: scenario.value_bytes,
        warmup: SETTLE,
        duration: DURATION,
    };
    let (row, _) = load::run(&mut nodes, None, &ask)?;
    match row.harm() {
        Some(harm) => Err(Failed(format!("{}: {harm}", scenario.name))),
        None => Ok(row),
    }
}

/// Commands per second in the first seconds.
#[expect(clippy::cast_precision_loss, reason = "a few windows")]
fn beginning(row: &Row) -> f64 {
    let windows = (BEGINNING * WINDOWS_PER_SECOND).min(row.over_time.len());
    mean(&row.over_time[..windows]) * WINDOWS_PER_SECOND as f64
}

fn ratios(seen: &[Round], figure: impl Fn(&Row) -> f64) -> Vec<f64> {
    let ratio = |Round([own, fixed]): &Round| figure(own) / figure(fixed);
    seen.iter().map(ratio).collect()
}

fn json(seen: &[Round]) -> Value {
    let round = |Round([own, fixed]): &Round| json!({ "own": own.raw, "fixed": fixed.raw });
    seen.iter().map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_one_round_each() {
        let row = |achieved| Row {
            achieved,
            over_time: vec![achieved / 10.0; 60],
            ..Row::default()
        };
        let seen = [
            Round([row(90.0), row(100.0)]),
            Round([row(30.0), row(20.0)]),
        ];
        assert_eq!(ratios(&seen, |row| row.achieved), [0.9, 1.5]);
        assert_eq!(beginning(&row(50.0)), 50.0);
        assert_eq!(shown(&[]), "none");
    }
}
