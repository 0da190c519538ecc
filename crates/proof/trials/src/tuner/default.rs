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
    SCENARIOS, TunerScenario, is_wanted,
    load::{self, LoadRequest, LoadRow, OfferedLoad, WINDOWS_PER_SECOND},
    parse_rounds, save_results,
    series::{mean, median_confidence_bounds, smallest},
};
use quorate_bench::figure::median;
use quorate_testbed::nodes::NodeCluster;

use crate::{nodes, shell::Failed};

/// Minimum permitted ratio of the node's own choice to the fixed one.
const OWN_TO_FIXED_MIN: f64 = 0.90;
/// Duration of the initial load, for both clusters.
const SETTLE_DURATION: Duration = Duration::from_secs(4);
/// Number of turns of a pair, each with a warm-up.
const TURN_COUNT: usize = 12;
const WARMUP: Duration = Duration::from_millis(100);
const DURATION: Duration = Duration::from_millis(400);
/// Length of the evaluated beginning, in seconds.
const BEGINNING_SECONDS: usize = 2;

/// Result of a load: its rate, and the CPU time of nodes and generator per command.
struct LoadResult {
    row: LoadRow,
    cpu_us: f64,
}

/// One turn, with the node's own choice followed by the fixed one or preceded by it.
struct ComparedTurn([LoadResult; 2]);

/// Two clusters and their turns.
struct ClusterPair {
    beginning: ComparedTurn,
    turns: Vec<ComparedTurn>,
}

/// Runs `[--rounds N] [NAME…]`.
pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let (pairs, names) = parse_rounds(words, 5)?;
    println!("own choice by the fixed default: {pairs} pairs of clusters, {TURN_COUNT} turns each");
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
            seen.push(measure_pair(scenario, number % 2 == 0)?);
        }
        save_results(&format!("default {}", scenario.name), &pairs_json(&seen))?;
        let (middle, first) = print_row(scenario, &seen);
        if middle < 1.0 {
            slower.push(format!("{}: {middle:.2}", scenario.name));
        }
        for (part, what) in [(middle, "once settled"), (first, "in the first 2 s")] {
            if part.is_nan() || part < OWN_TO_FIXED_MIN {
                missed.push(format!("{}: {part:.2} {what}", scenario.name));
            }
        }
    }
    println!("slower than the fixed default: {}", join_all(&slower));
    if missed.is_empty() {
        return Ok(());
    }
    let least = OWN_TO_FIXED_MIN * 100.0;
    let missed = join_all(&missed);
    Err(Failed(format!("below {least:.0} % of it: {missed}")))
}

/// Prints a row of the table. Returns the ratios that are evaluated.
fn print_row(scenario: &TunerScenario, seen: &[ClusterPair]) -> (f64, f64) {
    let turns = || seen.iter().flat_map(|pair| &pair.turns);
    let ratios: Vec<f64> =
        turns().map(|turn| turn.own_to_fixed(LoadResult::achieved_rate)).collect();
    let first =
        median(seen.iter().map(|pair| pair.beginning.own_to_fixed(LoadResult::beginning_rate)));
    let middle = median(ratios.iter().copied());
    let (low, high) = median_confidence_bounds(ratios.iter().copied());
    let of_pair = |pair: &ClusterPair| {
        let ratios = pair.turns.iter().map(|turn| turn.own_to_fixed(LoadResult::achieved_rate));
        format!("{:.2}", median(ratios))
    };
    let pairs: Vec<String> = seen.iter().map(of_pair).collect();
    println!(
        "{:<30} {:>10.0} {:>10.0} {middle:>7.2}  {:<13} {:>6.2} {:>6.2}  {:<16} {first:>9.2} {:>7.2} {:>7.2}",
        scenario.name,
        median(turns().map(|ComparedTurn([own, _])| own.achieved_rate())),
        median(turns().map(|ComparedTurn([_, fixed])| fixed.achieved_rate())),
        format!("{low:.2} - {high:.2}"),
        smallest(ratios.iter().copied()),
        ratios.iter().copied().fold(0.0, f64::max),
        pairs.join(" "),
        median(turns().map(|turn| turn.own_to_fixed(|seen| seen.cpu_us))),
        median(turns().map(|turn| turn.own_to_fixed(|seen| seen.row.p99_us))),
    );
    (middle, first)
}

