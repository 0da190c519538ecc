//! `quorate demo --stream`: writes a file to a byte stream while the leader is killed and
//! restarted. Afterwards compares the stream on every node with the file, byte for byte.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorate_admin::{
    progress::{Progress, ProgressReport},
    units::format_bytes as size,
};
use quorate_client::stream::{
    Error, OpenMode, Options, ProgressHandle, StreamReader, StreamWriter,
};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;

use super::{Demo, DemoArgs, KeptNode, POLL_INTERVAL, Service, format_result};
use crate::{output::Problem, stream::client_problem};

/// Name of the stream.
const STREAM_NAME: &str = "demo";
/// Size of the generated file in bytes.
const FILE_BYTES: u64 = 64 << 20;
/// Maximum size of one read, in bytes.
const READ_BYTES_MAX: usize = 256 << 10;
/// Maximum number of bytes that are sent but not durable, so that the leader is killed near the
/// middle of the file.
const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;

/// Result of `quorate demo --stream`.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    bytes: u64,
    seconds: f64,
    killed: u32,
    /// Time from the kill until the first byte became durable through another node, in
    /// milliseconds.
    failover_ms: Option<u64>,
    reconnects: u64,
    leader: u32,
    compared: Vec<Compared>,
    nodes: Vec<KeptNode>,
    folder: Option<PathBuf>,
}

/// Result of comparing the stream on one node with the file.
#[derive(Debug, Serialize)]
struct Compared {
    node: u32,
    /// Length of the common prefix of the stream and the file, in bytes.
    equal: u64,
    /// Number of bytes that are missing, different or surplus.
    lost: u64,
}

impl Outcome {
    pub(super) fn lost_bytes(&self) -> u64 {
        self.compared.iter().map(|one| one.lost).sum()
    }

    pub(super) fn human(&self) -> String {
        let failover = self.failover_ms.map(|ms| format!("{ms} ms"));
        let equal = self.compared.iter().filter(|one| one.lost == 0);
        let equal: Vec<String> = equal.map(|one| one.node.to_string()).collect();
        let rows = vec![
            ("put", size(self.bytes)),
            ("in", format!("{:.1} s", self.seconds)),
            ("killed", format!("node {}", self.killed)),
            ("failover", failover.unwrap_or_else(|| "unknown".to_owned())),
            ("reconnects", self.reconnects.to_string()),
            ("leader now", format!("node {}", self.leader)),
            ("equal, byte for byte", format!("nodes {}", equal.join(", "))),
        ];
        let mut text = format_result(
            rows,
            &self.nodes,
            self.folder.as_deref(),
            self.lost_bytes(),
            Service::Kv,
        );
        if let Some(node) = self.nodes.first() {
            let read = format!("quorate stream cat {STREAM_NAME} --stream {}", node.stream);
            text = text.replacen("  stop:", &format!("  read:    {read}\n  stop:"), 1);
        }
        text
    }
}

impl Demo {
    pub(super) fn put_file(&mut self, args: &DemoArgs) -> Result<Outcome, Problem> {
        let path = match &args.file {
            Some(path) => path.clone(),
            None => self.generate_file()?,
        };
        let (mut file, length) = open(&path)?;
        self.wait_until_serving(&format!("putting {} into stream {STREAM_NAME}", size(length)))?;
        let addresses = self.stream_addresses();
        let begun = Instant::now();
        let failed = |error: Error| client_problem(&error, format_args!("stream {STREAM_NAME}"));
        let options = Options { buffer_bytes_max: IN_FLIGHT_BYTES_MAX, ..Options::default() };
        let mut writer = StreamWriter::open(&addresses, STREAM_NAME, OpenMode::Create, options)
            .map_err(failed)?;
        let watch = writer.progress_handle();
        let drawing = ProgressThread::start(&watch, length, self.started_at);
        copy_bytes(&mut file, &mut writer, length / 2)?;
        let before = watch.progress().reconnect_count;
        let killing = Instant::now();
        let killed = self.kill_leader(|nodes, leader| nodes.kill(&[leader]))?;
        let over = Arc::new(AtomicBool::new(false));
        let failover = thread::spawn({
            let (watch, over) = (watch.clone(), Arc::clone(&over));
            move || wait_for_other_node(&watch, before, &over).map(|at| at - killing)
        });
        copy_bytes(&mut file, &mut writer, length / 4)?;
        self.restart_node(killed)?;
        copy_bytes(&mut file, &mut writer, u64::MAX)?;
        let end = writer.finish().map_err(failed)?;
        over.store(true, Ordering::SeqCst);
        drop(drawing);
        let seconds = begun.elapsed().as_secs_f64();
        self.print_line(&format!("all {} are durable", size(end)));
        let failover = failover.join().ok();
        let leader = self.wait_until_caught_up()?;
        let compared = self.compare_streams(&path)?;
        let (nodes, folder) = self.detach_nodes();
        Ok(Outcome {
            bytes: end,
            seconds,
            killed,
            failover_ms: failover
                .flatten()
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            reconnects: watch.progress().reconnect_count,
            leader,
            compared,
            nodes,
            folder,
        })
    }

