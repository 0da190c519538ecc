//! One report for people and one for programs.

use std::{
    fmt::Write as _,
    fs,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::{
    Json, OUTSTANDING, VALUE_BYTES, Wish,
    figures::{Measured, Results, Spread, Turn},
    systems::{SYSTEMS, System},
    usual_place,
};
use crate::shell::{self, Failed};

/// What throughput is held to: ours, the others (the best of them counts), the factor.
struct Target {
    ours: &'static str,
    others: &'static [&'static str],
    factor: f64,
}

const TARGETS: &[Target] = &[
    Target {
        ours: "quorate-kv-memory/durable",
        others: &["etcd/durable"],
        factor: 20.0,
    },
    Target {
        ours: "quorate-kv-memory/durable",
        others: &["redis/durable"],
        factor: 2.0,
    },
    Target {
        ours: "quorate-kv-lsm/durable",
        others: &["etcd/durable"],
        factor: 8.0,
    },
    Target {
        ours: "quorate-log/durable",
        others: &[
            "hashicorp-raft/durable",
            "dragonboat/durable",
            "openraft/durable",
            "omnipaxos/durable",
        ],
        factor: 3.0,
    },
    // The libraries by themselves, and behind batches that we put in front of two of them.
    Target {
        ours: "quorate-log/volatile",
        others: &[
            "hashicorp-raft/volatile",
            "openraft-plain/volatile",
            "omnipaxos-plain/volatile",
        ],
        factor: 3.0,
    },
    Target {
        ours: "quorate-log/volatile",
        others: &[
            "hashicorp-raft/volatile",
            "openraft/volatile",
            "omnipaxos/volatile",
        ],
        factor: 3.0,
    },
];
/// Microseconds of CPU per command of all processes, in memory, and of which system.
const CPU_TARGET: (&str, f64) = ("quorate-log/volatile", 1.8);

/// What a reader has to know before comparing.
const CAUTIONS: &[&str] = &[
    "Clients, nodes and their disk share one machine: whoever uses less CPU leaves more to the others of its own run. CPU per command is the figure that depends least on that.",
    "The load has precedence over the systems where that is allowed (nice −10, all its threads), so that it sends in time.",
    "Load that is sent late, more than 1 % of it by more than a millisecond, says nothing of the system: it is sent again, three times at most. Each attempt is listed below.",
    "The load of etcd is a program in Go that speaks gRPC; it costs far more CPU than the load of the others, on the same CPUs (column \"load\").",
    "etcd keeps every version of a key and answers over gRPC; `kv` keeps one and speaks the Redis protocol. The libraries, and `log`, only count commands.",
    "Redis is one process that replicates nothing and writes one file; Quorate beside it has three processes, two of which must have the command on disk.",
    "Dragonboat is made for thousands of groups at a time. Here it has one, as all others do. It has no volatile row: it ships no log in memory (a file system in memory is for its tests).",
    "OpenRaft ships neither transport nor log, OmniPaxos no transport: those are ours, as thin as we could make them without being wrong, and part of what is measured.",
    "OpenRaft 0.9 and OmniPaxos write and sync one append before they look at the next. The batches that we put in front of both are no part of them; with `-plain` they take one command per entry, as they do by themselves.",
    "Of the libraries only OpenRaft takes snapshots in runs this short (its default; they hold two numbers here). Nor does Quorate trim its log.",
    "Durable means: synced on the disks of a majority before the reply. What a sync costs is up to the machine; virtual disks often acknowledge it from memory.",
    "The number of connections is chosen by a short trial of each, and kept; ratios are of one round each, and their median is shown.",
];

/// Writes both files, and prints the one for people, or what was asked for instead.
pub(super) fn write(wish: &Wish, systems: &[&System], results: &Results) -> Result<(), Failed> {
    let machine = Machine::now();
    let text = markdown(wish, &machine, systems, results);
    let document = document(wish, &machine, systems, results);
    let place = wish.out.clone().unwrap_or_else(usual_place);
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    for (ending, content) in [("md", &text), ("json", &document)] {
        let mut path = place.clone().into_os_string();
        path.push(format!(".{ending}"));
        fs::write(&path, content)?;
        eprintln!("written: {}", path.display());
    }
    println!("{}", give(wish.json.as_ref(), text, document)?);
    Ok(())
}

