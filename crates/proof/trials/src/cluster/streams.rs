//! Byte streams under faults: several streams are written, followed, trimmed and taken over while
//! nodes are killed, paused, stopped and partitioned, and while one is replaced. Checks the
//! clients' records, and compares every stream on every node.

use std::{
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use quorate_testbed::{
    network::Network,
    nodes::NodeCluster,
    replace::{self, Step},
    stream_load::{Lane, LoadTotals, StreamLoad, compare_nodes, save_histories},
    trial::faults::FaultPlan,
};

use super::{NODES, check::create_evidence_folder};
use crate::{
    nodes::{self, NodeResources, wait_for},
    shell::Failed,
};

/// Flags that each node is started with, in addition to those for small logs.
const NODE_FLAGS: [&str; 2] = ["--client-timeout-ms", "1000"];
/// Number of faults in a round. Each kind occurs at least once.
const FAULTS_PER_ROUND: u32 = 14;
/// Size of each write, in bytes, during faults and during a replacement.
const SLOW_WRITE_BYTES: u64 = 8 << 10;
const FAST_WRITE_BYTES: u64 = 64 << 10;
/// Number of stream bytes written before the newcomer joins. It must fetch them, because the logs
/// no longer contain them.
const BYTES_BEFORE_NEWCOMER: u64 = 48 << 20;
/// Maximum number of descriptors that a node without clients may have open. They belong to its log
/// and stream files, listeners and peers.
const DESCRIPTORS_MAX: usize = 200;

/// Plays `rounds` rounds.
pub(super) fn run(network: Option<&Network>, rounds: u64, seed: Option<u64>) -> Result<(), Failed> {
    let first = seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().as_secs() % 1_000_000
    });
    for round in 0..rounds {
        let seed = first + round;
        println!("streams, round {} of {rounds}, seed {seed}", round + 1);
        test_faults(network, seed)?;
        test_replacement(seed)?;
    }
    Ok(())
}

/// Kills, pauses, stops and partitions nodes.
fn test_faults(network: Option<&Network>, seed: u64) -> Result<(), Failed> {
    let mut nodes = match network {
        Some(network) => {
            nodes::start_serving_in(network, NODES, &nodes::small_log_flags(&NODE_FLAGS))?
        }
        None => nodes::start_serving(NODES, &nodes::small_log_flags(&NODE_FLAGS))?,
    };
    let mut lanes = Vec::new();
    let played = run_under_faults(network, seed, &mut nodes, &mut lanes);
    keep_if_failed(played, nodes, &lanes, seed)
}

