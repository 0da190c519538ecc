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
    nodes::{Nodes, PATIENCE, answer},
    writers::Writers,
};

use super::NODES;
use crate::{nodes, nodes::wait_for, shell::Failed};

/// Flags that each node is started with. The log is retained only briefly for slow peers, and
/// transfers take a while.
const FLAGS: [&str; 4] = ["--log-max", "268435456", "--transfer-limit", "25165824"];
/// Number of lines of each node's log shown if a step never occurred.
const LAST_LINES: usize = 30;
/// Metric that counts installed snapshots. Log lines do not suffice, because repeated ones are
/// rate-limited.
const INSTALLED: &str = "quorate_snapshots_installed_total ";

/// Moments at which a node is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The node has begun to take a snapshot.
    Taking,
    /// A part file of the snapshot is being written.
    Part,
    /// The file with the number of the latest snapshot is being replaced.
    PartNumber,
    /// The base file is being replaced, for a switch to a new snapshot or for a trim.
    Base,
    /// The node reports a new snapshot.
    Named,
    /// The beginning of the log has moved.
    Trimmed,
    /// A trimmed segment is being renumbered.
    SegmentNumber,
    /// The node loads its own snapshot after a start.
    Loading,
    /// The node has begun to receive a peer's snapshot.
    Asked,
    /// A part of the peer's snapshot has arrived.
    Received,
    /// The node has switched to the peer's snapshot.
    Installed,
    /// The node loads the peer's snapshot, which has just become its state.
    LoadingInstalled,
}

impl Step {
    const ALL: [Self; 12] = [
        Self::Taking,
        Self::Part,
        Self::PartNumber,
        Self::Base,
        Self::Named,
        Self::Trimmed,
        Self::SegmentNumber,
        Self::Loading,
        Self::Asked,
        Self::Received,
        Self::Installed,
        Self::LoadingInstalled,
    ];

    /// Returns whether only a node far behind its peers reaches this step.
    const fn is_of_a_peers(self) -> bool {
        matches!(self, Self::Asked | Self::Received | Self::Installed | Self::LoadingInstalled)
    }
}

pub(super) fn run() -> Result<(), Failed> {
    for killed in [false, true] {
        test_far_behind(killed)?;
    }
    kills()
}

/// A running cluster and its writers.
struct Field {
    nodes: Nodes,
    writers: Writers,
}

impl Field {
    fn new() -> Result<Self, Failed> {
        let nodes = nodes::serving(NODES, &nodes::small_logs(&FLAGS))?;
        let writers = Writers::start(&nodes.client_addresses());
        Ok(Self { nodes, writers })
    }

    fn view(&self, id: u32) -> Result<NodeView, Failed> {
        wait_for(&format!("an answer of node {id}"), || self.nodes.view(id))
    }

    /// Waits until the logs of all other nodes begin after everything that this node had decided.
    fn wait_until_trimmed_past(&self, id: u32, decided: u64) -> Result<(), Failed> {
        let others = self.nodes.ids().into_iter().filter(|other| *other != id);
        for other in others {
            wait_for(&format!("node {other} to trim its log"), || {
                let view = self.nodes.view(other)?;
                (view.log_start > decided + 1).then_some(())
            })?;
        }
        Ok(())
    }

    /// Waits until the node has applied everything decided by now.
    fn wait_until_caught_up(&self, id: u32) -> Result<(), Failed> {
        let leader = self.nodes.leader()?;
        let decided = self.view(leader)?.decided;
        wait_for(&format!("node {id} to be level"), || {
            (self.nodes.view(id)?.applied >= decided).then_some(())
        })
    }

    /// Formats the end of each node's log and its progress.
    fn last_words(&self) -> String {
        let last = |id: &u32| {
            let log = self.nodes.log(*id);
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(LAST_LINES);
            let progress = self.nodes.view(*id).and_then(|view| view.progress);
            let progress = progress.map_or_else(String::new, |progress| format!(": {progress}"));
            format!("node {id}{progress}\n  {}", lines[from..].join("\n  "))
        };
        let said: Vec<String> = self.nodes.ids().iter().map(last).collect();
        said.join("\n")
    }

    /// Checks that all acknowledged data is on every node, that no node panicked, and that the logs
    /// are intact. Returns a summary.
    fn compare(mut self) -> Result<String, Failed> {
        let acknowledged = self.writers.acknowledged();
        let written = self.writers.end()?;
        self.nodes.wait_until_all_serve()?;
        self.nodes.wait_until_equal()?;
        let mut keys = 0;
        for address in self.nodes.client_addresses() {
            keys = written.compare(&address)?;
        }
        let ids = self.nodes.ids();
        for id in &ids {
            let log = self.nodes.log(*id);
            if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
                return Err(Failed(format!("node {id}: {line}")));
            }
        }
        self.nodes.terminate(&ids)?;
        self.nodes.verify_logs(&nodes::program())?;
        Ok(format!("{acknowledged} acknowledged writes, {keys} keys equal on {NODES} nodes"))
    }
}

