//! Trial of one kind of file with one fault, on one node of three. Evaluates the clients'
//! observations, and records the node's reports.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::FileExt as _,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use quorate_core::dice::Dice;
use quorate_testbed::{
    nodes::NodeCluster,
    process, replace,
    stream_load::{self, Lane},
    trial::{history::Operation, load::ClientLoad},
    wait,
    writers::Writers,
};
use rustix::process::Signal;
use serde_json::Value;

use super::{
    DiskFault, IMPOSSIBLE_ROWS, Kind, WriteTrigger,
    disk::{MountedDisk, list_files},
};
use crate::{
    cluster::{
        check::{Checker, Verdict, create_evidence_folder},
        round::{check_nothing_lost, read_all_keys},
    },
    nodes,
    shell::Failed,
};

const NODES: u32 = 3;
/// Flags for small logs, which are trimmed soon.
const SMALL_LOG_FLAGS: [&str; 6] =
    ["--log-ready", "0", "--log-segment", "8388608", "--snapshot-ratio", "1"];
/// Number of operations, and of writes, between two events.
const OPERATIONS_BETWEEN_EVENTS: u64 = 300;
const WRITES_BETWEEN_EVENTS: u64 = 60;
/// Size of a stream writer's writes, in bytes.
const STREAM_WRITE_BYTES: u64 = 8 << 10;
/// Time to wait for a write that a fault can affect. It is long because some files are rarely
/// written.
const AFFECTED_WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time to wait for more writes in flight when the power fails.
const WITHHELD_WRITES_TIMEOUT: Duration = Duration::from_secs(2);
/// Size of a block in bytes. Blocks are read and written as a whole.
const BLOCK_BYTES: usize = 4096;
/// First bytes of a log write. The number of its segment is at [`SEGMENT_NUMBER_OFFSET`].
const LOG_WRITE_MAGIC: &[u8] = b"qrtebtch";
const SEGMENT_NUMBER_OFFSET: usize = 40;
/// Fragments of log lines about damaged files. Reports of a lost leader are not among them.
const FILE_DAMAGE_WORDS: [&str; 9] = [
    "damage",
    "lost votes",
    "checksum",
    "rot",
    "cannot be read",
    "cannot read",
    "refused",
    "restarted",
    "read back",
];

/// A row of the table: a kind of file and a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialRow {
    pub(super) kind: Kind,
    pub(super) fault: DiskFault,
    pub(super) seed: u64,
}

/// Result of a trial without loss and without a wrong reply.
#[derive(Debug, Default)]
pub(super) struct TrialOutcome {
    /// Description of the injected fault.
    pub(super) injected_fault: String,
    /// The node's first report about the fault.
    pub(super) first_report: Option<String>,
    /// Final state of the node.
    pub(super) final_state: String,
    pub(super) key_count: usize,
    pub(super) stream_bytes: u64,
}

impl TrialOutcome {
    /// Returns whether the fault occurred.
    pub(super) fn has_occurred(&self) -> bool {
        !self.injected_fault.is_empty()
    }
}

/// Clients of keys, and of the service's other data.
struct TrialClients {
    load: Option<ClientLoad>,
    keys: Writers,
    streams: Option<stream_load::StreamLoad>,
}

impl TrialClients {
    fn start(nodes: &NodeCluster, seed: u64) -> io::Result<Self> {
        let addresses = nodes.client_addresses();
        if nodes.uses_etcd() {
            return Ok(Self {
                load: None,
                keys: Writers::start_busy_etcd(&addresses),
                streams: None,
            });
        }
        let streams = nodes.stream_addresses();
        Ok(Self {
            load: Some(ClientLoad::start(addresses.clone(), seed)?),
            keys: Writers::start_unretried(1, &addresses),
            streams: Some(stream_load::StreamLoad::start(
                &streams,
                false,
                STREAM_WRITE_BYTES,
                seed,
            )?),
        })
    }

    fn stream_lanes(&self) -> Vec<Arc<Lane>> {
        let streams = self.streams.as_ref();
        streams.map(stream_load::StreamLoad::lanes).unwrap_or_default()
    }

    fn known_operation_count(&self) -> Option<u64> {
        self.load.as_ref().map(ClientLoad::known_outcomes)
    }