/// Puts the document into its file, if it has one. What is to be printed.
pub(super) fn give(json: Option<&Json>, text: String, document: String) -> Result<String, Failed> {
    match json {
        None => Ok(text),
        Some(Json::Printed) => Ok(document),
        Some(Json::File(path)) => {
            fs::write(path, document)
                .map_err(|error| Failed(format!("--json {}: {error}", path.display())))?;
            eprintln!("written: {}", path.display());
            Ok(text)
        }
    }
}

/// All systems, for people and for programs.
pub(super) fn list() -> (String, String) {
    let mut text = String::new();
    let mut systems = Vec::new();
    for system in SYSTEMS {
        let _ = writeln!(text, "{:28} {}", system.id(), system.what);
        systems.push(json!({ "system": system.id(), "what": system.what }));
    }
    (text, format!("{}\n", json!({ "systems": systems })))
}

/// Where figures come from.
#[derive(Clone, Debug, Default)]
struct Machine {
    commit: String,
    kernel: String,
    cpus: usize,
    cpu_model: String,
    unix_time: u64,
    redis: String,
}

impl Machine {
    fn now() -> Self {
        let git = |words: &[&str]| {
            let mut command = Command::new("git");
            command.arg("-C").arg(shell::root()).args(words);
            shell::read(&mut command).map_or_else(|_| String::new(), |text| text.trim().to_owned())
        };
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
        let mark = if changed.is_empty() { "" } else { "+changes" };
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(": "));
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let redis = shell::read(Command::new("redis-server").arg("--version"));
        let redis = redis.unwrap_or_default();
        let version = redis.split_whitespace().find(|word| word.starts_with("v="));
        Self {
            commit: format!("{}{mark}", git(&["log", "-1", "--format=%h"])),
            kernel: format!("Linux {}", release.trim()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_model: model.map_or("unknown", |(_, name)| name).to_owned(),
            unix_time: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            redis: version.unwrap_or("unknown").to_owned(),
        }
    }

    fn version(&self, system: &System) -> String {
        match system.name {
            "redis" => self.redis.clone(),
            _ if system.is_ours() => self.commit.clone(),
            _ => system.version.to_owned(),
        }
    }
}

/// A target, and how far we are.
struct Verdict {
    what: String,
    wanted: String,
    found: Spread,
    reached: Option<bool>,
}

fn verdicts(systems: &[&System], results: &Results) -> Vec<Verdict> {
    let mut all = Vec::new();
    for target in TARGETS {
        let others: Vec<String> = target.others.iter().map(|one| (*one).to_owned()).collect();
        let found = results.ratios(target.ours, &others);
        let versus = match others.as_slice() {
            [one] => one.clone(),
            more => format!("the best of {}", more.join(", ")),
        };
        all.push(Verdict {
            what: format!("throughput of {} by that of {versus}", target.ours),
            wanted: format!("≥ {}", target.factor),
            reached: found.median().map(|median| median >= target.factor),
            found,
        });
    }
    let (system, most) = CPU_TARGET;
    let found = results.at_maximum(system, |measured| measured.cpu_us);
    all.push(Verdict {
        what: format!("CPU per command of {system}, µs"),
        wanted: format!("≤ {most}"),
        reached: found.median().map(|median| median <= most),
        found,
    });
    for (ours, peer) in pairs(systems) {
        let found = results.latency_ratios(&ours.id(), &peer.id());
        all.push(Verdict {
            what: format!(
                "p99 of {} by that of {}, both at half of the latter's maximum",
                ours.id(),
                peer.id()
            ),
            wanted: "< 1".to_owned(),
            reached: found.median().map(|median| median < 1.0),
            found,
        });
    }
    all.retain(|verdict| verdict.found.count() > 0);
    all
}

