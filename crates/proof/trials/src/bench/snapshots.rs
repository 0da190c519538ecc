//! Snapshots of a large store in memory: their cost to concurrent writes, the duration of a
//! restart, and the time until a follower that missed all of it has caught up.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::{
    nodes::{NodeCluster, START_TIMEOUT},
    run, wait,
};

use quorate_bench::{figure::median, load::OfferedLoad, samples::Samples};

use super::{
    BenchOptions, load_average, to_float,
    writes::{self, RandomWrites, VALUE_BYTES},
};
use crate::{
    nodes,
    shell::{self, Failed},
};

/// Size of the benchmark.
struct BenchSize {
    round_count: usize,
    /// Keys of the node whose snapshot is taken, and of the group whose follower misses all writes.
    key_count: u64,
    missed_keys: u64,
    /// Number of missed writes to each key.
    write_passes: u64,
    /// Maximum size of a log, in bytes. It must exceed the bytes written while a snapshot is sent:
    /// beyond this size the sender drops the snapshot and the log that follows it.
    log_bytes_max: u64,
    /// Limit for a throttled snapshot, in bytes per second.
    transfer_limit: u64,
    /// Rate of the concurrent load, per second.
    load_rate: u64,
    load_duration: Duration,
}

const LARGE_SIZE: BenchSize = BenchSize {
    round_count: 5,
    key_count: 2_000_000,
    missed_keys: 300_000,
    write_passes: 6,
    log_bytes_max: 1 << 30,
    transfer_limit: 200 << 20,
    load_rate: 20_000,
    load_duration: Duration::from_secs(6),
};
const SMALL_SIZE: BenchSize = BenchSize {
    round_count: 2,
    key_count: 200_000,
    missed_keys: 100_000,
    write_passes: 4,
    log_bytes_max: 256 << 20,
    transfer_limit: 50 << 20,
    load_rate: 20_000,
    load_duration: Duration::from_secs(2),
};
/// Snapshot ratio so high that, after the first snapshot, snapshots are taken only on request.
const NEVER_RATIO: &str = "1000";
const RECEIVED_METRIC: &str = "quorate_snapshot_bytes_received_total ";
const MIB: f64 = 1_048_576.0;

/// Runs all parts, or the named one.
pub(super) fn run(wish: BenchOptions, part: Option<&str>) -> Result<(), Failed> {
    shell::build_programs()?;
    let size = if wish.quick { SMALL_SIZE } else { LARGE_SIZE };
    println!(
        "durable, values of {VALUE_BYTES} bytes; load of the machine before: {}",
        load_average()
    );
    if part.is_none_or(|part| part == "one") {
        measure_single_node(&size)?;
    }
    if part.is_none_or(|part| part == "behind") {
        measure_catching_up(&size)?;
    }
    // This part takes minutes, and three times the disk space of its data.
    if part == Some("lsm") {
        measure_store_on_disk(&size)?;
    }
    Ok(())
}

/// Measures snapshots of a store on disk during writes.
fn measure_store_on_disk(size: &BenchSize) -> Result<(), Failed> {
    let size = BenchSize { key_count: size.key_count * 5 / 2, ..*size };
    let mut nodes = start_filled("lsm", &size)?;
    measure_snapshots_beside_load(&mut nodes, &size)
}

/// Measures snapshots during writes, and restarts, of one node.
fn measure_single_node(size: &BenchSize) -> Result<(), Failed> {
    let mut nodes = start_filled("memory", size)?;
    measure_snapshots_beside_load(&mut nodes, size)?;
    measure_restarts(&mut nodes, size)
}

/// Starts a node and writes all keys to it.
fn start_filled(store: &str, size: &BenchSize) -> Result<NodeCluster, Failed> {
    let limit = size.transfer_limit.to_string();
    let flags = ["--store", store, "--snapshot-ratio", NEVER_RATIO, "--transfer-limit", &limit];
    let nodes = nodes::start_serving(1, &flags)?;
    let address = nodes.client_addresses().remove(0);
    let rate = writes::fill_keys(&address, 0..size.key_count)?;
    println!(
        "one node, store {store}, {} keys, filled at {rate:.0}/s: RSS {:.0} MiB",
        size.key_count,
        memory_bytes(&nodes, "VmRSS")? / MIB
    );
    Ok(nodes)
}

fn measure_snapshots_beside_load(nodes: &mut NodeCluster, size: &BenchSize) -> Result<(), Failed> {
    let mut rows = Vec::new();
    for _ in 0..size.round_count {
        let row = measure_with_and_without(nodes, size)?;
        row.print();
        rows.push(row);
    }
    let middle = |of: &dyn Fn(&ConcurrentSnapshot) -> f64| median(rows.iter().map(of));
    println!(
        "median: p99 with a snapshot {:.2} of without (wanted 2 at most); RSS grows by {:.1} % (wanted 25), {:.0} MiB (wanted 256)",
        middle(&|row| row.with_snapshot.latencies.quantile_us(0.99)
            / row.without_snapshot.latencies.quantile_us(0.99)),
        middle(&|row| row.rss_increase / row.rss_before * 100.0),
        middle(&|row| row.rss_increase / MIB),
    );
    Ok(())
}

