//! A plain load for ten minutes: three nodes with all defaults, writes of 1 KiB to the leader as
//! fast as it accepts them, over more keys than the memory tables can store. Compares the store on
//! disk with the store in memory.

use std::{fs, time::Duration};

use quorate_bench::{figure::median, load::OfferedLoad, samples::BAR_WIDTH};
use quorate_testbed::nodes::NodeCluster;

use super::{
    BenchOptions, load_average, to_float,
    writes::{RandomWrites, VALUE_BYTES},
};
use crate::{
    nodes,
    shell::{self, Failed},
};

const NODE_COUNT: u32 = 3;
const KEY_COUNT: u64 = 2_000_000;
const CONNECTIONS: u32 = 16;
const OUTSTANDING: u32 = 16;

/// Duration of the load, and the windows in which it is evaluated.
struct BenchSize {
    load_duration: Duration,
    window_duration: Duration,
}

const LARGE_SIZE: BenchSize =
    BenchSize { load_duration: Duration::from_secs(600), window_duration: Duration::from_secs(10) };
const SMALL_SIZE: BenchSize =
    BenchSize { load_duration: Duration::from_secs(60), window_duration: Duration::from_secs(5) };

pub(super) fn run(wish: BenchOptions) -> Result<(), Failed> {
    shell::build_programs()?;
    let size = if wish.quick { SMALL_SIZE } else { LARGE_SIZE };
    println!(
        "{NODE_COUNT} nodes, all defaults, durable; SET of {VALUE_BYTES} bytes over {KEY_COUNT} keys, {CONNECTIONS} connections with \
         {OUTSTANDING} each, {} s; load of the machine before: {}",
        size.load_duration.as_secs(),
        load_average()
    );
    let memory = measure_store("memory", &size)?;
    memory.print();
    let disk = measure_store("lsm", &size)?;
    disk.print();
    println!(
        "lsm by memory: rate {:.2} (wanted 0.5), slowest slice by median {:.2} (0.7), p99 {:.1} (5), changes of leader {} (0)",
        disk.mean_rate() / memory.mean_rate(),
        disk.slowest_rate() / disk.mean_rate(),
        disk.p99_ms / memory.p99_ms,
        disk.elections
    );
    Ok(())
}

/// Result for one store.
struct StoreRun {
    store: &'static str,
    /// Commands per second in each window.
    window_rates: Vec<f64>,
    p99_ms: f64,
    /// Leader changes since the load began.
    elections: u64,
    /// Bytes written by a node per byte of values, log included.
    write_amplification: f64,
    load_average: String,
}

impl StoreRun {
    fn mean_rate(&self) -> f64 {
        median(self.window_rates.iter().copied())
    }

    fn slowest_rate(&self) -> f64 {
        self.window_rates.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn print(&self) {
        println!(
            "  {:<6} median {:.0}/s, slowest {:.0}/s, p99 {:.1} ms, changes of leader {}, {:.2} bytes written by a node per \
             byte, load {}",
            self.store,
            self.mean_rate(),
            self.slowest_rate(),
            self.p99_ms,
            self.elections,
            self.write_amplification,
            self.load_average
        );
    }
}

fn measure_store(store: &'static str, size: &BenchSize) -> Result<StoreRun, Failed> {
    let nodes = nodes::start_serving(NODE_COUNT, &["--store", store])?;
    let leader = nodes.agreed_leader()?;
    let place = nodes.ids().iter().position(|id| *id == leader);
    let address = nodes.client_addresses().swap_remove(place.unwrap_or(0));
    let (before, written) = (nodes.ballot_round()?, bytes_written(&nodes)?);
    let offer = OfferedLoad::Closed { outstanding: CONNECTIONS * OUTSTANDING };
    let samples = RandomWrites::start(&address, KEY_COUNT, offer, CONNECTIONS, size.load_duration)?
        .finish()?;
    let bars =
        usize::try_from(size.window_duration.as_nanos() / u128::from(BAR_WIDTH)).unwrap_or(1);
    let rate = |bars: &[u32]| {
        bars.iter().copied().map(f64::from).sum::<f64>() / size.window_duration.as_secs_f64()
    };
    let slices = samples.replies_over_time.chunks_exact(bars);
    let bytes = to_float(bytes_written(&nodes)? - written) / f64::from(NODE_COUNT);
    Ok(StoreRun {
        store,
        window_rates: slices.map(rate).collect(),
        p99_ms: samples.latencies.quantile_us(0.99) / 1e3,
        elections: nodes.ballot_round()? - before,
        write_amplification: bytes / (to_float(samples.completed) * VALUE_BYTES as f64),
        load_average: load_average(),
    })
}

/// Returns the bytes that all nodes together have written to disk.
fn bytes_written(nodes: &NodeCluster) -> Result<u64, Failed> {
    let mut sum = 0;
    for id in nodes.process_ids() {
        let text = fs::read_to_string(format!("/proc/{id}/io"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        sum += line.and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}
