//! `tuner default`: the node's own choice compared with `--tune off`, that is, with the fixed batch
//! size and window.
//!
//! One successful search says little: each pair of clusters is started afresh, and each cluster
//! first gets four seconds of load. Then they alternate in turns of half a second: the load of
//! other programs changes within seconds, and consecutive turns see the same load. The table states
//! the precision of the median of all turns.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    SCENARIOS, Scenario, is_wanted, keep,
    load::{self, Ask, Offer, Row, WINDOWS_PER_SECOND},
    rounds,
    series::{least, mean, median_within},
};
use quorate_bench::figure::median;
use quorate_testbed::nodes::Nodes;

use crate::{nodes, shell::Failed};

/// Minimum permitted ratio of the node's own choice to the fixed one.
const LEAST: f64 = 0.90;
/// Duration of the initial load, for both clusters.
const SETTLE: Duration = Duration::from_secs(4);
/// Number of turns of a pair, each with a warm-up.
const TURNS: usize = 12;
const WARMUP: Duration = Duration::from_millis(100);
const DURATION: Duration = Duration::from_millis(400);
/// Length of the evaluated beginning, in seconds.
const BEGINNING: usize = 2;

/// Result of a load: its rate, and the CPU time of nodes and generator per command.
struct Seen {
    row: Row,
    cpu_us: f64,
}

/// One turn, with the node's own choice followed by the fixed one or preceded by it.
struct Turn([Seen; 2]);

/// Two clusters and their turns.
struct Pair {
    beginning: Turn,
    turns: Vec<Turn>,
}