/// (ours, the other)
fn pairs<'a>(systems: &[&'a System]) -> Vec<(&'a System, &'a System)> {
    let ours = systems.iter().filter(|system| system.is_ours());
    ours.flat_map(|ours| {
        let beside = systems.iter().filter(|peer| peer.stands_beside(ours));
        beside.map(|peer| (*ours, *peer))
    })
    .collect()
}

fn markdown(wish: &Wish, machine: &Machine, systems: &[&System], results: &Results) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "# Quorate beside other systems\n\n    cargo xtask compare{}\n\n\
         Values of {VALUE_BYTES} bytes, {OUTSTANDING} commands under way, three nodes on loopback (one where there is \
         only one), clients at the leader. Systems took turns in {} rounds, each started afresh, {:.1} s at \
         full load; {:.0} minutes in all. Commit {}, {}, {} CPUs ({}), {}.\n\n\
         Figures are medians of rounds; the lowest and the highest stand in brackets.\n\n## Full load\n\n",
        shown_flags(wish),
        wish.repeat,
        wish.duration.as_secs_f64(),
        results.seconds / 60.0,
        machine.commit,
        machine.kernel,
        machine.cpus,
        machine.cpu_model,
        date(machine.unix_time),
    );
    out += "| System | Class | Commands/s | Connections (tried: commands/s) | CPU µs/command | load | p50 µs | p99 µs | Foreign CPU | Good rounds |\n\
            |---|---|---|---|---|---|---|---|---|---|\n";
    for system in systems {
        out += &full_load_line(system, results);
    }
    for (system, why) in &results.failures {
        let _ = writeln!(
            out,
            "| {system} | | no result: {} | | | | | | | |",
            line(why)
        );
    }
    out += "\n\"CPU\" is of all processes of the system together, \"load\" of the generator. Latency at full load says little.\n\n";
    out += &latency_table(systems, results);
    out += "\n## Targets\n\n| What | Wanted | Found | |\n|---|---|---|---|\n";
    for verdict in verdicts(systems, results) {
        let mark = if verdict.reached == Some(true) {
            "reached"
        } else {
            "**missed**"
        };
        let found = spread(&verdict.found, 2);
        let _ = writeln!(
            out,
            "| {} | {} | {found} | {mark} |",
            verdict.what, verdict.wanted
        );
    }
    out += "\n## What was compared\n\n| System | Version | Transport | Storage | Ours in it | Settings |\n|---|---|---|---|---|---|\n";
    for system in systems {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            system.id(),
            machine.version(system),
            system.transport,
            system.storage,
            system.by_us,
            system.settings
        );
    }
    out += "\n## What cannot be compared fairly\n\n";
    for caution in CAUTIONS {
        let _ = writeln!(out, "- {caution}");
    }
    out += &incidents(results);
    out
}

fn full_load_line(system: &System, results: &Results) -> String {
    let id = system.id();
    let median = |figure: fn(&Measured) -> f64, digits| {
        shown(results.at_maximum(&id, figure).median(), digits)
    };
    let rates = results.at_maximum(&id, |measured| measured.per_second);
    let tried: Vec<String> = results
        .trials
        .iter()
        .filter(|trial| trial.system == id)
        .map(|trial| format!("{}: {:.0}", trial.connections, trial.measured.per_second))
        .collect();
    let best = results.best(&id).map_or(0, |trial| trial.connections);
    let foreign = results.at_maximum(&id, |measured| measured.foreign_cpu * 100.0);
    format!(
        "| {} | {} | {} | {best} ({}) | {} | {} | {} | {} | {} % | {} of {} |\n",
        system.name,
        system.class,
        spread(&rates, 0),
        tried.join(", "),
        median(|measured| measured.cpu_us, 2),
        median(|measured| measured.load_cpu_us, 2),
        median(|measured| measured.p50_us, 0),
        median(|measured| measured.p99_us, 0),
        shown(foreign.median(), 1),
        rates.count(),
        results.turns_of(&id).count(),
    )
}

