//! `tuner overload`: throughput at up to four times the load that can be served.
//!
//! A closed loop finds the number of outstanding commands at which a running cluster reaches its
//! maximum throughput. Then rounds follow: the closed loop, whose rate is M, and an open loop at M,
//! 2 M and 4 M. Ratios are computed within one round. The generator has its own CPU, and the nodes
//! share the others at every point: a higher offered load does not slow the nodes down. If the
//! generator's CPU is saturated, the point is marked and not evaluated.

use std::time::Duration;

use quorate_bench::figure::median;
use quorate_testbed::{cpus::Cpus, nodes::Nodes};
use serde_json::{Value, json};

use super::{
    is_wanted, keep,
    load::{self, Ask, Offer, Row},
    rounds,
    series::least,
    watch::{Shares, Watch, peak},
};
use crate::{nodes, shell::Failed};

struct Scenario {
    name: &'static str,
    /// `kv` (a store in memory, over RESP) or `log`.
    service: &'static str,
    /// Duration of the modelled disk's flush, in milliseconds.
    flush: &'static str,
    value_bytes: u32,
    /// Number of connections. It is small because an open loop sends the commands due on each
    /// connection every 20 us, and two commands at a time cost a node more per command than in a
    /// closed loop.
    connections: u32,
    /// Set if commands go to all nodes in turn, two of which forward them. Otherwise they go to the
    /// leader only.
    to_all: bool,
}

const SCENARIOS: [Scenario; 10] = [
    scenario("log 64 B", "log", "0", 64, 4, false),
    scenario("log 1 KiB", "log", "0", 1024, 4, false),
    scenario("kv 64 B", "kv", "0", 64, 4, false),
    scenario("kv 1 KiB", "kv", "0", 1024, 4, false),
    scenario("log 64 B, NVMe", "log", "1", 64, 4, false),
    scenario("kv 64 B, NVMe", "kv", "1", 64, 4, false),
    scenario("kv 1 KiB, disk", "kv", "8", 1024, 4, false),
    scenario("log 64 B, disk", "log", "8", 64, 4, false),
    scenario("kv 64 B, 512 connections", "kv", "0", 64, 512, false),
    scenario("kv 64 B, at all nodes", "kv", "0", 64, 12, true),
];

const fn scenario(
    name: &'static str,
    service: &'static str,
    flush: &'static str,
    value_bytes: u32,
    connections: u32,
    to_all: bool,
) -> Scenario {
    Scenario { name, service, flush, value_bytes, connections, to_all }
}

/// Numbers of outstanding commands tried for the maximum.
const OUTSTANDING: [u32; 6] = [256, 1024, 4096, 16_384, 65_536, 262_144];
/// Offered loads, in multiples of the closed loop's rate.
const TIMES: [u64; 3] = [1, 2, 4];
/// Minimum share of the maximum throughput that must be served.
const LEAST: f64 = 0.90;
/// Multiple of the maximum throughput above which the measured maximum must have been wrong,
/// because the closed loop was disturbed or had too few commands outstanding.
const MOST: f64 = 1.50;
/// Maximum rate that the benchmark supports.
const RATE_MAX: u64 = 10_000_000;
/// Warm-up time. It is short enough that a queue of four times the maximum is sent and answered
/// before the generator gives up, 10 s later, even if a third less is served.
const WARMUP: Duration = Duration::from_millis(500);
const DURATION: Duration = Duration::from_millis(1500);
/// Share of the time spent running or waiting for its CPU above which the generator counts as
/// saturated.
const GENERATOR_FULL: f64 = 0.90;
/// Allowed growth of memory once every queue has been full. It applies to the second half of the
/// last overload relative to its first half, and to the last round relative to the first.
const GROWTH: f64 = 1.10;
const GROWTH_MIB: f64 = 16.0;
/// Maximum total size of a node's queues, in MiB: `Limits` of replica (480) and net (256 for
/// clients, 2 x 48 for peers).
const QUEUES_MIB: f64 = 832.0;

/// Result of one load of a round.
struct Point {
    round: usize,
    /// Offered load as a multiple of the rate of the round's closed loop; 0 for the closed loop.
    times: u64,
    row: Row,
    shares: Shares,
    watch: Watch,
    /// The leader's tuning after the load.
    tuning: Value,
}

