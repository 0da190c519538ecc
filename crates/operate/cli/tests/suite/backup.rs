//! Backups with real processes. They are taken under load, restored as a new cluster that other
//! nodes join, and refused if anything is damaged.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use crate::common::{
    Cluster, NodeProcess, NodeSpec, START_TIMEOUT, free_port, http, quorate, quorate_json, single,
    wait_for, with,
};
use crate::descriptors::limited;
use quorate_admin::client;
use quorate_log::disk::make_private;
use quorate_replica::backup::check_backup;
use quorate_testbed::resp::{Reply, RespConnection};
use serde_json::Value as Json;
use tempfile::TempDir;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.to_owned())
}

/// Returns the spec of a node in `data`, with fixed ports.
fn spec(data: &Path, peer: &str, flags: &[&str]) -> NodeSpec {
    let spec = with(single(data, flags), "--peer", peer);
    let admin = format!("127.0.0.1:{}", free_port());
    with(spec, "--admin", &admin)
}

fn start(spec: NodeSpec) -> NodeProcess {
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    node
}

fn status(node: &NodeProcess) -> Option<Json> {
    let (code, body) = http(&node.ready.admin, "/status")?;
    (code == 200).then(|| serde_json::from_str(&body).unwrap())
}

fn wait_serves(node: &NodeProcess) {
    wait_for("the node to serve", || (http(&node.ready.admin, "/ready")?.0 == 200).then_some(()));
}

fn wait_weights(node: &NodeProcess, expected: &[(u64, u64)]) {
    wait_for("the weights", || {
        let members = status(node)?["members"].as_array()?.clone();
        let weight = |member: &Json| Some((member["node"].as_u64()?, member["weight"].as_u64()?));
        let weights: Option<Vec<_>> = members.iter().map(weight).collect();
        (weights? == expected).then_some(())
    });
}

