//! Byte streams in backups, with real processes. A backup contains the streams as of one moment.
//! They can be restored even if they are trimmed or removed while the backup is read.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use crate::common::{
    Cluster, NodeProcess, START_TIMEOUT, free_port, http, quorate, quorate_json, single, wait_for,
    with,
};
use quorate_client::stream::{
    OpenMode, Options, Retention, StreamInfo, StreamReader, StreamWriter, Streams,
};
use quorate_replica::backup::check_backup;
use quorate_testbed::stream_bytes::{bytes, first_difference};
use serde_json::Value as Json;
use tempfile::TempDir;

const MIB: usize = 1 << 20;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn options() -> Options {
    Options { open: START_TIMEOUT, give_up_timeout: START_TIMEOUT, ..Options::default() }
}

/// Writes the bytes of `writer` to a stream, from the stream's end up to position `to`.
fn put(nodes: &[String], name: &str, how: OpenMode, writer: u16, to: usize, finish: bool) {
    let mut stream = StreamWriter::open(nodes, name, how, options()).unwrap();
    let from = stream.position();
    let count = to - usize::try_from(from).unwrap();
    stream.write_all(&bytes(writer, from, count)).unwrap();
    let end = match finish {
        true => stream.finish(),
        false => stream.detach(),
    };
    assert_eq!(end.unwrap(), to as u64);
}

fn stat(nodes: &[String], name: &str) -> StreamInfo {
    Streams::new(nodes, options()).stat(name).unwrap()
}

/// Checks that all retained bytes of a stream are those that its writer wrote.
fn read(nodes: &[String], name: &str, writer: u16) {
    let StreamInfo { start, durable_end: end, .. } = stat(nodes, name);
    let mut reader = StreamReader::new(nodes, name, options()).from(start).stop_at(end);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, end - start, "{name}");
    assert_eq!(first_difference(writer, start, &bytes), None, "{name}");
}

fn addresses(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.nodes.all().iter();
    nodes.map(|node| node.ready.stream.clone()).collect()
}

fn backup(admin: &str, file: &Path, flags: &[&str]) -> Json {
    let arguments = ["backup", "--to", text(file), "--admin", admin, "--json"];
    let (code, said) = quorate_json(&[&arguments[..], flags].concat());
    assert_eq!(code, 0, "{said}");
    assert_eq!(said["bytes"], fs::metadata(file).unwrap().len(), "{said}");
    said
}

fn restore(file: &Path, data: &Path, peer: &str) -> (i32, Json) {
    let (file, data) = (text(file), text(data));
    quorate_json(&["restore", file, "--data", data, "--peer", peer, "--json"])
}

fn start(data: &Path, flags: &[&str]) -> NodeProcess {
    let peer = format!("127.0.0.1:{}", free_port());
    started(data, &peer, flags)
}

fn started(data: &Path, peer: &str, flags: &[&str]) -> NodeProcess {
    let spec = with(single(data, flags), "--peer", peer);
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    wait_for("the node to serve", || {
        (http(&node.ready.admin, "/ready?streams")?.0 == 200).then_some(())
    });
    node
}

