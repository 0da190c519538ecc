//! `quorate bench` as users see it: rows, files, exit codes. Checks counts, never times.

use std::{fs, process::Stdio};

use crate::common::{Cluster, processes_in, program, quorate, quorate_json};
use serde_json::Value as Json;

/// Flags for short durations that still yield measurements on a busy machine.
const SHORT: [&str; 6] = ["--duration", "200ms", "--warmup", "50ms", "--repeat", "2"];

fn bench_once(arguments: &[&str]) -> (i32, Json) {
    let all: Vec<&str> = [&["bench"], arguments, &SHORT, &["--json"]].concat();
    quorate_json(&all)
}

fn bench(arguments: &[&str]) -> (i32, Json) {
    crate::common::once_answered(|| bench_once(arguments))
}

fn of_system<'a>(document: &'a Json, system: &str) -> Vec<&'a Json> {
    let rows = document["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["system"] == system).collect()
}

#[test]
fn the_log_service_is_measured_beside_a_bare_program() {
    let folder = tempfile::tempdir().unwrap();
    let (code, document) = crate::common::once_answered(|| {
        let mut command = std::process::Command::new(program());
        let output = command
            .env("TMPDIR", folder.path())
            .args(["bench", "log", "--outstanding", "8", "--connections", "2"])
            .args(SHORT)
            .arg("--json")
            .output()
            .unwrap();
        let document = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), document)
    });
    assert_eq!(code, 0, "{document}");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing is left behind: the folder of the nodes is gone"
    );
    let rows = of_system(&document, "quorate");
    let [row] = rows[..] else { panic!("{document}") };
    assert_eq!((&row["durability"], &row["store"]), (&"durable".into(), &"none".into()));
    assert_eq!((row["errors"].as_u64(), row["lost"].as_u64()), (Some(0), Some(0)));
    assert_eq!((row["connections"].as_u64(), row["repeats"].as_u64()), (Some(2), Some(2)));
    assert!(row["achieved_per_s"].as_f64().unwrap() > 0.0);
    // Each commit makes one write and one flush per node, regardless of its number of commands.
    assert_eq!(row["writes_per_op"], row["flushes_per_op"]);
    assert!(row["writes_per_op"].as_f64().unwrap() > 0.0);
    assert_eq!(row["roles"].as_array().unwrap().len(), 3);
    assert!(row["ceiling"].as_f64().unwrap() > 0.0, "{row}");
    let [bare] = of_system(&document, "bare program")[..] else { panic!("{document}") };
    assert_eq!(bare["outstanding"], row["outstanding"]);
}

#[test]
fn the_life_of_a_command_is_drawn_for_both_classes() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("life.svg");
    let path = picture.to_str().unwrap();
    let (code, document) = bench(&["log", "--trace", path]);
    assert_eq!(code, 0, "{document}");
    let svg = fs::read_to_string(&picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains(">leader</text>"));
    let lives = document["lives"].as_array().unwrap();
    let classes: Vec<&Json> = lives.iter().map(|life| &life["durability"]).collect();
    assert_eq!(classes, ["volatile", "durable"]);
    for life in lives {
        let lanes = life["lanes"].as_array().unwrap();
        let first = |lane: usize, name: &str| {
            let hops = lanes[lane]["hops"].as_array().unwrap();
            let hop = hops.iter().find(|hop| hop["hop"] == name);
            let hop = hop.unwrap_or_else(|| panic!("lane {lane} has no {name}: {life}"));
            // The trace points of one command are ordered even on a busy machine.
            hop["typical_us"].as_f64()
        };
        let in_order = |hops: &[Option<f64>]| hops.iter().flatten().is_sorted();
        assert_eq!(lanes.len(), 4, "client, leader and two followers");
        let leader = ["command", "proposed", "decided", "applied", "replying"];
        let mut leader: Vec<_> = leader.iter().map(|name| first(1, name)).collect();
        leader.push(first(0, "replied"));
        assert!(in_order(&leader), "{life}");
        for follower in [2, 3] {
            let way = ["frame", "recorded", "voted"].map(|name| first(follower, name));
            assert!(in_order(&way), "{life}");
            if life["durability"] == "durable" {
                let disk = ["recorded", "writing", "written", "voted"];
                let disk = disk.map(|name| first(follower, name));
                assert!(in_order(&disk), "{life}");
            }
        }
    }
    for more in [["--connect", "127.0.0.1:1"], ["--outstanding", "2"]] {
        let (code, error) = bench_once(&[&["log", "--trace", path], &more[..]].concat());
        assert_eq!(code, 2, "{error}");
    }
}

