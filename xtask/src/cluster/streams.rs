//! Byte streams under faults: several are written, followed, trimmed and taken over while nodes are killed, paused,
//! stopped and cut off, and while one is replaced. What clients noted is judged, and every stream compared on every
//! node.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use quorate_testbed::{
    network::Network,
    nodes::Nodes,
    replace::{self, Step},
    stream_load::{Lane, Load, Sum, compare, save},
    trial::faults::Plan,
};

use super::{NODES, check::evidence};
use crate::{nodes, nodes::wait_for, shell::Failed};

/// Logs are trimmed to what the stores of streams have.
const FLAGS: [&str; 2] = ["--client-timeout-ms", "1000"];
/// Faults of a round: every one comes at least once.
const STEPS: u32 = 14;
/// Bytes that a writer writes at a time while faults happen, and while a node is replaced.
const SLOWLY: u64 = 8 << 10;
const FAST: u64 = 64 << 10;
/// Bytes of streams before a newcomer comes: it must fetch them, since the logs have them no more.
const BEFORE: u64 = 48 << 20;
/// Descriptors of a node without clients: files of its log and its streams, its doors, its peers.
const DESCRIPTORS_MAX: usize = 200;

/// Plays so many rounds.
pub(super) fn run(network: Option<&Network>, rounds: u64, seed: Option<u64>) -> Result<(), Failed> {
    let first = seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().as_secs() % 1_000_000
    });
    for round in 0..rounds {
        let seed = first + round;
        println!("streams, round {} of {rounds}, seed {seed}", round + 1);
        faults(network, seed)?;
        replaced(seed)?;
    }
    Ok(())
}

/// Kills, pauses, stops and cuts.
fn faults(network: Option<&Network>, seed: u64) -> Result<(), Failed> {
    let mut nodes = match network {
        Some(network) => nodes::serving_in(network, NODES, &nodes::small_logs(&FLAGS))?,
        None => nodes::serving(NODES, &nodes::small_logs(&FLAGS))?,
    };
    let mut lanes = Vec::new();
    let played = under_faults(network, seed, &mut nodes, &mut lanes);
    kept_if_failed(played, nodes, &lanes, seed)
}

