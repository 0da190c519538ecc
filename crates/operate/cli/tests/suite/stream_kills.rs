//! A long byte stream through a real group whose nodes are killed. Every acknowledged byte is on
//! every node at its position.

use std::{
    fs,
    io::Write as _,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use crate::common::{Cluster, START_TIMEOUT, wait_for};
use quorate_client::stream::{
    Error, OpenMode, Options, ProgressHandle, ReadEnd, StreamReader, StreamWriter, Streams,
};
use quorate_testbed::stream_bytes::{fill_bytes, first_difference};

const MIB: u64 = 1 << 20;
const NODES: u32 = 3;
/// Size of one write in bytes.
const CHUNK: usize = 256 << 10;

fn options() -> Options {
    Options {
        // Limit on bytes in flight when a node dies.
        buffer_bytes_max: 8 << 20,
        open: START_TIMEOUT,
        give_up_timeout: START_TIMEOUT,
        ..Options::default()
    }
}

fn addresses(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.nodes.all().iter();
    nodes.map(|node| node.ready.stream.clone()).collect()
}

/// Writer whose bytes follow from their positions, with its progress.
struct Writing {
    watch: ProgressHandle,
    /// Lets the writer pass the position at which it pauses.
    resume: mpsc::Sender<()>,
    end: JoinHandle<Result<u64, Error>>,
}

impl Writing {
    /// Starts a writer that writes up to position `to`, and pauses at `pause` until it is told to
    /// resume. With `finish`, it then closes the stream permanently.
    fn start(nodes: &[String], how: OpenMode, pause: Option<u64>, to: u64, finish: bool) -> Self {
        let writer = StreamWriter::open(nodes, "long", how, options());
        let mut writer = writer.unwrap_or_else(|error| panic!("{error}"));
        let watch = writer.progress_handle();
        let (resume, resumed) = mpsc::channel();
        let mut pause = pause;
        let end = thread::spawn(move || {
            let mut chunk = vec![0; CHUNK];
            while writer.position() < to {
                if pause.is_some_and(|at| writer.position() >= at) {
                    pause = None;
                    resumed.recv().expect("the test resumes the writer");
                }
                let count = usize::try_from(to - writer.position()).unwrap_or(CHUNK);
                let chunk = &mut chunk[..count.min(CHUNK)];
                fill_bytes(0, writer.position(), chunk);
                if let Err(error) = writer.write_all(chunk) {
                    return Err(Error::from_io_error(&error).unwrap().clone());
                }
            }
            match finish {
                true => writer.finish(),
                false => writer.detach(),
            }
        });
        Self { watch, resume, end }
    }

    fn wait_durable(&self, position: u64) {
        wait_for(&format!("position {position} to be durable"), || {
            let durable = self.watch.progress().durable_position >= position;
            // The reason for which a writer failed is reported at the end.
            (durable || self.end.is_finished()).then_some(())
        });
    }

    fn end(self) -> u64 {
        let end = self.end.join().unwrap();
        end.unwrap_or_else(|error| panic!("{error}; {:?}", self.watch.progress()))
    }
}

/// Checks that a single node has the whole stream.
fn compare(address: &str, end: u64) {
    let mut reader = StreamReader::new(&[address], "long", options());
    loop {
        let position = reader.position();
        let bytes = reader.next_bytes();
        let bytes = bytes.unwrap_or_else(|error| panic!("{address}, at {position}: {error}"));
        if bytes.is_empty() {
            break;
        }
        let other = first_difference(0, position, bytes);
        assert_eq!(other, None, "{address}, bytes from {position} on");
        let count = bytes.len();
        std::io::BufRead::consume(&mut reader, count);
    }
    let expected = ReadEnd { position: end, is_finished: true };
    assert_eq!(reader.end(), Some(expected), "{address}");
}

/// Returns the number of files that a process has open.
fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

#[test]
fn nothing_acknowledged_is_lost_whoever_is_killed() {
    nothing_is_lost("auto");
}

/// The I/O engine without io_uring produces the same bytes on all nodes.
#[test]
fn nothing_acknowledged_is_lost_without_uring() {
    nothing_is_lost("portable");
}

/// Writes a stream of 256 MiB. Its owner is killed as a follower, then as the leader. Finally all
/// nodes are killed at once.
fn nothing_is_lost(engine: &str) {
    let mut cluster = Cluster::start(NODES, &["--store", "memory", "--stream-engine", engine]);
    let nodes = addresses(&cluster);

    // The writer knows one follower, which owns what it writes.
    let leader = cluster.leader();
    let owner = (1..=NODES).find(|id| *id != leader).unwrap();
    let alone = std::slice::from_ref(&nodes[owner as usize - 1]);
    let writing = Writing::start(alone, OpenMode::Create, None, 64 * MIB, false);
    writing.wait_durable(24 * MIB);
    cluster.nodes.kill(&[owner]).unwrap();
    cluster.nodes.restart(&[owner]).unwrap();
    assert_eq!(writing.end(), 64 * MIB);

    // This writer finds the leader by itself. Its pause leaves bytes to write after the last kill.
    let writing = Writing::start(&nodes, OpenMode::Append, Some(240 * MIB), 256 * MIB, true);
    writing.wait_durable(112 * MIB);
    let leader = cluster.leader();
    assert_eq!(
        writing.watch.progress().address,
        nodes[leader as usize - 1],
        "the leader is the owner"
    );
    cluster.nodes.kill(&[leader]).unwrap();
    // The other nodes continue without the killed one.
    let before = writing.watch.progress().durable_position;
    writing.wait_durable(before + 16 * MIB);
    cluster.nodes.restart(&[leader]).unwrap();
    writing.wait_durable(176 * MIB);
    cluster.kill_all_at_once();
    writing.resume.send(()).unwrap();
    cluster.restart_all();
    let reconnects = writing.watch.clone();
    assert_eq!(writing.end(), 256 * MIB);
    assert!(reconnects.progress().reconnect_count >= 2, "it met both kills");

    let info = Streams::new(&nodes, options()).stat("long").unwrap();
    assert_eq!((info.start, info.durable_end, info.is_finished), (0, 256 * MIB, true));
    let (sender, compared) = mpsc::channel();
    for node in &nodes {
        let (node, sender) = (node.clone(), sender.clone());
        thread::spawn(move || {
            compare(&node, 256 * MIB);
            sender.send(()).unwrap();
        });
    }
    drop(sender);
    assert_eq!(compared.iter().count(), nodes.len(), "equal on every node");
    for process in cluster.nodes.process_ids() {
        // Files of a stream are opened only when needed.
        assert!(descriptors(process) < 200, "{}", descriptors(process));
    }
}