/// Devices that are threads need no privileges and no emulated network.
#[test]
fn a_cluster_that_votes_by_devices_says_so() {
    let load = ["--outstanding", "4", "--durability", "volatile"];
    let (code, document) = bench(&[&["log", "--device", "udp"], &load[..]].concat());
    let [row] = of_system(&document, "quorate")[..] else { panic!("{document}") };
    assert_eq!(row["plane"], "tcp + udp");
    let device = &row["device"];
    let name = device["name"].as_str().unwrap();
    assert!(name.starts_with("thread, by datagrams"), "{row}");
    // On a busy machine, the device's slots may be revoked. The row is then invalid and the command
    // fails.
    let used = device["slots_share"].as_f64().unwrap() >= 0.9;
    assert_eq!((row["valid"] == true, code == 0), (used, used), "{row}");
}

#[test]
fn reports_are_written_where_they_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, csv, html) = (path("r.json"), path("r.csv"), path("r.html"));
    let mut arguments = vec!["bench", "kv", "--rate", "200", "--reads", "50", "--durability"];
    arguments.extend(["volatile", "--json", &json, "--csv", &csv, "--html", &html]);
    arguments.extend(SHORT);
    let output = quorate(&arguments);
    let document: Json = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let [row] = of_system(&document, "quorate")[..] else { panic!("{document}") };
    assert_eq!((row["errors"].as_u64(), row["lost"].as_u64()), (Some(0), Some(0)));
    assert_eq!(row["offered_per_s"].as_u64(), Some(200));
    assert!(
        row["ceiling"].is_null() && row["ratio_to_ceiling"].is_null(),
        "no window of a bare program is like a rate: {row}"
    );
    // On a machine that is busy with other tests, the generator may be late and reports it.
    let wanted = i32::from(row["valid"] == false);
    assert_eq!(output.status.code(), Some(wanted), "{row}");
    assert!(fs::read_to_string(&csv).unwrap().lines().count() >= 2);
    // Only valid rows are drawn.
    let page = fs::read_to_string(&html).unwrap();
    assert_eq!(page.contains("<svg"), wanted == 0, "{row}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("200/s"), "{table}");
    for column in ["achieved/s, least–greatest", "p99 µs, least–greatest", "sent late"] {
        assert!(table.contains(column), "{table}");
    }
}

