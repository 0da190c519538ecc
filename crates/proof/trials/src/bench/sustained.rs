//! A plain load for ten minutes: three nodes with all defaults, writes of 1 KiB to the leader as
//! fast as it accepts them, over more keys than the memory tables can store. Compares the store on
//! disk with the store in memory.

use std::{fs, time::Duration};

use quorate_bench::{figure::median, load::Offer, samples::BUCKET};
use quorate_testbed::nodes::Nodes;

use super::{
    Wish, float, load,
    writes::{VALUE, Writes},
};
use crate::{
    nodes,
    shell::{self, Failed},
};

const NODES: u32 = 3;
const KEYS: u64 = 2_000_000;
const CONNECTIONS: u32 = 16;
const OUTSTANDING: u32 = 16;

/// Duration of the load, and the windows in which it is evaluated.
struct Size {
    time: Duration,
    slice: Duration,
}

const LARGE: Size = Size { time: Duration::from_secs(600), slice: Duration::from_secs(10) };
const SMALL: Size = Size { time: Duration::from_secs(60), slice: Duration::from_secs(5) };

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

/// Result for one store.
struct Run {
    store: &'static str,
    /// Commands per second in each window.
    rates: Vec<f64>,
    p99_ms: f64,
    /// Leader changes since the load began.
    elections: u64,
    /// Bytes written by a node per byte of values, log included.
    written: f64,
    load: String,
}

impl Run {
    fn rate(&self) -> f64 {
        median(self.rates.iter().copied())
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
    let (before, written) = (nodes.round()?, written(&nodes)?);
    let offer = Offer::Closed { outstanding: CONNECTIONS * OUTSTANDING };
    let samples = Writes::start(&address, KEYS, offer, CONNECTIONS, size.time)?.finish()?;
    let bars = usize::try_from(size.slice.as_nanos() / u128::from(BUCKET)).unwrap_or(1);
    let rate =
        |bars: &[u32]| bars.iter().copied().map(f64::from).sum::<f64>() / size.slice.as_secs_f64();
    let slices = samples.over_time.chunks_exact(bars);
    let bytes = float(self::written(&nodes)? - written) / f64::from(NODES);
    Ok(Run {
        store,
        rates: slices.map(rate).collect(),
        p99_ms: samples.latencies.quantile_us(0.99) / 1e3,
        elections: nodes.round()? - before,
        written: bytes / (float(samples.completed) * VALUE as f64),
        load: load(),
    })
}

/// Returns the bytes that all nodes together have written to disk.
fn written(nodes: &Nodes) -> Result<u64, Failed> {
    let mut sum = 0;
    for id in nodes.processes() {
        let text = fs::read_to_string(format!("/proc/{id}/io"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        sum += line.and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}
