//! Reports of the comparison: Markdown for readers and JSON for programs.

mod document;
mod markdown;
mod targets;

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate_testbed::machine::MachineInfo;
use serde_json::json;

use super::{
    CompareOptions, JsonDestination, default_report_path,
    figures::ComparisonResults,
    systems::{SYSTEMS, System},
};
use crate::shell::{self, Failed};
use document::render_json;
pub(super) use markdown::format_spread;
use markdown::render_markdown;

/// Caveats for a reader of the comparison.
const CAVEATS: &[&str] = &[
    "Clients, nodes and their disk share one machine: a process that uses less CPU leaves more to the others of its run. CPU per command is the figure that depends least on that.",
    "The load has precedence over the systems where that is allowed (nice −10, all its threads), so that it sends in time.",
    "Load that is sent late, more than 1 % of it by more than a millisecond, says nothing of the system: it is sent again, three times at most. Each attempt is listed below.",
    "The load of etcd is a program in Go that speaks gRPC; it costs far more CPU than the load of the others, on the same CPUs (column \"load\").",
    "etcd keeps every version of a key and answers over gRPC; `kv` keeps one and speaks the Redis protocol. The libraries, and `log`, only count commands.",
    "Redis is one process that replicates nothing and writes one file; Quorate, its counterpart, has three processes, two of which must have the command on disk.",
    "Dragonboat is made for thousands of groups at a time. Here it has one, as all others do. It has no volatile row: it ships no log in memory (a file system in memory is for its tests).",
    "OpenRaft ships neither transport nor log, OmniPaxos no transport: those are ours, as thin as we could make them without being wrong, and part of what is measured.",
    "OpenRaft 0.9 and OmniPaxos write and sync one append before they look at the next. The batches that we put in front of both are no part of them; with `-plain` they take one command per entry, as they do by themselves.",
    "Of the libraries only OpenRaft takes snapshots in runs this short (its default; they hold two numbers here). Nor does Quorate trim its log.",
    "Durable means: synced on the disks of a majority before the reply. What a sync costs is up to the machine; virtual disks often acknowledge it from memory.",
    "The number of connections is chosen by a short trial of each, and kept; ratios are of one round each, and their median is shown.",
];

pub(super) fn write_report(
    wish: &CompareOptions,
    systems: &[&System],
    results: &ComparisonResults,
) -> Result<(), Failed> {
    let origin = FigureOrigin::of_this_run();
    let text = render_markdown(wish, &origin, systems, results);
    let document = render_json(wish, &origin, systems, results);
    save_report(
        &wish.report_path.clone().unwrap_or_else(default_report_path),
        wish.json.as_ref(),
        text,
        document,
    )
}

/// Writes both files of a report, and prints the readable one or the requested output.
pub(super) fn save_report(
    place: &Path,
    json: Option<&JsonDestination>,
    text: String,
    document: String,
) -> Result<(), Failed> {
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    for (ending, content) in [("md", &text), ("json", &document)] {
        let mut path = place.as_os_str().to_owned();
        path.push(format!(".{ending}"));
        fs::write(&path, content)?;
        eprintln!("written: {}", path.display());
    }
    println!("{}", write_json(json, text, document)?);
    Ok(())
}

/// Writes the JSON document to its file, if one was requested. Returns the text to print.
pub(super) fn write_json(
    json: Option<&JsonDestination>,
    text: String,
    document: String,
) -> Result<String, Failed> {
    match json {
        None => Ok(text),
        Some(JsonDestination::Printed) => Ok(document),
        Some(JsonDestination::File(path)) => {
            fs::write(path, document)
                .map_err(|error| Failed(format!("--json {}: {error}", path.display())))?;
            eprintln!("written: {}", path.display());
            Ok(text)
        }
    }
}

/// Lists all systems, as text and as JSON.
pub(super) fn list_systems() -> (String, String) {
    let mut text = String::new();
    let mut systems = Vec::new();
    for system in SYSTEMS {
        let _ = writeln!(text, "{:28} {}", system.id(), system.description);
        systems.push(json!({ "system": system.id(), "what": system.description }));
    }
    (text, format!("{}\n", json!({ "systems": systems })))
}

/// Origin of the figures: revision, machine and time.
#[derive(Clone, Debug, Default)]
pub(super) struct FigureOrigin {
    pub(super) commit: String,
    pub(super) machine: MachineInfo,
    pub(super) unix_time: u64,
    redis: String,
}

impl FigureOrigin {
    pub(super) fn of_this_run() -> Self {
        let git = |words: &[&str]| {
            let mut command = Command::new("git");
            command.arg("-C").arg(shell::workspace_root()).args(words);
            shell::read_output(&mut command)
                .map_or_else(|_| String::new(), |text| text.trim().to_owned())
        };
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
        let mark = if changed.is_empty() { "" } else { "+changes" };
        let redis = shell::read_output(Command::new("redis-server").arg("--version"));
        let redis = redis.unwrap_or_default();
        let version = redis.split_whitespace().find(|word| word.starts_with("v="));
        Self {
            commit: format!("{}{mark}", git(&["log", "-1", "--format=%h"])),
            machine: MachineInfo::of_this_machine(),
            unix_time: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            redis: version.unwrap_or("unknown").to_owned(),
        }
    }

