//! Comparison of Quorate with other systems, alternating in one session: `cargo xtask compare`.
//!
//! First each system is loaded with every number of connections, and its best number is used from
//! then on. Then the rounds follow: in each, every system is started afresh and loaded to its
//! maximum. After that, another system is loaded at half of its own maximum, and Quorate at half of
//! the maximum of each system compared with it. Ratios are computed round by round.
//! bench-compare/README.md describes the other systems and how to add one. Multicast systems have
//! their own rules ([`multicast`]).

mod build;
mod cluster;
mod figures;
mod load;
mod multicast;
mod report;
mod systems;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use quorate_testbed::interrupt;

use crate::shell::{self, Failed};
use build::BuiltPrograms;
use cluster::RunningSystem;
use figures::{ComparisonResults, ConnectionTrial, MeasuredLoad, SystemTurn};
use load::RequestedLoad;
use systems::System;

const USAGE: &str = "compare [--only NAME,NAME] [--duration 5s] [--repeat 5] [--quick] [--list] [--out PATH] [--json [FILE]]";
/// Numbers of connections tried with each system.
const CONNECTION_COUNTS: [u32; 5] = [1, 4, 16, 64, 256];
const QUICK_CONNECTION_COUNTS: [u32; 3] = [1, 16, 256];
/// Maximum number of attempts at a latency measurement in a turn. A load that was sent late says
/// nothing about the system.
const ATTEMPTS: u32 = 3;
/// Number of commands outstanding at any time.
const OUTSTANDING: u32 = 256;
const VALUE_BYTES: usize = 64;

/// Options of `cargo xtask compare`.
#[derive(Clone, Debug, PartialEq)]
struct CompareOptions {
    only: Vec<String>,
    /// Measured time at full load.
    duration: Duration,
    repetition_count: usize,
    connection_counts: &'static [u32],
    /// Path of the report, without an extension.
    report_path: Option<PathBuf>,
    json: Option<JsonDestination>,
    lists_systems: bool,
}

/// Second destination of the JSON report.
#[derive(Clone, Debug, PartialEq)]
enum JsonDestination {
    /// Prints to standard output, instead of the readable report.
    Printed,
    File(PathBuf),
}

impl CompareOptions {
    fn warmup_duration(&self) -> Duration {
        (self.duration / 5).min(Duration::from_millis(700))
    }

    /// Returns the measured time at half load.
    fn latency_duration(&self) -> Duration {
        self.duration * 2 / 5
    }

    /// Returns the measured time of a trial with one number of connections.
    fn trial_duration(&self) -> Duration {
        self.duration / 5
    }
}

pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    if let ["multicast", rest @ ..] = words {
        return multicast::run(rest);
    }
    let wish = parse(words)?;
    if wish.lists_systems {
        let (text, document) = report::list_systems();
        print!("{}", report::write_json(wish.json.as_ref(), text, document)?);
        return Ok(());
    }
    let chosen = systems::choose_systems(&wish.only)?;
    interrupt::clean_up_on_signals()?;
    let began = Instant::now();
    let (built, mut results) = build::build_all(&chosen)?;
    let chosen: Vec<&System> =
        chosen.into_iter().filter(|system| !results.has_failed(&system.id())).collect();
    try_connections(&wish, &built, &chosen, &mut results);
    let usable: Vec<&System> =
        chosen.into_iter().filter(|system| results.best_trial(&system.id()).is_some()).collect();
    for round in 0..wish.repetition_count {
        let mut order = usable.clone();
        // Vary the order, so that no system always follows the same other system.
        order.rotate_left(round * 5 % usable.len().max(1));
        if round % 2 == 1 {
            order.reverse();
        }
        for system in order {
            eprintln!("round {} of {}: {}", round + 1, wish.repetition_count, system.id());
            let turn = run_turn(&wish, &built, system, &usable, &results, round);
            if let Some(trouble) = &turn.early_end_reason {
                eprintln!("  {trouble}");
            }
            results.turns.push(turn);
        }
    }
    results.seconds = began.elapsed().as_secs_f64();
    report::write_report(&wish, &usable, &results)
}

