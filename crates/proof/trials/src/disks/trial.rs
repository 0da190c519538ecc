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
    nodes::Nodes,
    process, replace,
    stream_load::{self, Lane},
    trial::{history::Operation, load::Load},
    wait,
    writers::Writers,
};
use rustix::process::Signal;
use serde_json::Value;

use super::{
    Fault, Kind, UNMET, WriteTrigger,
    disk::{Disk, files},
};
use crate::{
    cluster::{
        check::{Checker, Verdict, create_evidence_folder},
        round::{final_reads, nothing_lost},
    },
    nodes,
    shell::Failed,
};

const NODES: u32 = 3;
/// Flags for small logs, which are trimmed soon.
const SMALL: [&str; 6] = ["--log-ready", "0", "--log-segment", "8388608", "--snapshot-ratio", "1"];
/// Number of operations, and of writes, between two events.
const OPERATIONS: u64 = 300;
const WRITES: u64 = 60;
/// Size of a stream writer's writes, in bytes.
const STREAM_PART: u64 = 8 << 10;
/// Time to wait for a write that a fault can affect. It is long because some files are rarely
/// written.
const PREY: Duration = Duration::from_secs(60);
/// Time to wait for more writes in flight when the power fails.
const HELD: Duration = Duration::from_secs(2);
/// Size of a block in bytes. Blocks are read and written as a whole.
const BLOCK: usize = 4096;
/// First bytes of a log write. The number of its segment is at [`SEGMENT_AT`].
const LOG_WRITE: &[u8] = b"qrtebtch";
const SEGMENT_AT: usize = 40;
/// Fragments of log lines about damaged files. Reports of a lost leader are not among them.
const ABOUT_FILES: [&str; 9] = [
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
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) fault: Fault,
    pub(super) seed: u64,
}

/// Result of a trial without loss and without a wrong reply.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Description of the injected fault.
    pub(super) done: String,
    /// The node's first report about the fault.
    pub(super) noticed: Option<String>,
    /// Final state of the node.
    pub(super) end: String,
    pub(super) keys: usize,
    pub(super) stream_bytes: u64,
}

impl Outcome {
    /// Returns whether the fault occurred.
    pub(super) fn has_occurred(&self) -> bool {
        !self.done.is_empty()
    }
}

/// Clients of keys, and of the service's other data.
struct Clients {
    load: Option<Load>,
    keys: Writers,
    streams: Option<stream_load::Load>,
}

impl Clients {
    fn start(nodes: &Nodes, seed: u64) -> io::Result<Self> {
        let addresses = nodes.client_addresses();
        if nodes.speak_etcd() {
            return Ok(Self { load: None, keys: Writers::busy_etcd(&addresses), streams: None });
        }
        let streams = nodes.stream_addresses();
        Ok(Self {
            load: Some(Load::start(addresses.clone(), seed)?),
            keys: Writers::few(1, &addresses),
            streams: Some(stream_load::Load::start(&streams, false, STREAM_PART, seed)?),
        })
    }

    fn lanes(&self) -> Vec<Arc<Lane>> {
        let streams = self.streams.as_ref();
        streams.map(stream_load::Load::lanes).unwrap_or_default()
    }

    fn known(&self) -> Option<u64> {
        self.load.as_ref().map(Load::known)
    }

    fn check_progress(&mut self) -> Result<(), Failed> {
        let (known, written) = (self.known(), self.keys.acknowledged());
        nodes::wait_for("clients to go on", || {
            let more = known.is_none_or(|known| self.known() >= Some(known + OPERATIONS));
            (more && self.keys.acknowledged() >= written + WRITES).then_some(())
        })?;
        let streams = self.streams.as_mut();
        Ok(streams.map_or(Ok(()), stream_load::Load::wait_going_on)?)
    }
}

/// Running `quorate snapshot` commands. Dropping this kills those still waiting for a reply.
#[derive(Default)]
struct Snapshots(Vec<Child>);

