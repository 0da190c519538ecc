//! Snapshots under faults: a follower that returns after every log has been trimmed past its last
//! slot, and nodes killed at each step of taking, trimming, receiving and loading a snapshot.
//! Writers write throughout, and all acknowledged data is compared on all nodes.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use quorate_admin::view::NodeView;
use quorate_testbed::{
    nodes::{NodeCluster, START_TIMEOUT, fetch},
    writers::Writers,
};

use super::NODES;
use crate::{nodes, nodes::wait_for, shell::Failed};

/// Flags that each node is started with. The log is retained only briefly for slow peers, and
/// transfers take a while.
const NODE_FLAGS: [&str; 4] = ["--log-max", "268435456", "--transfer-limit", "25165824"];
/// Number of lines of each node's log shown if a step never occurred.
const LOG_LINES_SHOWN: usize = 30;
/// Metric that counts installed snapshots. Log lines do not suffice, because repeated ones are
/// rate-limited.
const INSTALLED_METRIC: &str = "quorate_snapshots_installed_total ";

/// Moments at which a node is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillStep {
    /// The node has begun to take a snapshot.
    TakingSnapshot,
    /// A part file of the snapshot is being written.
    WritingPart,
    /// The file with the number of the latest snapshot is being replaced.
    ReplacingNumber,
    /// The base file is being replaced, for a switch to a new snapshot or for a trim.
    ReplacingBase,
    /// The node reports a new snapshot.
    SnapshotReported,
    /// The beginning of the log has moved.
    LogTrimmed,
    /// A trimmed segment is being renumbered.
    RenumberingSegment,
    /// The node loads its own snapshot after a start.
    LoadingOwn,
    /// The node has begun to receive a peer's snapshot.
    ReceivingBegun,
    /// A part of the peer's snapshot has arrived.
    PartReceived,
    /// The node has switched to the peer's snapshot.
    PeerInstalled,
    /// The node loads the peer's snapshot, which has just become its state.
    LoadingPeers,
}

impl KillStep {
    const ALL: [Self; 12] = [
        Self::TakingSnapshot,
        Self::WritingPart,
        Self::ReplacingNumber,
        Self::ReplacingBase,
        Self::SnapshotReported,
        Self::LogTrimmed,
        Self::RenumberingSegment,
        Self::LoadingOwn,
        Self::ReceivingBegun,
        Self::PartReceived,
        Self::PeerInstalled,
        Self::LoadingPeers,
    ];

    /// Returns whether only a node far behind its peers reaches this step.
    const fn needs_peer_snapshot(self) -> bool {
        matches!(
            self,
            Self::ReceivingBegun | Self::PartReceived | Self::PeerInstalled | Self::LoadingPeers
        )
    }
}

pub(super) fn run() -> Result<(), Failed> {
    for killed in [false, true] {
        test_far_behind(killed)?;
    }
    run_kills()
}

/// A running cluster and its writers.
struct WrittenCluster {
    nodes: NodeCluster,
    writers: Writers,
}

impl WrittenCluster {
    fn new() -> Result<Self, Failed> {
        let nodes = nodes::start_serving(NODES, &nodes::small_log_flags(&NODE_FLAGS))?;
        let writers = Writers::start(&nodes.client_addresses());
        Ok(Self { nodes, writers })
    }

    fn node_view(&self, id: u32) -> Result<NodeView, Failed> {
        wait_for(&format!("an answer of node {id}"), || self.nodes.status(id))
    }

    /// Waits until the logs of all other nodes begin after everything that this node had decided.
    fn wait_until_trimmed_past(&self, id: u32, decided: u64) -> Result<(), Failed> {
        let others = self.nodes.ids().into_iter().filter(|other| *other != id);
        for other in others {
            wait_for(&format!("node {other} to trim its log"), || {
                let view = self.nodes.status(other)?;
                (view.log_start > decided + 1).then_some(())
            })?;
        }
        Ok(())
    }

    /// Waits until the node has applied everything decided by now.
    fn wait_until_caught_up(&self, id: u32) -> Result<(), Failed> {
        let leader = self.nodes.leader()?;
        let decided = self.node_view(leader)?.decided;
        wait_for(&format!("node {id} to be level"), || {
            (self.nodes.status(id)?.applied >= decided).then_some(())
        })
    }

