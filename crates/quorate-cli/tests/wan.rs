//! The emulated wide-area network as users see it. Without root it is skipped, in print.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, path::Path, process::Stdio};

use common::{processes_in, program, quorate_json};
use serde_json::Value as Json;

/// Why there is nothing to look at here, if so; printed.
fn is_skipped(document: &Json) -> bool {
    let notes = document["notes"].as_array().unwrap().iter();
    let skipped = notes
        .filter_map(Json::as_str)
        .find(|note| note.starts_with("skipped: "));
    if let Some(why) = skipped {
        eprintln!("{why}");
    }
    skipped.is_some()
}

fn note<'a>(document: &'a Json, words: &str) -> &'a str {
    let notes = document["notes"].as_array().unwrap().iter();
    let mut found = notes
        .filter_map(Json::as_str)
        .filter(|note| note.contains(words));
    found
        .next()
        .unwrap_or_else(|| panic!("{words}: {document}"))
}

/// Whatever else the machine does, a link is never faster than it should be.
#[test]
#[ignore = "ten seconds: cargo test -p quorate-cli --test wan -- --include-ignored"]
fn links_are_as_slow_and_as_narrow_as_they_say() {
    let (code, document) = quorate_json(&["bench", "wan", "half", "--json"]);
    assert_eq!(code, 0, "{document}");
    if is_skipped(&document) {
        return;
    }
    let [trip, rate] = &document["ceilings"].as_array().unwrap()[..] else {
        panic!("{document}")
    };
    assert!(trip["p50_us"].as_f64().unwrap() >= 50_000.0, "{trip}");
    let rate = rate["value"].as_f64().unwrap();
    // 1448 of 1500 bytes of a packet are the connection's own.
    assert!(rate > 0.0 && rate <= 9.66, "{rate}");
    assert!(note(&document, "emulated WAN half").contains("25 ms one way"));
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
    assert_eq!(
        (row["errors"].as_u64(), row["lost"].as_u64()),
        (Some(0), Some(0))
    );
    assert!(row["p50_us"].as_f64().unwrap() >= 50_000.0, "{row}");
    assert!(row["dropped_packets"].as_u64().is_some(), "{row}");
}

/// The smallest and the largest batch of each size, and what the model says of them.
#[test]
#[ignore = "two minutes: cargo test -p quorate-cli --test wan -- --include-ignored"]
fn a_table_is_measured_with_fixed_batches_beside_its_model() {
    let arguments = [
        "bench",
        "paper",
        "jpaxos-table2",
        "--quick",
        "--wan",
        "half",
    ];
    let short = ["--duration", "1s", "--warmup", "1s", "--json"];
    let (code, document) = quorate_json(&[&arguments[..], &short].concat());
    if is_skipped(&document) {
        return;
    }
    assert_eq!(code, 0, "{document}");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(
        rows.len(),
        6,
        "the smallest and the largest batch of each size"
    );
    for row in rows {
        assert_eq!(
            (row["errors"].as_u64(), row["lost"].as_u64()),
            (Some(0), Some(0)),
            "{row}"
        );
        assert_eq!(row["wan"], "half");
        let held = row["commands_per_batch"].as_f64().unwrap();
        let most = row["batch_bytes"].as_f64().unwrap() / row["value_bytes"].as_f64().unwrap();
        // In a second few batches are made, and the replies are those of others.
        assert!(held <= most * 2.0, "a batch is as large as told: {row}");
    }
    assert_eq!(document["predictions"].as_array().unwrap().len(), 6);
    assert_eq!(document["published"].as_array().unwrap().len(), 15);
    assert!(note(&document, "parameters here").contains("φcli"));
}

/// Killed without a chance to clean up: namespaces, devices and nodes are gone all the same.
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
    let nodes = common::wait_for("three nodes that run, or a skip", || {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(0), "skipped");
            return Some(Vec::new());
        }
        let nodes = processes_in(folder.path());
        (nodes.len() == 3).then_some(nodes)
    });
    let _ = child.kill();
    child.wait().unwrap();
    common::wait_for("the end of the nodes", || {
        let left = processes_in(folder.path());
        nodes.iter().all(|node| !left.contains(node)).then_some(())
    });
    let devices = fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!devices.contains("wan"), "{devices}");
    assert!(!Path::new("/run/netns/n1").exists());
}