fn latency_table(systems: &[&System], results: &Results) -> String {
    let mut out = String::from(
        "## Latency at half of their maximum\n\nOpen loop; latency counts from the intended sending.\n\n\
         | Half of | Offered/s | Their p50 µs | Their p99 µs | Ours | p50 µs | p99 µs | p99, ours by theirs |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (ours, peer) in pairs(systems) {
        let (ours, peer) = (ours.id(), peer.id());
        let mut offered = results.turns_of(&peer).flat_map(|turn| &turn.latencies);
        let rate = offered.next().map_or(0, |(_, rate, _)| *rate);
        let p50 = |system: &str| {
            let all = results.at_half(system, &peer, |measured| measured.p50_us);
            shown(all.median(), 0)
        };
        let p99 = |system: &str| {
            spread(
                &results.at_half(system, &peer, |measured| measured.p99_us),
                0,
            )
        };
        let ratios = results.latency_ratios(&ours, &peer);
        let _ = writeln!(
            out,
            "| {peer} | {rate} | {} | {} | {ours} | {} | {} | {} |",
            p50(&peer),
            p99(&peer),
            p50(&ours),
            p99(&ours),
            spread(&ratios, 2)
        );
    }
    out
}

/// What went wrong, and what was checked.
fn incidents(results: &Results) -> String {
    let checked = results.turns.iter().filter_map(|turn| turn.applied);
    let sum: u64 = checked.clone().map(|applied| applied.acknowledged).sum();
    let mut out = format!(
        "\n## Checks\n\nIn {} turns the nodes told what they had applied: most of them had applied all of the {sum} \
         commands that were acknowledged, in the same order.\n",
        checked.count()
    );
    let mut troubles = results.notes.clone();
    for turn in &results.turns {
        let head = format!("{}, round {}", turn.system, turn.round + 1);
        let maximum = turn
            .maximum
            .iter()
            .map(|one| ("full load".to_owned(), one.trouble()));
        let latencies = turn.latencies.iter().map(|(peer, _, one)| {
            let trouble = one.latency_trouble();
            let shown = trouble.map(|trouble| format!("{trouble} (p99 {:.0} µs)", one.p99_us));
            (format!("half of {peer}"), shown)
        });
        for (what, trouble) in maximum.chain(latencies) {
            if let Some(trouble) = trouble {
                troubles.push(format!("{head}, {what}: no result: {trouble}"));
            }
        }
        if let Some(trouble) = &turn.trouble {
            troubles.push(format!("{head}: {trouble}"));
        }
    }
    for trouble in troubles {
        let _ = writeln!(out, "- {}", line(&trouble));
    }
    out
}