    fn check_progress(&mut self) -> Result<(), Failed> {
        let (known, written) = (self.known_operation_count(), self.keys.acknowledged_count());
        nodes::wait_for("clients to go on", || {
            let more = known.is_none_or(|known| {
                self.known_operation_count() >= Some(known + OPERATIONS_BETWEEN_EVENTS)
            });
            (more && self.keys.acknowledged_count() >= written + WRITES_BETWEEN_EVENTS)
                .then_some(())
        })?;
        let streams = self.streams.as_mut();
        Ok(streams.map_or(Ok(()), stream_load::StreamLoad::wait_for_progress)?)
    }
}

/// Running `quorate snapshot` commands. Dropping this kills those still waiting for a reply.
#[derive(Default)]
struct SnapshotCommands(Vec<Child>);

impl SnapshotCommands {
    /// Requests a snapshot from every node, unless an earlier request is still pending.
    fn request_all(&mut self, nodes: &NodeCluster) -> io::Result<()> {
        let owed = |child: &mut Child| child.try_wait().is_ok_and(|ended| ended.is_none());
        if self.0.iter_mut().any(owed) {
            return Ok(());
        }
        self.0.clear();
        for admin in nodes.admin_addresses() {
            let mut ask = process::command_of(&nodes::program_path());
            ask.args(["snapshot", "--admin", &admin]);
            let child = ask.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            self.0.push(child);
        }
        Ok(())
    }
}

impl Drop for SnapshotCommands {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl TrialRow {
    /// Returns the reason why the fault cannot occur in this row; `None` if it can.
    pub(super) fn impossible_reason(&self) -> Option<&'static str> {
        let mut all = IMPOSSIBLE_ROWS.iter();
        all.find(|(kind, fault, _)| *kind == self.kind.name && *fault == self.fault)
            .map(|(.., why)| *why)
    }

    /// Runs three nodes, one of them on a failing disk, and compares all data.
    pub(super) fn run_trial(&self, checker: Option<&Checker>) -> Result<TrialOutcome, Failed> {
        let mut dice = Dice::new(self.seed);
        let mut disk = MountedDisk::mount()?;
        let victim = 2 + u32::from(dice.chance(1, 2));
        let mut nodes = NodeCluster::with_empty_folder("quorate-disks-")?;
        let durable = ["--durability", "durable"];
        let flags = [&durable, &SMALL_LOG_FLAGS[..], self.kind.flags].concat();
        let mut specs =
            process::loopback_cluster(&nodes::program_path(), nodes.data_folder(), NODES, &flags)?;
        specs[victim as usize - 1].data_folder = disk.mount_point();
        let mut lanes = Vec::new();
        let played = nodes.start(specs).map_err(Failed::from).and_then(|()| {
            self.run_under_load(&mut nodes, victim, &mut disk, &mut dice, &mut lanes, checker)
        });
        played.map_err(|Failed(why)| {
            let place = create_evidence_folder(&format!(
                "disks-{}-{}-{}",
                self.kind.name,
                self.fault.name(),
                self.seed
            ));
            let done = disk.send_command("done").unwrap_or_default();
            match place {
                Ok(place) => {
                    let _ = stream_load::save_histories(&lanes, &place);
                    // Copy the node's folder before the disk is removed.
                    let _ = Command::new("cp")
                        .arg("-R")
                        .arg(disk.underlying_folder())
                        .arg(place.join("disk"))
                        .status();
                    let mut kept = std::mem::replace(
                        &mut nodes,
                        NodeCluster::with_empty_folder("quorate-disks-").expect("a folder"),
                    );
                    kept.kill_all();
                    let folders = kept.keep_for_inspection(&place.join("nodes"));
                    Failed(format!(
                        "node {victim}: {why}\n    done: {done}\n    folders: {}, {}",
                        place.display(),
                        folders.display()
                    ))
                }
                Err(_) => Failed(format!("node {victim}: {why}\n    done: {done}")),
            }
        })
    }

    fn arm_fault(&self, disk: &mut MountedDisk, dice: &mut Dice) -> Result<(), Failed> {
        let (fault, files) = (self.fault.name(), self.kind.files);
        let word = dice.word();
        disk.send_command(&format!("arm {fault} {files} {word}"))?;
        Ok(())
    }