/// All rounds of a scenario.
struct Seen {
    maximum: f64,
    outstanding: u32,
    points: Vec<Point>,
}

/// Runs `[--rounds N] [NAME…]`.
pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let (rounds, names) = rounds(words, 3)?;
    let cpus = Cpus::divided()?;
    println!("{}; medians of {rounds} rounds", cpus.shown());
    println!(
        "{:<26} {:>7} {:>10} {:>7} {:>6} {:>6} {:>6} {:>6} {:>9} {:>9} {:>8} {:>6} {:>6} {:>6}",
        "scenario",
        "offered",
        "served/s",
        "of M",
        "least",
        "busy",
        "lost",
        "late",
        "p99 ms",
        "inside ms",
        "RSS MiB",
        "CPU us",
        "nodes",
        "gen."
    );
    let mut missed = Vec::new();
    for scenario in SCENARIOS.iter().filter(|one| is_wanted(one.name, names)) {
        let seen = measure(scenario, &cpus, rounds)?;
        keep(&format!("overload {}", scenario.name), &seen.json(scenario))?;
        seen.print(scenario);
        missed.extend(seen.faults(scenario));
    }
    missed.iter().for_each(|fault| println!("  {fault}"));
    match missed.len() {
        0 => Ok(()),
        count => Err(Failed(format!("overload: {count} targets missed"))),
    }
}

fn measure(scenario: &Scenario, cpus: &Cpus, rounds: usize) -> Result<Seen, Failed> {
    let store = match scenario.service {
        "kv" => "memory",
        _ => "none",
    };
    let flags = ["--store", store, "--disk-flush-ms", scenario.flush];
    let mut nodes = cpus.of_nodes(|| nodes::ready(3, &flags))?;
    let (mut maximum, mut outstanding) = (0.0, 0);
    for count in OUTSTANDING {
        let ask = ask(scenario, &nodes, Offer::Closed(count))?;
        let (row, _) = load::run(&mut nodes, Some(cpus), &ask)?;
        if let Some(harm) = row.harm() {
            println!("  {}, {count} outstanding: {harm}", scenario.name);
        } else if row.achieved > maximum {
            (maximum, outstanding) = (row.achieved, count);
        }
    }
    let mut points = Vec::new();
    for round in 1..=rounds {
        // Offer multiples of the rate just measured: the machine's speed varies.
        let mut closed = maximum;
        for times in [0].into_iter().chain(TIMES) {
            let offer = match times {
                0 => Offer::Closed(outstanding.max(1)),
                times => Offer::Open(rate(closed, times)),
            };
            let ask = ask(scenario, &nodes, offer)?;
            let (row, watch) = load::run(&mut nodes, Some(cpus), &ask)?;
            if times == 0 {
                closed = row.achieved;
            }
            let from = WARMUP.as_secs_f64();
            points.push(Point {
                round,
                times,
                row,
                shares: watch.shares(from, from + DURATION.as_secs_f64()),
                watch,
                tuning: tuning(&nodes),
            });
        }
    }
    Ok(Seen { maximum, outstanding, points })
}