/// The same writes with and without a concurrent snapshot.
struct ConcurrentSnapshot {
    without_snapshot: Samples,
    with_snapshot: Samples,
    /// Duration of the snapshot.
    snapshot_duration: Duration,
    bytes: u64,
    /// Resident memory before the snapshot, and its largest increase during it.
    rss_before: f64,
    rss_increase: f64,
}

impl ConcurrentSnapshot {
    fn print(&self) {
        let shown = |samples: &Samples| {
            let us = |share| samples.latencies.quantile_us(share);
            format!("{:.0}/{:.0}/{:.0}", us(0.5), us(0.99), us(0.999))
        };
        let late_ms = |samples: &Samples| to_float(samples.worst_lateness) / 1e6;
        println!(
            "  p50/p99/p99.9 µs {} without, {} with a snapshot of {:.0} MiB in {:.1} s ({:.0} MiB/s); RSS {:.0} MiB + {:.0}; sent late {:.0}/{:.0} ms, load {}",
            shown(&self.without_snapshot),
            shown(&self.with_snapshot),
            to_float(self.bytes) / MIB,
            self.snapshot_duration.as_secs_f64(),
            to_float(self.bytes) / MIB / self.snapshot_duration.as_secs_f64(),
            self.rss_before / MIB,
            self.rss_increase / MIB,
            late_ms(&self.without_snapshot),
            late_ms(&self.with_snapshot),
            load_average()
        );
    }
}

fn measure_with_and_without(
    nodes: &NodeCluster,
    size: &BenchSize,
) -> Result<ConcurrentSnapshot, Failed> {
    let address = &nodes.client_addresses()[0];
    let offer = OfferedLoad::Open { per_second: size.load_rate };
    let writes =
        || RandomWrites::start(address, size.key_count, offer, 1, size.load_duration)?.finish();
    let without = writes()?;
    let rss_before = memory_bytes(nodes, "VmRSS")?;
    // Reset the peak, so that it covers only the snapshot.
    fs::write(format!("/proc/{}/clear_refs", nodes.process_ids()[0]), "5")?;
    let began = Instant::now();
    let mut taking = start_snapshot(nodes, 1)?;
    let taken = thread::spawn(move || taking.wait().map(|status| (status, began.elapsed())));
    let with = writes()?;
    let outlived = !taken.is_finished();
    let (status, took) = taken.join().expect("waiting does not panic")?;
    if !status.success() {
        return Err(Failed(format!("the snapshot failed: {status}")));
    }
    if !outlived {
        println!("  the snapshot was over before the concurrent writes");
    }
    let grows = (memory_bytes(nodes, "VmHWM")? - rss_before).max(0.0);
    let held = nodes.status(1).and_then(|view| view.snapshot);
    Ok(ConcurrentSnapshot {
        without_snapshot: without,
        with_snapshot: with,
        snapshot_duration: took,
        bytes: held.map_or(0, |held| held.bytes),
        rss_before,
        rss_increase: grows,
    })
}

/// Starts `quorate snapshot` for one node.
fn start_snapshot(nodes: &NodeCluster, id: u32) -> Result<Child, Failed> {
    let admin = &nodes.admin_addresses()[id as usize - 1];
    let mut command = Command::new(nodes::program_path());
    command.args(["snapshot", "--admin", admin]);
    Ok(command.stdout(Stdio::null()).spawn()?)
}

/// Returns the named memory counter of the first node's process, in bytes.
fn memory_bytes(nodes: &NodeCluster, name: &str) -> Result<f64, Failed> {
    Ok(to_float(nodes::process_memory(nodes.process_ids()[0], name)?))
}

/// Measures the time from SIGKILL until the node is ready again, alternating with a bare program
/// that reads the same files.
fn measure_restarts(nodes: &mut NodeCluster, size: &BenchSize) -> Result<(), Failed> {
    if !start_snapshot(nodes, 1)?.wait()?.success() {
        return Err(Failed("the snapshot failed".to_owned()));
    }
    // Write a tail that is only in the log.
    let address = nodes.client_addresses().remove(0);
    writes::fill_keys(&address, 0..size.key_count / 20)?;
    let parts = nodes.all()[0].spec.data_folder.join("snapshot");
    let (mut all, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..size.round_count {
        nodes.kill(&[1])?;
        let (bytes, reads) = read_all_files(&parts)?;
        let began = Instant::now();
        nodes.restart(&[1])?;
        nodes.wait_until_all_ready()?;
        let took = began.elapsed().as_secs_f64();
        println!(
            "  ready again after {took:.2} s; a bare program reads the {:.0} MiB of its snapshot in {reads:.2} s ({:.0} MiB/s), load {}",
            bytes / MIB,
            bytes / MIB / reads,
            load_average()
        );
        all.push(took);
        shares.push(reads / took);
    }
    println!(
        "restart: median {:.2} s (wanted 10, or twice the time of the bare program), {:.2} of the disk's rate",
        median(all),
        median(shares)
    );
    Ok(())
}

/// Reads all files of a folder with `dd`, bypassing the page cache. Returns bytes and seconds.
fn read_all_files(folder: &Path) -> Result<(f64, f64), Failed> {
    let (mut bytes, began) = (0, Instant::now());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += entry.metadata()?.len();
        let from = format!("if={}", entry.path().display());
        run::read_output(Command::new("dd").args([
            &from,
            "of=/dev/null",
            "bs=1M",
            "iflag=direct",
        ]))?;
    }
    Ok((to_float(bytes), began.elapsed().as_secs_f64()))
}

