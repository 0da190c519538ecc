//! The byte stream address: the node that listens there, how clients learn of it, and its separate
//! protocol.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use crate::common::{
    NodeProcess, NodeSpec, START_TIMEOUT, http, patient, quorate_json, single, wait_for,
};
use quorate_client::{
    Client, Reply,
    stream::{ErrorCode as Refused, Options, StreamReader, Streams},
};
use quorate_core::node_id::NodeId;
use quorate_wire::streams::{
    ClientFrame, DecodedFrame, ErrorCode, NodeFrame, VERSION, decode_node_frame,
};

const DEFAULT: &str = "127.0.0.1:7453";

/// Returns the spec of a node without stream settings.
fn silent(data: &Path) -> NodeSpec {
    let mut spec = single(data, &[]);
    let at = spec.flags.iter().position(|flag| flag == "--stream");
    spec.flags.drain(at.unwrap()..at.unwrap() + 2);
    spec
}

fn serve(spec: NodeSpec) -> NodeProcess {
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    wait_for("a node that serves", || (http(&node.ready.admin, "/ready")?.0 == 200).then_some(()));
    node
}

/// Checks that the node executes commands.
fn counts(node: &NodeProcess) {
    let mut client = Client::new(std::slice::from_ref(&node.ready.client), patient());
    let counted = client.run(&[b"INCR".as_slice(), b"x"]);
    assert_eq!(counted, Ok(Reply::Integer(1)));
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(START_TIMEOUT)).unwrap();
    stream
}

/// Returns a node's reply to a client that sends only `said`.
fn told(address: &str, said: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    stream.write_all(said).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    heard
}

#[test]
fn commands_and_streams_have_a_door_each() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(single(&folder.path().join("n"), &[]));
    let mut hello = Vec::new();
    ClientFrame::Hello { version: VERSION }.encode(&mut hello);
    let welcome = NodeFrame::Welcome { version: VERSION, node: NodeId(1), leader: "" };
    let heard = told(&node.ready.stream, &hello);
    assert_eq!(decode_node_frame(&heard), Ok(DecodedFrame::Frame(welcome, heard.len())));

    let heard = told(&node.ready.stream, b"*1\r\n$4\r\nPING\r\n");
    let Ok(DecodedFrame::Frame(NodeFrame::Error { code, hint, .. }, used)) =
        decode_node_frame(&heard)
    else {
        panic!("{heard:?}");
    };
    assert_eq!((ErrorCode::from_number(code), used), (Some(ErrorCode::Malformed), heard.len()));
    assert!(hint.contains("--stream"), "{hint}");

    counts(&node);
    assert!(!told(&node.ready.client, &hello).starts_with(&heard[..1]));
}

#[test]
fn the_address_is_in_the_status() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(single(&folder.path().join("n"), &[]));
    let admin = &node.ready.admin;
    let (code, json) = quorate_json(&["status", "--admin", admin, "--json"]);
    assert_eq!(code, 0);
    let stream = &json["nodes"][0]["members"][0]["stream"];
    assert_eq!(stream, &node.ready.stream, "{json}");
}

/// Several nodes on one machine need no stream flag. An address that is given explicitly is bound,
/// or else causes an error.
#[test]
fn a_node_without_the_default_address_serves_no_streams_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    // The address is in use, by this process or another one.
    let _taken = TcpListener::bind(DEFAULT);
    let node = serve(silent(&folder.path().join("n")));
    assert_eq!(node.ready.stream, "");
    counts(&node);
    let notice = format!("no byte streams at this node: {DEFAULT} is in use");
    let said = wait_for("the notice", || {
        let said = fs::read_to_string(folder.path().join("n.log")).unwrap();
        said.contains(&notice).then_some(said)
    });
    assert_eq!(said.matches(&notice).count(), 1, "{said}");
    let (_, json) = quorate_json(&["status", "--admin", &node.ready.admin, "--json"]);
    assert!(json["nodes"][0]["members"][0]["stream"].is_null(), "{json}");
}

/// Reads all bytes that a node has of a stream, starting at position `from`.
fn read(node: &NodeProcess, name: &str, from: u64) -> Vec<u8> {
    let nodes = std::slice::from_ref(&node.ready.stream);
    let mut reader = StreamReader::new(nodes, name, Options::default()).from(from);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    bytes
}

fn pattern(count: usize) -> Vec<u8> {
    let words = (0..count as u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]);
    words.collect()
}

#[test]
fn a_bounded_stream_is_trimmed_without_being_asked() {
    const KEPT: usize = 512 << 10;
    let folder = tempfile::tempdir().unwrap();
    let node = serve(single(&folder.path().join("n"), &[]));
    let (data, path) = (pattern(3 * KEPT), folder.path().join("file"));
    fs::write(&path, &data).unwrap();
    let (kept, stream) = (KEPT.to_string(), &node.ready.stream);
    let (code, said) = quorate_json(&[
        "stream",
        "put",
        path.to_str().unwrap(),
        "--name",
        "a",
        "--retain-bytes",
        &kept,
        "--stream",
        stream,
        "--json",
    ]);
    assert_eq!(code, 0, "{said}");
    let mut streams = Streams::new(std::slice::from_ref(stream), Options::default());
    // Bytes within the retention limit are never removed.
    let start = wait_for("what is too much to be forgotten", || {
        let start = streams.stat("a").unwrap().start;
        assert!(start <= 2 * KEPT as u64, "{start}");
        (start > 0).then_some(start)
    });
    assert!(read(&node, "a", start) == data[usize::try_from(start).unwrap()..]);
    let mut gone = StreamReader::new(std::slice::from_ref(stream), "a", Options::default());
    let error = gone.next_bytes().unwrap_err();
    assert_eq!(error.code(), Some(Refused::Trimmed));
}