    fn system_version(&self, system: &System) -> String {
        match system.name {
            "redis" => self.redis.clone(),
            _ if system.is_ours() => self.commit.clone(),
            _ => system.version.to_owned(),
        }
    }
}

fn format_flags(wish: &CompareOptions) -> String {
    let mut out = String::new();
    if !wish.only.is_empty() {
        let _ = write!(out, " --only {}", wish.only.join(","));
    }
    if wish.connection_counts.len() < super::CONNECTION_COUNTS.len() {
        out += " --quick";
    }
    let _ = write!(
        out,
        " --duration {}ms --repeat {}",
        wish.duration.as_millis(),
        wish.repetition_count
    );
    out
}

#[cfg(test)]
mod tests {
    use quorate_bench::row::ROW_KEYS;
    use serde_json::Value;

    use super::*;
    use crate::compare::{
        figures::{ConnectionTrial, MeasuredLoad, SystemTurn},
        parse,
    };

    fn results() -> ComparisonResults {
        let mut results = ComparisonResults::default();
        let measured = |per_second, p99_us| MeasuredLoad {
            per_second,
            p99_us,
            completed: 1,
            cpu_us: 1.5,
            ..MeasuredLoad::default()
        };
        for (system, per_second, p99_us) in
            [("quorate-kv-memory/durable", 100_000.0, 500.0), ("etcd/durable", 4000.0, 5000.0)]
        {
            results.trials.push(ConnectionTrial {
                system: system.to_owned(),
                connections: 16,
                measured: measured(per_second, p99_us),
            });
            for round in 0..2 {
                results.turns.push(SystemTurn {
                    system: system.to_owned(),
                    round,
                    maximum: Some(measured(per_second, p99_us)),
                    latencies: vec![("etcd/durable".to_owned(), 2000, measured(2000.0, p99_us))],
                    ..SystemTurn::default()
                });
            }
        }
        results.record_failure("openraft/durable", "cannot be built:\nno | compiler");
        results
    }

    fn systems() -> Vec<&'static System> {
        let known = ["quorate-kv-memory/durable", "etcd/durable"];
        let chosen = SYSTEMS.iter();
        chosen.filter(|system| known.contains(&system.id().as_str())).collect()
    }

    #[test]
    fn report_has_ratios_failures_and_targets() {
        let wish = parse(&["--quick"]).unwrap();
        let text = render_markdown(&wish, &FigureOrigin::default(), &systems(), &results());
        for wanted in [
            "| etcd | durable | 4000 (4000 – 4000) | 16 (16: 4000) |",
            "| openraft/durable | | no result: cannot be built: no / compiler |",
            "| etcd/durable | 2000 | 0 | 5000 (5000 – 5000) | quorate-kv-memory/durable | 0 | 500 (500 – 500) | 0.10 (0.10 – 0.10) |",
            "that of etcd/durable | ≥ 20 | 25.00 (25.00 – 25.00) | reached |",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn json_is_written_to_its_file_or_replaces_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        let give =
            |json: Option<&JsonDestination>| write_json(json, "text".to_owned(), "{}".to_owned());
        assert_eq!(give(None).unwrap(), "text");
        assert_eq!(give(Some(&JsonDestination::Printed)).unwrap(), "{}");
        assert_eq!(give(Some(&JsonDestination::File(path.clone()))).unwrap(), "text");
        assert_eq!(fs::read(&path).unwrap(), b"{}");
        let nowhere = JsonDestination::File(folder.path().join("no/folder"));
        assert!(give(Some(&nowhere)).is_err());
        let (text, document) = list_systems();
        let document: Value = serde_json::from_str(&document).unwrap();
        let systems = document["systems"].as_array().unwrap();
        assert_eq!(text.lines().count(), systems.len());
    }

    #[test]
    fn the_document_is_json_with_the_same_figures() {
        let wish = parse(&[]).unwrap();
        let text = render_json(&wish, &FigureOrigin::default(), &systems(), &results());
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["systems"][1]["achieved_per_s"]["median"], 4000.0);
        assert_eq!(value["targets"][0]["found"]["median"], 25.0);
        assert_eq!(value["failures"][0]["system"], "openraft/durable");
        assert_eq!(value["systems"][0]["store"], "memory");
        assert_eq!(value["systems"][1]["repeats"], 2);
        for system in value["systems"].as_array().unwrap() {
            // Use the keys of the rows of `quorate bench`.
            for key in ROW_KEYS {
                assert!(system.get(key).is_some(), "{key}");
            }
        }
    }
}