/// Takes a backup and returns its report.
fn backup(admin: &str, file: &Path) -> Json {
    let (code, said) = quorate_json(&["backup", "--to", text(file), "--admin", admin, "--json"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said["bytes"], fs::metadata(file).unwrap().len(), "{said}");
    said
}

fn restore(file: &Path, data: &Path, peer: &str) -> (i32, Json) {
    let (file, data) = (text(file), text(data));
    quorate_json(&["restore", file, "--data", data, "--peer", peer, "--json"])
}

fn set(link: &mut RespConnection, key: &str, value: &str) {
    assert_eq!(link.run_command(&["SET", key, value]).unwrap(), ok());
}

/// [restore-1] The new cluster has every write that was acknowledged before the backup began. It
/// rejects nodes and clients of the old cluster.
fn restored_from(store: &str) {
    let mut cluster = Cluster::start(3, &["--store", store]);
    let folder = TempDir::new().unwrap();
    let mut link = RespConnection::connect(&cluster.clients()[0]).unwrap();
    let Reply::Bulk(session) = link.run_command(&["QUORATE", "SESSION"]).unwrap() else {
        panic!("no session");
    };
    let first = link.run_command(&["QUORATE", "SEQ", "1", "INCR", "counted"]);
    assert_eq!(first.unwrap(), Reply::Number(1));
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    let file = folder.path().join("backup");
    let (before, said) = thread::scope(|scope| {
        let address = cluster.clients().swap_remove(1);
        let (stop, acknowledged) = (&stop, &acknowledged);
        scope.spawn(move || {
            let mut link = RespConnection::connect(&address).unwrap();
            while !stop.load(Ordering::SeqCst) {
                let number = acknowledged.load(Ordering::SeqCst);
                set(&mut link, &format!("key-{number}"), &"v".repeat(number % 3000));
                acknowledged.store(number + 1, Ordering::SeqCst);
            }
        });
        wait_for("some writes", || (acknowledged.load(Ordering::SeqCst) > 300).then_some(()));
        let before = acknowledged.load(Ordering::SeqCst);
        // A follower applies the write a moment later.
        let admin = cluster.nodes.admin_addresses().swap_remove(2);
        let mut link = RespConnection::connect(&cluster.clients()[2]).unwrap();
        link.run_command(&["GET", "key-0"]).unwrap();
        let said = backup(&admin, &file);
        stop.store(true, Ordering::SeqCst);
        (before, said)
    });
    let old = cluster.status(1).unwrap();
    assert_eq!(said["cluster"], old["cluster"]);
    assert!(said["decided"].as_u64().unwrap() > 1, "{said}");
    assert_eq!(said["checksum"].as_str().unwrap().len(), 32, "{said}");

    // Use the address of an old node, which the other old nodes will dial.
    let place = cluster.nodes.all()[0].ready.peer.clone();
    cluster.node(1).kill().unwrap();
    let data = folder.path().join("new");
    let (code, new) = restore(&file, &data, &place);
    assert_eq!(code, 0, "{new}");
    assert_ne!(new["cluster"], said["cluster"]);
    for same in ["decided", "bytes", "checksum"] {
        assert_eq!(new[same], said[same], "{new}");
    }
    assert_eq!((&new["node"], &new["from"]), (&Json::from(4), &said["cluster"]));
    let mut node = start(spec(&data, &place, &[]));
    assert_eq!(node.ready.node, 4);
    wait_serves(&node);
    wait_weights(&node, &[(4, 1)]);
    let mut link = RespConnection::connect(&node.ready.client).unwrap();
    for number in 0..before {
        let found = link.run_command(&["GET", &format!("key-{number}")]).unwrap();
        assert_eq!(found, bulk(&"v".repeat(number % 3000)), "key-{number}");
    }
    assert_eq!(link.run_command(&["GET", "counted"]).unwrap(), bulk("1"));

    // [session-4] Commands of the old session are neither answered nor executed.
    let resumed = link.run_command(&["QUORATE", "SESSION", &session]).unwrap();
    let again = link.run_command(&["QUORATE", "SEQ", "1", "INCR", "counted"]).unwrap();
    assert!(
        matches!(&resumed, Reply::Error(_)) || matches!(&again, Reply::Error(_)),
        "{resumed:?}, {again:?}"
    );
    assert_eq!(link.run_command(&["GET", "counted"]).unwrap(), bulk("1"));
    let mut fresh = RespConnection::connect(&node.ready.client).unwrap();
    let Reply::Bulk(another) = fresh.run_command(&["QUORATE", "SESSION"]).unwrap() else {
        panic!("no session");
    };
    assert_ne!(another, session);
    let counted = fresh.run_command(&["QUORATE", "SEQ", "1", "INCR", "counted"]);
    assert_eq!(counted.unwrap(), Reply::Number(2));

    // Another node joins and receives all data. Afterwards, each node serves the data alone.
    let peer = format!("127.0.0.1:{}", free_port());
    let joins = ["--join", &node.ready.admin];
    let second = start(spec(&folder.path().join("second"), &peer, &joins));
    assert_eq!(second.ready.node, 5);
    wait_weights(&second, &[(4, 1), (5, 1)]);
    set(&mut link, "after", "1");
    node.kill().unwrap();
    node.restart().unwrap();
    wait_serves(&node);
    wait_serves(&second);
    let mut other = RespConnection::connect(&second.ready.client).unwrap();
    assert_eq!(other.run_command(&["GET", "after"]).unwrap(), bulk("1"));
    assert_eq!(other.run_command(&["GET", "key-7"]).unwrap(), bulk("vvvvvvv"));

    // The old nodes still dial that address.
    wait_for("an old node to be refused", || {
        let log = fs::read_to_string(&node.spec.log_path).unwrap_or_default()
            + &cluster.nodes.log_path(2)
            + &cluster.nodes.log_path(3);
        log.contains("another cluster").then_some(())
    });
    wait_weights(&node, &[(4, 1), (5, 1)]);
    let old = cluster.status(2).unwrap();
    assert_eq!(old["cluster"], said["cluster"]);
    let members = old["members"].as_array().unwrap();
    let taken = members.iter().find(|member| member["node"] == 1).unwrap();
    assert_eq!(taken["connected"], false, "{old}");
}

#[test]
fn a_cluster_with_a_store_on_disk_is_restored() {
    restored_from("lsm");
}

#[test]
fn a_cluster_with_a_store_in_memory_is_restored() {
    restored_from("memory");
}

/// Every fault of the file or the folder is reported, and nothing is written.
#[test]
fn damaged_backups_and_used_folders_are_refused() {
    let cluster = Cluster::start(1, &["--store", "memory", "--feature-level", "hold"]);
    let admin = cluster.nodes.admin_addresses().remove(0);
    let mut link = RespConnection::connect(&cluster.clients()[0]).unwrap();
    for number in 0..20 {
        set(&mut link, &format!("key-{number}"), &"x".repeat(1000));
    }
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup");
    backup(&admin, &file);
    assert!(!folder.path().join("backup.part").exists());
    let good = fs::read(&file).unwrap();
    let header = usize::from(u16::from_be_bytes([good[10], good[11]]));
    let trailer = good.len() - 40;

    let data = folder.path().join("new");
    let bad = folder.path().join("bad");
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&bad, bytes).unwrap();
        let (code, said) = restore(&bad, &data, "127.0.0.1:7451");
        let reason = said["error"]["code"].as_str().unwrap();
        match reason {
            "damaged_backup" => assert_eq!(code, 4, "{what}: {said}"),
            "not_a_backup" | "newer_format" => assert_eq!(code, 1, "{what}: {said}"),
            _ => panic!("{what}: {said}"),
        }
        assert!(!data.exists(), "{what}: something was written");
    };
    for length in (0..good.len()).step_by(4096) {
        refused(&good[..length], &format!("{length} bytes"));
    }
    for length in (0..=header).chain(trailer..good.len()) {
        refused(&good[..length], &format!("{length} bytes"));
    }
    for at in (0..header).chain(trailer..good.len()).chain([header + 1, trailer / 2]) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        refused(&bytes, &format!("a flipped bit at {at}"));
    }
    let longer = [&good[..], &[0]].concat();
    refused(&longer, "a byte more");

    // Folders that cannot be used.
    let used = |data: &Path, code: &str| {
        let (exit, said) = restore(&file, data, "127.0.0.1:7451");
        assert_eq!((exit, said["error"]["code"].as_str()), (1, Some(code)), "{said}");
        assert_ne!(said["error"]["hint"], "", "{said}");
    };
    used(&cluster.nodes.all()[0].spec.data_folder, "node_exists");
    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("precious"), b"x").unwrap();
    used(&full, "foreign_folder");
    assert_eq!(fs::read_dir(&full).unwrap().count(), 1);
    let (code, said) = restore(&file, &data, "127.0.0.1:0");
    assert_eq!(code, 2, "{said}");
    assert!(!data.exists());

    // After an interrupted attempt, no node starts in the folder, and the next attempt starts from
    // the beginning.
    let cut = folder.path().join("cut");
    for name in ["log", "snapshot"] {
        fs::create_dir_all(cut.join(name)).unwrap();
    }
    fs::write(cut.join("restoring"), b"").unwrap();
    fs::write(cut.join("base"), b"half").unwrap();
    fs::write(cut.join("snapshot/0000000000000001.part"), b"half").unwrap();
    let (code, said) = crate::common::refused(&single(&cut, &[]));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("a backup was being restored"), "{said}");
    let (code, said) = restore(&file, &cut, "127.0.0.1:7451");
    assert_eq!(code, 0, "{said}");
    assert!(!cut.join("restoring").exists());
    used(&cut, "node_exists");
    let verified = quorate(&["log", "verify", text(&cut)]);
    assert!(verified.status.success(), "{verified:?}");
    let node = start(single(&cut, &[]));
    wait_serves(&node);
    let mut link = RespConnection::connect(&node.ready.client).unwrap();
    assert_eq!(link.run_command(&["GET", "key-3"]).unwrap(), bulk(&"x".repeat(1000)));

    // No node responds, and the folder does not exist.
    let closed = format!("127.0.0.1:{}", free_port());
    let (code, said) = quorate_json(&["backup", "--to", text(&file), "--admin", &closed, "--json"]);
    assert_eq!((code, said["error"]["code"].as_str()), (3, Some("unreachable")));
    let nowhere = folder.path().join("no/where");
    let (code, said) =
        quorate_json(&["backup", "--to", text(&nowhere), "--admin", &admin, "--json"]);
    assert_eq!((code, said["error"]["code"].as_str()), (1, Some("io")), "{said}");
    assert!(fs::read(&file).unwrap() == good, "the last backup stays");
    let piped = quorate(&["backup", "--to", "-", "--admin", &admin]);
    assert!(piped.status.success());
    assert!(piped.stdout == good, "the same state is the same file");
}