fn document(wish: &Wish, machine: &Machine, systems: &[&System], results: &Results) -> String {
    let known = |id: &str| SYSTEMS.iter().find(|system| system.id() == id);
    let about = |system: &&System| {
        let id = system.id();
        let trials = results.trials.iter().filter(|trial| trial.system == id);
        let trials: Vec<Value> = trials
            .map(|trial| json!({"connections": trial.connections, "load": load(&trial.measured)}))
            .collect();
        let figure = |figure: fn(&Measured) -> f64| three(&results.at_maximum(&id, figure));
        let maxima = || {
            results
                .turns_of(&id)
                .filter_map(|turn| turn.maximum.as_ref())
        };
        json!({
            "scenario": "full load, closed loop",
            "system": system.name,
            "durability": system.class,
            "store": system.store(),
            "version": machine.version(system),
            "transport": system.transport,
            "storage": system.storage,
            "by_us": system.by_us,
            "settings": system.settings,
            "value_bytes": VALUE_BYTES,
            "outstanding": OUTSTANDING,
            "connections": results.best(&id).map(|trial| trial.connections),
            "trials": trials,
            "offered_per_s": Value::Null,
            "achieved_per_s": figure(|measured| measured.per_second),
            "cpu_us_per_op": figure(|measured| measured.cpu_us),
            "load_cpu_us_per_op": figure(|measured| measured.load_cpu_us),
            "p50_us": figure(|measured| measured.p50_us),
            "p95_us": figure(|measured| measured.p95_us),
            "p99_us": figure(|measured| measured.p99_us),
            "p999_us": figure(|measured| measured.p999_us),
            "max_us": figure(|measured| measured.max_us),
            "errors": maxima().map(|measured| measured.errors + measured.lost).sum::<u64>(),
            "repeats": maxima().filter(|measured| measured.trouble().is_none()).count(),
            "foreign_cpu": figure(|measured| measured.foreign_cpu),
            // No bare program has turns here; `quorate bench log` shows what is beside one.
            "ceiling": Value::Null,
            "ratio_to_ceiling": Value::Null,
            "rounds": results.turns_of(&id).map(turn).collect::<Vec<_>>(),
        })
    };
    let verdicts: Vec<Value> = verdicts(systems, results)
        .iter()
        .map(|verdict| {
            json!({
                "what": verdict.what,
                "wanted": verdict.wanted,
                "found": three(&verdict.found),
                "reached": verdict.reached,
            })
        })
        .collect();
    let failures: Vec<Value> = results
        .failures
        .iter()
        .map(|(id, why)| json!({"system": id, "what": known(id).map(|system| system.what), "why": why}))
        .collect();
    let document = json!({
        "command": format!("cargo xtask compare{}", shown_flags(wish)),
        "unix_time": machine.unix_time,
        "seconds": results.seconds,
        "environment": {
            "commit": machine.commit,
            "kernel": machine.kernel,
            "cpus": machine.cpus,
            "cpu_model": machine.cpu_model,
        },
        "systems": systems.iter().map(about).collect::<Vec<_>>(),
        "targets": verdicts,
        "failures": failures,
        "notes": results.notes,
        "cautions": CAUTIONS,
    });
    // For programs, so without the spaces that would be half of it.
    format!("{document}\n")
}

fn turn(turn: &Turn) -> Value {
    let latencies: Vec<Value> = turn
        .latencies
        .iter()
        .map(|(peer, rate, one)| json!({"half_of": peer, "offered_per_s": rate, "load": load(one)}))
        .collect();
    json!({
        "round": turn.round + 1,
        "maximum": turn.maximum.as_ref().map(load),
        "latencies": latencies,
        "acknowledged": turn.applied.map(|applied| applied.acknowledged),
        "applied_by_most": turn.applied.map(|applied| applied.by_most),
        "trouble": turn.trouble,
    })
}

fn load(one: &Measured) -> Value {
    json!({
        "achieved_per_s": one.per_second,
        "p50_us": one.p50_us,
        "p95_us": one.p95_us,
        "p99_us": one.p99_us,
        "p999_us": one.p999_us,
        "max_us": one.max_us,
        "errors": one.errors,
        "lost": one.lost,
        "late_share": one.late_share,
        "first_error": one.first_error,
        "cpu_us_per_op": one.cpu_us,
        "load_cpu_us_per_op": one.load_cpu_us,
        "foreign_cpu": one.foreign_cpu,
    })
}

fn three(spread: &Spread) -> Value {
    json!({
        "median": spread.median(),
        "low": spread.low(),
        "high": spread.high(),
        "count": spread.count(),
    })
}

/// `median (low – high)`
fn spread(spread: &Spread, digits: usize) -> String {
    match (spread.median(), spread.low(), spread.high()) {
        (Some(median), Some(low), Some(high)) => {
            format!("{median:.digits$} ({low:.digits$} – {high:.digits$})")
        }
        _ => "–".to_owned(),
    }
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.digits$}"))
}

/// One line of a table or a list.
fn line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 600;
    let text = text.replace(['\n', '\r'], " ").replace('|', "/");
    text.chars().take(CHARACTERS_MAX).collect()
}

fn shown_flags(wish: &Wish) -> String {
    let mut out = String::new();
    if !wish.only.is_empty() {
        let _ = write!(out, " --only {}", wish.only.join(","));
    }
    if wish.connections.len() < super::CONNECTIONS.len() {
        out += " --quick";
    }
    let _ = write!(
        out,
        " --duration {}ms --repeat {}",
        wish.duration.as_millis(),
        wish.repeat
    );
    out
}