/// A backup contains closed streams with their end, trimmed ones from their start, bounded ones,
/// and a growing one up to the backup's slot and no further. Nodes that join the new cluster
/// receive them too.
#[test]
fn streams_are_backed_up_at_one_moment_and_come_back() {
    let cluster = Cluster::start(3, &["--store", "memory"]);
    let nodes = addresses(&cluster);
    put(&nodes, "closed", OpenMode::Create, 1, 3 * MIB + 77, true);
    put(&nodes, "trimmed", OpenMode::Create, 2, MIB, false);
    put(&nodes, "trimmed", OpenMode::Append, 2, 2 * MIB + 5, false);
    let mut streams = Streams::new(&nodes, options());
    streams.trim("trimmed", 300_001).unwrap();
    put(&nodes, "bounded", OpenMode::Create, 3, 100_000, false);
    let keep = Retention { bytes: Some(50 * MIB as u64), age_max_ms: Some(3_600_000) };
    streams.set_retention("bounded", keep).unwrap();
    put(&nodes, "removed", OpenMode::Create, 4, MIB, true);
    streams.remove("removed").unwrap();

    let folder = TempDir::new().unwrap();
    let (file, without) = (folder.path().join("with"), folder.path().join("without"));
    let admin = cluster.nodes.admin_addresses().swap_remove(1);
    let (stop, durable) = (AtomicBool::new(false), AtomicU64::new(0));
    let (before, said, after) = thread::scope(|scope| {
        let (stop, durable, nodes) = (&stop, &durable, &nodes);
        let writing = scope.spawn(move || {
            let mut grows =
                StreamWriter::open(nodes, "grows", OpenMode::Create, options()).unwrap();
            while !stop.load(Ordering::SeqCst) {
                let more = bytes(5, grows.position(), 10_000);
                grows.write_all(&more).unwrap();
                durable.store(grows.durable_position(), Ordering::SeqCst);
            }
            grows.detach().unwrap()
        });
        wait_for("some bytes", || (durable.load(Ordering::SeqCst) > MIB as u64).then_some(()));
        let before = durable.load(Ordering::SeqCst);
        // Everything that was acknowledged through any node has been applied on this one.
        assert!(stat(&nodes[1..2], "grows").durable_end >= before);
        let said = backup(&admin, &file, &["--streams"]);
        stop.store(true, Ordering::SeqCst);
        (before, said, writing.join().unwrap())
    });
    assert_eq!((&said["streams"], &said["streams_left_out"]), (&4.into(), &0.into()));

    // A backup without the streams' bytes reports that, and names the flag that includes them.
    let plain = backup(&admin, &without, &[]);
    assert_eq!((&plain["streams"], &plain["streams_left_out"]), (&0.into(), &4.into()));
    let output = quorate(&["backup", "--to", text(&without), "--admin", &admin]);
    let human = String::from_utf8(output.stdout).unwrap();
    assert!(
        human.contains("not in it: 4 byte streams (") && human.contains("--streams"),
        "{human}"
    );
    let data = folder.path().join("without-streams");
    let (code, new) = restore(&without, &data, "127.0.0.1:7451");
    assert_eq!((code, &new["streams_left_out"]), (0, &4.into()), "{new}");

    let data = folder.path().join("new");
    let peer = format!("127.0.0.1:{}", free_port());
    let (code, new) = restore(&file, &data, &peer);
    assert_eq!(code, 0, "{new}");
    for same in ["streams", "stream_bytes", "decided", "checksum"] {
        assert_eq!(new[same], said[same], "{new}");
    }
    let mut node = started(&data, &peer, &[]);
    let here = [node.ready.stream.clone()];
    let check_all = |here: &[String]| {
        let infos = Streams::new(here, options()).list().unwrap();
        let names: Vec<&str> = infos.iter().map(|info| &*info.name).collect();
        assert_eq!(names, ["bounded", "closed", "grows", "trimmed"]);
        for (name, writer) in [("bounded", 3), ("closed", 1), ("grows", 5), ("trimmed", 2)] {
            read(here, name, writer);
            let (new, old) = (stat(here, name), stat(&nodes, name));
            assert_eq!((new.start, new.is_finished), (old.start, old.is_finished), "{name}");
            assert_eq!((new.retention, new.id), (old.retention, old.id), "{name}");
            assert!(new.durable_end == old.durable_end || name == "grows", "{name}");
        }
    };
    check_all(&here);
    let restored = stat(&here, "grows").durable_end;
    assert!((before..=after).contains(&restored), "{before} {restored} {after}");

    // The growing stream can be continued, closed ones stay closed, and another node receives all
    // of them.
    put(&here, "grows", OpenMode::Append, 5, usize::try_from(restored).unwrap() + MIB, false);
    assert!(StreamWriter::open(&here, "closed", OpenMode::Append, options()).is_err());
    node.kill().unwrap();
    node.restart().unwrap();
    let second = start(&folder.path().join("second"), &["--join", &node.ready.admin]);
    wait_for("all bytes on the second node", || {
        let (_, status) = http(&second.ready.admin, "/status")?;
        let status: Json = serde_json::from_str(&status).unwrap();
        let all = status["streams"]["count"] == 4 && status["streams"]["missing_bytes"] == 0;
        all.then_some(())
    });
    check_all(std::slice::from_ref(&second.ready.stream));
    let kept = fs::read_dir(folder.path().join("second/stream")).unwrap().count();
    assert!(kept > 0, "it has them itself");

    // Any damage to the streams' bytes is found before anything is written.
    let good = fs::read(&file).unwrap();
    let bad = folder.path().join("bad");
    let data = folder.path().join("nothing");
    for at in [good.len() - 41, good.len() - MIB, good.len() / 2] {
        let mut spoilt = good.clone();
        spoilt[at] ^= 1;
        fs::write(&bad, &spoilt).unwrap();
        let (code, said) = restore(&bad, &data, "127.0.0.1:7451");
        assert_eq!((code, &said["error"]["code"]), (4, &"damaged_backup".into()), "{said}");
        assert!(!data.exists(), "something was written");
    }
    fs::write(&bad, &good[..good.len() - MIB]).unwrap();
    assert_eq!(restore(&bad, &data, "127.0.0.1:7451").0, 4);
    assert!(!data.exists());
}

