//! `cargo xtask disks`: runs three nodes, one of them on a failing disk. For every kind of file and
//! every fault, checks that no acknowledged data is lost and no wrong data is served, and shows
//! what the node reports about the fault.

mod disk;
mod trial;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quorate_testbed::interrupt;
use serde_json::json;

use crate::{
    cluster::check::Checker,
    shell::{self, Failed, run_cargo},
};
use trial::{TrialOutcome, TrialRow};

/// Rows whose fault cannot occur, each with the reason.
const IMPOSSIBLE_ROWS: [(&str, DiskFault, &str); 0] = [];

const USAGE: &str = "disks [ROUNDS] [--seed N] [--only KIND[+FAULT]] [--json]";

/// Files to which faults apply, selected by the prefixes of their names below the data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    name: &'static str,
    files: &'static str,
    /// Flags that each node is started with.
    flags: &'static [&'static str],
    /// Activity that makes a node write these files.
    trigger: WriteTrigger,
}

/// Activity that continues until the fault can occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteTrigger {
    /// Clients send commands.
    ClientLoad,
    /// Snapshots are requested.
    SnapshotRequests,
    /// The node is killed and restarted.
    NodeRestart,
    /// A new node joins.
    NewNode,
}

const LSM_FLAGS: &[&str] = &["--store", "lsm"];
const MEMORY_FLAGS: &[&str] = &["--store", "memory"];
const ETCD_FLAGS: &[&str] = &["--service", "etcd", "--store", "lsm"];

impl Kind {
    const fn new(
        name: &'static str,
        files: &'static str,
        flags: &'static [&'static str],
        trigger: WriteTrigger,
    ) -> Self {
        Self { name, files, flags, trigger }
    }
}

const KINDS: [Kind; 12] = [
    Kind::new("log", "log/", LSM_FLAGS, WriteTrigger::ClientLoad),
    Kind::new("streams", "stream/", LSM_FLAGS, WriteTrigger::ClientLoad),
    Kind::new("snapshot", "snapshot/", MEMORY_FLAGS, WriteTrigger::SnapshotRequests),
    Kind::new("store", "kv/", LSM_FLAGS, WriteTrigger::SnapshotRequests),
    Kind::new("etcd", "etcd/", ETCD_FLAGS, WriteTrigger::SnapshotRequests),
    Kind::new("identity", "identity", LSM_FLAGS, WriteTrigger::NodeRestart),
    Kind::new("peers", "peers", LSM_FLAGS, WriteTrigger::NewNode),
    Kind::new("base", "base", MEMORY_FLAGS, WriteTrigger::SnapshotRequests),
    Kind::new("catalogue", "catalogue", LSM_FLAGS, WriteTrigger::ClientLoad),
    Kind::new("segments", "segments", LSM_FLAGS, WriteTrigger::ClientLoad),
    Kind::new("parts", "parts", MEMORY_FLAGS, WriteTrigger::SnapshotRequests),
    Kind::new("chunks", "chunks", LSM_FLAGS, WriteTrigger::ClientLoad),
];

/// Fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// A bit of the stored data flips.
    BitFlip,
    /// A write goes to the wrong offset or file.
    MisdirectedWrite,
    /// A power cut leaves only the first sectors of an unflushed write.
    TornWrite,
    /// A power cut loses an unflushed write but keeps a later one.
    ReorderedWrites,
    /// A power cut undoes creations, renames and removals in folders that have not been flushed
    /// since.
    LostNames,
    /// A power cut loses one flushed write.
    LostWrite,
    /// A power cut loses all writes of some period, flushed or not.
    LostTail,
}

const FAULTS: [DiskFault; 7] = [
    DiskFault::BitFlip,
    DiskFault::MisdirectedWrite,
    DiskFault::TornWrite,
    DiskFault::ReorderedWrites,
    DiskFault::LostNames,
    DiskFault::LostWrite,
    DiskFault::LostTail,
];

impl DiskFault {
    /// Returns the fault's name in commands to the disk.
    const fn name(self) -> &'static str {
        match self {
            Self::BitFlip => "flip",
            Self::MisdirectedWrite => "misdirected",
            Self::TornWrite => "torn",
            Self::ReorderedWrites => "reordered",
            Self::LostNames => "lost-names",
            Self::LostWrite => "lost-one",
            Self::LostTail => "lost-tail",
        }
    }

    /// Returns whether any disk may show this fault when the power fails. The node must then start
    /// and vote, and no file may be damaged.
    const fn is_honest_disk_fault(self) -> bool {
        matches!(self, Self::TornWrite | Self::ReorderedWrites | Self::LostNames)
    }
}

/// Options of `cargo xtask disks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DisksOptions {
    rounds: u64,
    seed: u64,
    kind: Option<&'static str>,
    fault: Option<DiskFault>,
    json: bool,
}

pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let wish = parse(words)?;
    if !std::path::Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return shell::report_skip("disks", "file systems in user space need /dev/fuse, and root");
    }
    shell::build_programs()?;
    // The disk's tests need dependencies that only the disk uses, so `cargo test` does not run
    // them.
    let disk = ["--quiet", "--features", "quorate-trials/disks", "--bin", "quorate-disk"];
    run_cargo(&[&["test"], &disk[..]].concat())?;
    run_cargo(&[&["build"], &disk[..], shell::profile_arguments()].concat())?;
    Checker::build()?;
    let checker = Checker::find_built();
    interrupt::clean_up_on_signals()?;
    let begun = Instant::now();
    let mut rows = Vec::new();
    for round in 0..wish.rounds {
        for (kind, fault) in KINDS.iter().flat_map(|kind| FAULTS.map(|fault| (kind, fault))) {
            let other = wish.kind.is_some_and(|name| name != kind.name)
                || wish.fault.is_some_and(|one| one != fault);
            if other {
                continue;
            }
            let row = TrialRow { kind: *kind, fault, seed: wish.seed + round };
            let at = Instant::now();
            let played = row.run_trial(checker.as_ref());
            println!("{}", format_line(&row, &played, at.elapsed().as_secs()));
            rows.push((row, played));
        }
    }
    let unmet = |(row, played): &&(TrialRow, Result<TrialOutcome, Failed>)| {
        let met = played.as_ref().is_ok_and(TrialOutcome::has_occurred);
        played.is_ok() && !met && row.impossible_reason().is_none()
    };
    let unmet: Vec<String> = rows
        .iter()
        .filter(unmet)
        .map(|(row, _)| format!("{}+{}", row.kind.name, row.fault.name()))
        .collect();
    if wish.json {
        for (row, played) in &rows {
            println!("{}", row_json(row, played));
        }
    }
    let failed = rows.iter().filter(|(_, played)| played.is_err()).count();
    println!(
        "{} rows in {} s, {failed} failed, {} met nothing",
        rows.len(),
        begun.elapsed().as_secs(),
        unmet.len()
    );
    match (failed, unmet.is_empty()) {
        (0, true) => Ok(()),
        (0, false) => Err(Failed(format!("not shown: {}", unmet.join(", ")))),
        _ => Err(Failed(format!("{failed} of {} rows failed", rows.len()))),
    }
}

fn format_line(row: &TrialRow, played: &Result<TrialOutcome, Failed>, seconds: u64) -> String {
    let TrialRow { kind, fault, seed } = row;
    let (name, fault) = (kind.name, fault.name());
    match played {
        Ok(TrialOutcome {
            injected_fault: done, first_report: noticed, final_state: end, ..
        }) => {
            let noticed = noticed.as_deref().unwrap_or("nothing");
            let nothing = row.impossible_reason().unwrap_or("nothing: NOT SHOWN");
            let done = if done.is_empty() { nothing } else { done };
            format!(
                "{name:<9} {fault:<12} seed {seed}, {seconds:>3} s: {end}\n    done: {done}\n    said: {noticed}"
            )
        }
        Err(Failed(why)) => {
            format!(
                "{name:<9} {fault:<12} seed {seed}, {seconds:>3} s: FAILED: {why}\n    again: cargo xtask disks --only {name}+{fault} --seed {seed}"
            )
        }
    }
}

fn row_json(row: &TrialRow, played: &Result<TrialOutcome, Failed>) -> serde_json::Value {
    let mut value = json!({
        "kind": row.kind.name,
        "fault": row.fault.name(),
        "seed": row.seed,
    });
    let more = match played {
        Ok(outcome) => json!({
            "done": outcome.injected_fault,
            "noticed": outcome.first_report,
            "end": outcome.final_state,
            "keys": outcome.key_count,
            "stream_bytes": outcome.stream_bytes,
        }),
        Err(Failed(why)) => json!({ "failed": why }),
    };
    if let (Some(value), serde_json::Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
    value
}

fn parse(words: &[&str]) -> Result<DisksOptions, Failed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut wish = DisksOptions {
        rounds: 1,
        seed: now.unwrap_or_default().as_secs() % 1_000_000,
        kind: None,
        fault: None,
        json: false,
    };
    let number = |word: &str| {
        let number = word.parse::<u64>();
        number.map_err(|_| Failed(format!("{word}: not a number; {USAGE}")))
    };
    let mut rest = words;
    while let [word, more @ ..] = rest {
        rest = match (*word, more) {
            ("--seed", [seed, more @ ..]) => {
                wish.seed = number(seed)?;
                more
            }
            ("--only", [only, more @ ..]) => {
                for name in only.split('+') {
                    let kind = KINDS.iter().find(|kind| kind.name == name);
                    let fault = FAULTS.into_iter().find(|fault| fault.name() == name);
                    if kind.is_none() && fault.is_none() {
                        return Err(Failed(format!("{name}: no kind and no fault; {USAGE}")));
                    }
                    wish.kind = kind.map(|kind| kind.name).or(wish.kind);
                    wish.fault = fault.or(wish.fault);
                }
                more
            }
            ("--json", more) => {
                wish.json = true;
                more
            }
            (rounds, more) => {
                wish.rounds = number(rounds)?;
                more
            }
        };
    }
    Ok(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed() {
        let wish = parse(&["2", "--seed", "7", "--only", "log+torn", "--json"]).unwrap();
        let wanted = DisksOptions {
            rounds: 2,
            seed: 7,
            kind: Some("log"),
            fault: Some(DiskFault::TornWrite),
            json: true,
        };
        assert_eq!(wish, wanted);
        let fault = parse(&["--only", "lost-one"]).unwrap();
        assert_eq!((fault.kind, fault.fault), (None, Some(DiskFault::LostWrite)));
        assert!(parse(&["--only", "x"]).is_err());
        assert!(parse(&["--seed"]).is_err());
    }
}
