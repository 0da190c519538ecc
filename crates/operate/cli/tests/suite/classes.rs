//! Clients that request a stronger or weaker class than their cluster's, with real processes
//! ([class-2], [last-3] to [last-5], [less-2] to [less-5]).

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use crate::common::{Cluster, NodeProcess, free_port, http, quorate_json, single, wait_for, with};
use quorate_node::log_service::{
    classes::AnswerClass,
    frames::{self, CommandStatus},
};
use quorate_testbed::resp::{Reply, RespConnection};

/// Minimum duration of a flush on these nodes.
const FLUSH: Duration = Duration::from_millis(300);

/// Keeps a new cluster at the lowest level.
const HOLD: [&str; 2] = ["--feature-level", "hold"];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn took(link: &mut RespConnection, words: &[&str]) -> (Reply, Duration) {
    let began = Instant::now();
    let reply = link.run_command(words).unwrap();
    (reply, began.elapsed())
}

/// Returns whether a new cluster, recovered from the folder `data`, has the key.
fn recovers(data: &Path, cluster: &str, key: &str) -> bool {
    let peer = format!("127.0.0.1:{}", free_port());
    let flags = ["--unsafe", "--yes", cluster, "--peer", &peer, "--json"];
    let (code, said) = quorate_json(&[&["recover", "--data", text(data)], &flags[..]].concat());
    assert_eq!(code, 0, "{said}");
    let spec = with(single(data, &[]), "--peer", &peer);
    let admin = format!("127.0.0.1:{}", free_port());
    let mut node = NodeProcess::spawn(with(spec, "--admin", &admin)).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    wait_for("the node to serve", || (http(&node.ready.admin, "/ready")?.0 == 200).then_some(()));
    let mut link = RespConnection::connect(&node.ready.client).unwrap();
    link.run_command(&["GET", key]).unwrap() == Reply::Bulk("1".to_owned())
}

/// Only clients that request durability wait for disks. A write that was reported as durable
/// survives if all nodes are killed at once.
#[test]
fn a_client_of_a_volatile_cluster_is_told_when_its_write_is_on_disks() {
    let flush = FLUSH.as_millis().to_string();
    let flags = ["--durability", "volatile", "--store", "memory", "--disk-flush-ms", &flush];
    let mut cluster = Cluster::start(3, &[&flags[..], &HOLD].concat());
    let leader = cluster.leader();
    let asked = (leader % 3) as usize;
    let mut link = RespConnection::connect(&cluster.clients()[asked]).unwrap();
    assert_eq!(link.run_command(&["SET", "a", "1"]).unwrap(), ok());
    let class = |link: &mut RespConnection| link.run_command(&["QUORATE", "CLASS"]).unwrap();
    assert_eq!(class(&mut link), Reply::Simple("volatile".to_owned()));

    // Nodes of the previous release might be members.
    assert_eq!(link.run_command(&["QUORATE", "CLASS", "durable"]).unwrap(), ok());
    let Reply::Error(refused) = link.run_command(&["SET", "b", "1"]).unwrap() else {
        panic!("it was taken")
    };
    assert!(refused.starts_with("LEVEL not executed"), "{refused}");
    let admin = cluster.nodes.admin_addresses()[asked].clone();
    wait_for("the level to be raised", || {
        let asked = ["member", "feature", "--raise", "--yes", "--admin", &admin, "--json"];
        (quorate_json(&asked).0 == 0).then_some(())
    });
    wait_for("the node to hear of it", || {
        (link.run_command(&["SET", "b", "1"]).unwrap() == ok()).then_some(())
    });

    assert_eq!(class(&mut link), Reply::Simple("durable".to_owned()));
    let (reply, durable) = took(&mut link, &["SET", "durable", "1"]);
    assert_eq!(reply, ok());
    assert!(durable >= FLUSH, "{durable:?}");
    let Reply::Error(refused) = link.run_command(&["BLPOP", "list", "1"]).unwrap() else {
        panic!("it was taken")
    };
    assert!(refused.contains("QUORATE CLASS group"), "{refused}");
    assert_eq!(link.run_command(&["QUORATE", "CLASS", "group"]).unwrap(), ok());
    let (reply, volatile) = took(&mut link, &["SET", "volatile", "1"]);
    assert_eq!(reply, ok());
    assert!(volatile < FLUSH, "{volatile:?}");

    let id = cluster.status(leader).unwrap()["cluster"].as_str().unwrap().to_owned();
    cluster.kill_all_at_once();
    let mut found = 0;
    for node in 1..=3 {
        let data = cluster.node(node).spec.data_folder.clone();
        found += u32::from(recovers(&data, &id, "durable"));
    }
    assert!(found >= 2, "in {found} folders");
}

/// Sends a command to the log service. Returns the status and the slot in the reply, and the
/// latency.
fn append(stream: &mut TcpStream, command: &[u8]) -> (u8, u64, Duration) {
    let began = Instant::now();
    let mut frame = Vec::new();
    frames::append_command(command, &mut frame);
    stream.write_all(&frame).unwrap();
    let said = reply(stream);
    let slot = said[1..].try_into().map_or(0, u64::from_le_bytes);
    (said[0], slot, began.elapsed())
}

fn reply(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; frames::LENGTH_BYTES];
    stream.read_exact(&mut length).unwrap();
    let mut reply = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply
}

/// A client that requests memory waits for no disk, and a reply at the cluster's class implies that
/// everything earlier is decided.
#[test]
fn a_client_of_a_durable_cluster_is_told_when_its_command_is_in_memory() {
    let flush = FLUSH.as_millis().to_string();
    let flags = ["--store", "none", "--disk-flush-ms", &flush];
    let cluster = Cluster::start(3, &[&flags[..], &HOLD].concat());
    let leader = cluster.leader();
    let asked = (leader % 3) as usize;
    let mut stream = TcpStream::connect(&cluster.clients()[asked]).unwrap();
    stream.set_nodelay(true).unwrap();
    let class = |stream: &mut TcpStream, asked: AnswerClass| {
        stream.write_all(asked.as_word()).unwrap();
        let said = reply(stream);
        assert_eq!(said, [&[CommandStatus::Done as u8], asked.name().as_bytes()].concat());
    };
    let (status, first, _) = append(&mut stream, b"first");
    assert_eq!(status, CommandStatus::Done as u8);
    class(&mut stream, AnswerClass::Volatile);
    assert_eq!(append(&mut stream, b"refused").0, CommandStatus::Level as u8);
    let admin = cluster.nodes.admin_addresses()[asked].clone();
    wait_for("the newest level", || {
        let asked = ["member", "feature", "--raise", "--yes", "--admin", &admin, "--json"];
        let (code, said) = quorate_json(&asked);
        (code == 0 && said["level"] == said["supports"]).then_some(())
    });
    wait_for("the node to hear of it", || {
        (append(&mut stream, b"taken").0 != CommandStatus::Level as u8).then_some(())
    });
    let (status, slot, took) = append(&mut stream, b"early");
    assert_eq!(status, CommandStatus::InMemory as u8);
    assert!(slot > first && took < FLUSH, "slot {slot} after {took:?}");
    class(&mut stream, AnswerClass::Group);
    let (status, later, _) = append(&mut stream, b"");
    assert_eq!(status, CommandStatus::Done as u8);
    assert!(later > slot);
}