    /// Formats the end of each node's log and its progress.
    fn last_log_lines(&self) -> String {
        let last = |id: &u32| {
            let log = self.nodes.log_path(*id);
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(LOG_LINES_SHOWN);
            let progress = self.nodes.status(*id).and_then(|view| view.progress);
            let progress = progress.map_or_else(String::new, |progress| format!(": {progress}"));
            format!("node {id}{progress}\n  {}", lines[from..].join("\n  "))
        };
        let said: Vec<String> = self.nodes.ids().iter().map(last).collect();
        said.join("\n")
    }

    /// Checks that all acknowledged data is on every node, that no node panicked, and that the logs
    /// are intact. Returns a summary.
    fn check_and_summarize(mut self) -> Result<String, Failed> {
        let acknowledged = self.writers.acknowledged_count();
        let written = self.writers.end()?;
        self.nodes.wait_until_all_serve()?;
        self.nodes.wait_until_equal()?;
        let mut keys = 0;
        for address in self.nodes.client_addresses() {
            keys = written.compare(&address)?;
        }
        let ids = self.nodes.ids();
        for id in &ids {
            let log = self.nodes.log_path(*id);
            if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
                return Err(Failed(format!("node {id}: {line}")));
            }
        }
        self.nodes.terminate(&ids)?;
        self.nodes.verify_logs(&nodes::program_path())?;
        Ok(format!("{acknowledged} acknowledged writes, {keys} keys equal on {NODES} nodes"))
    }
}

