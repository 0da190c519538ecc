//! Real processes with few file descriptors, which the log, the store, clients and operators share.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::common::{
    Cluster, NodeProcess, START_TIMEOUT, Signal, http, refused, signal, single, wait_end, wait_for,
};
use quorate_client::Reply;

const LIMIT: usize = 256;
/// Number of descriptors that must remain free for occasional use by the store.
const SPARE: usize = 64;
/// Size of a value in bytes. A record fills most of a 64 KiB segment, so that there are more
/// segments than descriptors.
const VALUE_BYTES: usize = 40 << 10;
const WRITES: usize = LIMIT + 50;

/// Returns a script that runs the binary with limits on descriptors.
pub(crate) fn limited(folder: &Path, limits: &str) -> PathBuf {
    let wrapper = folder.join("limited");
    let program = crate::common::program();
    let text = format!("#!/bin/sh\n{limits}\nexec {} \"$@\"\n", program.display());
    fs::write(&wrapper, text).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    wrapper
}

fn open_files(node: &NodeProcess) -> usize {
    fs::read_dir(format!("/proc/{}/fd", node.id())).unwrap().count()
}

fn segments(node: &NodeProcess) -> usize {
    fs::read_dir(node.spec.data_folder.join("log")).unwrap().count()
}

fn value(number: usize) -> Vec<u8> {
    let mut value = number.to_string().into_bytes();
    value.resize(VALUE_BYTES, b'.');
    value
}

fn set(number: usize) -> Vec<u8> {
    let (key, value) = (format!("k{number}"), value(number));
    let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len());
    [head.as_bytes(), &value, b"\r\n"].concat()
}

/// A client that sends requests and waits for replies.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(START_TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn run(&mut self, bytes: &[u8]) -> String {
        self.0.get_mut().write_all(bytes).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn get(&mut self, number: usize) -> Vec<u8> {
        let length = self.run(format!("GET k{number}\r\n").as_bytes());
        assert_eq!(length, format!("${VALUE_BYTES}\r\n"));
        let mut bytes = vec![0; VALUE_BYTES + 2];
        self.0.read_exact(&mut bytes).unwrap();
        bytes.truncate(VALUE_BYTES);
        bytes
    }
}

/// Number of connections that exceeds what a node accepts at any port, but fits into the kernel's
/// backlog.
const CROWD: usize = 150;

/// Opens as many client, admin and peer connections as possible, and returns them open.
fn crowd(node: &NodeProcess) -> Vec<TcpStream> {
    let addresses = [&node.ready.client, &node.ready.admin, &node.ready.peer];
    let crowd = addresses
        .into_iter()
        .flat_map(|address| (0..CROWD).map(move |_| TcpStream::connect(address).unwrap()));
    crowd.collect()
}

#[test]
fn a_log_of_more_segments_than_descriptors_with_a_crowd_at_all_ports() {
    for store in ["memory", "lsm"] {
        let folder = tempfile::tempdir().unwrap();
        let mut spec =
            single(&folder.path().join("node"), &["--store", store, "--log-segment", "65536"]);
        spec.program = limited(folder.path(), &format!("ulimit -n {LIMIT}"));
        let mut node = NodeProcess::spawn(spec).unwrap();
        node.wait_ready().unwrap();
        let mut client = Raw::connect(&node.ready.client);
        assert_eq!(client.run(&set(0)), "+OK\r\n");
        let crowd = crowd(&node);
        for number in 1..WRITES {
            assert_eq!(client.run(&set(number)), "+OK\r\n", "{number}");
        }
        assert!(segments(&node) > LIMIT, "{}", segments(&node));
        let open = open_files(&node);
        assert!(open <= LIMIT - SPARE, "{open} descriptors are in use");
        drop(crowd);
        wait_for("a free admin port", || http(&node.ready.admin, "/health"));

        signal(&node, Signal::KILL);
        wait_end(&mut node);
        node.restart().unwrap();
        let mut client = Raw::connect(&node.ready.client);
        for number in 0..WRITES {
            assert!(client.get(number) == value(number), "{number} differs");
        }
        assert_eq!(client.run(&set(0)), "+OK\r\n");
    }
}

/// A follower that was down receives records from segments that are not open.
#[test]
fn a_follower_catches_up_from_a_log_of_more_segments_than_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let program = limited(folder.path(), &format!("ulimit -n {LIMIT}"));
    let mut cluster =
        Cluster::start_program(&program, 3, &["--store", "memory", "--log-segment", "65536"]);
    let follower = cluster.leader() % 3 + 1;
    cluster.node(follower).kill().unwrap();
    let mut client = cluster.client_from(cluster.leader());
    for number in 0..WRITES {
        let key = format!("k{number}");
        client.run(&[b"SET", key.as_bytes(), &value(number)]).unwrap();
    }
    cluster.node(follower).restart().unwrap();
    cluster.wait_until_equal();
    let last = format!("k{}", WRITES - 1);
    let read = cluster.client_of(follower).read(&[b"GET", last.as_bytes()]);
    assert_eq!(read, Ok(Reply::Bulk(value(WRITES - 1))));
    for node in cluster.nodes.all() {
        assert!(open_files(node) < LIMIT);
    }
}

/// A node raises its soft limit, which exists only for programs that cannot handle high
/// descriptors.
#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = single(&folder.path().join("node"), &["--store", "memory"]);
    spec.program = limited(folder.path(), "ulimit -Sn 64; ulimit -Hn 300");
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", node.id())).unwrap();
    let line = limits.lines().find(|line| line.contains("open files"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    assert_eq!(words[3..5], ["300", "300"]);
}

#[test]
fn a_limit_that_is_too_low_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = single(&folder.path().join("node"), &[]);
    spec.program = limited(folder.path(), "ulimit -n 64");
    let (code, text) = refused(&spec);
    assert_eq!(code, 1);
    assert!(
        text.contains("the limit on open files is 64; this node needs at least 240")
            && text.contains("ulimit -n"),
        "{text}"
    );
    assert!(!spec.data_folder.exists());
}