/// Tries each number of connections, for a short time.
fn try_connections(
    wish: &CompareOptions,
    built: &BuiltPrograms,
    chosen: &[&System],
    results: &mut ComparisonResults,
) {
    for system in chosen {
        eprintln!("connections: {}", system.id());
        let tried = RunningSystem::start(built, system).and_then(|mut cluster| {
            for connections in wish.connection_counts {
                let ask = RequestedLoad {
                    offer: load::OfferedLoad::Closed(OUTSTANDING),
                    connections: *connections,
                    warmup: wish.trial_duration() / 3,
                    duration: wish.trial_duration(),
                };
                // The system may not support this number; the other numbers still count.
                match load::run(built, system, &mut cluster, &ask) {
                    Ok(measured) => results.trials.push(ConnectionTrial {
                        system: system.id(),
                        connections: *connections,
                        measured,
                    }),
                    Err(Failed(why)) => {
                        eprintln!("  {connections} connections: {why}");
                        results.note_trial(&system.id(), *connections, &why);
                        cluster = RunningSystem::start(built, system)?;
                    }
                }
            }
            Ok(())
        });
        if let Err(Failed(why)) = tried {
            results.record_failure(&system.id(), &why);
        }
        match results.best_trial(&system.id()) {
            Some(best) => eprintln!(
                "  {:.0}/s with {} connections",
                best.measured.per_second, best.connections
            ),
            None => {
                results.record_failure(&system.id(), "no number of connections gave a result");
                eprintln!("  no result");
            }
        }
    }
}

/// Starts a system, loads it, stops it, and checks its result.
fn run_turn(
    wish: &CompareOptions,
    built: &BuiltPrograms,
    system: &System,
    all: &[&System],
    results: &ComparisonResults,
    round: usize,
) -> SystemTurn {
    let mut turn = SystemTurn { system: system.id(), round, ..SystemTurn::default() };
    let Some(best) = results.best_trial(&system.id()) else {
        return turn;
    };
    let mut go = || -> Result<(), Failed> {
        let mut cluster = RunningSystem::start(built, system)?;
        let mut ask = RequestedLoad {
            offer: load::OfferedLoad::Closed(OUTSTANDING),
            connections: best.connections,
            warmup: wish.warmup_duration(),
            duration: wish.duration,
        };
        let mut acknowledged = 0;
        let mut count = |measured: &MeasuredLoad| acknowledged += measured.acknowledged;
        let maximum = load::run(built, system, &mut cluster, &ask)?;
        eprintln!(
            "  {:.0}/s, {:.2} µs of CPU, p99 {:.0} µs{}",
            maximum.per_second,
            maximum.cpu_us,
            maximum.p99_us,
            maximum.format_reason()
        );
        count(&maximum);
        turn.maximum = Some(maximum);
        ask.duration = wish.latency_duration();
        for (peer, rate) in half_load_rates(system, all, results) {
            ask.offer = load::OfferedLoad::Open(rate);
            for _ in 0..ATTEMPTS {
                let measured = load::run(built, system, &mut cluster, &ask)?;
                eprintln!(
                    "  at {rate}/s (half of {peer}): p99 {:.0} µs{}",
                    measured.p99_us,
                    measured.format_reason()
                );
                count(&measured);
                let again = measured.is_late();
                turn.latencies.push((peer.clone(), rate, measured));
                if !again {
                    break;
                }
            }
        }
        turn.applied = cluster.stop_and_check(acknowledged)?;
        Ok(())
    };
    if let Err(Failed(why)) = go() {
        turn.early_end_reason = Some(why);
    }
    turn
}

/// Returns the rates at half load. Another system runs at half of its own maximum, and ours at half
/// of the maximum of each system compared with it.
fn half_load_rates(
    system: &System,
    all: &[&System],
    results: &ComparisonResults,
) -> Vec<(String, u64)> {
    let half = |peer: &System| {
        let best = results.best_trial(&peer.id())?;
        Some((peer.id(), figures::half_rate(best.measured.per_second)))
    };
    if !system.is_ours() {
        return half(system).into_iter().collect();
    }
    let compared = all.iter().filter(|peer| peer.is_compared_with(system));
    compared.filter_map(|peer| half(peer)).collect()
}