#[test]
fn a_running_cluster_is_measured_from_outside() {
    let cluster = Cluster::start(3, &["--store", "memory"]);
    let addresses: Vec<&str> = cluster.nodes.all().iter().map(|node| &*node.ready.client).collect();
    let (code, document) = bench(&["kv", "--connect", &addresses.join(","), "--outstanding", "6"]);
    assert_eq!(code, 0, "{document}");
    let [row] = of_system(&document, "quorate")[..] else { panic!("{document}") };
    assert_eq!((&row["durability"], &row["store"]), (&"durable".into(), &"memory".into()));
    assert!(row["cpu_us_per_op"].is_null());
    // The nodes run on this machine and do not count as foreign load.
    assert!(row["foreign_cpu"].is_number(), "{row}");
    assert_eq!(row["commit"], env!("CARGO_PKG_VERSION"), "as the nodes say");
    assert_ne!(document["environment"]["commit"], row["commit"]);
    // The cluster is on loopback, so a bare program with the same window runs as well.
    assert!(row["ceiling"].as_f64().unwrap() > 0.0, "{row}");
    let [bare] = of_system(&document, "bare program")[..] else { panic!("{document}") };
    assert_eq!(bare["outstanding"], row["outstanding"]);
    let (code, error) = bench(&["kv", "--connect", addresses[0], "--durability", "volatile"]);
    assert_eq!(code, 2, "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("the cluster is durable"));
}

/// All nodes die in the first of two repetitions, so the second one cannot start. The files, the
/// table or the document contain the measurements of the first one and the reason. No row is valid.
#[test]
fn a_cluster_that_dies_leaves_a_row_that_says_so() {
    for to_stdout in [false, true] {
        let mut cluster = Cluster::start(3, &["--store", "memory"]);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (json, csv) = (path("r.json"), path("r.csv"));
        let bench = std::process::Command::new(program())
            .args(["bench", "kv", "--connect", &cluster.clients().join(",")])
            .args(["--outstanding", "3", "--duration", "30s", "--warmup", "50ms"])
            .args(["--repeat", "2", "--csv", &csv, "--json"])
            .args((!to_stdout).then_some(&json))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let decided = || cluster.status(1)?["decided"].as_u64();
        let idle = decided().unwrap();
        crate::common::wait_for("load", || decided().filter(|slot| *slot > idle + 50));
        for id in 1..=3 {
            cluster.node(id).kill().unwrap();
        }
        let output = bench.wait_with_output().unwrap();
        let (out, err) =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).into();
        assert_eq!(output.status.code(), Some(3), "{err}");
        let document = if to_stdout {
            out
        } else {
            assert!(out.contains("✗") && out.contains("no result: kv at 3 outstanding"), "{out}");
            fs::read_to_string(&json).unwrap()
        };
        assert!(err.contains("cannot generate the load"), "{err}");
        let document: Json = serde_json::from_str(&document).unwrap();
        let [row] = of_system(&document, "quorate")[..] else { panic!("{document}") };
        assert_eq!((&row["valid"], &row["lost"]), (&false.into(), &3.into()));
        let why = row["why_not"].to_string();
        assert!(why.contains("3 replies lost") && why.contains("only 1 of 2 repetitions"), "{why}");
        assert!(document["notes"].to_string().contains("cut short"), "{document}");
        assert!(fs::read_to_string(&csv).unwrap().contains("replies lost"));
    }
}

