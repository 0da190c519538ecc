//! Regression gate: compares counts with a baseline in the source tree.
//!
//! Covers only repeatable counts: instructions of fixed work (within 3 %), system calls of the
//! log's thread (at most 3 % more; fewer only mean a faster disk), and the exact writes, flushes
//! and sends of a deterministic schedule. Times are not covered.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, process::Command};

use crate::{
    bench::{
        build,
        core::{CASES, instructions_per_step},
        log::{LogCounters, run_commits},
        to_float,
    },
    instructions::{InstructionCounter, SyscallCounter},
    shell::{Failed, read_output, workspace_root},
};

const USAGE: &str = "gate [--bless REASON]";
/// Number of runs. The one with the fewest system calls counts.
const CALL_RUNS: u32 = 5;
/// System calls that the thread of an io_uring log makes for a commit. `futex` is left out: threads
/// that create segments wait with it, at a frequency that depends on the machine's other load.
const IO_URING_CALLS: [&str; 3] = ["io_uring_enter", "ppoll", "read"];
/// Tolerance of instructions and system calls relative to the baseline.
const TOLERANCE: f64 = 0.03;
/// Maximum difference between counts that are considered equal. Counts are written with four
/// digits.
const EQUAL_TOLERANCE: f64 = 0.000_06;

/// Counts by full name. The first word of a name is its kind.
type Counts = BTreeMap<String, f64>;

/// Runs `cargo xtask gate`.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let reason = match words {
        [] => None,
        ["--bless", reason] if !reason.trim().is_empty() => Some(reason.trim()),
        _ => return Err(Failed(USAGE.to_owned())),
    };
    let file = workspace_root().join("crates/proof/trials/baseline.txt");
    let text = fs::read_to_string(&file).unwrap_or_default();
    let old = parse_baseline(&text)?;
    let (now, skipped) = measure_counts()?;
    for why in &skipped {
        println!("SKIPPED {why}");
    }
    if let Some(reason) = reason {
        fs::write(&file, new_baseline(&text, &old, &now, reason)?)?;
        println!("blessed {} counts; commit {}", now.len(), file.display());
        return Ok(());
    }
    let faults = compare_counts(&old, &now);
    if faults == 0 {
        println!("all counts are as they were blessed");
        return Ok(());
    }
    Err(Failed(format!(
        "{faults} counts differ from crates/proof/trials/baseline.txt. If that is meant, better counts included: \
         cargo xtask gate --bless \"why\", and commit the file with the change"
    )))
}

/// Measures all counts that are available on this machine, and lists those that are not.
fn measure_counts() -> Result<(Counts, Vec<String>), Failed> {
    let (mut counts, mut skipped) = (Counts::new(), Vec::new());
    let step = build("quorate-core", "step")?;
    let commit = build("quorate-log", "commit")?;
    let cluster = build("quorate-replica", "cluster")?;
    cluster_counts(&cluster, &mut counts)?;
    commit_counts(&commit, &mut counts, &mut skipped)?;
    match InstructionCounter::find_best() {
        Ok(counter) => add_instructions(counter, &step, &commit, &cluster, &mut counts)?,
        Err(why) => skipped.push(format!("instructions: {why}")),
    }
    match SyscallCounter::find_cheapest() {
        Ok(counter) => add_system_calls(counter, &commit, &mut counts)?,
        Err(why) => skipped.push(format!("system calls: {why}")),
    }
    Ok((counts, skipped))
}

/// Counts for three nodes on a deterministic schedule.
fn cluster_counts(program: &Path, counts: &mut Counts) -> Result<(), Failed> {
    let text = read_output(&mut Command::new(program))?;
    for line in text.lines() {
        let words: Vec<(&str, &str)> =
            line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let field = |name: &str| {
            let found = words.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| *value)
        };
        let number = |name: &str| field(name).and_then(|text| text.parse::<f64>().ok());
        let (Some(case), Some(commands)) = (field("case"), field("commands")) else {
            return Err(Failed(format!("the cluster bench says {line:?}")));
        };
        for name in ["messages", "batches", "writes", "flushes"] {
            let count = number(name).ok_or_else(|| Failed(format!("no {name} in {line:?}")))?;
            let name = format!("exact cluster.{case}.{name}_of_{commands}_commands");
            counts.insert(name, count);
        }
    }
    Ok(())
}

