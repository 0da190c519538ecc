//! Folders written by earlier versions are opened, checked for completeness, and used further.
//!
//! `testdata/formats/v1-…` were written by the last version whose logs could not be trimmed: single
//! nodes with two lives, the first of which was killed. `v2-…` were written by the version of
//! November 2026: nodes that joined through the log and have leases, a snapshot and an address book
//! with a removed node; they were killed. `REWRITE=1` writes the `v2` folders again. A fixture is
//! one file without the zeros that fill most of a log: lines `file PATH BYTES`, and for each
//! nonzero range a line `at OFFSET BYTES` followed by these bytes. A session of that cluster and
//! the number of records in its log come first.

use std::{
    env, fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use crate::common::{NodeProcess, free_port, http, quorate, quorate_json, single, wait_for, with};
use quorate_testbed::resp::{Reply, RespConnection};
use serde_json::Value as Json;
use tempfile::TempDir;

/// Number of keys in each folder. One of them was deleted.
const KEYS: usize = 30;
const DELETED: usize = 3;

/// Minimum length of a run of zeros that a fixture omits.
const ZEROS: usize = 32;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/formats").join(format!("{name}.folder"))
}

/// Returns the files of a folder as relative paths.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

/// Returns the ranges that are not zero. They are separated by long runs of zeros.
fn extents(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut extents: Vec<std::ops::Range<usize>> = Vec::new();
    let used = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
    for (at, _) in used {
        match extents.last_mut() {
            Some(last) if at < last.end + ZEROS => last.end = at + 1,
            _ => extents.push(at..at + 1),
        }
    }
    extents
}

/// Contents of a fixture other than its files.
struct Said {
    session: String,
    records: u64,
}

fn pack(data: &Path, said: &Said, to: &Path) {
    let mut out = format!("session {}\nrecords {}\n", said.session, said.records).into_bytes();
    for path in files(data) {
        let bytes = fs::read(data.join(&path)).unwrap();
        out.extend(format!("file {} {}\n", path.display(), bytes.len()).into_bytes());
        for extent in extents(&bytes) {
            out.extend(format!("at {} {}\n", extent.start, extent.len()).into_bytes());
            out.extend_from_slice(&bytes[extent]);
            out.push(b'\n');
        }
    }
    fs::write(to, out).unwrap();
}

fn unpack(from: &Path, data: &Path) -> Said {
    let packed = fs::read(from).unwrap();
    let mut rest = &packed[..];
    let mut said = Said { session: String::new(), records: 0 };
    let mut open = None;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
        let line = std::str::from_utf8(&rest[..end]).unwrap();
        rest = &rest[end + 1..];
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["session", session] => said.session = session.to_owned(),
            ["records", records] => said.records = records.parse().unwrap(),
            ["file", path, bytes] => {
                let path = data.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let file = fs::File::create_new(path).unwrap();
                file.set_len(bytes.parse().unwrap()).unwrap();
                open = Some(file);
            }
            ["at", offset, bytes] => {
                let (bytes, behind) = rest.split_at(bytes.parse().unwrap());
                let file = open.as_ref().unwrap();
                file.write_all_at(bytes, offset.parse().unwrap()).unwrap();
                rest = &behind[1..];
            }
            _ => panic!("{line}"),
        }
    }
    said
}

/// Returns the text of one file of a fixture.
fn text_in(name: &str, file: &str) -> String {
    let folder = TempDir::new().unwrap();
    unpack(&fixture(name), folder.path());
    fs::read_to_string(folder.path().join(file)).unwrap()
}

fn start(data: &Path, flags: &[&str]) -> NodeProcess {
    let peer = format!("127.0.0.1:{}", free_port());
    let mut node = NodeProcess::spawn(with(single(data, flags), "--peer", &peer)).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    wait_for("the node to serve", || (http(&node.ready.admin, "/ready")?.0 == 200).then_some(()));
    node
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.to_owned())
}

fn has_everything(link: &mut RespConnection) {
    for number in 0..KEYS {
        let found = link.run_command(&["GET", &format!("key-{number}")]).unwrap();
        let expected = match number {
            DELETED => Reply::Null,
            number => bulk(&format!("value-{number}")),
        };
        assert_eq!(found, expected, "key-{number}");
    }
    assert_eq!(link.run_command(&["GET", "counter"]).unwrap(), bulk("3"));
}

