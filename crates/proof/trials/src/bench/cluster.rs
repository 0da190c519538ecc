//! Work counts per command in a running cluster. Unlike times, they are comparable between
//! machines.
//!
//! Three nodes on loopback serve SETs of 64 bytes from one connection to one node, with a fixed
//! number outstanding. Times would depend on the machine and its other load; counts do not.

use std::collections::BTreeMap;

use quorate_bench::figure::median;
use quorate_testbed::nodes::{NodeCluster, fetch_metrics};

use super::{to_float, writes::write_each};
use crate::{
    nodes::{self, wait_for},
    shell::{self, Failed},
};

const ROUND_COUNT: u64 = 5;
const COMMAND_COUNT: u64 = 60_000;
const VALUE_BYTES: usize = 64;
/// Counters shown per command, with their column titles.
const SHOWN_COUNTERS: [(&str, &str); 9] = [
    ("quorate_disk_writes_total", "writes"),
    ("quorate_disk_flushes_total", "flushes"),
    ("quorate_disk_write_bytes_total", "bytes written"),
    ("quorate_batches_applied_total", "batches"),
    ("quorate_net_frames_out_total", "frames sent"),
    ("quorate_net_peer_bytes_out_total", "bytes sent"),
    ("quorate_net_calls_wait_total", "waits"),
    ("quorate_net_calls_peer_write_total", "peer writes"),
    ("quorate_slow_rewinds_total", "rewinds"),
];

pub(super) fn run() -> Result<(), Failed> {
    shell::build_programs()?;
    println!(
        "SET of 64 bytes, three nodes, loopback, store memory; medians of {ROUND_COUNT} rounds"
    );
    for durability in ["durable", "volatile"] {
        for outstanding in [1, 16, 256] {
            measure_cluster(durability, outstanding)?;
        }
    }
    Ok(())
}

fn measure_cluster(durability: &str, outstanding: u64) -> Result<(), Failed> {
    let nodes = nodes::start_serving(3, &["--store", "memory", "--durability", durability])?;
    let address = nodes.client_addresses().swap_remove(0);
    let commands = if outstanding == 1 { COMMAND_COUNT / 30 } else { COMMAND_COUNT };
    let mut rates = Vec::new();
    let before = sum_counters(&nodes)?;
    for round in 0..ROUND_COUNT {
        let keys = round * commands..(round + 1) * commands;
        rates.push(write_each(&address, keys, VALUE_BYTES, outstanding)?);
    }
    let after = sum_counters(&nodes)?;
    println!(
        "\n{durability}, {outstanding} outstanding: {:.0} commands/s; per command, all nodes:",
        median(rates)
    );
    for (name, shown) in SHOWN_COUNTERS {
        let of = |counts: &BTreeMap<String, f64>| counts.get(name).copied().unwrap_or(0.0);
        let each = (of(&after) - of(&before)) / to_float(commands * ROUND_COUNT);
        println!("  {shown:14} {each:10.3}");
    }
    // Each write is flushed once, independent of the load and the machine.
    let grown = |name: &str| {
        let of = |counts: &BTreeMap<String, f64>| counts.get(name).copied().unwrap_or(0.0);
        of(&after) - of(&before)
    };
    let (writes, flushes) = (grown(SHOWN_COUNTERS[0].0), grown(SHOWN_COUNTERS[1].0));
    if writes == 0.0 || (writes - flushes).abs() > 0.5 {
        return Err(Failed(format!("{writes} writes took {flushes} flushes")));
    }
    Ok(())
}

/// Returns every counter, summed over all nodes.
fn sum_counters(nodes: &NodeCluster) -> Result<BTreeMap<String, f64>, Failed> {
    let mut sums = BTreeMap::new();
    for address in nodes.admin_addresses() {
        let text = wait_for("metrics", || fetch_metrics(&address))?;
        for line in text.lines().filter(|line| line.starts_with("quorate_")) {
            if let Some((name, value)) = line.split_once(' ')
                && let Ok(value) = value.parse::<f64>()
            {
                *sums.entry(name.to_owned()).or_insert(0.0) += value;
            }
        }
    }
    Ok(sums)
}