impl Snapshots {
    /// Requests a snapshot from every node, unless an earlier request is still pending.
    fn request_all(&mut self, nodes: &Nodes) -> io::Result<()> {
        let owed = |child: &mut Child| child.try_wait().is_ok_and(|ended| ended.is_none());
        if self.0.iter_mut().any(owed) {
            return Ok(());
        }
        self.0.clear();
        for admin in nodes.admin_addresses() {
            let mut ask = process::command(&nodes::program());
            ask.args(["snapshot", "--admin", &admin]);
            let child = ask.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            self.0.push(child);
        }
        Ok(())
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Row {
    /// Returns the reason why the fault cannot occur in this row; `None` if it can.
    pub(super) fn why_unmet(&self) -> Option<&'static str> {
        let mut all = UNMET.iter();
        all.find(|(kind, fault, _)| *kind == self.kind.name && *fault == self.fault)
            .map(|(.., why)| *why)
    }

    /// Runs three nodes, one of them on a failing disk, and compares all data.
    pub(super) fn run_trial(&self, checker: Option<&Checker>) -> Result<Outcome, Failed> {
        let mut dice = Dice::new(self.seed);
        let mut disk = Disk::mount()?;
        let victim = 2 + u32::from(dice.chance(1, 2));
        let mut nodes = Nodes::none("quorate-disks-")?;
        let durable = ["--durability", "durable"];
        let flags = [&durable, &SMALL[..], self.kind.flags].concat();
        let mut specs = process::cluster(&nodes::program(), nodes.folder(), NODES, &flags)?;
        specs[victim as usize - 1].data = disk.mount_point();
        let mut lanes = Vec::new();
        let played = nodes.start(specs).map_err(Failed::from).and_then(|()| {
            self.under_load(&mut nodes, victim, &mut disk, &mut dice, &mut lanes, checker)
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
                    let _ = stream_load::save(&lanes, &place);
                    // Copy the node's folder before the disk is removed.
                    let _ = Command::new("cp")
                        .arg("-R")
                        .arg(disk.underlying_folder())
                        .arg(place.join("disk"))
                        .status();
                    let mut kept = std::mem::replace(
                        &mut nodes,
                        Nodes::none("quorate-disks-").expect("a folder"),
                    );
                    kept.end();
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

    fn start_fault(&self, disk: &mut Disk, dice: &mut Dice) -> Result<(), Failed> {
        let (fault, files) = (self.fault.name(), self.kind.files);
        let word = dice.word();
        disk.send_command(&format!("arm {fault} {files} {word}"))?;
        Ok(())
    }

    fn under_load(
        &self,
        nodes: &mut Nodes,
        victim: u32,
        disk: &mut Disk,
        dice: &mut Dice,
        lanes: &mut Vec<Arc<Lane>>,
        checker: Option<&Checker>,
    ) -> Result<Outcome, Failed> {
        nodes.wait_until_all_serve()?;
        let mut clients = Clients::start(nodes, self.seed)?;
        *lanes = clients.lanes();
        clients.check_progress()?;
        let before = nodes.log(victim).len();
        let mut found = Vec::new();
        let mut flipped = None;
        match self.fault {
            Fault::Flip => {
                let under = disk.underlying_folder();
                self.write_until(nodes, victim, &mut clients, &mut || {
                    Ok(!files(&under, self.kind.files)?.is_empty())
                })?;
                flipped = Some(flip(disk, self.kind.files, dice)?);
                found.extend(scrub(nodes, victim)?);
                if let (Err(why), Some(done)) = (nodes.check_alive(), &mut flipped) {
                    *done = format!("{done}; {why}");
                }
                let _ = nodes.kill(&[victim]);
            }
            Fault::Misdirected => {
                self.start_fault(disk, dice)?;
                self.write_until(nodes, victim, &mut clients, &mut || {
                    Ok(disk.undoable_changes()? > 0)
                })?;
                found.extend(scrub(nodes, victim)?);
                disk.send_command("calm")?;
                nodes.kill(&[victim])?;
            }
            Fault::Torn | Fault::Reordered | Fault::LostNames => {
                self.start_fault(disk, dice)?;
                disk.send_command("hold")?;
                self.write_until(nodes, victim, &mut clients, &mut || {
                    Ok(disk.undoable_changes()? > 0)
                })?;
                // Names may be lost without ever being flushed.
                let _ = wait::at_most(HELD, "a write to wait for the disk", || {
                    disk.withheld_count().is_ok_and(|held| held > 1).then_some(())
                });
                self.cut_power(nodes, victim, disk)?;
            }
            Fault::LostOne | Fault::LostTail => {
                self.start_fault(disk, dice)?;
                self.write_until(nodes, victim, &mut clients, &mut || {
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
        self.restarted(nodes, victim, done, before, found, clients, checker)
    }

    /// Makes a node write files of this kind until the condition is met or [`PREY`] has passed.
    fn write_until(
        &self,
        nodes: &mut Nodes,
        victim: u32,
        clients: &mut Clients,
        met: &mut dyn FnMut() -> io::Result<bool>,
    ) -> Result<(), Failed> {
        let from = Instant::now();
        let mut snapshots = Snapshots::default();
        let mut joined = false;
        while !met()? && from.elapsed() < PREY {
            match self.kind.trigger {
                WriteTrigger::Load => {}
                WriteTrigger::Snapshots => snapshots.request_all(nodes)?,
                WriteTrigger::Restart if self.fault.is_honest() => {
                    nodes.kill(&[victim])?;
                    // The node does not become ready, since its disk does not reply.
                    nodes.respawn(victim)?;
                    wait::at_most(PREY, "a start that writes", || {
                        met().unwrap_or(true).then_some(())
                    })?;
                }
                WriteTrigger::Restart => {
                    nodes.kill(&[victim])?;
                    nodes.restart(&[victim])?;
                    nodes.wait_until_all_serve()?;
                }
                WriteTrigger::Newcomer if joined => {}
                WriteTrigger::Newcomer => {
                    let newcomers = replace::newcomers(nodes, &nodes::program(), 1, &SMALL)?;
                    replace::learners(nodes, newcomers)?;
                    joined = true;
                }
            }
            clients.check_progress()?;
        }
        Ok(())
    }

    /// Cuts the power of a node's machine.
    fn cut_power(&self, nodes: &mut Nodes, victim: u32, disk: &mut Disk) -> Result<(), Failed> {
        disk.send_command("hold")?;
        // The process exits once the disk replies, and does nothing more.
        nodes.node(victim)?.signal(Signal::KILL)?;
        disk.send_command("cut")?;
        Ok(nodes.kill(&[victim])?)
    }

    #[allow(clippy::too_many_arguments, reason = "all that a row has come to")]
    fn restarted(
        &self,
        nodes: &mut Nodes,
        victim: u32,
        done: String,
        before: usize,
        mut found: Vec<(String, String)>,
        mut clients: Clients,
        checker: Option<&Checker>,
    ) -> Result<Outcome, Failed> {
        let mut outcome = Outcome { done, ..Outcome::default() };
        let mut refused = None;
        if let Err(why) = nodes.restart(&[victim]) {
            let why = why.to_string();
            // Earlier lines do not concern the refusal.
            let from = why.find("ERROR ").unwrap_or(0);
            refused = Some(why[from..].to_owned());
            let _ = nodes.kill(&[victim]);
            nodes.leave(victim);
        }
        nodes.wait_until_all_serve()?;
        clients.check_progress()?;
        if refused.is_none() {
            found.extend(scrub(nodes, victim)?);
        }
        // Compare first, so that the log is read when it is complete.
        let (keys, bytes) = self.compare(nodes, clients, refused.is_none(), checker)?;
        (outcome.keys, outcome.stream_bytes) = (keys, bytes);
        let log = nodes.log(victim);
        let said = log.get(before..).unwrap_or_default();
        if let Some(line) = said.lines().find(|line| line.contains("panicked")) {
            return Err(Failed(line.to_owned()));
        }
        let about = said.lines().find(|line| {
            let grave = line.contains(" WARN ") || line.contains(" ERROR ");
            grave && ABOUT_FILES.iter().any(|word| line.contains(word))
        });
        outcome.noticed = refused
            .clone()
            .or_else(|| found.first().map(|(_, what)| what.clone()))
            .or_else(|| about.map(str::to_owned));
        let learns = said.contains("learns without a vote");
        // [lie-4] The other nodes were running and had received the lost data: clients got replies
        // since.
        let lost_end = self.kind.name == "log" && self.fault == Fault::LostTail;
        if lost_end && outcome.has_occurred() && refused.is_none() && !learns {
            return Err(Failed(format!(
                "it lost the end of its log, and goes on: {}",
                outcome.done
            )));
        }
        let sound = refused.is_none() && !learns && found.is_empty();
        if self.fault.is_honest() && !sound {
            let what = outcome.noticed.unwrap_or_default();
            return Err(Failed(format!("a power cut did it damage: {what}; {}", outcome.done)));
        }
        outcome.end = match refused {
            Some(_) => "the node does not start".to_owned(),
            None if learns => "the node learns without a vote".to_owned(),
            None => fates(&found),
        };
        Ok(outcome)
    }

    /// Compares all acknowledged data on all remaining nodes, and checks the clients' history and
    /// the nodes' alarms.
    fn compare(
        &self,
        nodes: &mut Nodes,
        clients: Clients,
        all: bool,
        checker: Option<&Checker>,
    ) -> Result<(usize, u64), Failed> {
        let lanes = clients.lanes();
        if let Some(streams) = clients.streams {
            streams.finish()?;
        }
        let operations = match clients.load {
            Some(load) => finished(load, all)?,
            None => Vec::new(),
        };
        let keys = clients.keys.compare(nodes)?;
        let bytes = match lanes.is_empty() {
            true => 0,
            false => stream_load::compare(&lanes, &nodes.stream_addresses())?.bytes,
        };
        if let Some(checker) = checker.filter(|_| !operations.is_empty()) {
            let (verdict, text) = checker.check_history(&operations, nodes.folder())?;
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
fn finished(load: Load, all: bool) -> Result<Vec<Operation>, Failed> {
    let shared = Arc::clone(&load.shared);
    let mut seen = load.finish()?;
    if let Some(what) = seen.strange.take() {
        return Err(Failed(format!("a client got {what}")));
    }
    if all {
        let last = final_reads(&seen, &shared)?;
        seen.operations.extend(last);
    }
    nothing_lost(&seen, &shared)?;
    Ok(seen.operations)
}

/// Describes how the scrubs' findings were handled.
fn fates(found: &[(String, String)]) -> String {
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
fn flip(disk: &Disk, kind: &str, dice: &mut Dice) -> Result<String, Failed> {
    let root = disk.underlying_folder();
    let mut names = in_use(files(&root, kind)?);
    dice.shuffle(&mut names);
    for name in names {
        let bytes = fs::read(root.join(&name))?;
        let used = used_blocks(&name, &bytes);
        if used.is_empty() {
            continue;
        }
        let from = used[dice.index(used.len())] * BLOCK;
        let to = bytes.len().min(from + BLOCK);
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
fn in_use(mut names: Vec<String>) -> Vec<String> {
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
    for (at, block) in bytes.chunks(BLOCK).enumerate() {
        if let (Some(number), true) = (segment, block.starts_with(LOG_WRITE)) {
            live =
                block.get(SEGMENT_AT..).is_some_and(|rest| rest.starts_with(&number.to_le_bytes()));
        }
        if live && block.iter().any(|byte| *byte != 0) {
            used.push(at);
        }
    }
    used
}

/// Returns the findings of a scrub of this node, each with its handling and its description. A node
/// that has exited has no findings.
fn scrub(nodes: &mut Nodes, id: u32) -> Result<Vec<(String, String)>, Failed> {
    let program = nodes::program();
    let node = nodes.node(id)?;
    let output = process::command(&program)
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