    fn run_under_load(
        &self,
        nodes: &mut NodeCluster,
        victim: u32,
        disk: &mut MountedDisk,
        dice: &mut Dice,
        lanes: &mut Vec<Arc<Lane>>,
        checker: Option<&Checker>,
    ) -> Result<TrialOutcome, Failed> {
        nodes.wait_until_all_serve()?;
        let mut clients = TrialClients::start(nodes, self.seed)?;
        *lanes = clients.stream_lanes();
        clients.check_progress()?;
        let before = nodes.log_path(victim).len();
        let mut found = Vec::new();
        let mut flipped = None;
        match self.fault {
            DiskFault::BitFlip => {
                let under = disk.underlying_folder();
                self.write_until_met(nodes, victim, &mut clients, &mut || {
                    Ok(!list_files(&under, self.kind.files)?.is_empty())
                })?;
                flipped = Some(flip_bit(disk, self.kind.files, dice)?);
                found.extend(scrub_findings(nodes, victim)?);
                if let (Err(why), Some(done)) = (nodes.check_alive(), &mut flipped) {
                    *done = format!("{done}; {why}");
                }
                let _ = nodes.kill(&[victim]);
            }
            DiskFault::MisdirectedWrite => {
                self.arm_fault(disk, dice)?;
                self.write_until_met(nodes, victim, &mut clients, &mut || {
                    Ok(disk.undoable_changes()? > 0)
                })?;
                found.extend(scrub_findings(nodes, victim)?);
                disk.send_command("calm")?;
                nodes.kill(&[victim])?;
            }
            DiskFault::TornWrite | DiskFault::ReorderedWrites | DiskFault::LostNames => {
                self.arm_fault(disk, dice)?;
                disk.send_command("hold")?;
                self.write_until_met(nodes, victim, &mut clients, &mut || {
                    Ok(disk.undoable_changes()? > 0)
                })?;
                // Names may be lost without ever being flushed.
                let _ = wait::wait_at_most(
                    WITHHELD_WRITES_TIMEOUT,
                    "a write to wait for the disk",
                    || disk.withheld_count().is_ok_and(|held| held > 1).then_some(()),
                );
                self.cut_power(nodes, victim, disk)?;
            }
            DiskFault::LostWrite | DiskFault::LostTail => {
                self.arm_fault(disk, dice)?;
                self.write_until_met(nodes, victim, &mut clients, &mut || {
                    Ok(disk.undoable_changes()? > 0)
                })?;
                clients.check_progress()?;
                self.cut_power(nodes, victim, disk)?;
            }
        }
        let done = match flipped {
            Some(done) => done,
            None => disk.send_command("done")?,
        };
        self.check_restarted(nodes, victim, done, before, found, clients, checker)
    }

    /// Makes a node write files of this kind until the condition is met or
    /// [`AFFECTED_WRITE_TIMEOUT`] has passed.
    fn write_until_met(
        &self,
        nodes: &mut NodeCluster,
        victim: u32,
        clients: &mut TrialClients,
        met: &mut dyn FnMut() -> io::Result<bool>,
    ) -> Result<(), Failed> {
        let from = Instant::now();
        let mut snapshots = SnapshotCommands::default();
        let mut joined = false;
        while !met()? && from.elapsed() < AFFECTED_WRITE_TIMEOUT {
            match self.kind.trigger {
                WriteTrigger::ClientLoad => {}
                WriteTrigger::SnapshotRequests => snapshots.request_all(nodes)?,
                WriteTrigger::NodeRestart if self.fault.is_honest_disk_fault() => {
                    nodes.kill(&[victim])?;
                    // The node does not become ready, since its disk does not reply.
                    nodes.respawn(victim)?;
                    wait::wait_at_most(AFFECTED_WRITE_TIMEOUT, "a start that writes", || {
                        met().unwrap_or(true).then_some(())
                    })?;
                }
                WriteTrigger::NodeRestart => {
                    nodes.kill(&[victim])?;
                    nodes.restart(&[victim])?;
                    nodes.wait_until_all_serve()?;
                }
                WriteTrigger::NewNode if joined => {}
                WriteTrigger::NewNode => {
                    let newcomers = replace::newcomer_specs(
                        nodes,
                        &nodes::program_path(),
                        1,
                        &SMALL_LOG_FLAGS,
                    )?;
                    replace::add_learners(nodes, newcomers)?;
                    joined = true;
                }
            }
            clients.check_progress()?;
        }
        Ok(())
    }

    /// Cuts the power of a node's machine.
    fn cut_power(
        &self,
        nodes: &mut NodeCluster,
        victim: u32,
        disk: &mut MountedDisk,
    ) -> Result<(), Failed> {
        disk.send_command("hold")?;
        // The process exits once the disk replies, and does nothing more.
        nodes.node(victim)?.signal(Signal::KILL)?;
        disk.send_command("cut")?;
        Ok(nodes.kill(&[victim])?)
    }