/// Runs `[--rounds N] [NAME…]`.
pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let (pairs, names) = rounds(words, 5)?;
    println!("own choice by the fixed default: {pairs} pairs of clusters, {TURNS} turns each");
    println!(
        "{:<30} {:>10} {:>10} {:>7}  {:<13} {:>6} {:>6}  {:<16} {:>9} {:>7} {:>7}",
        "scenario",
        "own/s",
        "fixed/s",
        "median",
        "within",
        "least",
        "most",
        "pairs",
        "first 2 s",
        "CPU",
        "p99"
    );
    let mut missed = Vec::new();
    let mut slower = Vec::new();
    for scenario in SCENARIOS.iter().filter(|one| is_wanted(one.name, names)) {
        let mut seen = Vec::new();
        for number in 0..pairs {
            seen.push(pair(scenario, number % 2 == 0)?);
        }
        keep(&format!("default {}", scenario.name), &json(&seen))?;
        let (middle, first) = print(scenario, &seen);
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

/// Prints a row of the table. Returns the ratios that are evaluated.
fn print(scenario: &Scenario, seen: &[Pair]) -> (f64, f64) {
    let turns = || seen.iter().flat_map(|pair| &pair.turns);
    let ratios: Vec<f64> = turns().map(|turn| turn.ratio(Seen::achieved)).collect();
    let first = median(seen.iter().map(|pair| pair.beginning.ratio(Seen::beginning)));
    let middle = median(ratios.iter().copied());
    let (low, high) = median_within(ratios.iter().copied());
    let of_pair = |pair: &Pair| {
        let ratios = pair.turns.iter().map(|turn| turn.ratio(Seen::achieved));
        format!("{:.2}", median(ratios))
    };
    let pairs: Vec<String> = seen.iter().map(of_pair).collect();
    println!(
        "{:<30} {:>10.0} {:>10.0} {middle:>7.2}  {:<13} {:>6.2} {:>6.2}  {:<16} {first:>9.2} {:>7.2} {:>7.2}",
        scenario.name,
        median(turns().map(|Turn([own, _])| own.achieved())),
        median(turns().map(|Turn([_, fixed])| fixed.achieved())),
        format!("{low:.2} - {high:.2}"),
        least(ratios.iter().copied()),
        ratios.iter().copied().fold(0.0, f64::max),
        pairs.join(" "),
        median(turns().map(|turn| turn.ratio(|seen| seen.cpu_us))),
        median(turns().map(|turn| turn.ratio(|seen| seen.row.p99_us))),
    );
    (middle, first)
}

fn shown(all: &[String]) -> String {
    if all.is_empty() { "none".to_owned() } else { all.join("; ") }
}

fn pair(scenario: &Scenario, own_first: bool) -> Result<Pair, Failed> {
    let mut own = start(scenario, "on")?;
    let mut fixed = start(scenario, "off")?;
    let mut turn = |warmup: Duration, duration: Duration, own_first: bool| {
        let load = |nodes: &mut Nodes| load(scenario, nodes, warmup, duration);
        // Vary the order, in case it matters.
        if own_first {
            let seen = load(&mut own)?;
            Ok::<_, Failed>(Turn([seen, load(&mut fixed)?]))
        } else {
            let seen = load(&mut fixed)?;
            Ok(Turn([load(&mut own)?, seen]))
        }
    };
    let begin = Duration::from_millis(100);
    let beginning = turn(begin, SETTLE - begin, own_first)?;
    let turns = (0..TURNS).map(|number| turn(WARMUP, DURATION, (number % 2 == 0) == own_first));
    Ok(Pair { turns: turns.collect::<Result<_, _>>()?, beginning })
}

fn start(scenario: &Scenario, tune: &str) -> Result<Nodes, Failed> {
    let mut flags = scenario.flags().to_vec();
    flags.extend(["--tune", tune]);
    nodes::ready(3, &flags)
}

fn load(
    scenario: &Scenario,
    nodes: &mut Nodes,
    warmup: Duration,
    duration: Duration,
) -> Result<Seen, Failed> {
    let leader = usize::try_from(nodes.leader()?).unwrap_or(1);
    let ask = Ask {
        service: "log",
        connect: nodes.client_addresses()[leader - 1].clone(),
        offer: Offer::Closed(scenario.outstanding),
        connections: scenario.connections,
        value_bytes: scenario.value_bytes,
        warmup,
        duration,
    };
    let (row, watch) = load::run(nodes, None, &ask)?;
    if let Some(harm) = row.harm() {
        return Err(Failed(format!("{}: {harm}", scenario.name)));
    }
    let used = watch.used_s();
    Ok(Seen { cpu_us: used * 1e6 / row.done.max(1.0), row })
}

impl Seen {
    fn achieved(&self) -> f64 {
        self.row.achieved
    }

    /// Returns the mean number of replies per window in the first seconds.
    fn beginning(&self) -> f64 {
        let windows = (BEGINNING * WINDOWS_PER_SECOND).min(self.row.over_time.len());
        mean(&self.row.over_time[..windows])
    }

    fn json(&self) -> Value {
        json!({ "row": self.row.raw, "cpu_us": self.cpu_us })
    }
}

impl Turn {
    /// Returns a figure of the node's own choice divided by that of the fixed one.
    fn ratio(&self, figure: impl Fn(&Seen) -> f64) -> f64 {
        let Self([own, fixed]) = self;
        figure(own) / figure(fixed)
    }

    fn json(&self) -> Value {
        let Self([own, fixed]) = self;
        json!({ "own": own.json(), "fixed": fixed.json() })
    }
}

fn json(seen: &[Pair]) -> Value {
    let pair = |pair: &Pair| {
        json!({
            "beginning": pair.beginning.json(),
            "turns": pair.turns.iter().map(Turn::json).collect::<Value>(),
        })
    };
    seen.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_compare_results_of_the_same_turn() {
        let seen = |achieved| Seen {
            row: Row { achieved, over_time: vec![achieved / 10.0; 40], ..Row::default() },
            cpu_us: 100.0 / achieved,
        };
        let turn = Turn([seen(90.0), seen(100.0)]);
        assert_eq!(turn.ratio(Seen::achieved), 0.9);
        assert_eq!(turn.ratio(Seen::beginning), 0.9);
        assert!(turn.ratio(|seen| seen.cpu_us) > 1.1);
        assert_eq!(shown(&[]), "none");
    }
}
