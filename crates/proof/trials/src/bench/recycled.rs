//! Commits to a log that recycles its segments, compared with a bare program that overwrites as
//! many bytes. Neither allocates disk space.

use std::{fs, process::Command};

use quorate_bench::figure::median;
use quorate_testbed::{nodes::NodeCluster, run};
use serde_json::Value;

use super::{BenchOptions, load_average};
use crate::{
    nodes,
    shell::{self, Failed},
};

const ROUND_COUNT: usize = 5;
/// Command size in bytes, number of outstanding commands, and target share of the bare program's
/// rate.
const SHAPES: [(&str, &str, f64); 2] = [("1024", "256", 0.8), ("64", "1000", 0.75)];

pub(super) fn run(wish: BenchOptions) -> Result<(), Failed> {
    shell::build_programs()?;
    println!("durable, three nodes on loopback, store none, in turns with the bare program");
    let rounds = if wish.quick { 1 } else { ROUND_COUNT };
    for (bytes, outstanding, wanted) in SHAPES {
        let nodes = nodes::start_ready(3, &["--store", "none"])?;
        // The first turn fills the log until it recycles segments; do not measure it.
        run_pair(&nodes, bytes, outstanding)?;
        let mut turns = Vec::new();
        for _ in 0..rounds {
            let made = created_segments(&nodes)?;
            let turn = run_pair(&nodes, bytes, outstanding)?;
            println!(
                "  {bytes} B x {outstanding}: {:.0}/s, bare program {:.0}/s: {:.2} (foreign CPU {:.0} %, load {})",
                turn.log_per_second,
                turn.bare_per_second,
                turn.log_to_bare_ratio(),
                turn.foreign_cpu_share * 100.0,
                load_average()
            );
            let new = created_segments(&nodes)? - made;
            if new > 0 {
                println!("  {new} files were made new meanwhile");
            }
            turns.push(turn);
        }
        let middle = |of: fn(&PairedRun) -> f64| median(turns.iter().map(of));
        println!(
            "{bytes} B x {outstanding}: median {:.0}/s, bare program {:.0}/s, ratio {:.2} (wanted {wanted}); {} segments on each node",
            middle(|turn| turn.log_per_second),
            middle(|turn| turn.bare_per_second),
            middle(PairedRun::log_to_bare_ratio),
            segment_count_max(&nodes)?
        );
    }
    Ok(())
}

/// Commands per second of both programs, measured one after the other.
struct PairedRun {
    log_per_second: f64,
    bare_per_second: f64,
    foreign_cpu_share: f64,
}

impl PairedRun {
    fn log_to_bare_ratio(&self) -> f64 {
        self.log_per_second / self.bare_per_second
    }
}

fn run_pair(nodes: &NodeCluster, bytes: &str, outstanding: &str) -> Result<PairedRun, Failed> {
    let leader = nodes.agreed_leader()?;
    let address = &nodes.client_addresses()[leader as usize - 1];
    let words = [
        "bench",
        "log",
        "--connect",
        address,
        "--value-size",
        bytes,
        "--outstanding",
        outstanding,
        "--connections",
        "1",
        "--warmup",
        "500ms",
        "--duration",
        "2s",
        "--repeat",
        "1",
        "--json",
    ];
    let text = run::read_output(Command::new(nodes::program_path()).args(words))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| Failed(error.to_string()))?;
    let row = &report["rows"][0];
    let number = |name: &str| {
        let found = row[name].as_f64();
        found.ok_or_else(|| Failed(format!("the bench tells no {name}: {row}")))
    };
    if row["valid"] != Value::Bool(true) {
        return Err(Failed(format!("no result: {}", row["why_not"])));
    }
    Ok(PairedRun {
        log_per_second: number("achieved_per_s")?,
        bare_per_second: number("ceiling")?,
        foreign_cpu_share: row["foreign_cpu"].as_f64().unwrap_or(f64::NAN),
    })
}

/// Returns the number of newly created segments, summed over all nodes.
fn created_segments(nodes: &NodeCluster) -> Result<u64, Failed> {
    let ids = nodes.ids().into_iter();
    ids.map(|id| Ok(nodes.metric(id, "quorate_disk_prepared_total ")?)).sum()
}

/// Returns the largest number of log files of any node.
fn segment_count_max(nodes: &NodeCluster) -> Result<usize, Failed> {
    let mut most = 0;
    for node in nodes.all() {
        most = most.max(fs::read_dir(node.spec.data_folder.join("log"))?.count());
    }
    Ok(most)
}