/// A backup that is read slowly contains everything as of its moment. The node does not release the
/// space before the backup ends.
#[test]
fn what_is_removed_while_a_backup_is_read_is_in_it() {
    let folder = TempDir::new().unwrap();
    let node = start(&folder.path().join("n"), &[]);
    let (here, admin) = ([node.ready.stream.clone()], &node.ready.admin);
    // The stream is large enough for a checkpoint to pay off once it is removed.
    put(&here, "large", OpenMode::Create, 1, 70 * MIB, true);
    put(&here, "long", OpenMode::Create, 2, 10 * MIB, false);
    let used = || {
        let (_, status) = http(admin, "/status")?;
        let status: Json = serde_json::from_str(&status).unwrap();
        status["streams"]["bytes"].as_u64()
    };
    let mut slow = TcpStream::connect(admin).unwrap();
    slow.set_read_timeout(Some(START_TIMEOUT)).unwrap();
    slow.write_all(b"GET /backup?streams HTTP/1.0\r\n\r\n").unwrap();
    let mut slow = BufReader::with_capacity(4096, slow);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(slow.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    let mut streams = Streams::new(&here, options());
    streams.remove("large").unwrap();
    streams.trim("long", 9 * MIB as u64).unwrap();
    // Free space is reused, so the new stream would overwrite it.
    put(&here, "later", OpenMode::Create, 3, 30 * MIB, true);
    assert!(used().unwrap() >= 110 * MIB as u64, "the old ones are there still");
    let mut all = Vec::new();
    slow.read_to_end(&mut all).unwrap();
    let checked = check_backup(&all[..], &mut |_, _| Ok(()), &mut |_, _| {}).unwrap();
    assert_eq!((checked.stream_count, checked.stream_bytes), (2, 80 * MIB as u64));
    wait_for("the room of what is gone", || (used()? <= 40 * MIB as u64).then_some(()));
    read(&here, "later", 3);

    // An unknown query is refused, and a readiness check reports whether streams are accepted.
    assert_eq!(http(admin, "/backup?stream").unwrap().0, 400);
    assert_eq!(http(admin, "/ready?streams").unwrap(), (200, "ready\n".to_owned()));
    assert_eq!(http(admin, "/ready?x").unwrap().0, 400);
}
