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
    nodes::{Nodes, PATIENCE},
    run, wait,
};

use quorate_bench::{figure::median, load::Offer, samples::Samples};

use super::{
    Wish, float, load,
    writes::{self, VALUE, Writes},
};
use crate::{
    nodes,
    shell::{self, Failed},
};

/// Size of the benchmark.
struct Size {
    rounds: usize,
    /// Keys of the node whose snapshot is taken, and of the group whose follower misses all writes.
    keys: u64,
    missed_keys: u64,
    /// Number of missed writes to each key.
    passes: u64,
    /// Maximum size of a log, in bytes. It must exceed the bytes written while a snapshot is sent:
    /// beyond this size the sender drops the snapshot and the log that follows it.
    log_max: u64,
    /// Limit for a throttled snapshot, in bytes per second.
    limit: u64,
    /// Rate of the concurrent load, per second.
    rate: u64,
    paced: Duration,
}

const LARGE: Size = Size {
    rounds: 5,
    keys: 2_000_000,
    missed_keys: 300_000,
    passes: 6,
    log_max: 1 << 30,
    limit: 200 << 20,
    rate: 20_000,
    paced: Duration::from_secs(6),
};
const SMALL: Size = Size {
    rounds: 2,
    keys: 200_000,
    missed_keys: 100_000,
    passes: 4,
    log_max: 256 << 20,
    limit: 50 << 20,
    rate: 20_000,
    paced: Duration::from_secs(2),
};
/// Snapshot ratio so high that, after the first snapshot, snapshots are taken only on request.
const NEVER: &str = "1000";
const RECEIVED: &str = "quorate_snapshot_bytes_received_total ";
const MIB: f64 = 1_048_576.0;