    fn stream_addresses(&self) -> Vec<String> {
        let nodes = self.nodes.all().iter();
        nodes.map(|node| node.ready.stream.clone()).collect()
    }

    /// Generates a file of random bytes and returns its path.
    fn generate_file(&self) -> Result<PathBuf, Problem> {
        let path = self.nodes.data_folder().join("file");
        let made = || -> io::Result<()> {
            let mut file = File::create(&path)?;
            let mut piece = vec![0; READ_BYTES_MAX];
            let mut left = FILE_BYTES;
            while left > 0 {
                let count = getrandom(&mut piece[..], GetRandomFlags::empty())?;
                let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
                file.write_all(&piece[..count])?;
                left -= count as u64;
            }
            Ok(())
        };
        made().map_err(|error| Problem::io_error("make a file", &error))?;
        Ok(path)
    }

    /// Compares each node's own copy of the stream with the file.
    fn compare_streams(&self, path: &Path) -> Result<Vec<Compared>, Problem> {
        let mut compared = Vec::new();
        for node in self.nodes.all() {
            let (mut file, length) = open(path)?;
            let addresses = std::slice::from_ref(&node.ready.stream);
            let mut reader = StreamReader::new(addresses, STREAM_NAME, Options::default());
            let found = compare_with_file(&mut reader, &mut file);
            let (equal, had) =
                found.map_err(|error| Problem::io_error("compare a node with the file", &error))?;
            let node = node.ready.node;
            self.print_line(&format!("node {node}: {} equal", size(equal)));
            compared.push(Compared { node, equal, lost: length.max(had) - equal });
        }
        Ok(compared)
    }
}

fn open(path: &Path) -> Result<(BufReader<File>, u64), Problem> {
    let opened = File::open(path).and_then(|file| {
        let length = file.metadata()?.len();
        Ok((BufReader::with_capacity(READ_BYTES_MAX, file), length))
    });
    opened.map_err(|error| Problem::io_error(format_args!("open {}", path.display()), &error))
}

/// Copies the next bytes of the file to the stream, at most `most`.
fn copy_bytes(
    file: &mut BufReader<File>,
    writer: &mut StreamWriter,
    most: u64,
) -> Result<(), Problem> {
    let copied = io::copy(&mut file.take(most), writer);
    copied.map(drop).map_err(|error| match Error::from_io_error(&error) {
        Some(refused) => client_problem(refused, format_args!("stream {STREAM_NAME}")),
        None => Problem::io_error("read the file", &error),
    })
}

/// Returns the length of the common prefix and the length of the stream, in bytes.
fn compare_with_file(
    stream: &mut StreamReader,
    file: &mut BufReader<File>,
) -> io::Result<(u64, u64)> {
    let (mut equal, mut same, mut had) = (0, true, 0);
    loop {
        let bytes = stream.fill_buf()?;
        if bytes.is_empty() {
            return Ok((equal, had));
        }
        let own = file.fill_buf()?;
        let count = match own.is_empty() {
            true => bytes.len(),
            false => bytes.len().min(own.len()),
        };
        let pairs = bytes.iter().zip(own).take_while(|(a, b)| a == b).count();
        if same {
            equal += pairs as u64;
            same = pairs == count;
        }
        let own = count.min(own.len());
        stream.consume(count);
        file.consume(own);
        had += count as u64;
    }
}

/// Returns the time at which a byte first became durable on a connection opened after the first
/// `connections`. Older connections do not count, because acknowledgements of the dead leader may
/// still arrive on them.
fn wait_for_other_node(
    watch: &ProgressHandle,
    connections: u64,
    over: &AtomicBool,
) -> Option<Instant> {
    let mut known = None;
    loop {
        let last = over.load(Ordering::SeqCst);
        let (progress, now) = (watch.progress(), Instant::now());
        if progress.reconnect_count > connections {
            let opened_at = *known.get_or_insert(progress.durable_position);
            if progress.durable_position > opened_at {
                return Some(now);
            }
        }
        if last {
            return None;
        }
        thread::sleep(POLL_INTERVAL / 20);
    }
}

/// A thread that draws the progress until dropped.
struct ProgressThread {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ProgressThread {
    fn start(watch: &ProgressHandle, length: u64, started: Instant) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (watch, stopped) = (watch.clone(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut told = Progress::start();
            while !stopped.load(Ordering::SeqCst) {
                thread::sleep(POLL_INTERVAL);
                told.report(|| {
                    progress_report(started.elapsed(), watch.progress().durable_position, length)
                });
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn progress_report(after: Duration, durable: u64, length: u64) -> ProgressReport {
    let seconds = after.as_secs_f64();
    let durable_bytes = format_args!("{} durable", size(durable));
    ProgressReport::with_share(format_args!("{seconds:5.1} s  "), (durable, length), durable_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_durable_bytes() {
        let shown = progress_report(Duration::from_millis(2500), 32 << 20, 64 << 20);
        let expected =
            ProgressReport::with_share("  2.5 s  ", (32 << 20, 64 << 20), "32 MiB durable");
        assert_eq!(shown, expected);
    }
}
