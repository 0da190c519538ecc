//! Byte-stream writers over real sockets, against simulated nodes that follow or violate the raw
//! protocol. Tests check counts, never times.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use quorate_bench::{
    load::{LoadPlan, OfferedLoad},
    schedule::{Nanos, SECOND},
    stream::{StreamSamples, generator::WriterSettings, speech::StreamProtocol},
};

const WRITE_BYTES: usize = 100;
const GATHERED_BYTES: usize = 64;

type Serve = fn(TcpStream);

/// Starts a node that handles every connection with `serve`.
fn node(serve: Serve) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.unwrap();
            thread::spawn(move || serve(socket));
        }
    });
    address
}

/// Reads all bytes from the socket, and sends back the counts that `answer` computes from the
/// numbers of new bytes.
fn take(socket: TcpStream, answer: fn(u32) -> u32) {
    take_in_parts(socket, 1 << 16, answer);
}

/// Reads all bytes, at most `bytes` at a time, and sends back the counts that `answer` computes.
fn take_in_parts(mut socket: TcpStream, bytes: usize, answer: fn(u32) -> u32) {
    let mut input = vec![0; bytes];
    while let Ok(count) = socket.read(&mut input)
        && count > 0
    {
        let said = answer(u32::try_from(count).unwrap()).to_le_bytes();
        if socket.write_all(&said).is_err() {
            return;
        }
    }
}

/// Runs writers until every acknowledgement has arrived, even if a busy machine takes long.
fn run(address: SocketAddr, offer: OfferedLoad, streams: u32, write_bytes: usize) -> StreamSamples {
    patient(60 * SECOND, address, offer, streams, write_bytes)
}

fn patient(
    patience: Nanos,
    address: SocketAddr,
    offer: OfferedLoad,
    streams: u32,
    write_bytes: usize,
) -> StreamSamples {
    let plan = LoadPlan {
        offer,
        connections: streams,
        warmup_ns: 0,
        measure_ns: SECOND / 4,
        reply_timeout_ns: patience,
    };
    let writers = WriterSettings {
        protocol: StreamProtocol::Raw,
        address,
        write_bytes,
        gathers_writes: write_bytes == GATHERED_BYTES,
        cpus: None,
        name_prefix: String::new(),
        retention: None,
    };
    let running = writers.start(plan).unwrap();
    assert!(running.wait_started().is_some());
    running.finish().unwrap()
}

#[test]
fn every_write_is_acknowledged_by_its_last_byte() {
    let address = node(|socket| take(socket, |count| count));
    let written = run(address, OfferedLoad::Open { per_second: 4000 }, 4, WRITE_BYTES);
    let samples = &written.samples;
    assert!((1..=1000).contains(&samples.sent_count), "{}", samples.sent_count);
    assert_eq!(samples.latencies.count(), samples.sent_count);
    assert_eq!((samples.errors, samples.lost), (0, 0));
    let acknowledged = &written.acknowledged;
    assert_eq!(acknowledged.bytes / WRITE_BYTES as u64, samples.completed);
    assert!((1..=samples.completed).contains(&acknowledged.count));
    let closed = run(address, OfferedLoad::Closed { outstanding: 10 }, 3, WRITE_BYTES);
    assert_eq!(closed.samples.lost, 0);
    assert_eq!(closed.samples.latencies.count(), closed.samples.sent_count);
    // A write due just before the end may be sent just after it.
    let due = closed.samples.latencies.count();
    let called = closed.acknowledged.latencies_from_call.count();
    assert!((due.saturating_sub(10)..=due).contains(&called), "{due} due, {called} called");
}

/// Writes that become due after an acknowledgement share one system call.
#[test]
fn writes_that_are_due_together_go_together() {
    let address = node(|socket| take(socket, |count| count));
    let together = OfferedLoad::Closed { outstanding: 32 };
    let StreamSamples { samples, acknowledged } = run(address, together, 1, GATHERED_BYTES);
    assert_eq!((samples.errors, samples.lost), (0, 0));
    assert!(acknowledged.count > 0);
    assert_eq!(samples.completed, acknowledged.count * 32);
    assert_eq!(acknowledged.bytes, samples.completed * GATHERED_BYTES as u64);
}

/// No write is lost when the node is slower than the writer. The writer's socket is full repeatedly
/// and accepts calls only in part.
#[test]
fn no_write_is_lost_where_many_are_outstanding() {
    let address = node(|socket| take_in_parts(socket, 1000, |count| count));
    let many = OfferedLoad::Closed { outstanding: 400_000 };
    let samples = run(address, many, 2, GATHERED_BYTES).samples;
    assert_eq!((samples.errors, samples.lost), (0, 0));
    assert_eq!(samples.latencies.count(), samples.sent_count);
    assert!(samples.completed > 0);
}

/// An acknowledgement of bytes that were never written is invalid. Outstanding writes are lost when
/// the node disconnects.
#[test]
fn a_node_that_miscounts_or_goes_away_loses_what_was_outstanding() {
    let nodes: [(Serve, &str); 2] =
        [(|socket| take(socket, |count| count + 1), "beyond what was"), (drop, "")];
    for (serve, why) in nodes {
        let written = run(node(serve), OfferedLoad::Closed { outstanding: 8 }, 1, WRITE_BYTES);
        assert!((1..=8).contains(&written.samples.lost));
        let said = written.samples.first_error.unwrap();
        assert!(said.contains(why), "{said}");
    }
}

/// A node that reads no bytes blocks the writer, which stops sending and eventually gives up.
#[test]
fn a_node_that_takes_nothing_holds_the_writer_up() {
    let address = node(|socket| {
        let mut one = [0; 1];
        let _ = socket.peek(&mut one);
        thread::park();
    });
    let per_second = 20_000;
    let offer = OfferedLoad::Open { per_second };
    let written = patient(SECOND / 4, address, offer, 1, 64 << 10);
    let lost = written.samples.lost;
    assert!((1..1000).contains(&lost), "of 5000 that were meant: {lost}");
    assert_eq!(written.acknowledged.bytes, 0);
}