/// Runs all parts, or the named one.
pub(super) fn run(wish: Wish, part: Option<&str>) -> Result<(), Failed> {
    shell::build_programs()?;
    let size = if wish.quick { SMALL } else { LARGE };
    println!("durable, values of {VALUE} bytes; load of the machine before: {}", load());
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
fn measure_store_on_disk(size: &Size) -> Result<(), Failed> {
    let size = Size { keys: size.keys * 5 / 2, ..*size };
    let mut nodes = filled("lsm", &size)?;
    snapshots_beside(&mut nodes, &size)
}

/// Measures snapshots during writes, and restarts, of one node.
fn measure_single_node(size: &Size) -> Result<(), Failed> {
    let mut nodes = filled("memory", size)?;
    snapshots_beside(&mut nodes, size)?;
    restarts(&mut nodes, size)
}

/// Starts a node and writes all keys to it.
fn filled(store: &str, size: &Size) -> Result<Nodes, Failed> {
    let limit = size.limit.to_string();
    let flags = ["--store", store, "--snapshot-ratio", NEVER, "--transfer-limit", &limit];
    let nodes = nodes::serving(1, &flags)?;
    let address = nodes.client_addresses().remove(0);
    let rate = writes::fill(&address, 0..size.keys)?;
    println!(
        "one node, store {store}, {} keys, filled at {rate:.0}/s: RSS {:.0} MiB",
        size.keys,
        memory(&nodes, "VmRSS")? / MIB
    );
    Ok(nodes)
}

fn snapshots_beside(nodes: &mut Nodes, size: &Size) -> Result<(), Failed> {
    let mut rows = Vec::new();
    for _ in 0..size.rounds {
        let row = with_and_without(nodes, size)?;
        row.print();
        rows.push(row);
    }
    let middle = |of: &dyn Fn(&Concurrent) -> f64| median(rows.iter().map(of));
    println!(
        "median: p99 with a snapshot {:.2} of without (wanted 2 at most); RSS grows by {:.1} % (wanted 25), {:.0} MiB (wanted 256)",
        middle(
            &|row| row.with.latencies.quantile_us(0.99) / row.without.latencies.quantile_us(0.99)
        ),
        middle(&|row| row.grows / row.rss * 100.0),
        middle(&|row| row.grows / MIB),
    );
    Ok(())
}

/// The same writes with and without a concurrent snapshot.
struct Concurrent {
    without: Samples,
    with: Samples,
    /// Duration of the snapshot.
    took: Duration,
    bytes: u64,
    /// Resident memory before the snapshot, and its largest increase during it.
    rss: f64,
    grows: f64,
}

impl Concurrent {
    fn print(&self) {
        let shown = |samples: &Samples| {
            let us = |share| samples.latencies.quantile_us(share);
            format!("{:.0}/{:.0}/{:.0}", us(0.5), us(0.99), us(0.999))
        };
        let late_ms = |samples: &Samples| float(samples.latest) / 1e6;
        println!(
            "  p50/p99/p99.9 µs {} without, {} with a snapshot of {:.0} MiB in {:.1} s ({:.0} MiB/s); RSS {:.0} MiB + {:.0}; sent late {:.0}/{:.0} ms, load {}",
            shown(&self.without),
            shown(&self.with),
            float(self.bytes) / MIB,
            self.took.as_secs_f64(),
            float(self.bytes) / MIB / self.took.as_secs_f64(),
            self.rss / MIB,
            self.grows / MIB,
            late_ms(&self.without),
            late_ms(&self.with),
            load()
        );
    }
}

fn with_and_without(nodes: &Nodes, size: &Size) -> Result<Concurrent, Failed> {
    let address = &nodes.client_addresses()[0];
    let offer = Offer::Open { per_second: size.rate };
    let writes = || Writes::start(address, size.keys, offer, 1, size.paced)?.finish();
    let without = writes()?;
    let rss_before = memory(nodes, "VmRSS")?;
    // Reset the peak, so that it covers only the snapshot.
    fs::write(format!("/proc/{}/clear_refs", nodes.processes()[0]), "5")?;
    let began = Instant::now();
    let mut taking = snapshot(nodes, 1)?;
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
    let grows = (memory(nodes, "VmHWM")? - rss_before).max(0.0);
    let held = nodes.view(1).and_then(|view| view.snapshot);
    Ok(Concurrent {
        without,
        with,
        took,
        bytes: held.map_or(0, |held| held.bytes),
        rss: rss_before,
        grows,
    })
}

/// Starts `quorate snapshot` for one node.
fn snapshot(nodes: &Nodes, id: u32) -> Result<Child, Failed> {
    let admin = &nodes.admin_addresses()[id as usize - 1];
    let mut command = Command::new(nodes::program());
    command.args(["snapshot", "--admin", admin]);
    Ok(command.stdout(Stdio::null()).spawn()?)
}

/// Returns the named memory counter of the first node's process, in bytes.
fn memory(nodes: &Nodes, name: &str) -> Result<f64, Failed> {
    Ok(float(nodes::memory(nodes.processes()[0], name)?))
}

/// Measures the time from SIGKILL until the node is ready again, alternating with a bare program
/// that reads the same files.
fn restarts(nodes: &mut Nodes, size: &Size) -> Result<(), Failed> {
    if !snapshot(nodes, 1)?.wait()?.success() {
        return Err(Failed("the snapshot failed".to_owned()));
    }
    // Write a tail that is only in the log.
    let address = nodes.client_addresses().remove(0);
    writes::fill(&address, 0..size.keys / 20)?;
    let parts = nodes.all()[0].spec.data.join("snapshot");
    let (mut all, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        nodes.kill(&[1])?;
        let (bytes, reads) = read_all(&parts)?;
        let began = Instant::now();
        nodes.restart(&[1])?;
        nodes.wait_until_all_ready()?;
        let took = began.elapsed().as_secs_f64();
        println!(
            "  ready again after {took:.2} s; a bare program reads the {:.0} MiB of its snapshot in {reads:.2} s ({:.0} MiB/s), load {}",
            bytes / MIB,
            bytes / MIB / reads,
            load()
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
fn read_all(folder: &Path) -> Result<(f64, f64), Failed> {
    let (mut bytes, began) = (0, Instant::now());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += entry.metadata()?.len();
        let from = format!("if={}", entry.path().display());
        run::read(Command::new("dd").args([&from, "of=/dev/null", "bs=1M", "iflag=direct"]))?;
    }
    Ok((float(bytes), began.elapsed().as_secs_f64()))
}

/// Returns the rate, in bytes per second, at which `dd` writes and flushes `mib` MiB in a folder,
/// bypassing the page cache.
fn disk_rate(folder: &Path, mib: u64) -> Result<f64, Failed> {
    let file = folder.join("bare");
    let began = Instant::now();
    let to = format!("of={}", file.display());
    let count = format!("count={mib}");
    let words = ["if=/dev/zero", &to, "bs=1M", &count, "oflag=direct", "conv=fsync"];
    run::read(Command::new("dd").args(words))?;
    let took = began.elapsed().as_secs_f64();
    fs::remove_file(file)?;
    Ok(float(mib) * MIB / took)
}

/// Pauses a follower while every key is written and the other nodes take snapshots, then resumes it
/// during further writes. Measures the time until it has caught up.
fn measure_catching_up(size: &Size) -> Result<(), Failed> {
    let log_max = size.log_max.to_string();
    let flags = ["--store", "memory", "--snapshot-ratio", "1", "--log-max", &log_max];
    let mut nodes = nodes::serving(3, &flags)?;
    let (mut rates, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        let leader = nodes.agreed_leader()?;
        let follower = nodes.ids().into_iter().find(|id| *id != leader).unwrap_or(1);
        let other = 6 - leader - follower;
        let address = nodes.client_addresses()[leader as usize - 1].clone();
        let most = throughput(&address, size, Offer::Closed { outstanding: 256 })?;
        // A saturated group has no capacity left for a follower, and each process gets its share of
        // the processors.
        let offered = (most / 2.0) as u64;
        let offer = Offer::Open { per_second: offered };
        let received = nodes.metric(follower, RECEIVED)?;
        nodes.pause(follower)?;
        for _ in 0..size.passes {
            writes::fill(&address, 0..size.missed_keys)?;
        }
        for id in [leader, other] {
            if !snapshot(&nodes, id)?.wait()?.success() {
                return Err(Failed(format!("the snapshot of node {id} failed")));
            }
        }
        let without = throughput(&address, size, offer)?;
        let decided = |nodes: &Nodes| nodes.view(leader).map(|view| view.decided);
        let bare = disk_rate(nodes.folder(), 512)?;
        let writes = Writes::start(&address, size.missed_keys, offer, 1, PATIENCE * 4)?;
        let began = Instant::now();
        nodes.resume(follower)?;
        // Caught up: the follower has applied recently decided slots.
        let mut told = 0;
        let took = wait::at_most(PATIENCE * 3, "a level follower", || {
            let decided = decided(&nodes)?;
            let view = nodes.view(follower)?;
            let seconds = began.elapsed().as_secs();
            if seconds >= told + 5 {
                told = seconds;
                println!("    after {seconds} s: applied {} of {decided}", view.applied);
            }
            (view.applied + 64 >= decided).then(|| began.elapsed())
        })?;
        let during = writes.stop()?;
        let bytes = nodes.metric(follower, RECEIVED)? - received;
        let missed = float(size.missed_keys * size.passes * VALUE as u64);
        let rate = missed / took.as_secs_f64();
        println!(
            "  level after {:.2} s, missed {:.0} MiB in {:.0} MiB/s, got {:.0} MiB of snapshot, the disk {:.0} ({:.2}); writes/s {most:.0} at most, {without:.0} of {offered} without it, {during:.0} meanwhile ({:.2}), load {}",
            took.as_secs_f64(),
            missed / MIB,
            rate / MIB,
            float(bytes) / MIB,
            bare / MIB,
            rate / bare,
            during / without,
            load()
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
fn throughput(address: &str, size: &Size, offer: Offer) -> Result<f64, Failed> {
    let writes = Writes::start(address, size.missed_keys, offer, 1, size.paced)?;
    thread::sleep(size.paced / 2);
    writes.stop()
}