/// Sends bytes to the raw port. Returns the counts received.
fn send_raw(node: &NodeProcess, data: &[u8]) -> Vec<u32> {
    let mut socket = connect(&node.ready.stream_raw);
    let mut sending = socket.try_clone().unwrap();
    let data = data.to_vec();
    let sent = thread::spawn(move || {
        sending.write_all(&data).unwrap();
        sending.shutdown(Shutdown::Write).unwrap();
    });
    let mut heard = Vec::new();
    socket.read_to_end(&mut heard).unwrap();
    sent.join().unwrap();
    let (counts, rest) = heard.as_chunks();
    assert!(rest.is_empty(), "half a count");
    counts.iter().map(|count| u32::from_le_bytes(*count)).collect()
}

fn total(counts: &[u32]) -> u64 {
    counts.iter().map(|count| u64::from(*count)).sum()
}

#[test]
fn each_connection_of_the_raw_port_is_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let raw = ["--stream-raw", "127.0.0.1:0"];
    let mut node = serve(single(&folder.path().join("n"), &raw));
    let data = pattern(3 << 20);
    let counts = send_raw(&node, &data);
    assert_eq!(total(&counts), data.len() as u64);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert!(read(&node, "raw-1-1", 0) == data);
    assert_eq!(total(&send_raw(&node, b"")), 0);

    // A broken connection leaves its stream open, with the bytes that were counted.
    let mut socket = connect(&node.ready.stream_raw);
    socket.write_all(b"abc").unwrap();
    let mut count = [0; 4];
    socket.read_exact(&mut count).unwrap();
    assert_eq!(u32::from_le_bytes(count), 3);
    // A node that stops does not close the stream on behalf of its client.
    node.kill().unwrap();
    drop(socket);
    let node = serve(single(&folder.path().join("n"), &raw));
    assert_eq!(send_raw(&node, b"def"), [3]);
    let mut streams = Streams::new(std::slice::from_ref(&node.ready.stream), Options::default());
    let list = streams.list().unwrap();
    let list: Vec<_> =
        list.iter().map(|info| (info.name.as_str(), info.durable_end, info.is_finished)).collect();
    let expected = [
        ("raw-1-1", data.len() as u64, true),
        ("raw-1-2", 0, true),
        ("raw-1-3", 3, false),
        ("raw-1-4", 3, true),
    ];
    assert_eq!(list, expected);
}

#[test]
fn nc_puts_a_file() {
    let help = Command::new("nc").arg("-h").output();
    let knows = |output: &std::process::Output| {
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        String::from_utf8_lossy(&said).contains("-N")
    };
    if !help.as_ref().is_ok_and(knows) {
        eprintln!("skipped: there is no nc that knows -N ({help:?})");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let raw = ["--stream-raw", "127.0.0.1:0"];
    let node = serve(single(&folder.path().join("n"), &raw));
    let (data, path) = (pattern(1 << 20), folder.path().join("file"));
    fs::write(&path, &data).unwrap();
    let (host, port) = node.ready.stream_raw.rsplit_once(':').unwrap();
    let mut nc = Command::new("nc");
    nc.args(["-N", host, port]).stdin(fs::File::open(&path).unwrap());
    let output = nc.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (counts, _) = output.stdout.as_chunks();
    let counts: Vec<u32> = counts.iter().map(|count| u32::from_le_bytes(*count)).collect();
    assert_eq!(total(&counts), data.len() as u64);
    assert!(read(&node, "raw-1-1", 0) == data);
}

/// The raw protocol has no errors. A client that cannot be served receives a reset, and the
/// operator a log line and a counter.
#[test]
fn a_raw_client_that_cannot_be_served_is_reset() {
    let folder = tempfile::tempdir().unwrap();
    let others = ["--node", "1", "--stream-raw", "127.0.0.1:0", "--client-timeout-ms", "200"];
    let mut spec = single(&folder.path().join("n"), &others);
    let peer = format!("127.0.0.1:{}", crate::common::free_port());
    spec = crate::common::with(spec, "--peer", &peer);
    let closed = [crate::common::free_port(), crate::common::free_port()];
    let cluster = format!("1={peer},2=127.0.0.1:{},3=127.0.0.1:{}", closed[0], closed[1]);
    spec.flags.extend(["--cluster".to_owned(), cluster]);
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    let mut socket = connect(&node.ready.stream_raw);
    let _ = socket.write_all(b"abc");
    let error = socket.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    // A thread of its own writes the lines.
    let said = wait_for("the line of the reset", || {
        let said = fs::read_to_string(folder.path().join("n.log")).unwrap();
        said.contains("reset the connection of a client").then_some(said)
    });
    assert!(said.contains("no leader was found in time"), "{said}");
    let (_, metrics) = http(&node.ready.admin, "/metrics").unwrap();
    assert!(metrics.contains("quorate_net_clients_reset_total 1\n"), "{metrics}");
}
