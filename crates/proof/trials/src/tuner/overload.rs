//! `tuner overload`: throughput at up to four times the load that can be served.
//!
//! A closed loop finds the number of outstanding commands at which a running cluster reaches its
//! maximum throughput. Then rounds follow: the closed loop, whose rate is M, and an open loop at M,
//! 2 M and 4 M. Ratios are computed within one round. The generator has its own CPU, and the nodes
//! share the others at every point: a higher offered load does not slow the nodes down. If the
//! generator's CPU is saturated, the point is marked and not evaluated.

use std::time::Duration;

use quorate_bench::figure::median;
use quorate_testbed::{cpus::CpuDivision, nodes::NodeCluster};
use serde_json::{Value, json};

use super::{
    is_wanted,
    load::{self, LoadRequest, LoadRow, OfferedLoad},
    parse_rounds, save_results,
    series::smallest,
    watch::{CpuShares, UsageWatch, peak_memory_mib},
};
use crate::{nodes, shell::Failed};

struct OverloadScenario {
    name: &'static str,
    /// `kv` (a store in memory, over RESP) or `log`.
    service: &'static str,
    /// Duration of the modelled disk's flush, in milliseconds.
    flush_ms: &'static str,
    value_bytes: u32,
    /// Number of connections. It is small because an open loop sends the commands due on each
    /// connection every 20 us, and two commands at a time cost a node more per command than in a
    /// closed loop.
    connections: u32,
    /// Set if commands go to all nodes in turn, two of which forward them. Otherwise they go to the
    /// leader only.
    sends_to_all: bool,
}

const SCENARIOS: [OverloadScenario; 10] = [
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
) -> OverloadScenario {
    OverloadScenario {
        name,
        service,
        flush_ms: flush,
        value_bytes,
        connections,
        sends_to_all: to_all,
    }
}

/// Numbers of outstanding commands tried for the maximum.
const OUTSTANDING_COUNTS: [u32; 6] = [256, 1024, 4096, 16_384, 65_536, 262_144];
/// Offered loads, in multiples of the closed loop's rate.
const LOAD_MULTIPLES: [u64; 3] = [1, 2, 4];
/// Minimum share of the maximum throughput that must be served.
const SERVED_SHARE_MIN: f64 = 0.90;
/// Multiple of the maximum throughput above which the measured maximum must have been wrong,
/// because the closed loop was disturbed or had too few commands outstanding.
const MAXIMUM_MULTIPLE_MAX: f64 = 1.50;
/// Maximum rate that the benchmark supports.
const RATE_MAX: u64 = 10_000_000;
/// Warm-up time. It is short enough that a queue of four times the maximum is sent and answered
/// before the generator gives up, 10 s later, even if a third less is served.
const WARMUP: Duration = Duration::from_millis(500);
const DURATION: Duration = Duration::from_millis(1500);
/// Share of the time spent running or waiting for its CPU above which the generator counts as
/// saturated.
const GENERATOR_FULL_SHARE: f64 = 0.90;
/// Allowed growth of memory once every queue has been full. It applies to the second half of the
/// last overload relative to its first half, and to the last round relative to the first.
const MEMORY_GROWTH_MAX: f64 = 1.10;
const MEMORY_GROWTH_MIB: f64 = 16.0;
/// Maximum total size of a node's queues, in MiB: `Limits` of replica (480) and net (256 for
/// clients, 2 x 48 for peers).
const QUEUES_MIB_MAX: f64 = 832.0;

/// Result of one load of a round.
struct LoadPoint {
    round: usize,
    /// Offered load as a multiple of the rate of the round's closed loop; 0 for the closed loop.
    load_multiple: u64,
    row: LoadRow,
    cpu_shares: CpuShares,
    usage_samples: UsageWatch,
    /// The leader's tuning after the load.
    leader_tuning: Value,
}

/// All rounds of a scenario.
struct ScenarioRounds {
    maximum_rate: f64,
    outstanding: u32,
    points: Vec<LoadPoint>,
}

/// Runs `[--rounds N] [NAME…]`.
pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let (rounds, names) = parse_rounds(words, 3)?;
    let cpus = CpuDivision::divide()?;
    println!("{}; medians of {rounds} rounds", cpus.format_division());
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
        let seen = measure_rounds(scenario, &cpus, rounds)?;
        save_results(&format!("overload {}", scenario.name), &seen.to_json(scenario))?;
        seen.print(scenario);
        missed.extend(seen.list_failures(scenario));
    }
    missed.iter().for_each(|fault| println!("  {fault}"));
    match missed.len() {
        0 => Ok(()),
        count => Err(Failed(format!("overload: {count} targets missed"))),
    }
}