#[test]
fn a_running_log_service_says_its_class_itself() {
    let cluster = Cluster::start(1, &["--store", "none", "--durability", "volatile"]);
    let address = &cluster.nodes.all()[0].ready.client;
    let load = ["log", "--connect", address, "--outstanding", "2"];
    for given in [&[][..], &["--durability", "volatile"]] {
        let (code, document) = bench(&[&load, given].concat());
        assert_eq!(code, 0, "{document}");
        let [row] = of_system(&document, "quorate")[..] else { panic!("{document}") };
        assert_eq!((&row["durability"], &row["store"]), (&"volatile".into(), &"none".into()));
    }
    let (code, error) = bench(&[&load[..], &["--durability", "durable"]].concat());
    assert_eq!(code, 2, "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert_eq!(message, "--durability durable: the cluster is volatile");
}

/// A cluster with the wrong service is refused immediately, without waiting for replies.
#[test]
fn a_cluster_of_the_other_service_is_refused_with_the_command_that_fits() {
    for (store, wrong, right) in [("none", "kv", "log"), ("memory", "log", "kv")] {
        let cluster = Cluster::start(1, &["--store", store]);
        let ready = &cluster.nodes.all()[0].ready;
        let refused = |address: &str| {
            let (code, error) = bench(&[wrong, "--connect", address]);
            assert_eq!(code, 2, "{error}");
            error["error"]["hint"].as_str().unwrap().to_owned()
        };
        let fits = format!("quorate bench {right} --connect {}", ready.client);
        assert_eq!(refused(&ready.client), fits);
        let operators = refused(&ready.admin);
        assert!(operators.contains("client addresses"), "{operators}");
    }
}

#[test]
fn a_service_that_answers_with_errors_gives_no_result() {
    let cluster = Cluster::start(3, &["--store", "memory", "--command-max", "1024"]);
    let address = &cluster.nodes.all()[0].ready.client;
    let (code, document) =
        bench(&["kv", "--connect", address, "--outstanding", "2", "--value-size", "4096"]);
    assert_eq!(code, 1, "{document}");
    let [row] = of_system(&document, "quorate")[..] else { panic!("{document}") };
    assert_eq!(row["valid"], false);
    let why = row["why_not"][0].as_str().unwrap();
    assert!(why.contains("errors") && why.contains("TOOBIG"), "{why}");
}

/// Rows at a share of the maximum use the window of the maximum. Otherwise the columns of a series
/// could not be compared.
#[test]
fn rows_at_a_share_of_the_maximum_stand_beside_its_ceiling() {
    let (_, document) = bench_once(&["log", "--connections", "4"]);
    let rows = of_system(&document, "quorate");
    assert_eq!(rows.len(), 8, "{document}");
    let (closed, open) = rows.split_at(5);
    let rate = |row: &Json| row["achieved_per_s"].as_f64().unwrap();
    let results = closed.iter().filter(|row| row["valid"] == true);
    let greatest = results.max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap();
    for row in open {
        assert!(row["offered_per_s"].is_number(), "{row}");
        assert_eq!(row["ceiling"], greatest["ceiling"], "{row}");
    }
    // No ceiling is measured for fixed rates alone.
    assert_eq!(of_system(&document, "bare program").len(), 5);
}

/// Stream writers are measured with both protocols and both classes, and an auxiliary receives no
/// stream bytes.
#[test]
fn writers_of_byte_streams_are_measured() {
    let more: [(&[&str], Option<&str>); 4] = [
        (&["--streams", "3", "--write-size", "1000", "--rate", "1000000"], None),
        // Writes at full speed are compared with a bare program, small volatile ones with a sink.
        (&["--raw", "--durability", "volatile", "--nodes", "1"], Some("bare program")),
        (
            &["--gather", "--durability", "volatile", "--write-size", "64", "--streams", "2"],
            Some("sink"),
        ),
        (&["--auxiliary", "--outstanding", "1", "--write-size", "7000"], Some("bare program")),
    ];
    let rows = more.map(|(more, bare)| {
        let (_, document) = bench(&[&["stream"], more].concat());
        let [row] = of_system(&document, "quorate")[..] else { panic!("{document}") };
        let others = document["rows"].as_array().unwrap().iter();
        let others: Vec<&Json> = others.filter(|row| row["system"] != "quorate").collect();
        assert_eq!(others.len(), usize::from(bare.is_some()), "{document}");
        for other in others {
            assert_eq!(other["system"], *bare.unwrap());
            assert_eq!(other["outstanding"], row["outstanding"]);
            assert_eq!(other["connections"], 1);
            assert!(row["ratio_to_ceiling"].as_f64().unwrap() > 0.0, "{row}");
        }
        let row = row.clone();
        assert_eq!((row["errors"].as_u64(), row["lost"].as_u64()), (Some(0), Some(0)), "{row}");
        let figures = &row["stream"];
        for figure in ["bytes_per_s", "acknowledged_bytes", "from_call_p50_us"] {
            assert!(figures[figure].as_f64().unwrap() > 0.0, "{figure}: {row}");
        }
        assert!(row["writes_per_op"].as_f64().unwrap() > 0.0, "{row}");
        row
    });
    let [framed, raw, gathered, auxiliary] = &rows;
    assert_eq!((&framed["durability"], &framed["connections"]), (&"durable".into(), &3.into()));
    assert_eq!(framed["stream"]["target_bytes_per_s"], 1_000_000);
    assert!(framed["stream"]["delivered"].as_f64().unwrap() > 0.0);
    assert_eq!(
        (&raw["durability"], &raw["stream"]["protocol"]),
        (&"volatile".into(), &"raw".into())
    );
    assert!(raw["stream"]["delivered"].is_null(), "{raw}");
    let is_gathered = [framed, gathered].map(|row| &row["stream"]["gathered"]);
    assert_eq!(is_gathered, [&false, &true]);
    let roles = |row: &Json| {
        let cpu = row["stream"]["cpu"].as_array().unwrap().iter();
        cpu.map(|cost| cost["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(roles(framed), ["leader", "followers", "generator"]);
    assert_eq!(roles(auxiliary), ["leader", "followers", "auxiliary", "generator"]);
    // Bytes are sent to one follower only, not to the auxiliary.
    let to_peers = auxiliary["peer_bytes_per_op"].as_f64().unwrap();
    assert!((3_500.0..12_000.0).contains(&to_peers), "{auxiliary}");
}

#[test]
fn refusals_are_clear() {
    for (arguments, code, word) in [
        (&["bench", "kv", "--connect", "127.0.0.1:1", "--outstanding", "1"][..], 3, "unreachable"),
        (&["bench", "kv", "--rate", "1", "--outstanding", "1"], 2, "bad_usage"),
        (&["bench", "kv", "--duration", "10"], 2, "bad_usage"),
        (&["bench", "kv", "--connect", "127.0.0.1:1", "--disk-flush-ms", "8"], 2, "bad_usage"),
        (&["bench", "log", "--connect", "127.0.0.1:1", "--wan", "half"], 2, "bad_usage"),
        (&["bench", "log", "--lan", "1gbit", "--lan-fault", "stop:2"], 2, "bad_usage"),
        (&["bench", "log", "--lan-fault", "stop:2s"], 2, "bad_usage"),
        (&["bench", "log", "--lan", "1gbit", "--lan-fault", "stop:2s"], 2, "bad_configuration"),
        (&["bench", "stream", "--rate", "1", "--outstanding", "1"], 2, "bad_usage"),
        (&["bench", "stream", "--write-size", "0"], 2, "bad_usage"),
        (&["bench", "probe", "--pin"], 2, "bad_usage"),
        (&["bench", "stream", "--auxiliary", "--nodes", "2"], 2, "bad_configuration"),
        (&["bench", "stream", "--rate", "999", "--write-size", "1000"], 2, "bad_configuration"),
        (&["bench", "paper", "caans-fig2"], 2, "moved"),
        (&["bench", "log", "--device", "pigeon"], 2, "bad_usage"),
        (&["bench", "log", "--device", "kernel"], 2, "bad_configuration"),
        (&["bench", "kv", "--plane", "kernel", "--wan", "half"], 2, "bad_configuration"),
        (&["bench", "log", "--frames", "--device", "udp"], 2, "bad_configuration"),
        (&["bench", "log", "--device", "udp", "--plane", "udp"], 2, "bad_configuration"),
        (&["bench", "log", "--device", "udp", "--connect", "127.0.0.1:1"], 2, "bad_usage"),
        (&["bench", "log", "--rate", "1", "--csv", "/nowhere/at/all"], 1, "io"),
    ] {
        let (got, error) = quorate_json(&[arguments, &["--json"]].concat());
        assert_eq!((got, error["error"]["code"].as_str()), (code, Some(word)), "{error}");
        assert!(!error["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn the_probe_finds_every_ceiling() {
    let arguments = ["bench", "probe", "--duration", "250ms", "--repeat", "1", "--json"];
    let arguments = [&arguments[..], &["--disk-flush-ms", "1"]].concat();
    let (code, document) = crate::common::once_answered(|| quorate_json(&arguments));
    assert_eq!(code, 0, "{document}");
    let ceilings = document["ceilings"].as_array().unwrap();
    assert_eq!(ceilings.len(), 6, "two round trips, two flushes, disk, memory");
    for ceiling in ceilings {
        assert!(ceiling["value"].as_f64().unwrap() > 0.0, "{ceiling}");
    }
    let rows = of_system(&document, "bare program");
    assert_eq!(rows.len(), 21, "seven shapes, durable with and without the model, and volatile");
    // With one command outstanding, a device with 1 ms flushes cannot commit more than 1000 per
    // second.
    let modelled = rows.iter().find(|row| {
        row["outstanding"] == 1 && row["disk_flush_ms"] == 1.0 && row["value_bytes"] == 64
    });
    assert!(modelled.unwrap()["achieved_per_s"].as_f64().unwrap() <= 1000.0);
}

/// A writer can have its own CPU. On a single CPU, the benchmark reports that it cannot.
#[test]
fn a_writer_may_have_a_cpu_of_its_own() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let (code, document) = bench_once(&["stream", "--pin", "--rate", "1000000", "--nodes", "1"]);
    if cpus == 1 {
        assert_eq!(code, 2, "{document}");
        return;
    }
    let [row] = of_system(&document, "quorate")[..] else { panic!("{document}") };
    assert_eq!(row["stream"]["pinned"], true);
    assert_eq!(row["lost"].as_u64(), Some(0), "{row}");
}

/// On a modelled device, the data and the record are flushed separately, which makes two flushes
/// per write.
#[test]
fn the_probe_finds_the_ceiling_of_byte_streams() {
    let arguments = ["bench", "probe", "--stream", "--disk-flush-ms", "20"];
    let time = ["--duration", "250ms", "--repeat", "1", "--json"];
    let arguments = [&arguments[..], &time].concat();
    let (code, document) = crate::common::once_answered(|| quorate_json(&arguments));
    assert_eq!(code, 0, "{document}");
    let rows = of_system(&document, "bare program");
    let kinds: Vec<_> = rows
        .iter()
        .map(|row| (row["durability"].as_str(), row["disk_flush_ms"].as_f64()))
        .collect();
    let kind = |class, flush| (Some(class), Some(flush));
    assert_eq!(kinds, [kind("durable", 0.0), kind("durable", 20.0), kind("volatile", 0.0)]);
    let sinks = of_system(&document, "sink");
    let sizes: Vec<_> = sinks.iter().map(|row| row["value_bytes"].as_u64()).collect();
    assert_eq!(sizes, [Some(14), Some(100)]);
    for row in rows.iter().chain(&sinks) {
        assert!(row["stream"]["bytes_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["lost"].as_u64(), Some(0), "{row}");
        let roles = row["stream"]["cpu"].as_array().unwrap().len();
        // Leader, follower and writer.
        assert_eq!(roles, if row["system"] == "sink" { 2 } else { 3 }, "{row}");
    }
    let cdf = rows[1]["cdf"].as_array().unwrap();
    let least = cdf[0][1].as_f64().unwrap();
    assert!(least >= 40_000.0 * 0.99, "{least}");
}

/// The modelled flush time also limits the cluster.
#[test]
fn a_modelled_flush_is_under_the_cluster_too() {
    let (code, document) = bench(&["log", "--outstanding", "1", "--disk-flush-ms", "2"]);
    assert_eq!(code, 0, "{document}");
    for row in document["rows"].as_array().unwrap() {
        assert_eq!(row["disk_flush_ms"].as_f64(), Some(2.0));
        assert!(row["achieved_per_s"].as_f64().unwrap() <= 500.0, "{row}");
    }
}

/// An interrupt ends the nodes, removes their folder, leaves no empty report, and sets the exit
/// code.
#[test]
fn an_interrupt_leaves_nothing_behind() {
    let [folder, reports] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut child = std::process::Command::new(program())
        .env("TMPDIR", folder.path())
        .args(["bench", "log", "--outstanding", "1", "--duration", "10m"])
        .arg("--html")
        .arg(reports.path().join("new.html"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let nodes = crate::common::wait_for("three nodes that run", || {
        let nodes = processes_in(folder.path());
        (nodes.len() == 3).then_some(nodes)
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, crate::common::Signal::INT).unwrap();
    let status = crate::common::wait_for("the end of the bench", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    for folder in [&folder, &reports] {
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    // A killed process may take a moment to disappear.
    crate::common::wait_for("the end of all nodes", || {
        let left = processes_in(folder.path());
        nodes.iter().all(|node| !left.contains(node)).then_some(())
    });
}
