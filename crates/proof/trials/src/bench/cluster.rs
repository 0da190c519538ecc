//! Work counts per command in a running cluster. Unlike times, they are comparable between
//! machines.
//!
//! Three nodes on loopback serve SETs of 64 bytes from one connection to one node, with a fixed
//! number outstanding. Times would depend on the machine and its other load; counts do not.

use std::collections::BTreeMap;

use quorate_bench::figure::median;
use quorate_testbed::nodes::{Nodes, metrics};

use super::{float, writes::write_each};
use crate::{
    nodes::{self, wait_for},
    shell::{self, Failed},
};

const ROUNDS: u64 = 5;
const COMMANDS: u64 = 60_000;
const VALUE_BYTES: usize = 64;
/// Counters shown per command, with their column titles.
const SHOWN: [(&str, &str); 9] = [
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
    println!("SET of 64 bytes, three nodes, loopback, store memory; medians of {ROUNDS} rounds");
    for durability in ["durable", "volatile"] {
        for outstanding in [1, 16, 256] {
            measure(durability, outstanding)?;
        }
    }
    Ok(())
}

fn measure(durability: &str, outstanding: u64) -> Result<(), Failed> {
    let nodes = nodes::serving(3, &["--store", "memory", "--durability", durability])?;
    let address = nodes.client_addresses().swap_remove(0);
    let commands = if outstanding == 1 { COMMANDS / 30 } else { COMMANDS };
    let mut rates = Vec::new();
    let before = counters(&nodes)?;
    for round in 0..ROUNDS {
        let keys = round * commands..(round + 1) * commands;
        rates.push(write_each(&address, keys, VALUE_BYTES, outstanding)?);
    }
    let after = counters(&nodes)?;
    println!(
        "\n{durability}, {outstanding} outstanding: {:.0} commands/s; per command, all nodes:",
        median(rates)
    );
    for (name, shown) in SHOWN {
        let of = |counts: &BTreeMap<String, f64>| counts.get(name).copied().unwrap_or(0.0);
        let each = (of(&after) - of(&before)) / float(commands * ROUNDS);
        println!("  {shown:14} {each:10.3}");
    }
    // Each write is flushed once, independent of the load and the machine.
    let grown = |name: &str| {
        let of = |counts: &BTreeMap<String, f64>| counts.get(name).copied().unwrap_or(0.0);
        of(&after) - of(&before)
    };
    let (writes, flushes) = (grown(SHOWN[0].0), grown(SHOWN[1].0));
    if writes == 0.0 || (writes - flushes).abs() > 0.5 {
        return Err(Failed(format!("{writes} writes took {flushes} flushes")));
    }
    Ok(())
}

/// Returns every counter, summed over all nodes.
fn counters(nodes: &Nodes) -> Result<BTreeMap<String, f64>, Failed> {
    let mut sums = BTreeMap::new();
    for address in nodes.admin_addresses() {
        let text = wait_for("metrics", || metrics(&address))?;
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
