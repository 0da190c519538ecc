//! Malicious or careless clients of a real node. The node's memory stays bounded, and other clients
//! are not affected.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
};

use crate::common::{NodeProcess, http, patient, single, wait_for};
use quorate_client::{Client, Reply};

const MIB: usize = 1 << 20;

fn serve(flags: &[&str]) -> (tempfile::TempDir, NodeProcess) {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::spawn(single(&folder.path().join("n"), flags)).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    wait_for("it serves", || (http(&node.ready.admin, "/ready")?.0 == 200).then_some(()));
    (folder, node)
}

fn client(node: &NodeProcess) -> Client {
    Client::new(std::slice::from_ref(&node.ready.client), patient())
}

fn metric(node: &NodeProcess, name: &str) -> u64 {
    let (code, text) = http(&node.ready.admin, "/metrics").unwrap();
    assert_eq!(code, 200);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Returns the peak memory use of a node's process in bytes.
fn peak(node: &NodeProcess) -> usize {
    let text = fs::read_to_string(format!("/proc/{}/status", node.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// Sends bytes and ignores errors, since the node may have closed the connection.
fn push(stream: &mut TcpStream, bytes: &[u8]) {
    match stream.write_all(bytes) {
        Ok(()) => {}
        Err(error)
            if [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Forty clients request 32 MiB each and read nothing. The largest consumer is disconnected and
/// logged. All of them together use no more memory than the flag allows, and other clients
/// continue.
#[test]
fn clients_that_do_not_read_cost_no_more_than_their_memory() {
    let (_folder, node) = serve(&["--client-memory", "134217728"]);
    let mut good = client(&node);
    let value = vec![b'x'; MIB];
    good.run(&[b"SET", b"large", &value]).unwrap();
    let before = peak(&node);
    let mut deaf = Vec::new();
    for n in 0..40 {
        let mut stream = TcpStream::connect(&node.ready.client).unwrap();
        let mut script = b"GET large\r\n".repeat(32);
        if n % 2 == 0 {
            // If the pipeline contains a write, the reads take another path.
            script.splice(0..0, *b"SET small 1\r\n");
            script.extend_from_slice(b"SET small 2\r\n");
        }
        push(&mut stream, &script);
        deaf.push(stream);
        assert_eq!(good.run(&[b"SET", b"other", b"1"]).unwrap(), Reply::Simple("OK".into()));
        assert_eq!(good.run(&[b"GET", b"other"]).unwrap(), Reply::Bulk(b"1".to_vec()));
    }
    let shed = || metric(&node, "quorate_net_clients_shed_total");
    wait_for("some are closed", || (shed() >= 10).then_some(()));
    assert_eq!(good.run(&[b"GET", b"large"]).unwrap(), Reply::Bulk(value));
    assert!(metric(&node, "quorate_client_held_bytes") < 128 * MIB as u64);
    // The limit may be exceeded by one reply and the allocator's overhead.
    let grown = peak(&node) - before;
    assert!(grown < 220 * MIB, "{} MiB", grown / MIB);
    let log = fs::read_to_string(&node.spec.log_path).unwrap();
    assert!(log.contains("held most of the memory for clients"), "{log}");
}

/// 60 clients queue 7 MiB between MULTI and EXEC, and 20 others leave a command unfinished.
#[test]
fn clients_that_do_not_finish_cost_no_more_than_their_memory() {
    let (_folder, node) = serve(&["--client-memory", "134217728"]);
    let mut good = client(&node);
    good.run(&[b"SET", b"other", b"1"]).unwrap();
    let before = peak(&node);
    let value = vec![b'x'; 7 * MIB];
    let set = [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n", &bulk(&value)[..]].concat();
    let mut hoarders = Vec::new();
    for n in 0..80 {
        let mut stream = TcpStream::connect(&node.ready.client).unwrap();
        let whole = n % 4 > 0;
        if whole {
            push(&mut stream, b"MULTI\r\n");
        }
        push(&mut stream, if whole { &set } else { &set[..set.len() - 3] });
        hoarders.push(stream);
        assert_eq!(good.run(&[b"INCR", b"n"]).unwrap(), Reply::Integer(n + 1));
    }
    let shed = || metric(&node, "quorate_net_clients_shed_total");
    wait_for("some are closed", || (shed() >= 20).then_some(()));
    let grown = peak(&node) - before;
    assert!(grown < 220 * MIB, "{} MiB", grown / MIB);
    // The last client is not the largest consumer, so its transaction still exists.
    let last = hoarders.last_mut().unwrap();
    push(last, b"EXEC\r\n");
    let expected = b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n";
    let mut reply = vec![0; expected.len()];
    last.read_exact(&mut reply).unwrap();
    assert_eq!(reply, expected);
}

/// A request that a web page could send is refused before its body is read, and log lines are
/// rate-limited.
#[test]
fn a_web_page_cannot_write() {
    let (_folder, node) = serve(&[]);
    for _ in 0..50 {
        let mut stream = TcpStream::connect(&node.ready.client).unwrap();
        let body = "SET page 1\r\nSET page 2\r\n";
        push(
            &mut stream,
            format!(
                "POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{body}",
                node.ready.client,
                body.len()
            )
            .as_bytes(),
        );
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "-ERR Protocol error: HTTP is not spoken here\r\n");
    }
    assert_eq!(client(&node).run(&[b"GET", b"page"]).unwrap(), Reply::Nil);
    let log = fs::read_to_string(&node.spec.log_path).unwrap();
    let lines = log.matches("does not speak the Redis protocol").count();
    assert!((1..20).contains(&lines), "{lines} lines: {log}");
}