fn ask(scenario: &Scenario, nodes: &Nodes, offer: Offer) -> Result<Ask, Failed> {
    let addresses = nodes.client_addresses();
    let leader = usize::try_from(nodes.leader()?).unwrap_or(0);
    let connect = match addresses.get(leader.wrapping_sub(1)) {
        Some(leader) if !scenario.to_all => leader.clone(),
        _ => addresses.join(","),
    };
    Ok(Ask {
        service: scenario.service,
        connect,
        offer,
        connections: scenario.connections,
        value_bytes: scenario.value_bytes,
        warmup: WARMUP,
        duration: DURATION,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded by what the bench takes"
)]
fn rate(maximum: f64, times: u64) -> u64 {
    (maximum as u64).saturating_mul(times).clamp(1, RATE_MAX)
}

fn tuning(nodes: &Nodes) -> Value {
    nodes.leader().map_or(Value::Null, |leader| nodes.tuning(leader))
}

impl Point {
    /// Returns whether the generator had no CPU time left to offer more.
    fn is_generators_limit(&self) -> bool {
        self.shares.generator + self.shares.waited >= GENERATOR_FULL
    }

    /// Returns the time from acceptance to reply, in milliseconds.
    fn inside_ms(&self) -> f64 {
        let us = self.tuning["measured"]["latency_us"].as_f64();
        us.unwrap_or(f64::NAN) / 1e3
    }

    /// Returns the CPU time of all nodes per command, in microseconds.
    fn nodes_us(&self) -> f64 {
        self.shares.nodes * 1e6 / self.row.achieved.max(1.0)
    }

    /// Returns the memory of the largest node in each half of the time, in MiB.
    fn halves_mib(&self) -> (f64, f64) {
        let (first, second) = self.watch.points.split_at(self.watch.points.len() / 2);
        (peak(first), peak(second))
    }

    fn json(&self) -> Value {
        json!({
            "round": self.round,
            "times": self.times,
            "row": self.row.raw,
            "cpus_nodes": self.shares.nodes,
            "cpus_generator": self.shares.generator,
            "generator_waited": self.shares.waited,
            "chosen": self.tuning["chosen"],
            "reason": self.tuning["reason"],
            "measured": self.tuning["measured"],
            "watch": self.watch.json(),
        })
    }
}

impl Seen {
    fn at(&self, times: u64) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |point| point.times == times)
    }

    /// Returns, for each round, the throughput at `times` times the load divided by that of the
    /// round's closed loop.
    fn ratios(&self, times: u64) -> Vec<f64> {
        let both = self.at(times).zip(self.at(0));
        both.map(|(point, closed)| point.row.achieved / closed.row.achieved.max(1.0)).collect()
    }

    fn print(&self, scenario: &Scenario) {
        for times in [0].into_iter().chain(TIMES) {
            let of = |figure: &dyn Fn(&Point) -> f64| median(self.at(times).map(figure));
            let name = match times {
                0 => scenario.name,
                _ => "",
            };
            let offered = match times {
                0 => format!("{}", self.outstanding),
                times => format!("{times} M"),
            };
            println!(
                "{name:<26} {offered:>7} {:>10.0} {:>7.2} {:>6.2} {:>4.1} % {:>6.0} {:>4.0} % {:>9.1} {:>9.2} {:>8.0} {:>6.2} {:>6.2} {:>6.2}{}",
                of(&|point| point.row.achieved),
                median(self.ratios(times)),
                least(self.ratios(times)),
                of(&|point| point.row.busy() * 100.0),
                of(&|point| point.row.lost),
                of(&|point| point.row.late * 100.0),
                of(&|point| point.row.p99_us / 1e3),
                of(&Point::inside_ms),
                self.at(times).map(|point| point.watch.peak_mib()).fold(0.0, f64::max),
                of(&Point::nodes_us),
                of(&|point| point.shares.nodes),
                of(&|point| point.shares.generator + point.shares.waited),
                if self.is_generators_limit(times) { "  generator full" } else { "" }
            );
        }
    }

    fn is_generators_limit(&self, times: u64) -> bool {
        let limited = self.at(times).filter(|point| point.is_generators_limit());
        limited.count() * 2 > self.at(times).count()
    }

    /// Lists the failures, one line each.
    fn faults(&self, scenario: &Scenario) -> Vec<String> {
        let name = scenario.name;
        let mut faults = Vec::new();
        if self.outstanding == 0 {
            return vec![format!("{name}: no maximum was found")];
        }
        for times in TIMES {
            let ratio = median(self.ratios(times));
            if ratio.is_nan() || ratio < LEAST {
                let whose = if self.is_generators_limit(times) {
                    "but the generator could not offer it: no result"
                } else {
                    "wanted at least 0.90"
                };
                faults.push(format!("{name}, {times} M: {ratio:.2} of M, {whose}"));
            }
            if ratio > MOST {
                faults.push(format!(
                    "{name}, {times} M: {ratio:.2} of M, so M was not the maximum: no result"
                ));
            }
            for point in self.at(times) {
                let which = format!("{name}, {times} M, round {}", point.round);
                if let Some(harm) = point.row.harm() {
                    faults.push(format!("{which}: {harm}"));
                }
                let (first, second) = point.halves_mib();
                let is_last = self.points.iter().all(|other| other.round <= point.round);
                if is_last && second > first * GROWTH + GROWTH_MIB {
                    faults.push(format!(
                        "{which}: memory still grows, {first:.0} MiB, then {second:.0} MiB"
                    ));
                }
            }
        }
        faults.extend(self.memory_fault(name));
        faults
    }

    /// Checks that memory use in the last round is similar to the first, and never exceeds that of
    /// the closed loop by more than the size of the queues.
    fn memory_fault(&self, name: &str) -> Option<String> {
        let peaks: Vec<f64> = self.at(4).map(|point| point.watch.peak_mib()).collect();
        let closed = self.at(0).map(|point| point.watch.peak_mib());
        let at_most = closed.reduce(f64::min)? + QUEUES_MIB;
        let (first, last) = (*peaks.first()?, *peaks.last()?);
        if last > first * GROWTH + GROWTH_MIB {
            Some(format!(
                "{name}: memory grows from round to round, {first:.0} MiB, then {last:.0} MiB"
            ))
        } else if peaks.iter().any(|peak| *peak > at_most) {
            Some(format!("{name}: {last:.0} MiB, more than all queues hold"))
        } else {
            None
        }
    }

    fn json(&self, scenario: &Scenario) -> Value {
        json!({
            "scenario": scenario.name,
            "maximum": self.maximum,
            "outstanding": self.outstanding,
            "points": self.points.iter().map(Point::json).collect::<Value>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(round: usize, times: u64, achieved: f64, mib: &[f64]) -> Point {
        let mut watch = Watch::new(Vec::new(), 0);
        let look =
            |mib: &f64| super::super::watch::Point { rss_mib: vec![*mib], ..Default::default() };
        watch.points = mib.iter().map(look).collect();
        Point {
            round,
            times,
            row: Row { achieved, ..Row::default() },
            shares: Shares::default(),
            watch,
            tuning: Value::Null,
        }
    }

    fn seen(overloaded: impl Fn(usize) -> Point) -> Vec<String> {
        let mut points = Vec::new();
        for round in 1..=3 {
            for times in [0, 1, 2] {
                points.push(point(round, times, 100.0, &[50.0, 50.0]));
            }
            points.push(overloaded(round));
        }
        let seen = Seen { maximum: 100.0, outstanding: 256, points };
        seen.faults(&SCENARIOS[0])
    }

    #[test]
    fn sustained_throughput_is_no_fault() {
        assert!(seen(|round| point(round, 4, 91.0, &[90.0, 100.0])).is_empty());
    }

    #[test]
    fn each_fault_is_reported() {
        let slow = seen(|round| point(round, 4, 80.0, &[50.0, 50.0]));
        assert_eq!(slow, ["log 64 B, 4 M: 0.80 of M, wanted at least 0.90"]);
        let growing = seen(|round| point(round, 4, 100.0, &[50.0, 100.0]));
        assert_eq!(growing.len(), 1, "the last round: {growing:?}");
        let rounds = [0.0, 50.0, 100.0, 150.0];
        let creeping = seen(|round| point(round, 4, 100.0, &[rounds[round]; 2]));
        assert_eq!(creeping.len(), 1, "{creeping:?}");
        let small = seen(|round| point(round, 4, 300.0, &[50.0, 50.0]));
        assert!(small.len() == 1 && small[0].ends_with("no result"), "{small:?}");
        let harmed = seen(|round| {
            let mut point = point(round, 4, 100.0, &[50.0, 50.0]);
            point.row.lost = f64::from(round == 2);
            point
        });
        assert_eq!(harmed.len(), 1, "{harmed:?}");
    }

    #[test]
    fn overloaded_generator_yields_no_result() {
        let told = seen(|round| {
            let mut point = point(round, 4, 50.0, &[50.0, 50.0]);
            point.shares.generator = 0.6;
            point.shares.waited = 0.35;
            point
        });
        assert!(told.len() == 1 && told[0].ends_with("no result"), "{told:?}");
    }

    #[test]
    fn rates_stay_within_the_limits_of_the_benchmark() {
        assert_eq!(rate(1000.9, 4), 4000);
        assert_eq!(rate(9e6, 4), RATE_MAX);
        assert_eq!(rate(0.0, 4), 1);
    }
}