/// Adds the counts of the log alone, in memory and on files, from its own counters.
fn commit_counts(
    program: &Path,
    counts: &mut Counts,
    skipped: &mut Vec<String>,
) -> Result<(), Failed> {
    for driver in ["memory", "file", "uring"] {
        let words = ["--driver", driver, "--records", "1000", "--depth", "1"];
        let done: LogCounters = match run_commits(program, &words) {
            Ok(done) => done,
            Err(Failed(why)) if driver == "uring" => {
                skipped.push(format!("uring: {}", why.lines().last().unwrap_or_default()));
                continue;
            }
            Err(failed) => return Err(failed),
        };
        let commits = to_float(done.commits);
        let mut put = |name: &str, count: u64| {
            counts.insert(format!("exact log.{driver}.{name}"), to_float(count) / commits);
        };
        put("records_per_commit", done.records);
        put("writes_per_commit", done.writes);
        put("flushes_per_commit", done.flushes);
        put("bytes_per_commit", done.bytes);
    }
    Ok(())
}

fn add_instructions(
    counter: InstructionCounter,
    step: &Path,
    commit: &Path,
    cluster: &Path,
    counts: &mut Counts,
) -> Result<(), Failed> {
    let kind = counter.name();
    for (case, _) in CASES {
        let each = instructions_per_step(counter, step, case)?;
        counts.insert(format!("{kind} core.{case}"), each);
    }
    let log = |records: &str| {
        counter.count_instructions(commit, &["--driver", "memory", "--records", records])
    };
    let each = (to_float(log("2000")?) - to_float(log("1000")?)) / 1000.0;
    counts.insert(format!("{kind} log.memory.per_commit"), each);
    for case in ["durable.window-1", "durable.window-64"] {
        let whole = to_float(counter.count_instructions(cluster, &["--case", case])?);
        // Instructions of the whole run per command: a cluster of three with its simulated network.
        counts.insert(format!("{kind} cluster.{case}.per_command"), whole / 2048.0);
    }
    Ok(())
}

fn add_system_calls(
    counter: SyscallCounter,
    commit: &Path,
    counts: &mut Counts,
) -> Result<(), Failed> {
    // A busy machine only adds wake-ups, so the lowest count is the right one.
    let count = |driver: &str, records: &str| {
        let words = ["--driver", driver, "--depth", "1", "--records", records];
        let mut least = f64::INFINITY;
        for _ in 0..CALL_RUNS {
            least = least.min(to_float(counter.count_named(&IO_URING_CALLS, commit, &words)?));
        }
        Ok::<_, Failed>(least)
    };
    // The other driver uses threads, and the number of their waits is random.
    let has_uring = counts.contains_key("exact log.uring.writes_per_commit");
    if has_uring {
        let each = (count("uring", "3000")? - count("uring", "1000")?) / 2000.0;
        counts.insert("syscalls log.uring.per_commit".to_owned(), each);
    }
    Ok(())
}

/// Prints every count with its baseline. Returns the number of failures.
fn compare_counts(old: &Counts, now: &Counts) -> usize {
    let mut faults = 0;
    println!("{:64} {:>12} {:>12} {:>8}", "", "baseline", "now", "change");
    for (name, count) in now {
        let Some(before) = old.get(name) else {
            println!("{name:64} {:>12} {count:12.4} {:>8}  FAULT: not in the baseline", "-", "");
            faults += 1;
            continue;
        };
        let change = (count - before) / before.abs().max(f64::MIN_POSITIVE);
        let verdict = reason_failed(name, *before, *count);
        faults += usize::from(verdict.is_some());
        let verdict = verdict.map_or(String::new(), |verdict| format!("  FAULT: {verdict}"));
        println!("{name:64} {before:12.4} {count:12.4} {:7.2}%{verdict}", change * 100.0);
    }
    let missing = old.keys().filter(|name| !now.contains_key(*name));
    for name in missing {
        println!("{name:64} not counted here");
    }
    faults
}