fn join_all(all: &[String]) -> String {
    if all.is_empty() { "none".to_owned() } else { all.join("; ") }
}

fn measure_pair(scenario: &TunerScenario, own_first: bool) -> Result<ClusterPair, Failed> {
    let mut own = start(scenario, "on")?;
    let mut fixed = start(scenario, "off")?;
    let mut turn = |warmup: Duration, duration: Duration, own_first: bool| {
        let load = |nodes: &mut NodeCluster| run_load(scenario, nodes, warmup, duration);
        // Vary the order, in case it matters.
        if own_first {
            let seen = load(&mut own)?;
            Ok::<_, Failed>(ComparedTurn([seen, load(&mut fixed)?]))
        } else {
            let seen = load(&mut fixed)?;
            Ok(ComparedTurn([load(&mut own)?, seen]))
        }
    };
    let begin = Duration::from_millis(100);
    let beginning = turn(begin, SETTLE_DURATION - begin, own_first)?;
    let turns =
        (0..TURN_COUNT).map(|number| turn(WARMUP, DURATION, (number % 2 == 0) == own_first));
    Ok(ClusterPair { turns: turns.collect::<Result<_, _>>()?, beginning })
}

fn start(scenario: &TunerScenario, tune: &str) -> Result<NodeCluster, Failed> {
    let mut flags = scenario.node_flags().to_vec();
    flags.extend(["--tune", tune]);
    nodes::start_ready(3, &flags)
}

fn run_load(
    scenario: &TunerScenario,
    nodes: &mut NodeCluster,
    warmup: Duration,
    duration: Duration,
) -> Result<LoadResult, Failed> {
    let leader = usize::try_from(nodes.leader()?).unwrap_or(1);
    let ask = LoadRequest {
        service: "log",
        client_addresses: nodes.client_addresses()[leader - 1].clone(),
        offer: OfferedLoad::Closed(scenario.outstanding),
        connections: scenario.connections,
        value_bytes: scenario.value_bytes,
        warmup,
        duration,
    };
    let (row, watch) = load::run(nodes, None, &ask)?;
    if let Some(harm) = row.harmful_errors() {
        return Err(Failed(format!("{}: {harm}", scenario.name)));
    }
    let used = watch.cpu_seconds();
    Ok(LoadResult { cpu_us: used * 1e6 / row.reply_count.max(1.0), row })
}

impl LoadResult {
    fn achieved_rate(&self) -> f64 {
        self.row.achieved_per_s
    }

    /// Returns the mean number of replies per window in the first seconds.
    fn beginning_rate(&self) -> f64 {
        let windows =
            (BEGINNING_SECONDS * WINDOWS_PER_SECOND).min(self.row.replies_over_time.len());
        mean(&self.row.replies_over_time[..windows])
    }

    fn to_json(&self) -> Value {
        json!({ "row": self.row.raw_report, "cpu_us": self.cpu_us })
    }
}

impl ComparedTurn {
    /// Returns a figure of the node's own choice divided by that of the fixed one.
    fn own_to_fixed(&self, figure: impl Fn(&LoadResult) -> f64) -> f64 {
        let Self([own, fixed]) = self;
        figure(own) / figure(fixed)
    }

    fn to_json(&self) -> Value {
        let Self([own, fixed]) = self;
        json!({ "own": own.to_json(), "fixed": fixed.to_json() })
    }
}

fn pairs_json(seen: &[ClusterPair]) -> Value {
    let pair = |pair: &ClusterPair| {
        json!({
            "beginning": pair.beginning.to_json(),
            "turns": pair.turns.iter().map(ComparedTurn::to_json).collect::<Value>(),
        })
    };
    seen.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_compare_results_of_the_same_turn() {
        let seen = |achieved| LoadResult {
            row: LoadRow {
                achieved_per_s: achieved,
                replies_over_time: vec![achieved / 10.0; 40],
                ..LoadRow::default()
            },
            cpu_us: 100.0 / achieved,
        };
        let turn = ComparedTurn([seen(90.0), seen(100.0)]);
        assert_eq!(turn.own_to_fixed(LoadResult::achieved_rate), 0.9);
        assert_eq!(turn.own_to_fixed(LoadResult::beginning_rate), 0.9);
        assert!(turn.own_to_fixed(|seen| seen.cpu_us) > 1.1);
        assert_eq!(join_all(&[]), "none");
    }
}