/// Returns the rate, in bytes per second, at which `dd` writes and flushes `mib` MiB in a folder,
/// bypassing the page cache.
fn disk_rate(folder: &Path, mib: u64) -> Result<f64, Failed> {
    let file = folder.join("bare");
    let began = Instant::now();
    let to = format!("of={}", file.display());
    let count = format!("count={mib}");
    let words = ["if=/dev/zero", &to, "bs=1M", &count, "oflag=direct", "conv=fsync"];
    run::read_output(Command::new("dd").args(words))?;
    let took = began.elapsed().as_secs_f64();
    fs::remove_file(file)?;
    Ok(to_float(mib) * MIB / took)
}

/// Pauses a follower while every key is written and the other nodes take snapshots, then resumes it
/// during further writes. Measures the time until it has caught up.
fn measure_catching_up(size: &BenchSize) -> Result<(), Failed> {
    let log_max = size.log_bytes_max.to_string();
    let flags = ["--store", "memory", "--snapshot-ratio", "1", "--log-max", &log_max];
    let mut nodes = nodes::start_serving(3, &flags)?;
    let (mut rates, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..size.round_count {
        let leader = nodes.agreed_leader()?;
        let follower = nodes.ids().into_iter().find(|id| *id != leader).unwrap_or(1);
        let other = 6 - leader - follower;
        let address = nodes.client_addresses()[leader as usize - 1].clone();
        let most = measure_throughput(&address, size, OfferedLoad::Closed { outstanding: 256 })?;
        // A saturated group has no capacity left for a follower, and each process gets its share of
        // the processors.
        let offered = (most / 2.0) as u64;
        let offer = OfferedLoad::Open { per_second: offered };
        let received = nodes.metric(follower, RECEIVED_METRIC)?;
        nodes.pause(follower)?;
        for _ in 0..size.write_passes {
            writes::fill_keys(&address, 0..size.missed_keys)?;
        }
        for id in [leader, other] {
            if !start_snapshot(&nodes, id)?.wait()?.success() {
                return Err(Failed(format!("the snapshot of node {id} failed")));
            }
        }
        let without = measure_throughput(&address, size, offer)?;
        let decided = |nodes: &NodeCluster| nodes.status(leader).map(|view| view.decided);
        let bare = disk_rate(nodes.data_folder(), 512)?;
        let writes = RandomWrites::start(&address, size.missed_keys, offer, 1, START_TIMEOUT * 4)?;
        let began = Instant::now();
        nodes.resume(follower)?;
        // Caught up: the follower has applied recently decided slots.
        let mut told = 0;
        let took = wait::wait_at_most(START_TIMEOUT * 3, "a level follower", || {
            let decided = decided(&nodes)?;
            let view = nodes.status(follower)?;
            let seconds = began.elapsed().as_secs();
            if seconds >= told + 5 {
                told = seconds;
                println!("    after {seconds} s: applied {} of {decided}", view.applied);
            }
            (view.applied + 64 >= decided).then(|| began.elapsed())
        })?;
        let during = writes.stop()?;
        let bytes = nodes.metric(follower, RECEIVED_METRIC)? - received;
        let missed = to_float(size.missed_keys * size.write_passes * VALUE_BYTES as u64);
        let rate = missed / took.as_secs_f64();
        println!(
            "  level after {:.2} s, missed {:.0} MiB in {:.0} MiB/s, got {:.0} MiB of snapshot, the disk {:.0} ({:.2}); writes/s {most:.0} at most, {without:.0} of {offered} without it, {during:.0} meanwhile ({:.2}), load {}",
            took.as_secs_f64(),
            missed / MIB,
            rate / MIB,
            to_float(bytes) / MIB,
            bare / MIB,
            rate / bare,
            during / without,
            load_average()
        );
        rates.push(rate / bare);
        kept.push(during / without);
        nodes.wait_until_equal()?;
    }
    println!(
        "behind: what was missed came back at a median of {:.2} of the disk's rate (wanted 0.5); meanwhile {:.2} of the writes without it (wanted 0.9)",
        median(rates),
        median(kept)
    );
    Ok(())
}

/// Returns the writes per second without any other activity.
fn measure_throughput(address: &str, size: &BenchSize, offer: OfferedLoad) -> Result<f64, Failed> {
    let writes = RandomWrites::start(address, size.missed_keys, offer, 1, size.load_duration)?;
    thread::sleep(size.load_duration / 2);
    writes.stop()
}
