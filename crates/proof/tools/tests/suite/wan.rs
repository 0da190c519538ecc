//! Emulated networks as users see them. Without root, the tests are skipped with a message.

use std::{fs, path::Path, process::Stdio};

use crate::common::{processes_in, program, quorate_json};
use serde_json::Value as Json;

/// Returns whether the measurement was skipped. If so, prints the reason.
fn is_skipped(document: &Json) -> bool {
    let notes = document["notes"].as_array().unwrap().iter();
    let skipped = notes.filter_map(Json::as_str).find(|note| note.starts_with("skipped: "));
    if let Some(why) = skipped {
        eprintln!("{why}");
    }
    skipped.is_some()
}

fn note<'a>(document: &'a Json, words: &str) -> &'a str {
    let notes = document["notes"].as_array().unwrap().iter();
    let mut found = notes.filter_map(Json::as_str).filter(|note| note.contains(words));
    found.next().unwrap_or_else(|| panic!("{words}: {document}"))
}

/// A link is never faster than specified, whatever the machine's load.
#[test]
#[ignore = "ten seconds: cargo test -p quorate-tools --test suite wan -- --include-ignored"]
fn links_are_as_slow_and_as_narrow_as_they_say() {
    let (code, document) = quorate_json(&["bench", "wan", "half", "--json"]);
    assert_eq!(code, 0, "{document}");
    if is_skipped(&document) {
        return;
    }
    let [trip, rate] = &document["ceilings"].as_array().unwrap()[..] else { panic!("{document}") };
    assert!(trip["p50_us"].as_f64().unwrap() >= 50_000.0, "{trip}");
    let rate = rate["value"].as_f64().unwrap();
    // 1448 of the 1500 bytes of a packet are payload of the connection.
    assert!(rate > 0.0 && rate <= 9.66, "{rate}");
    assert!(note(&document, "emulated WAN half").contains("25 ms one way"));
}

/// [offload-22] [offload-24] All commands from a client that sends frames are executed, and devices
/// assign the slots.
#[test]
fn commands_by_frames_are_executed() {
    let arguments = ["bench", "log", "--lan", "10gbit", "--outstanding", "8"];
    let nodes = ["--device", "packet", "--durability", "volatile", "--frames"];
    let short = ["--duration", "1s", "--warmup", "100ms", "--repeat", "1"];
    let (code, document) = quorate_json(&[&arguments[..], &nodes, &short, &["--json"]].concat());
    assert_eq!(code, 0, "{document}");
    if is_skipped(&document) {
        return;
    }
    let row = &document["rows"][0];
    assert_eq!(row["plane"], "tcp + packet, clients by frames");
    assert_eq!((&row["lost"], &row["errors"]), (&0.into(), &0.into()), "{row}");
    assert!(row["achieved_per_s"].as_f64().unwrap() > 0.0, "{row}");
}

#[test]
fn a_cluster_over_the_network_waits_for_it() {
    let arguments = ["bench", "log", "--wan", "half", "--outstanding", "4"];
    let short = ["--duration", "1s", "--warmup", "100ms", "--repeat", "1"];
    let (code, document) = quorate_json(&[&arguments[..], &short, &["--json"]].concat());
    assert_eq!(code, 0, "{document}");
    if is_skipped(&document) {
        return;
    }
    let row = &document["rows"][0];
    assert_eq!(row["wan"], "half");
    assert_eq!((row["errors"].as_u64(), row["lost"].as_u64()), (Some(0), Some(0)));
    assert!(row["p50_us"].as_f64().unwrap() >= 50_000.0, "{row}");
    assert!(row["dropped_packets"].as_u64().is_some(), "{row}");
}

/// A benchmark that is killed before it can clean up leaves no namespaces, devices or nodes behind.
#[test]
fn nothing_is_left_when_the_bench_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(program())
        .env("TMPDIR", folder.path())
        .args(["bench", "log", "--wan", "half", "--outstanding", "1"])
        .args(["--duration", "10m"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let nodes = crate::common::wait_for("three nodes that run, or a skip", || {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(0), "skipped");
            return Some(Vec::new());
        }
        let nodes = processes_in(folder.path());
        (nodes.len() == 3).then_some(nodes)
    });
    let _ = child.kill();
    child.wait().unwrap();
    crate::common::wait_for("the end of the nodes", || {
        let left = processes_in(folder.path());
        nodes.iter().all(|node| !left.contains(node)).then_some(())
    });
    let devices = fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!devices.contains("wan"), "{devices}");
    assert!(!Path::new("/run/netns/n1").exists());
}