fn measure_rounds(
    scenario: &OverloadScenario,
    cpus: &CpuDivision,
    rounds: usize,
) -> Result<ScenarioRounds, Failed> {
    let store = match scenario.service {
        "kv" => "memory",
        _ => "none",
    };
    let flags = ["--store", store, "--disk-flush-ms", scenario.flush_ms];
    let mut nodes = cpus.with_node_cpus(|| nodes::start_ready(3, &flags))?;
    let (mut maximum, mut outstanding) = (0.0, 0);
    for count in OUTSTANDING_COUNTS {
        let ask = load_request(scenario, &nodes, OfferedLoad::Closed(count))?;
        let (row, _) = load::run(&mut nodes, Some(cpus), &ask)?;
        if let Some(harm) = row.harmful_errors() {
            println!("  {}, {count} outstanding: {harm}", scenario.name);
        } else if row.achieved_per_s > maximum {
            (maximum, outstanding) = (row.achieved_per_s, count);
        }
    }
    let mut points = Vec::new();
    for round in 1..=rounds {
        // Offer multiples of the rate just measured: the machine's speed varies.
        let mut closed = maximum;
        for times in [0].into_iter().chain(LOAD_MULTIPLES) {
            let offer = match times {
                0 => OfferedLoad::Closed(outstanding.max(1)),
                times => OfferedLoad::Open(offered_rate(closed, times)),
            };
            let ask = load_request(scenario, &nodes, offer)?;
            let (row, watch) = load::run(&mut nodes, Some(cpus), &ask)?;
            if times == 0 {
                closed = row.achieved_per_s;
            }
            let from = WARMUP.as_secs_f64();
            points.push(LoadPoint {
                round,
                load_multiple: times,
                row,
                cpu_shares: watch.cpu_shares_between(from, from + DURATION.as_secs_f64()),
                usage_samples: watch,
                leader_tuning: fetch_tuning(&nodes),
            });
        }
    }
    Ok(ScenarioRounds { maximum_rate: maximum, outstanding, points })
}