fn under_faults(
    network: Option<&Network>,
    seed: u64,
    nodes: &mut Nodes,
    lanes: &mut Vec<Arc<Lane>>,
) -> Result<(), Failed> {
    let began = Instant::now();
    let addresses = stream_addresses(nodes);
    let mut load = Load::start(&addresses, true, SLOWLY, seed)?;
    *lanes = load.lanes();
    let mut plan = Plan::new(true, network.is_some(), seed);
    let mut written = 0;
    for _ in 0..STEPS {
        load.wait_going_on()?;
        let step = plan.draw();
        let at = began.elapsed().as_secs_f64();
        let recovery = plan
            .play(step, nodes, network)
            .map_err(|why| Failed(format!("after {step}: {why}")))?;
        let healed = Instant::now();
        let went_on = load.wait_going_on();
        went_on.map_err(|why| Failed(format!("after {step}: {why}")))?;
        let durable = load.durable();
        println!(
            "  {at:5.1} s  {step}: {} KiB; all served again after {} ms, all streams went on after {} more",
            (durable - written) >> 10,
            recovery.as_millis(),
            healed.elapsed().as_millis()
        );
        written = durable;
    }
    load.finish()?;
    let sum = compare(lanes, &addresses)?;
    let used = used(nodes)?;
    end(nodes)?;
    println!(
        "- {STEPS} faults: {}; {used}; {:.0} s",
        said(sum),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// A newcomer takes the place of a node, which leads, or not.
fn replaced(seed: u64) -> Result<(), Failed> {
    let mut nodes = nodes::serving(NODES, &nodes::small_logs(&FLAGS))?;
    let mut lanes = Vec::new();
    let played = under_replacement(seed, &mut nodes, &mut lanes);
    kept_if_failed(played, nodes, &lanes, seed)
}

fn under_replacement(
    seed: u64,
    nodes: &mut Nodes,
    lanes: &mut Vec<Arc<Lane>>,
) -> Result<(), Failed> {
    let began = Instant::now();
    let program = nodes::program();
    let mut newcomers = replace::newcomers(nodes, &program, 1, &nodes::small_logs(&FLAGS))?;
    let mut addresses = stream_addresses(nodes);
    let later = newcomers.iter().filter_map(|spec| spec.flag("--stream"));
    addresses.extend(later.map(str::to_owned));
    let mut load = Load::start(&addresses, false, FAST, seed)?;
    *lanes = load.lanes();
    wait_for("logs to be trimmed", || {
        (load.durable() > BEFORE).then_some(())
    })?;
    let leader = nodes.agreed_leader()?;
    let leads = seed.is_multiple_of(2);
    let old = nodes.ids().into_iter().find(|id| (*id == leader) == leads);
    let (Some(old), Some(spec)) = (old, newcomers.pop()) else {
        return Err(Failed("nobody to replace".to_owned()));
    };
    let mut failed = Ok(());
    replace::one(nodes, &program, old, spec, &mut |_, step: &Step| {
        let went_on = load.wait_going_on();
        if failed.is_ok() {
            failed = went_on.map_err(|why| Failed(format!("after {step}: {why}")));
        }
    })?;
    failed?;
    load.finish()?;
    let sum = compare(lanes, &stream_addresses(nodes))?;
    let used = used(nodes)?;
    end(nodes)?;
    let role = if leads { "the leader" } else { "a follower" };
    println!(
        "- {role} replaced: {}; {used}; {:.0} s",
        said(sum),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

pub(super) fn said(sum: Sum) -> String {
    format!(
        "{} streams with {} MiB, {} takeovers, {} MiB trimmed, equal on all full nodes, nothing wrong with their histories",
        sum.streams,
        sum.bytes >> 20,
        sum.takeovers,
        sum.trimmed >> 20
    )
}

/// What was seen can be looked at.
fn kept_if_failed(
    played: Result<(), Failed>,
    nodes: Nodes,
    lanes: &[Arc<Lane>],
    seed: u64,
) -> Result<(), Failed> {
    let Err(Failed(why)) = played else {
        return Ok(());
    };
    let place = evidence(&format!("streams-{seed}"))?;
    save(lanes, &place)?;
    let folders = nodes.keep_for_inspection(&place.join("nodes"));
    Err(Failed(format!(
        "seed {seed}: {why}\n  what was noted is in {}, the nodes' folders in {}",
        place.display(),
        folders.display()
    )))
}

/// Where clients of streams connect, of all that belong to the cluster.
pub(super) fn stream_addresses(nodes: &Nodes) -> Vec<String> {
    let ids = nodes.ids();
    let all = (1..).zip(nodes.all());
    all.filter(|(id, _)| ids.contains(id))
        .map(|(_, node)| node.ready.stream.clone())
        .collect()
}

/// What nodes hold when their clients are gone: nobody keeps files open for streams that nobody reads.
fn used(nodes: &Nodes) -> Result<String, Failed> {
    let (mut files, mut memory, mut disk) = (0, 0, 0);
    for (id, process) in nodes.ids().into_iter().zip(nodes.processes()) {
        let folder = format!("/proc/{process}");
        let open = fs::read_dir(format!("{folder}/fd"))?.count();
        if open > DESCRIPTORS_MAX {
            return Err(Failed(format!("node {id} has {open} files open")));
        }
        let status = fs::read_to_string(format!("{folder}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|text| text.split_whitespace().next()?.parse().ok());
        files = files.max(open);
        memory = memory.max(resident.unwrap_or(0_u64));
        let data = nodes.all().get(id as usize - 1).map(|node| &node.spec.data);
        disk = disk.max(data.map_or(Ok(0), |data| bytes_of(data))?);
    }
    Ok(format!(
        "at most {files} descriptors, {} MiB of memory, {} MiB of disk per node",
        memory >> 10,
        disk >> 20
    ))
}

/// What all files of a folder occupy.
fn bytes_of(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A file may be gone meanwhile.
        let Ok(about) = entry.metadata() else {
            continue;
        };
        sum += match about.is_dir() {
            true => bytes_of(&entry.path())?,
            false => about.blocks() * 512,
        };
    }
    Ok(sum)
}

/// Nobody found itself wrong, and the logs are whole.
pub(super) fn end(nodes: &mut Nodes) -> Result<(), Failed> {
    nodes.check_alive()?;
    for id in nodes.ids() {
        if let Some(line) = nodes.log(id).lines().find(|line| line.contains("panicked")) {
            return Err(Failed(format!("node {id}: {line}")));
        }
        let alarms = nodes.metric(id, "quorate_alarms_total")?;
        if alarms > 0 {
            return Err(Failed(format!("node {id} raised {alarms} alarms")));
        }
    }
    nodes.terminate(&nodes.ids())?;
    Ok(nodes.verify_logs(&nodes::program())?)
}