fn parse(words: &[&str]) -> Result<CompareOptions, Failed> {
    let mut wish = CompareOptions {
        only: Vec::new(),
        duration: Duration::from_secs(5),
        repetition_count: 5,
        connection_counts: &CONNECTION_COUNTS,
        report_path: None,
        json: None,
        lists_systems: false,
    };
    let bad = |what: &str| Failed(format!("{what}: {USAGE}"));
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| bad(word));
        match *word {
            "--quick" => {
                wish.duration = Duration::from_millis(1500);
                wish.repetition_count = 2;
                wish.connection_counts = &QUICK_CONNECTION_COUNTS;
            }
            "--list" => wish.lists_systems = true,
            "--only" => wish.only = value()?.split(',').map(str::to_owned).collect(),
            "--out" => wish.report_path = Some(PathBuf::from(value()?)),
            "--json" => {
                let file = words.next_if(|word| !word.starts_with("--"));
                wish.json =
                    Some(file.map_or(JsonDestination::Printed, |file| {
                        JsonDestination::File(file.into())
                    }));
            }
            "--repeat" => {
                let text = value()?;
                let number = text.parse().ok().filter(|n| (1..=1000).contains(n));
                wish.repetition_count = number.ok_or_else(|| bad(text))?;
            }
            "--duration" => {
                let text = value()?;
                wish.duration = parse_duration(text).ok_or_else(|| bad(text))?;
            }
            other => return Err(bad(other)),
        }
    }
    Ok(wish)
}

/// Parses a duration such as `5s` or `500ms`.
fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    ((0.1..=3600.0).contains(&seconds)).then(|| Duration::from_secs_f64(seconds))
}

/// Returns the default path of the report.
fn default_report_path() -> PathBuf {
    shell::build_folder().join("compare").join("report")
}

#[cfg(test)]
mod tests {
    use super::{systems::SYSTEMS, *};

    #[test]
    fn flags_are_parsed() {
        let wish = parse(&["--only", "etcd,redis", "--duration", "500ms", "--repeat", "3"]);
        let wish = wish.unwrap();
        assert_eq!(wish.only, ["etcd", "redis"]);
        assert_eq!(wish.duration, Duration::from_millis(500));
        assert_eq!(wish.repetition_count, 3);
        for bad in [
            &["--duration"][..],
            &["--duration", "5"],
            &["--duration", "0s"],
            &["--duration", "infs"],
            &["--repeat", "0"],
            &["etcd"],
            &["--csv", "file"],
            &["--json", "file", "another"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn json_report_goes_to_the_requested_destination() {
        let json = |words: &[&str]| parse(words).unwrap().json;
        let file = Some(JsonDestination::File("r.json".into()));
        assert_eq!(json(&["--quick"]), None);
        assert_eq!(json(&["--json"]), Some(JsonDestination::Printed));
        assert_eq!(json(&["--json", "--quick"]), Some(JsonDestination::Printed));
        assert_eq!(json(&["--quick", "--json", "r.json"]), file);
    }

    #[test]
    fn own_system_runs_at_half_the_rate_of_each_comparable_one() {
        let mut results = ComparisonResults::default();
        for (system, per_second) in [("etcd", 9000.0), ("redis", 50_000.0)] {
            results.trials.push(ConnectionTrial {
                system: format!("{system}/durable"),
                connections: 1,
                measured: MeasuredLoad { per_second, completed: 1, ..MeasuredLoad::default() },
            });
        }
        let all: Vec<&System> = SYSTEMS.iter().collect();
        let of = |id: &str| {
            let system = SYSTEMS.iter().find(|system| system.id() == id).unwrap();
            half_load_rates(system, &all, &results)
        };
        let etcd = ("etcd/durable".to_owned(), 4500);
        let redis = ("redis/durable".to_owned(), 25_000);
        assert_eq!(of("etcd/durable"), std::slice::from_ref(&etcd));
        assert_eq!(of("quorate-kv-memory/durable"), [etcd, redis]);
        assert_eq!(of("quorate-log/durable"), []);
    }
}