fn load_request(
    scenario: &OverloadScenario,
    nodes: &NodeCluster,
    offer: OfferedLoad,
) -> Result<LoadRequest, Failed> {
    let addresses = nodes.client_addresses();
    let leader = usize::try_from(nodes.leader()?).unwrap_or(0);
    let connect = match addresses.get(leader.wrapping_sub(1)) {
        Some(leader) if !scenario.sends_to_all => leader.clone(),
        _ => addresses.join(","),
    };
    Ok(LoadRequest {
        service: scenario.service,
        client_addresses: connect,
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
fn offered_rate(maximum: f64, times: u64) -> u64 {
    (maximum as u64).saturating_mul(times).clamp(1, RATE_MAX)
}

fn fetch_tuning(nodes: &NodeCluster) -> Value {
    nodes.leader().map_or(Value::Null, |leader| nodes.tuner_status(leader))
}

impl LoadPoint {
    /// Returns whether the generator had no CPU time left to offer more.
    fn is_generator_limited(&self) -> bool {
        self.cpu_shares.generator + self.cpu_shares.waited >= GENERATOR_FULL_SHARE
    }

    /// Returns the time from acceptance to reply, in milliseconds.
    fn latency_ms(&self) -> f64 {
        let us = self.leader_tuning["measured"]["latency_us"].as_f64();
        us.unwrap_or(f64::NAN) / 1e3
    }

    /// Returns the CPU time of all nodes per command, in microseconds.
    fn node_cpu_us(&self) -> f64 {
        self.cpu_shares.nodes * 1e6 / self.row.achieved_per_s.max(1.0)
    }

    /// Returns the memory of the largest node in each half of the time, in MiB.
    fn memory_halves_mib(&self) -> (f64, f64) {
        let (first, second) =
            self.usage_samples.samples.split_at(self.usage_samples.samples.len() / 2);
        (peak_memory_mib(first), peak_memory_mib(second))
    }

    fn to_json(&self) -> Value {
        json!({
            "round": self.round,
            "times": self.load_multiple,
            "row": self.row.raw_report,
            "cpus_nodes": self.cpu_shares.nodes,
            "cpus_generator": self.cpu_shares.generator,
            "generator_waited": self.cpu_shares.waited,
            "chosen": self.leader_tuning["chosen"],
            "reason": self.leader_tuning["reason"],
            "measured": self.leader_tuning["measured"],
            "watch": self.usage_samples.to_json(),
        })
    }
}

impl ScenarioRounds {
    fn points_at(&self, times: u64) -> impl Iterator<Item = &LoadPoint> {
        self.points.iter().filter(move |point| point.load_multiple == times)
    }

    /// Returns, for each round, the throughput at `times` times the load divided by that of the
    /// round's closed loop.
    fn throughput_ratios(&self, times: u64) -> Vec<f64> {
        let both = self.points_at(times).zip(self.points_at(0));
        both.map(|(point, closed)| point.row.achieved_per_s / closed.row.achieved_per_s.max(1.0))
            .collect()
    }

    fn print(&self, scenario: &OverloadScenario) {
        for times in [0].into_iter().chain(LOAD_MULTIPLES) {
            let of = |figure: &dyn Fn(&LoadPoint) -> f64| median(self.points_at(times).map(figure));
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
                of(&|point| point.row.achieved_per_s),
                median(self.throughput_ratios(times)),
                smallest(self.throughput_ratios(times)),
                of(&|point| point.row.busy_share() * 100.0),
                of(&|point| point.row.lost),
                of(&|point| point.row.late * 100.0),
                of(&|point| point.row.p99_us / 1e3),
                of(&LoadPoint::latency_ms),
                self.points_at(times)
                    .map(|point| point.usage_samples.peak_mib())
                    .fold(0.0, f64::max),
                of(&LoadPoint::node_cpu_us),
                of(&|point| point.cpu_shares.nodes),
                of(&|point| point.cpu_shares.generator + point.cpu_shares.waited),
                if self.is_generator_limited(times) { "  generator full" } else { "" }
            );
        }
    }

    fn is_generator_limited(&self, times: u64) -> bool {
        let limited = self.points_at(times).filter(|point| point.is_generator_limited());
        limited.count() * 2 > self.points_at(times).count()
    }

    /// Lists the failures, one line each.
    fn list_failures(&self, scenario: &OverloadScenario) -> Vec<String> {
        let name = scenario.name;
        let mut faults = Vec::new();
        if self.outstanding == 0 {
            return vec![format!("{name}: no maximum was found")];
        }
        for times in LOAD_MULTIPLES {
            let ratio = median(self.throughput_ratios(times));
            if ratio.is_nan() || ratio < SERVED_SHARE_MIN {
                let whose = if self.is_generator_limited(times) {
                    "but the generator could not offer it: no result"
                } else {
                    "wanted at least 0.90"
                };
                faults.push(format!("{name}, {times} M: {ratio:.2} of M, {whose}"));
            }
            if ratio > MAXIMUM_MULTIPLE_MAX {
                faults.push(format!(
                    "{name}, {times} M: {ratio:.2} of M, so M was not the maximum: no result"
                ));
            }
            for point in self.points_at(times) {
                let which = format!("{name}, {times} M, round {}", point.round);
                if let Some(harm) = point.row.harmful_errors() {
                    faults.push(format!("{which}: {harm}"));
                }
                let (first, second) = point.memory_halves_mib();
                let is_last = self.points.iter().all(|other| other.round <= point.round);
                if is_last && second > first * MEMORY_GROWTH_MAX + MEMORY_GROWTH_MIB {
                    faults.push(format!(
                        "{which}: memory still grows, {first:.0} MiB, then {second:.0} MiB"
                    ));
                }
            }
        }
        faults.extend(self.memory_failure(name));
        faults
    }

    /// Checks that memory use in the last round is similar to the first, and never exceeds that of
    /// the closed loop by more than the size of the queues.
    fn memory_failure(&self, name: &str) -> Option<String> {
        let peaks: Vec<f64> =
            self.points_at(4).map(|point| point.usage_samples.peak_mib()).collect();
        let closed = self.points_at(0).map(|point| point.usage_samples.peak_mib());
        let at_most = closed.reduce(f64::min)? + QUEUES_MIB_MAX;
        let (first, last) = (*peaks.first()?, *peaks.last()?);
        if last > first * MEMORY_GROWTH_MAX + MEMORY_GROWTH_MIB {
            Some(format!(
                "{name}: memory grows from round to round, {first:.0} MiB, then {last:.0} MiB"
            ))
        } else if peaks.iter().any(|peak| *peak > at_most) {
            Some(format!("{name}: {last:.0} MiB, more than all queues hold"))
        } else {
            None
        }
    }

    fn to_json(&self, scenario: &OverloadScenario) -> Value {
        json!({
            "scenario": scenario.name,
            "maximum": self.maximum_rate,
            "outstanding": self.outstanding,
            "points": self.points.iter().map(LoadPoint::to_json).collect::<Value>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(round: usize, times: u64, achieved: f64, mib: &[f64]) -> LoadPoint {
        let mut watch = UsageWatch::new(Vec::new(), 0);
        let look = |mib: &f64| super::super::watch::UsageSample {
            rss_mib: vec![*mib],
            ..Default::default()
        };
        watch.samples = mib.iter().map(look).collect();
        LoadPoint {
            round,
            load_multiple: times,
            row: LoadRow { achieved_per_s: achieved, ..LoadRow::default() },
            cpu_shares: CpuShares::default(),
            usage_samples: watch,
            leader_tuning: Value::Null,
        }
    }

    fn seen(overloaded: impl Fn(usize) -> LoadPoint) -> Vec<String> {
        let mut points = Vec::new();
        for round in 1..=3 {
            for times in [0, 1, 2] {
                points.push(point(round, times, 100.0, &[50.0, 50.0]));
            }
            points.push(overloaded(round));
        }
        let seen = ScenarioRounds { maximum_rate: 100.0, outstanding: 256, points };
        seen.list_failures(&SCENARIOS[0])
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
            point.cpu_shares.generator = 0.6;
            point.cpu_shares.waited = 0.35;
            point
        });
        assert!(told.len() == 1 && told[0].ends_with("no result"), "{told:?}");
    }

    #[test]
    fn rates_stay_within_the_limits_of_the_benchmark() {
        assert_eq!(offered_rate(1000.9, 4), 4000);
        assert_eq!(offered_rate(9e6, 4), RATE_MAX);
        assert_eq!(offered_rate(0.0, 4), 1);
    }
}