/// A slow reader delays no other request. It receives the snapshot with which it started, because
/// the snapshot's files are retained.
#[test]
fn a_slow_reader_is_served_to_the_end_while_newer_snapshots_are_taken() {
    let cluster = Cluster::start(1, &["--store", "memory"]);
    let admin = cluster.nodes.admin_addresses().remove(0);
    let mut link = RespConnection::connect(&cluster.clients()[0]).unwrap();
    let large = "y".repeat(1 << 20);
    // More than one file. The first one can be read through its descriptor even after it is
    // removed.
    for number in 0..80 {
        set(&mut link, &format!("key-{number}"), &large);
    }
    let mut slow = TcpStream::connect(&admin).unwrap();
    slow.set_read_timeout(Some(START_TIMEOUT)).unwrap();
    let ask = b"GET /backup HTTP/1.0\r\n\r\n";
    slow.write_all(ask).unwrap();
    let mut slow = BufReader::with_capacity(4096, slow);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(slow.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");

    // The reader pauses. Other backups are refused, and everything else continues.
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup");
    let (code, said) = quorate_json(&["backup", "--to", text(&file), "--admin", &admin, "--json"]);
    assert_eq!((code, said["error"]["code"].as_str()), (3, Some("busy")), "{said}");
    assert!(!file.exists() && !folder.path().join("backup.part").exists());
    for round in 0..2 {
        set(&mut link, "round", &round.to_string());
        let (code, said) = quorate_json(&["snapshot", "--admin", &admin, "--json"]);
        assert_eq!(code, 0, "{said}");
    }
    // Give the node time to remove unused files.
    thread::sleep(Duration::from_secs(1));
    let mut all = Vec::new();
    slow.read_to_end(&mut all).unwrap();
    let checked = check_backup(&all[..], &mut |_, _| Ok(()), &mut |_, _| {}).unwrap();
    assert!(checked.summary.bytes > 80 << 20);

    // After the reader has finished, the old files are removed, and the next backup is served.
    let data = cluster.nodes.all()[0].spec.data_folder.join("snapshot");
    wait_for("unneeded files to go", || (fs::read_dir(&data).unwrap().count() == 2).then_some(()));
    wait_for("the next turn", || {
        let taken = quorate(&["backup", "--to", text(&file), "--admin", &admin]);
        taken.status.success().then_some(())
    });
    assert!(fs::read(&file).unwrap() != all, "it is of another state");
}

fn recover(data: &Path, flags: &[&str]) -> (i32, Json) {
    let mut arguments = vec!["recover", "--data", text(data), "--json"];
    arguments.extend(flags);
    quorate_json(&arguments)
}

/// [era-10] After permanent loss of two of three nodes, the data of the third one continues as a
/// new cluster.
fn recovered_from(store: &str) {
    let mut cluster = Cluster::start(3, &["--store", store]);
    let leader = cluster.leader();
    let mut link = RespConnection::connect(&cluster.clients()[leader as usize - 1]).unwrap();
    for number in 0..200 {
        set(&mut link, &format!("key-{number}"), &"v".repeat(number * 11));
    }
    if store == "memory" {
        // The node has a snapshot and later log records.
        let admin = &cluster.nodes.admin_addresses()[leader as usize - 1];
        let (code, said) = quorate_json(&["snapshot", "--admin", admin, "--json"]);
        assert_eq!(code, 0, "{said}");
        set(&mut link, "key-0", "behind");
    }
    set(&mut link, "last", "acknowledged");
    let old = cluster.status(leader).unwrap();
    let id = old["cluster"].as_str().unwrap().to_owned();
    let data = cluster.node(leader).spec.data_folder.clone();
    let flags = ["--unsafe", "--yes", &id];
    let (code, said) = recover(&data, &flags);
    assert_eq!(code, 1, "{said}");
    assert_eq!(said["error"]["code"], "folder_in_use", "{said}");
    cluster.kill_all_at_once();

    // Commands without the required confirmation change nothing.
    let (code, said) = recover(&data, &["--yes", &id]);
    assert_eq!(code, 2, "{said}");
    for flags in [&["--unsafe", "--yes", "0"][..], &["--unsafe"]] {
        let (code, said) = recover(&data, flags);
        assert_eq!((code, &said["error"]["code"]), (1, &Json::from("not_confirmed")), "{said}");
    }
    assert!(!data.join("recover").exists());
    let (code, said) = recover(&data.join("nowhere"), &flags);
    assert_eq!((code, &said["error"]["code"]), (1, &Json::from("no_node")), "{said}");

    let place = cluster.node(leader).ready.peer.clone();
    let (code, new) = recover(&data, &[&flags[..], &["--peer", &place]].concat());
    assert_eq!(code, 0, "{new}");
    assert_eq!((&new["node"], &new["from"]), (&Json::from(4), &Json::from(&*id)));
    assert_ne!(new["cluster"], new["from"]);
    assert!(data.join("before-recover-1/identity").exists());
    let mut node = start(spec(&data, &place, &[]));
    assert_eq!(node.ready.node, 4);
    wait_serves(&node);
    let mut link = RespConnection::connect(&node.ready.client).unwrap();
    assert_eq!(link.run_command(&["GET", "last"]).unwrap(), bulk("acknowledged"));
    for number in 1..200 {
        let found = link.run_command(&["GET", &format!("key-{number}")]).unwrap();
        assert_eq!(found, bulk(&"v".repeat(number * 11)), "key-{number}");
    }
    let first = if store == "memory" { "behind" } else { "" };
    assert_eq!(link.run_command(&["GET", "key-0"]).unwrap(), bulk(first));
    set(&mut link, "after", "1");

    // The lost nodes return, and the new cluster rejects them whatever they do.
    let others: Vec<u32> = (1..=3).filter(|node| *node != leader).collect();
    cluster.nodes.restart(&others).unwrap();
    wait_for("an old node to be refused", || {
        let log = fs::read_to_string(&node.spec.log_path).unwrap_or_default();
        let theirs = others.iter().map(|node| cluster.nodes.log_path(*node));
        let all: String = [log].into_iter().chain(theirs).collect();
        all.contains("another cluster").then_some(())
    });
    wait_weights(&node, &[(4, 1)]);

    // New nodes join.
    let folder = TempDir::new().unwrap();
    let peer = format!("127.0.0.1:{}", free_port());
    let joins = ["--join", &node.ready.admin];
    let second = start(spec(&folder.path().join("second"), &peer, &joins));
    wait_weights(&second, &[(4, 1), (5, 1)]);
    node.kill().unwrap();
    node.restart().unwrap();
    wait_serves(&second);
    let mut other = RespConnection::connect(&second.ready.client).unwrap();
    assert_eq!(other.run_command(&["GET", "last"]).unwrap(), bulk("acknowledged"));
    assert_eq!(other.run_command(&["GET", "after"]).unwrap(), bulk("1"));
}

#[test]
fn one_of_three_with_a_store_on_disk_is_recovered() {
    recovered_from("lsm");
}

#[test]
fn one_of_three_with_a_store_in_memory_is_recovered() {
    recovered_from("memory");
}

/// Only the owner may read the files that a node writes, because they contain values and password
/// hashes.
#[test]
fn only_the_owner_may_read_what_a_node_writes() {
    let all = |path: &Path| {
        let mut open = (0, 0);
        make_private(path, &mut open);
        open.0 + open.1
    };
    for service in ["kv", "etcd"].into_iter().take(1 + usize::from(cfg!(feature = "etcd"))) {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        let mut spec = spec(&data, "127.0.0.1:0", &["--service", service, "--store", "lsm"]);
        spec.program = limited(folder.path(), "umask 0");
        let mut node = start(spec);
        wait_serves(&node);
        let (file, part) = (folder.path().join("backup"), folder.path().join("backup.part"));
        let address = &node.ready.client;
        let put = r#"{"key":"Zm9v","value":"MQ=="}"#;
        match service {
            "kv" => set(&mut RespConnection::connect(address).unwrap(), "key", "value"),
            _ => drop(client::post(address, "/v3/kv/put", put, START_TIMEOUT).unwrap()),
        }
        // An aborted backup left it.
        fs::write(&part, "x").unwrap();
        backup(&node.ready.admin, &file);
        let restored = folder.path().join("restored");
        restore(&file, &restored, "127.0.0.1:0");
        let (code, said) = quorate_json(&["audit", "--admin", &node.ready.admin, "--json"]);
        assert!(code == 0 && data.join("audit.jsonl").exists(), "{said}");
        assert_eq!([&file, &restored, &data].map(|path| all(path)), [0; 3], "{service}");

        // A folder of an earlier version is closed at the next start.
        node.kill().unwrap();
        for name in ["", "identity", "log", service] {
            fs::set_permissions(data.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        node.restart().unwrap();
        wait_serves(&node);
        assert_eq!(all(&data), 0);
        let log = fs::read_to_string(&node.spec.log_path).unwrap();
        assert_eq!(log.matches("closed the data folder").count(), 1, "{log}");
    }
}