/// Year, month and day (of the proleptic Gregorian calendar, in UTC).
fn date(unix_time: u64) -> String {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut days = unix_time / 86_400;
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{figures::Trial, parse};

    fn results() -> Results {
        let mut results = Results::default();
        let measured = |per_second, p99_us| Measured {
            per_second,
            p99_us,
            completed: 1,
            cpu_us: 1.5,
            ..Measured::default()
        };
        for (system, per_second, p99_us) in [
            ("quorate-kv-memory/durable", 100_000.0, 500.0),
            ("etcd/durable", 4000.0, 5000.0),
        ] {
            results.trials.push(Trial {
                system: system.to_owned(),
                connections: 16,
                measured: measured(per_second, p99_us),
            });
            for round in 0..2 {
                results.turns.push(Turn {
                    system: system.to_owned(),
                    round,
                    maximum: Some(measured(per_second, p99_us)),
                    latencies: vec![("etcd/durable".to_owned(), 2000, measured(2000.0, p99_us))],
                    ..Turn::default()
                });
            }
        }
        results.fail("openraft/durable", "cannot be built:\nno | compiler");
        results
    }

    fn systems() -> Vec<&'static System> {
        let known = ["quorate-kv-memory/durable", "etcd/durable"];
        let chosen = SYSTEMS.iter();
        chosen
            .filter(|system| known.contains(&system.id().as_str()))
            .collect()
    }

    #[test]
    fn the_report_tells_ratios_failures_and_targets() {
        let wish = parse(&["--quick"]).unwrap();
        let text = markdown(&wish, &Machine::default(), &systems(), &results());
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
    fn the_document_goes_into_its_file_or_is_printed_instead_of_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        let give = |json: Option<&Json>| give(json, "text".to_owned(), "{}".to_owned());
        assert_eq!(give(None).unwrap(), "text");
        assert_eq!(give(Some(&Json::Printed)).unwrap(), "{}");
        assert_eq!(give(Some(&Json::File(path.clone()))).unwrap(), "text");
        assert_eq!(fs::read(&path).unwrap(), b"{}");
        let nowhere = Json::File(folder.path().join("no/folder"));
        assert!(give(Some(&nowhere)).is_err());
        let (text, document) = list();
        let document: Value = serde_json::from_str(&document).unwrap();
        let systems = document["systems"].as_array().unwrap();
        assert_eq!(text.lines().count(), systems.len());
    }

    #[test]
    fn the_document_is_json_with_the_same_figures() {
        let wish = parse(&[]).unwrap();
        let text = document(&wish, &Machine::default(), &systems(), &results());
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["systems"][1]["achieved_per_s"]["median"], 4000.0);
        assert_eq!(value["targets"][0]["found"]["median"], 25.0);
        assert_eq!(value["failures"][0]["system"], "openraft/durable");
        assert_eq!(value["systems"][0]["store"], "memory");
        assert_eq!(value["systems"][1]["repeats"], 2);
        for system in value["systems"].as_array().unwrap() {
            // The keys of every row of `quorate bench`.
            for key in [
                "scenario",
                "system",
                "durability",
                "store",
                "value_bytes",
                "connections",
                "outstanding",
                "offered_per_s",
                "achieved_per_s",
                "p50_us",
                "p95_us",
                "p99_us",
                "p999_us",
                "max_us",
                "cpu_us_per_op",
                "errors",
                "repeats",
                "foreign_cpu",
                "ceiling",
                "ratio_to_ceiling",
            ] {
                assert!(system.get(key).is_some(), "{key}");
            }
        }
    }

    #[test]
    fn targets_name_systems_that_exist() {
        let ids: Vec<String> = SYSTEMS.iter().map(System::id).collect();
        for target in TARGETS {
            for id in target.others.iter().chain([&target.ours]) {
                assert!(ids.iter().any(|known| known == id), "{id}");
            }
        }
        assert!(ids.iter().any(|known| known == CPU_TARGET.0));
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_767_225_599), "2025-12-31");
        assert_eq!(date(1_767_225_600), "2026-01-01");
    }
}