fn run_under_faults(
    network: Option<&Network>,
    seed: u64,
    nodes: &mut NodeCluster,
    lanes: &mut Vec<Arc<Lane>>,
) -> Result<(), Failed> {
    let began = Instant::now();
    let addresses = nodes.stream_addresses();
    let mut load = StreamLoad::start(&addresses, true, SLOW_WRITE_BYTES, seed)?;
    *lanes = load.lanes();
    let mut plan = FaultPlan::new(true, network.is_some(), seed);
    let mut written = 0;
    for _ in 0..FAULTS_PER_ROUND {
        load.wait_for_progress()?;
        let step = plan.draw_step();
        let at = began.elapsed().as_secs_f64();
        let recovery = plan
            .run_step(step, nodes, network)
            .map_err(|why| Failed(format!("after {step}: {why}")))?;
        let healed = Instant::now();
        let went_on = load.wait_for_progress();
        went_on.map_err(|why| Failed(format!("after {step}: {why}")))?;
        let durable = load.durable_bytes();
        println!(
            "  {at:5.1} s  {step}: {} KiB; all served again after {} ms, all streams went on after {} more",
            (durable - written) >> 10,
            recovery.as_millis(),
            healed.elapsed().as_millis()
        );
        written = durable;
    }
    load.finish()?;
    let sum = compare_nodes(lanes, &addresses)?;
    let used = report_resources(nodes)?;
    check_nodes_intact(nodes)?;
    println!(
        "- {FAULTS_PER_ROUND} faults: {}; {used}; {:.0} s",
        format_sum(sum),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Replaces a node, which may be the leader.
fn test_replacement(seed: u64) -> Result<(), Failed> {
    let mut nodes = nodes::start_serving(NODES, &nodes::small_log_flags(&NODE_FLAGS))?;
    let mut lanes = Vec::new();
    let played = run_under_replacement(seed, &mut nodes, &mut lanes);
    keep_if_failed(played, nodes, &lanes, seed)
}

fn run_under_replacement(
    seed: u64,
    nodes: &mut NodeCluster,
    lanes: &mut Vec<Arc<Lane>>,
) -> Result<(), Failed> {
    let began = Instant::now();
    let program = nodes::program_path();
    let mut newcomers =
        replace::newcomer_specs(nodes, &program, 1, &nodes::small_log_flags(&NODE_FLAGS))?;
    let mut addresses = nodes.stream_addresses();
    let later = newcomers.iter().filter_map(|spec| spec.flag_value("--stream"));
    addresses.extend(later.map(str::to_owned));
    let mut load = StreamLoad::start(&addresses, false, FAST_WRITE_BYTES, seed)?;
    *lanes = load.lanes();
    wait_for("logs to be trimmed", || {
        (load.durable_bytes() > BYTES_BEFORE_NEWCOMER).then_some(())
    })?;
    let leader = nodes.agreed_leader()?;
    let leads = seed.is_multiple_of(2);
    let old = nodes.ids().into_iter().find(|id| (*id == leader) == leads);
    let (Some(old), Some(spec)) = (old, newcomers.pop()) else {
        return Err(Failed("no node to replace".to_owned()));
    };
    let mut failed = Ok(());
    replace::replace_one(nodes, &program, old, spec, &mut |_, step: &Step| {
        let went_on = load.wait_for_progress();
        if failed.is_ok() {
            failed = went_on.map_err(|why| Failed(format!("after {step}: {why}")));
        }
    })?;
    failed?;
    load.finish()?;
    let sum = compare_nodes(lanes, &nodes.stream_addresses())?;
    let used = report_resources(nodes)?;
    check_nodes_intact(nodes)?;
    let role = if leads { "the leader" } else { "a follower" };
    println!(
        "- {role} replaced: {}; {used}; {:.0} s",
        format_sum(sum),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

pub(super) fn format_sum(sum: LoadTotals) -> String {
    format!(
        "{} streams with {} MiB, {} takeovers, {} MiB trimmed, equal on all full nodes, nothing wrong with their histories",
        sum.stream_count,
        sum.bytes >> 20,
        sum.takeover_count,
        sum.trimmed_bytes >> 20
    )
}

/// Keeps the recorded data of a failed run for inspection.
fn keep_if_failed(
    played: Result<(), Failed>,
    nodes: NodeCluster,
    lanes: &[Arc<Lane>],
    seed: u64,
) -> Result<(), Failed> {
    let Err(Failed(why)) = played else {
        return Ok(());
    };
    let place = create_evidence_folder(&format!("streams-{seed}"))?;
    save_histories(lanes, &place)?;
    let folders = nodes.keep_for_inspection(&place.join("nodes"));
    Err(Failed(format!(
        "seed {seed}: {why}\n  what was noted is in {}, the nodes' folders in {}",
        place.display(),
        folders.display()
    )))
}

/// Reports the nodes' resources after their clients have disconnected. Streams without readers must
/// not keep files open.
fn report_resources(nodes: &NodeCluster) -> Result<String, Failed> {
    let held = NodeResources::measure_maximum(nodes)?;
    if held.descriptors > DESCRIPTORS_MAX {
        return Err(Failed(format!("a node has {} files open", held.descriptors)));
    }
    Ok(format!(
        "at most {} descriptors, {} MiB of memory, {} MiB of disk per node",
        held.descriptors,
        held.memory_bytes >> 20,
        held.folder_bytes >> 20
    ))
}

/// Checks that all nodes run, that none has panicked or raised an alarm, and that the logs are
/// intact.
pub(super) fn check_nodes_intact(nodes: &mut NodeCluster) -> Result<(), Failed> {
    nodes.check_alive()?;
    for id in nodes.ids() {
        if let Some(line) = nodes.log_path(id).lines().find(|line| line.contains("panicked")) {
            return Err(Failed(format!("node {id}: {line}")));
        }
        let alarms = nodes.metric(id, "quorate_alarms_total")?;
        if alarms > 0 {
            return Err(Failed(format!("node {id} raised {alarms} alarms")));
        }
    }
    nodes.terminate(&nodes.ids())?;
    Ok(nodes.verify_logs(&nodes::program_path())?)
}