fn test_far_behind(killed: bool) -> Result<(), Failed> {
    let began = Instant::now();
    let mut field = WrittenCluster::new()?;
    let leader = field.nodes.agreed_leader()?;
    let follower = leader % NODES + 1;
    wait_for("writes", || (field.writers.acknowledged_count() > 200).then_some(()))?;
    let decided = field.node_view(follower)?.decided;
    match killed {
        true => field.nodes.kill(&[follower])?,
        false => field.nodes.pause(follower)?,
    }
    // Less than a segment has been acknowledged since the status was read.
    field.wait_until_trimmed_past(follower, decided)?;
    let writes = field.writers.acknowledged_count();
    match killed {
        true => field.nodes.restart(&[follower])?,
        false => field.nodes.resume(follower)?,
    }
    let installed = wait_for("a peer's snapshot", || {
        let installed = field.nodes.metric(follower, INSTALLED_METRIC).ok()?;
        (installed > 0).then_some(())
    });
    installed.map_err(|Failed(why)| Failed(format!("{why}\n{}", field.last_log_lines())))?;
    field.wait_until_caught_up(follower)?;
    let meanwhile = field.writers.acknowledged_count() - writes;
    if meanwhile == 0 {
        return Err(Failed("nothing was written meanwhile".to_owned()));
    }
    let compared = field.check_and_summarize()?;
    println!(
        "- far behind, {}: back through a peer's snapshot, {meanwhile} writes meanwhile; {compared}; {:.0} s",
        if killed { "killed" } else { "paused" },
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

fn run_kills() -> Result<(), Failed> {
    let began = Instant::now();
    let mut field = WrittenCluster::new()?;
    for (number, step) in KillStep::ALL.into_iter().enumerate() {
        let before = Instant::now();
        let leader = field.nodes.agreed_leader()?;
        // Kill the leader every other time, at steps that a leader can reach.
        let victim = match number % 2 == 0 && !step.needs_peer_snapshot() {
            true => leader,
            false => leader % NODES + 1,
        };
        if step.needs_peer_snapshot() {
            let decided = field.node_view(victim)?.decided;
            field.nodes.kill(&[victim])?;
            field.wait_until_trimmed_past(victim, decided)?;
            field.nodes.restart(&[victim])?;
        }
        if step == KillStep::LoadingOwn {
            field.nodes.kill(&[victim])?;
            field.nodes.restart(&[victim])?;
        }
        let moment = BeforeStep::new(&field, victim)?;
        let seen = moment.wait_for(&field, step)?;
        field.nodes.kill(&[victim])?;
        let left = moment.partial_files();
        field.nodes.restart(&[victim])?;
        field.nodes.wait_until_all_serve()?;
        field.wait_until_caught_up(victim)?;
        println!(
            "  killed node {victim}{}: {step:?}{}; level again, {:.0} s{left}",
            if victim == leader { ", the leader" } else { "" },
            if seen { "" } else { ", which was over by then" },
            before.elapsed().as_secs_f64()
        );
    }
    let compared = field.check_and_summarize()?;
    println!(
        "- killed at {} steps of snapshots, trims and loads: {compared}; {:.0} s",
        KillStep::ALL.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// State of a node before a step, to detect changes.
struct BeforeStep {
    id: u32,
    data_folder: PathBuf,
    admin_address: String,
    earlier_view: Option<NodeView>,
}

impl BeforeStep {
    fn new(field: &WrittenCluster, id: u32) -> Result<Self, Failed> {
        let node = &field.nodes.all()[id as usize - 1];
        Ok(Self {
            id,
            data_folder: node.spec.data_folder.clone(),
            admin_address: node.ready.admin.clone(),
            // The node may still be starting.
            earlier_view: field.nodes.status(id),
        })
    }

    /// Polls without pause, since some steps last a fraction of a millisecond. Returns `false` if
    /// the step ended unseen.
    fn wait_for(&self, field: &WrittenCluster, step: KillStep) -> Result<bool, Failed> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            if self.has_reached(field, step) {
                return Ok(true);
            }
            let level = || field.node_view(self.id).is_ok_and(|view| view.progress.is_none());
            if step == KillStep::LoadingPeers && self.has_installed(field) && level() {
                return Ok(false);
            }
            if Instant::now() > until {
                return Err(self.step_not_reached(field, step));
            }
        }
    }

    fn step_not_reached(&self, field: &WrittenCluster, step: KillStep) -> Failed {
        let what = format!("node {} never got to {step:?}", self.id);
        Failed(format!("{what}\n{}", field.last_log_lines()))
    }

    fn has_reached(&self, field: &WrittenCluster, step: KillStep) -> bool {
        let view = || field.nodes.status(self.id);
        let slot = |view: &NodeView| view.snapshot.map_or(0, |snapshot| snapshot.slot);
        let is_new = |of: &dyn Fn(&NodeView) -> u64| {
            let was = self.earlier_view.as_ref().map_or(u64::MAX, of);
            view().is_some_and(|view| of(&view) > was)
        };
        let temporary = |name: &str| self.data_folder.join(name).exists();
        match step {
            KillStep::TakingSnapshot => view().is_some_and(|view| view.snapshot_taking.is_some()),
            KillStep::WritingPart => has_new_file(&self.data_folder.join("snapshot")),
            KillStep::ReplacingNumber => temporary("parts.new"),
            KillStep::ReplacingBase => temporary("base.new"),
            KillStep::RenumberingSegment => temporary("segments.new"),
            KillStep::SnapshotReported => is_new(&slot),
            KillStep::LogTrimmed => is_new(&|view| view.log_start),
            KillStep::LoadingOwn => self.is_loading(),
            KillStep::ReceivingBegun => self.data_folder.join("incoming").exists(),
            KillStep::PartReceived => {
                let bytes = field.nodes.metric(self.id, "quorate_snapshot_bytes_received_total ");
                bytes.is_ok_and(|bytes| bytes > 8 << 20)
            }
            KillStep::PeerInstalled => self.has_installed(field),
            KillStep::LoadingPeers => self.has_installed(field) && self.is_loading(),
        }
    }

    /// Returns whether the node has installed a snapshot since its start.
    fn has_installed(&self, field: &WrittenCluster) -> bool {
        let installed = field.nodes.metric(self.id, INSTALLED_METRIC);
        installed.is_ok_and(|installed| installed > 0)
    }

    fn is_loading(&self) -> bool {
        let status = fetch(&self.admin_address, "/status", Duration::from_millis(300));
        status.is_some_and(|status| status.contains("takes in a snapshot"))
    }

    /// Lists the partial files left by the kill, for the report.
    fn partial_files(&self) -> String {
        let mut found: Vec<String> = ["", "log", "snapshot"]
            .iter()
            .flat_map(|folder| file_names(&self.data_folder.join(folder)))
            .filter(|name| name.ends_with(".new") || name == "incoming")
            .collect();
        found.sort();
        match found.is_empty() {
            true => String::new(),
            false => format!("; it left {}", found.join(", ")),
        }
    }
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn has_new_file(folder: &Path) -> bool {
    file_names(folder).iter().any(|name| name.ends_with(".new"))
}
