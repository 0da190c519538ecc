//! `quorate scrub` with real processes. Damage in the files of a running node is found, named, and
//! repaired from the other nodes while clients write. Nothing acknowledged is lost, no damaged data
//! is served, and the node needs no help for its next start.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use crate::common::{Cluster, START_TIMEOUT, quorate, quorate_json, wait_for};
use quorate_client::{
    StreamReader, StreamWriter,
    stream::{self, OpenMode},
};
use quorate_testbed::{
    resp::{Reply, RespConnection},
    stream_bytes::{bytes, first_difference},
    writers::Writers,
};
use serde_json::Value as Json;

const STREAM: u64 = 3 << 20;

/// Inverts a byte of a file that the node has open.
fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    file.sync_all().unwrap();
}

/// Returns the files of a folder, sorted.
fn all_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn scrub(admin: &str) -> (i32, Json) {
    quorate_json(&["scrub", "--admin", admin, "--pace", "500MB/s", "--json"])
}

/// Returns the distinct kinds of findings, and whether all of them were repaired.
fn found(json: &Json) -> (Vec<&str>, bool) {
    let places = json["found"].as_array().unwrap();
    let mut kinds: Vec<&str> = places.iter().map(|one| one["kind"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let fine = |one: &Json| ["repaired", "superseded"].contains(&one["fate"].as_str().unwrap());
    (kinds, places.iter().all(fine))
}

#[test]
fn what_is_spoiled_under_a_running_node_is_found_named_and_repaired() {
    // A raise of the level would rewrite a file that is compared.
    let held = ["--feature-level", "hold"];
    let flags =
        [&["--store", "memory", "--log-ready", "0", "--scrub-every", "off"], &held[..]].concat();
    let mut cluster = Cluster::start(3, &flags);
    let stream_at: Vec<String> =
        cluster.nodes.all().iter().map(|n| n.ready.stream.clone()).collect();
    let options = stream::Options { give_up_timeout: START_TIMEOUT, ..stream::Options::default() };
    let mut writer =
        StreamWriter::open(&stream_at, "s", OpenMode::Create, options.clone()).unwrap();
    writer.write_all(&bytes(0, 0, STREAM as usize)).unwrap();
    assert_eq!(writer.finish().unwrap(), STREAM);
    let mut link = RespConnection::connect(&cluster.nodes.client_addresses()[0]).unwrap();
    for number in 0..40 {
        let value = number.to_string().repeat(20_000);
        let reply = link.run_command(&["SET", &format!("key-{number}"), &value]).unwrap();
        assert_eq!(reply, Reply::Simple("OK".to_owned()));
    }
    let ill = cluster.leader() % 3 + 1;
    let at = ill as usize - 1;
    let admin = cluster.nodes.admin_addresses().swap_remove(at);
    let data = cluster.nodes.all()[at].spec.data_folder.clone();
    // Take a snapshot, so that the scrub reads one as well.
    assert!(quorate(&["snapshot", "--admin", &admin]).status.success());

    let (code, json) = scrub(&admin);
    assert_eq!(code, 0, "{json}");
    assert_eq!(json["found"].as_array().unwrap().len(), 0, "{json}");
    for kind in ["log", "streams", "snapshot", "files"] {
        assert!(json["kinds"][kind].as_u64().unwrap() > 0, "{kind}: {json}");
    }

    let writers = Writers::start(&cluster.nodes.client_addresses());
    let (identity, base) = (data.join("identity"), data.join("base"));
    let (identity_was, base_was) = (fs::read(&identity).unwrap(), fs::read(&base).unwrap());
    for place in [9 * 4096, 100 * 4096] {
        flip(&all_in(&data.join("log"))[0], place + 200);
    }
    // One of these files may contain only unused chunks.
    for file in all_in(&data.join("stream")) {
        flip(&file, 5 * 4096 + 7);
    }
    flip(&all_in(&data.join("snapshot"))[0], 70);
    flip(&identity, 30);
    flip(&base, 20);
    let (code, json) = scrub(&admin);
    let (kinds, fine) = found(&json);
    assert_eq!(kinds, ["files", "log", "snapshot", "streams"], "{json}");
    assert!(fine && code == 0, "{code} {json}");
    assert_eq!(fs::read(&identity).unwrap(), identity_was);
    assert_ne!(fs::read(&base).unwrap(), base_was, "it names another snapshot now");
    let said = cluster.nodes.log_path(ill);
    // One batch may hold both places of the log.
    for (what, times) in [
        ("scrub: damaged log: segment 1, offset ", 1..=2),
        ("scrub: damaged streams: stream file ", 1..=1),
        ("scrub: damaged files: the file identity", 1..=1),
    ] {
        assert!(times.contains(&said.matches(what).count()), "{what}: {said}");
    }
    let counted = cluster.nodes.metric(ill, "quorate_scrub_damaged_total ").unwrap();
    assert!(counted >= 4, "{counted}");

    // No damaged data is served, nothing is lost, and the node starts by itself.
    assert!(writers.acknowledged_count() > 10);
    let written = writers.end().unwrap();
    let (code, again) = scrub(&admin);
    let (_, fine) = found(&again);
    assert!(fine && code == 0, "{again}");
    let shown = quorate(&["scrub", "--admin", &admin, "--show"]);
    assert!(shown.status.success());
    cluster.nodes.kill(&[ill]).unwrap();
    cluster.nodes.restart(&[ill]).unwrap();
    cluster.wait_until_all_serve();
    cluster.wait_until_equal();
    let address = &cluster.nodes.client_addresses()[at];
    assert!(written.compare(address).unwrap() > 10);
    let mut link = RespConnection::connect(address).unwrap();
    for number in 0..40 {
        let value = number.to_string().repeat(20_000);
        let reply = link.run_command(&["GET", &format!("key-{number}")]).unwrap();
        assert!(reply == Reply::Bulk(value), "key-{number} differs");
    }
    let here = [cluster.nodes.all()[at].ready.stream.clone()];
    let read = wait_for("the stream", || {
        let mut reader = StreamReader::new(&here, "s", options.clone());
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut all).ok()?;
        Some(all)
    });
    assert_eq!((read.len() as u64, first_difference(0, 0, &read)), (STREAM, None));
}

/// An invalid rate is refused with an example of a valid one.
#[test]
fn a_pace_that_is_none_is_refused() {
    let (code, json) = quorate_json(&["scrub", "--pace", "fast", "--json"]);
    assert_eq!(code, 2, "{json}");
    let message = json["error"]["message"].as_str().unwrap();
    assert!(message.contains("64 KiB"), "{message}");
}
