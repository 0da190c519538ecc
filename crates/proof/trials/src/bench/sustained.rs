//! The plainest load for ten minutes: three nodes with all defaults, writes of 1 KiB to the leader
//! as fast as they are accepted, over more keys than memory tables hold; the store on disk compared
//! with the one in memory.

use std::{
    fs,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::nodes::Nodes;

use super::{
    Wish, float, load, median,
    writes::{self, VALUE},
};
use crate::{
    nodes,
    shell::{self, Failed},
};

const NODES: u32 = 3;
const KEYS: u64 = 2_000_000;
const CONNECTIONS: u64 = 16;
const OUTSTANDING: usize = 16;
/// Latencies are counted by steps of 100 µs, up to 10 s.
const STEP_US: u128 = 100;
const STEPS: usize = 100_000;

/// Duration of the load, and the windows in which it is judged.
struct Size {
    time: Duration,
    slice: Duration,
}

const LARGE: Size = Size { time: Duration::from_secs(600), slice: Duration::from_secs(10) };
const SMALL: Size = Size { time: Duration::from_secs(60), slice: Duration::from_secs(5) };

/// Runs the task.
pub(super) fn run(wish: Wish) -> Result<(), Failed> {
    shell::build_programs()?;
    let size = if wish.quick { SMALL } else { LARGE };
    println!(
        "{NODES} nodes, all defaults, durable; SET of {VALUE} bytes over {KEYS} keys, {CONNECTIONS} connections with \
         {OUTSTANDING} each, {} s; load of the machine before: {}",
        size.time.as_secs(),
        load()
    );
    let memory = measure("memory", &size)?;
    memory.print();
    let disk = measure("lsm", &size)?;
    disk.print();
    println!(
        "lsm by memory: rate {:.2} (wanted 0.5), slowest slice by median {:.2} (0.7), p99 {:.1} (5), changes of leader {} (0)",
        disk.rate() / memory.rate(),
        disk.slowest() / disk.rate(),
        disk.p99_ms / memory.p99_ms,
        disk.elections
    );
    Ok(())
}

/// Result of one store.
struct Run {
    store: &'static str,
    /// Commands per second, by slices.
    rates: Vec<f64>,
    p99_ms: f64,
    /// Changes of the leader since the load began.
    elections: u64,
    /// Written by a node per byte of values, log included.
    written: f64,
    load: String,
}

impl Run {
    fn rate(&self) -> f64 {
        median(&self.rates)
    }

    fn slowest(&self) -> f64 {
        self.rates.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn print(&self) {
        println!(
            "  {:<6} median {:.0}/s, slowest {:.0}/s, p99 {:.1} ms, changes of leader {}, {:.2} bytes written by a node per \
             byte, load {}",
            self.store,
            self.rate(),
            self.slowest(),
            self.p99_ms,
            self.elections,
            self.written,
            self.load
        );
    }
}

fn measure(store: &'static str, size: &Size) -> Result<Run, Failed> {
    let nodes = nodes::serving(NODES, &["--store", store])?;
    let leader = nodes.agreed_leader()?;
    let place = nodes.ids().iter().position(|id| *id == leader);
    let address = nodes.client_addresses().swap_remove(place.unwrap_or(0));
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let steps = Mutex::new(vec![0_u64; STEPS]);
    let (before, written) = (nodes.round()?, written(&nodes)?);
    let mut rates = Vec::new();
    let clients = thread::scope(|scope| {
        let client = |seed| {
            let (stop, done, steps, address) = (&stop, &done, &steps, &address);
            scope.spawn(move || {
                let mut own = vec![0_u64; STEPS];
                let mut note = |took: Duration| {
                    done.fetch_add(1, Ordering::Relaxed);
                    let step = usize::try_from(took.as_micros() / STEP_US).unwrap_or(STEPS);
                    own[step.min(STEPS - 1)] += 1;
                };
                let ended = writes::steadily(address, KEYS, OUTSTANDING, seed, stop, &mut note);
                let mut steps = steps.lock().expect("no client panics");
                for (all, own) in steps.iter_mut().zip(own) {
                    *all += own;
                }
                ended
            })
        };
        let clients: Vec<_> = (0..CONNECTIONS).map(client).collect();
        let began = Instant::now();
        while began.elapsed() < size.time
            && !clients.iter().all(thread::ScopedJoinHandle::is_finished)
        {
            let (from, at) = (done.load(Ordering::Relaxed), Instant::now());
            thread::sleep(size.slice);
            let commands = done.load(Ordering::Relaxed) - from;
            rates.push(float(commands) / at.elapsed().as_secs_f64());
            eprintln!("  {store}: {:.0}/s, load {}", rates[rates.len() - 1], load());
        }
        stop.store(true, Ordering::Relaxed);
        let joined = clients.into_iter().map(|client| client.join());
        joined.map(|ended| ended.expect("no client panics")).collect::<Result<Vec<()>, Failed>>()
    });
    clients?;
    let bytes = float(self::written(&nodes)? - written) / f64::from(NODES);
    let steps = steps.into_inner().expect("no client panics");
    Ok(Run {
        store,
        rates,
        p99_ms: per_mille_ms(&steps, 990),
        elections: nodes.round()? - before,
        written: bytes / (float(done.load(Ordering::Relaxed)) * VALUE as f64),
        load: load(),
    })
}

/// Returns the bytes that all nodes sent to the disk until now.
fn written(nodes: &Nodes) -> Result<u64, Failed> {
    let mut sum = 0;
    for id in nodes.processes() {
        let text = fs::read_to_string(format!("/proc/{id}/io"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        sum += line.and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Returns the smallest latency that `part` of a thousand do not exceed.
fn per_mille_ms(steps: &[u64], part: u64) -> f64 {
    let all: u64 = steps.iter().sum();
    let mut passed = 0;
    let step = steps.iter().position(|count| {
        passed += count;
        passed * 1000 >= all * part
    });
    float(step.unwrap_or(STEPS) as u64 + 1) * STEP_US as f64 / 1000.0
}