/// Starts the node in the folder, uses the node further, and returns its view of the members.
fn goes_on(name: &str, node_id: u32) -> (Json, TempDir) {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("n");
    let Said { session, records } = unpack(&fixture(name), &data);
    let verified = quorate(&["log", "verify", data.to_str().unwrap(), "--json"]);
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{said}");
    let said: Json = serde_json::from_str(&said).unwrap();
    assert_eq!(said["records"], records, "{said}");
    let mut node = start(&data, &[]);
    assert_eq!(node.ready.node, node_id);
    let mut link = RespConnection::connect(&node.ready.client).unwrap();
    has_everything(&mut link);
    // The cluster's sessions are intact, so an executed command is not executed again.
    let resumed = link.run_command(&["QUORATE", "SESSION", &session]).unwrap();
    assert_eq!(resumed, Reply::Simple("OK".to_owned()));
    let again = ["QUORATE", "SEQ", "1", "INCR", "counter"];
    assert_eq!(link.run_command(&again).unwrap(), Reply::Number(2));
    has_everything(&mut link);

    // New writes survive the next start, with and without a snapshot in between.
    let admin = node.ready.admin.clone();
    for round in ["one", "two"] {
        link.run_command(&["SET", round, "1"]).unwrap();
        let (code, said) = quorate_json(&["snapshot", "--json", "--admin", &admin]);
        assert_eq!(code, 0, "{said}");
        link.run_command(&["SET", &format!("behind-{round}"), "1"]).unwrap();
    }
    node.kill().unwrap();
    let node = start(&data, &[]);
    let mut link = RespConnection::connect(&node.ready.client).unwrap();
    has_everything(&mut link);
    for key in ["one", "two", "behind-one", "behind-two"] {
        assert_eq!(link.run_command(&["GET", key]).unwrap(), bulk("1"), "{key}");
    }
    let members = http(&node.ready.admin, "/members").unwrap().1;
    (serde_json::from_str(&members).unwrap(), folder)
}

#[test]
fn a_folder_of_before_logs_were_trimmed_goes_on() {
    for name in ["v1-memory", "v1-lsm"] {
        let (members, _folder) = goes_on(name, 1);
        assert_eq!(members["nodes"].as_array().unwrap().len(), 1, "{members}");
        assert_eq!(members["removed"], Json::Array(Vec::new()));
    }
}

#[test]
fn a_folder_of_a_node_that_joined_goes_on() {
    for (name, store) in [("v2-memory", "memory"), ("v2-lsm", "lsm")] {
        if env::var_os("REWRITE").is_some_and(|value| value == "1") {
            write_today(name, store);
        }
        let identity = text_in(name, "identity");
        assert!(identity.contains("\nleased "), "{identity}");
        let book = text_in(name, "peers");
        assert!(book.contains("\nremoved 1\n"), "{book}");
        let (members, folder) = goes_on(name, 2);
        assert_eq!(members["removed"], serde_json::json!([1]), "{members}");
        assert_eq!(members["nodes"][0]["node"], 2, "{members}");
        let book = fs::read_to_string(folder.path().join("n/peers")).unwrap();
        assert!(book.contains("\nremoved 1\n"), "{book}");
    }
}

/// Writes the folder of node 2, which joined the cluster and is now its only node.
fn write_today(name: &str, store: &str) {
    let folder = TempDir::new().unwrap();
    let lease = ["--reads", "lease", "--log-ready", "0"];
    let first = start(&folder.path().join("n1"), &[&lease[..], &["--store", store]].concat());
    let joins = ["--join", &first.ready.admin];
    let data = folder.path().join("n2");
    let mut node = start(&data, &[&lease[..], &joins].concat());
    let admin = node.ready.admin.clone();
    wait_for("its vote", || {
        let (code, list) = quorate_json(&["member", "list", "--json", "--admin", &admin]);
        (code == 0 && list["nodes"][1]["weight"] == 1 && list["plan"].is_null()).then_some(())
    });
    // A quorum is two of two, so the node must have granted a lease or will grant one.
    wait_for("a lease that it granted", || {
        let identity = fs::read_to_string(data.join("identity")).unwrap();
        identity.contains("\nleased ").then_some(())
    });
    let (code, said) = quorate_json(&["member", "remove", "1", "--json", "--admin", &admin]);
    assert_eq!(code, 0, "{said}");
    drop(first);
    let mut link = RespConnection::connect(&node.ready.client).unwrap();
    let set = |link: &mut RespConnection, numbers: std::ops::Range<usize>| {
        for number in numbers {
            let (key, value) = (format!("key-{number}"), format!("value-{number}"));
            link.run_command(&["SET", &key, &value]).unwrap();
        }
    };
    set(&mut link, 0..20);
    link.run_command(&["DEL", &format!("key-{DELETED}")]).unwrap();
    link.run_command(&["INCR", "counter"]).unwrap();
    let Reply::Bulk(session) = link.run_command(&["QUORATE", "SESSION"]).unwrap() else {
        panic!("no session");
    };
    link.run_command(&["QUORATE", "SEQ", "1", "INCR", "counter"]).unwrap();
    let (code, said) = quorate_json(&["snapshot", "--json", "--admin", &admin]);
    assert_eq!(code, 0, "{said}");
    set(&mut link, 20..KEYS);
    let mut other = RespConnection::connect(&node.ready.client).unwrap();
    other.run_command(&["INCR", "counter"]).unwrap();
    wait_for("its address book", || {
        let book = fs::read_to_string(data.join("peers")).unwrap();
        book.contains("\nremoved 1\n").then_some(())
    });
    node.kill().unwrap();
    let (code, said) = quorate_json(&["log", "verify", data.to_str().unwrap(), "--json"]);
    assert_eq!(code, 0, "{said}");
    let records = said["records"].as_u64().unwrap();
    pack(&data, &Said { session, records }, &fixture(name));
}