/// Returns why a count fails; `None` if it passes.
fn reason_failed(name: &str, before: f64, now: f64) -> Option<&'static str> {
    let exact = name.starts_with("exact ");
    let bound = if exact { EQUAL_TOLERANCE } else { before.abs() * TOLERANCE };
    if (now - before).abs() <= bound {
        None
    } else if now > before {
        Some("more than blessed")
    } else if name.starts_with("syscalls ") {
        // Fewer calls are not a failure: on a fast disk, a write completes before the log waits for
        // it.
        None
    } else {
        Some("less than blessed")
    }
}

/// Parses lines `kind name = count`. Lines beginning with `#` record after which commit new counts
/// were accepted, and why.
fn parse_baseline(text: &str) -> Result<Counts, Failed> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let pair = line.split_once(" = ");
            let pair = pair.and_then(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
            pair.ok_or_else(|| {
                Failed(format!("crates/proof/trials/baseline.txt: {line:?} is no count"))
            })
        })
        .collect()
}

/// Returns the baseline file with the new counts and one more reason. Counts that cannot be
/// measured here are kept.
fn new_baseline(text: &str, old: &Counts, now: &Counts, reason: &str) -> Result<String, Failed> {
    let mut git = Command::new("git");
    let commit =
        read_output(git.args(["rev-parse", "--short", "HEAD"]).current_dir(workspace_root()))?;
    let mut file = String::new();
    if !text.starts_with('#') {
        file.push_str("# Counts that `cargo xtask gate` compares; written by its --bless. Blessed after which commit, and why:\n");
    }
    for line in text.lines().filter(|line| line.starts_with('#')) {
        let _ = writeln!(file, "{line}");
    }
    let _ = writeln!(file, "# {}: {}", commit.trim(), reason.replace('\n', " "));
    let mut all = old.clone();
    all.extend(now.iter().map(|(name, count)| (name.clone(), *count)));
    for (name, count) in all {
        let _ = writeln!(file, "{name} = {count:.4}");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_an_exact_count_is_reported() {
        assert_eq!(reason_failed("exact log.memory.writes_per_commit", 1.0, 1.0), None);
        let more = reason_failed("exact log.memory.writes_per_commit", 1.0, 1.001);
        assert_eq!(more, Some("more than blessed"));
        let less = reason_failed("exact cluster.messages", 4.0, 3.99);
        assert_eq!(less, Some("less than blessed"));
    }

    #[test]
    fn instructions_may_move_by_three_percent() {
        assert_eq!(reason_failed("callgrind core.x", 100.0, 102.9), None);
        assert!(reason_failed("callgrind core.x", 100.0, 103.1).is_some());
    }

    #[test]
    fn system_calls_may_decrease_but_not_increase() {
        assert_eq!(reason_failed("syscalls log.x", 5.0, 4.0), None);
        assert_eq!(reason_failed("syscalls log.x", 5.0, 5.2), Some("more than blessed"));
    }

    #[test]
    fn blessing_keeps_reasons_and_counts_not_measured_here() {
        let old = "# head\n# abc: first\nexact a = 1.0000\nperf b = 2.0000\n";
        let counts = parse_baseline(old).unwrap();
        let now = Counts::from([("exact a".to_owned(), 3.0)]);
        let text = new_baseline(old, &counts, &now, "three is better").unwrap();
        assert!(text.starts_with("# head\n# abc: first\n# "));
        assert!(text.contains(": three is better\n"));
        assert!(text.ends_with("exact a = 3.0000\nperf b = 2.0000\n"));
        assert!(parse_baseline("what").is_err());
    }

    #[test]
    fn the_committed_baseline_can_be_read() {
        let text =
            fs::read_to_string(workspace_root().join("crates/proof/trials/baseline.txt")).unwrap();
        let counts = parse_baseline(&text).unwrap();
        assert_eq!(counts.get("exact log.memory.writes_per_commit"), Some(&1.0));
        assert_eq!(counts.get("exact log.memory.flushes_per_commit"), Some(&1.0));
    }
}