    #[allow(clippy::too_many_arguments, reason = "all that a row has come to")]
    fn check_restarted(
        &self,
        nodes: &mut NodeCluster,
        victim: u32,
        done: String,
        before: usize,
        mut found: Vec<(String, String)>,
        mut clients: TrialClients,
        checker: Option<&Checker>,
    ) -> Result<TrialOutcome, Failed> {
        let mut outcome = TrialOutcome { injected_fault: done, ..TrialOutcome::default() };
        let mut refused = None;
        if let Err(why) = nodes.restart(&[victim]) {
            let why = why.to_string();
            // Earlier lines do not concern the refusal.
            let from = why.find("ERROR ").unwrap_or(0);
            refused = Some(why[from..].to_owned());
            let _ = nodes.kill(&[victim]);
            nodes.mark_departed(victim);
        }
        nodes.wait_until_all_serve()?;
        clients.check_progress()?;
        if refused.is_none() {
            found.extend(scrub_findings(nodes, victim)?);
        }
        // Compare first, so that the log is read when it is complete.
        let (keys, bytes) = self.compare_nodes(nodes, clients, refused.is_none(), checker)?;
        (outcome.key_count, outcome.stream_bytes) = (keys, bytes);
        let log = nodes.log_path(victim);
        let said = log.get(before..).unwrap_or_default();
        if let Some(line) = said.lines().find(|line| line.contains("panicked")) {
            return Err(Failed(line.to_owned()));
        }
        let about = said.lines().find(|line| {
            let grave = line.contains(" WARN ") || line.contains(" ERROR ");
            grave && FILE_DAMAGE_WORDS.iter().any(|word| line.contains(word))
        });
        outcome.first_report = refused
            .clone()
            .or_else(|| found.first().map(|(_, what)| what.clone()))
            .or_else(|| about.map(str::to_owned));
        let learns = said.contains("learns without a vote");
        // [lie-4] The other nodes were running and had received the lost data: clients got replies
        // since.
        let lost_end = self.kind.name == "log" && self.fault == DiskFault::LostTail;
        if lost_end && outcome.has_occurred() && refused.is_none() && !learns {
            return Err(Failed(format!(
                "it lost the end of its log, and goes on: {}",
                outcome.injected_fault
            )));
        }
        let sound = refused.is_none() && !learns && found.is_empty();
        if self.fault.is_honest_disk_fault() && !sound {
            let what = outcome.first_report.unwrap_or_default();
            return Err(Failed(format!(
                "a power cut did it damage: {what}; {}",
                outcome.injected_fault
            )));
        }
        outcome.final_state = match refused {
            Some(_) => "the node does not start".to_owned(),
            None if learns => "the node learns without a vote".to_owned(),
            None => describe_findings(&found),
        };
        Ok(outcome)
    }

    /// Compares all acknowledged data on all remaining nodes, and checks the clients' history and
    /// the nodes' alarms.
    fn compare_nodes(
        &self,
        nodes: &mut NodeCluster,
        clients: TrialClients,
        all: bool,
        checker: Option<&Checker>,
    ) -> Result<(usize, u64), Failed> {
        let lanes = clients.stream_lanes();
        if let Some(streams) = clients.streams {
            streams.finish()?;
        }
        let operations = match clients.load {
            Some(load) => finish_load(load, all)?,
            None => Vec::new(),
        };
        let keys = clients.keys.compare(nodes)?;
        let bytes = match lanes.is_empty() {
            true => 0,
            false => stream_load::compare_nodes(&lanes, &nodes.stream_addresses())?.bytes,
        };
        if let Some(checker) = checker.filter(|_| !operations.is_empty()) {
            let (verdict, text) = checker.check_history(&operations, nodes.data_folder())?;
            if verdict != Verdict::Linearizable {
                return Err(Failed(format!("{verdict:?}: {text}")));
            }
        }
        for id in nodes.ids() {
            let alarms = nodes.metric(id, "quorate_alarms_total")?;
            if alarms > 0 {
                return Err(Failed(format!("node {id} raised {alarms} alarms")));
            }
        }
        Ok((keys, bytes))
    }
}