fn test_far_behind(killed: bool) -> Result<(), Failed> {
    let began = Instant::now();
    let mut field = Field::new()?;
    let leader = field.nodes.agreed_leader()?;
    let follower = leader % NODES + 1;
    wait_for("writes", || (field.writers.acknowledged() > 200).then_some(()))?;
    let decided = field.view(follower)?.decided;
    match killed {
        true => field.nodes.kill(&[follower])?,
        false => field.nodes.pause(follower)?,
    }
    // Less than a segment has been acknowledged since the status was read.
    field.wait_until_trimmed_past(follower, decided)?;
    let writes = field.writers.acknowledged();
    match killed {
        true => field.nodes.restart(&[follower])?,
        false => field.nodes.resume(follower)?,
    }
    let installed = wait_for("a peer's snapshot", || {
        let installed = field.nodes.metric(follower, INSTALLED).ok()?;
        (installed > 0).then_some(())
    });
    installed.map_err(|Failed(why)| Failed(format!("{why}\n{}", field.last_words())))?;
    field.wait_until_caught_up(follower)?;
    let meanwhile = field.writers.acknowledged() - writes;
    if meanwhile == 0 {
        return Err(Failed("nothing was written meanwhile".to_owned()));
    }
    let compared = field.compare()?;
    println!(
        "- far behind, {}: back through a peer's snapshot, {meanwhile} writes meanwhile; {compared}; {:.0} s",
        if killed { "killed" } else { "paused" },
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

fn kills() -> Result<(), Failed> {
    let began = Instant::now();
    let mut field = Field::new()?;
    for (number, step) in Step::ALL.into_iter().enumerate() {
        let before = Instant::now();
        let leader = field.nodes.agreed_leader()?;
        // Kill the leader every other time, at steps that a leader can reach.
        let victim = match number % 2 == 0 && !step.is_of_a_peers() {
            true => leader,
            false => leader % NODES + 1,
        };
        if step.is_of_a_peers() {
            let decided = field.view(victim)?.decided;
            field.nodes.kill(&[victim])?;
            field.wait_until_trimmed_past(victim, decided)?;
            field.nodes.restart(&[victim])?;
        }
        if step == Step::Loading {
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
    let compared = field.compare()?;
    println!(
        "- killed at {} steps of snapshots, trims and loads: {compared}; {:.0} s",
        Step::ALL.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// State of a node before a step, to detect changes.
struct BeforeStep {
    id: u32,
    data: PathBuf,
    admin: String,
    view: Option<NodeView>,
}

impl BeforeStep {
    fn new(field: &Field, id: u32) -> Result<Self, Failed> {
        let node = &field.nodes.all()[id as usize - 1];
        Ok(Self {
            id,
            data: node.spec.data.clone(),
            admin: node.ready.admin.clone(),
            // The node may still be starting.
            view: field.nodes.view(id),
        })
    }

    /// Polls without pause, since some steps last a fraction of a millisecond. Returns `false` if
    /// the step ended unseen.
    fn wait_for(&self, field: &Field, step: Step) -> Result<bool, Failed> {
        let until = Instant::now() + PATIENCE;
        loop {
            if self.has_reached(field, step) {
                return Ok(true);
            }
            let level = || field.view(self.id).is_ok_and(|view| view.progress.is_none());
            if step == Step::LoadingInstalled && self.has_installed(field) && level() {
                return Ok(false);
            }
            if Instant::now() > until {
                return Err(self.step_not_reached(field, step));
            }
        }
    }

    fn step_not_reached(&self, field: &Field, step: Step) -> Failed {
        let what = format!("node {} never got to {step:?}", self.id);
        Failed(format!("{what}\n{}", field.last_words()))
    }

    fn has_reached(&self, field: &Field, step: Step) -> bool {
        let view = || field.nodes.view(self.id);
        let slot = |view: &NodeView| view.snapshot.map_or(0, |snapshot| snapshot.slot);
        let is_new = |of: &dyn Fn(&NodeView) -> u64| {
            let was = self.view.as_ref().map_or(u64::MAX, of);
            view().is_some_and(|view| of(&view) > was)
        };
        let temporary = |name: &str| self.data.join(name).exists();
        match step {
            Step::Taking => view().is_some_and(|view| view.snapshot_taking.is_some()),
            Step::Part => has_new(&self.data.join("snapshot")),
            Step::PartNumber => temporary("parts.new"),
            Step::Base => temporary("base.new"),
            Step::SegmentNumber => temporary("segments.new"),
            Step::Named => is_new(&slot),
            Step::Trimmed => is_new(&|view| view.log_start),
            Step::Loading => self.is_loading(),
            Step::Asked => self.data.join("incoming").exists(),
            Step::Received => {
                let bytes = field.nodes.metric(self.id, "quorate_snapshot_bytes_received_total ");
                bytes.is_ok_and(|bytes| bytes > 8 << 20)
            }
            Step::Installed => self.has_installed(field),
            Step::LoadingInstalled => self.has_installed(field) && self.is_loading(),
        }
    }

    /// Returns whether the node has installed a snapshot since its start.
    fn has_installed(&self, field: &Field) -> bool {
        let installed = field.nodes.metric(self.id, INSTALLED);
        installed.is_ok_and(|installed| installed > 0)
    }

    fn is_loading(&self) -> bool {
        let status = answer(&self.admin, "/status", Duration::from_millis(300));
        status.is_some_and(|status| status.contains("takes in a snapshot"))
    }

    /// Lists the partial files left by the kill, for the report.
    fn partial_files(&self) -> String {
        let mut found: Vec<String> = ["", "log", "snapshot"]
            .iter()
            .flat_map(|folder| names(&self.data.join(folder)))
            .filter(|name| name.ends_with(".new") || name == "incoming")
            .collect();
        found.sort();
        match found.is_empty() {
            true => String::new(),
            false => format!("; it left {}", found.join(", ")),
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn has_new(folder: &Path) -> bool {
    names(folder).iter().any(|name| name.ends_with(".new"))
}