/// Stops the clients and returns their operations. Fails if a client got a wrong reply or an
/// acknowledged insert is lost.
fn finish_load(load: ClientLoad, all: bool) -> Result<Vec<Operation>, Failed> {
    let shared = Arc::clone(&load.shared);
    let mut seen = load.finish()?;
    if let Some(what) = seen.first_violation.take() {
        return Err(Failed(format!("a client got {what}")));
    }
    if all {
        let last = read_all_keys(&seen, &shared)?;
        seen.operations.extend(last);
    }
    check_nothing_lost(&seen, &shared)?;
    Ok(seen.operations)
}

/// Describes how the scrubs' findings were handled.
fn describe_findings(found: &[(String, String)]) -> String {
    let kinds: BTreeSet<&str> = found.iter().map(|(fate, _)| fate.as_str()).collect();
    let counts = kinds.into_iter().map(|fate| {
        let count = found.iter().filter(|(one, _)| one == fate).count();
        format!("{count} {fate}")
    });
    let counts: Vec<String> = counts.collect();
    match counts.is_empty() {
        true => "the node serves".to_owned(),
        false => format!("the node serves: {}", counts.join(", ")),
    }
}

/// Flips a bit of a nonzero byte in a file of kind `kind` that is in use.
fn flip_bit(disk: &MountedDisk, kind: &str, dice: &mut Dice) -> Result<String, Failed> {
    let root = disk.underlying_folder();
    let mut names = drop_unused(list_files(&root, kind)?);
    dice.shuffle(&mut names);
    for name in names {
        let bytes = fs::read(root.join(&name))?;
        let used = used_blocks(&name, &bytes);
        if used.is_empty() {
            continue;
        }
        let from = used[dice.index(used.len())] * BLOCK_BYTES;
        let to = bytes.len().min(from + BLOCK_BYTES);
        let places: Vec<usize> = (from..to).filter(|at| bytes[*at] != 0).collect();
        let at = places[dice.index(places.len())];
        let bit = dice.below(8);
        let file = fs::File::options().write(true).open(root.join(&name))?;
        file.write_all_at(&[bytes[at] ^ (1 << bit)], at as u64)?;
        return Ok(format!("{name} at {at}: bit {bit}"));
    }
    Ok(String::new())
}

/// Drops locks and temporary files from a list of files, and keeps only the latest list of a tree's
/// tables (`v7`).
fn drop_unused(mut names: Vec<String>) -> Vec<String> {
    let list = |name: &str| {
        let (folder, name) = name.rsplit_once('/')?;
        let number = name.strip_prefix('v')?.parse::<u64>().ok()?;
        Some((folder.to_owned(), number))
    };
    let lists: Vec<_> = names.iter().filter_map(|name| list(name)).collect();
    names.retain(|name| {
        let is_old = list(name).is_some_and(|(folder, number)| {
            let newer = |(other, later): &(String, u64)| *other == folder && *later > number;
            lists.iter().any(newer)
        });
        let last = name.rsplit('/').next().unwrap_or_default();
        !is_old && last != "lock" && !last.ends_with(".new") && !last.starts_with(".tmp")
    });
    names
}

/// Returns the blocks that are not all zeros, since zeros are mostly free space. In a log segment
/// only blocks written since it got its number count.
fn used_blocks(name: &str, bytes: &[u8]) -> Vec<usize> {
    let segment = name.strip_suffix(".segment").and_then(|name| {
        let (_, number) = name.rsplit_once('/')?;
        u64::from_str_radix(number, 16).ok()
    });
    let mut live = segment.is_none();
    let mut used = Vec::new();
    for (at, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        if let (Some(number), true) = (segment, block.starts_with(LOG_WRITE_MAGIC)) {
            live = block
                .get(SEGMENT_NUMBER_OFFSET..)
                .is_some_and(|rest| rest.starts_with(&number.to_le_bytes()));
        }
        if live && block.iter().any(|byte| *byte != 0) {
            used.push(at);
        }
    }
    used
}

/// Returns the findings of a scrub of this node, each with its handling and its description. A node
/// that has exited has no findings.
fn scrub_findings(nodes: &mut NodeCluster, id: u32) -> Result<Vec<(String, String)>, Failed> {
    let program = nodes::program_path();
    let node = nodes.node(id)?;
    let output = process::command_of(&program)
        .args(["scrub", "--json", "--pace", "1GB", "--admin"])
        .arg(&node.ready.admin)
        .output()?;
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let found = said["found"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(found
        .iter()
        .map(|one| {
            let what = format!("{}: {}", text(&one["kind"]), text(&one["what"]));
            (text(&one["fate"]), what)
        })
        .collect())
}
