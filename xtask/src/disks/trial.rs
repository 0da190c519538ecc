//! One kind of file, one fault, one node of three: judges what clients saw, and records what the node said.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::FileExt as _,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use quorate_core::dice::Dice;
use quorate_testbed::{
    nodes::Nodes,
    process,
    stream_load::{self, Lane},
    trial::load::Load,
    wait,
    writers::Writers,
};
use rustix::process::Signal;
use serde_json::Value;

use super::{
    Fault, Kind,
    disk::{Disk, files},
};
use crate::{
    cluster::{
        check::{Checker, Verdict, evidence},
        round::{final_reads, nothing_lost},
    },
    nodes,
    shell::Failed,
};

const NODES: u32 = 3;
/// Small logs, so that they are trimmed.
const FLAGS: [&str; 8] = [
    "--durability",
    "durable",
    "--log-ready",
    "0",
    "--log-segment",
    "8388608",
    "--snapshot-ratio",
    "1",
];
/// Operations and writes between two events.
const OPERATIONS: u64 = 300;
const WRITES: u64 = 60;
/// Bytes that the writer of a stream writes at a time.
const STREAM_PART: u64 = 8 << 10;
/// How long a disk waits for a write of the kind in question: some files are hardly ever written.
const PREY: Duration = Duration::from_secs(15);
/// Between the power's going and its being gone.
const HELD: Duration = Duration::from_secs(2);
/// What is read and written as a whole.
const BLOCK: usize = 4096;
/// Lines about files that a node may not like. A lost leader is none of them.
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

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) fault: Fault,
    pub(super) seed: u64,
}

/// What came of it; nothing was lost, and nothing wrong was served.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What the disk did.
    pub(super) done: String,
    /// What the node said about it first.
    pub(super) noticed: Option<String>,
    /// What became of the node.
    pub(super) end: String,
    pub(super) keys: usize,
    pub(super) stream_bytes: u64,
}

/// Clients.
struct Clients {
    load: Load,
    keys: Writers,
    streams: stream_load::Load,
}

impl Clients {
    fn start(nodes: &Nodes, seed: u64) -> io::Result<Self> {
        let addresses = nodes.client_addresses();
        Ok(Self {
            load: Load::start(addresses.clone(), seed)?,
            keys: Writers::few(1, &addresses),
            streams: stream_load::Load::start(&nodes.stream_addresses(), false, STREAM_PART, seed)?,
        })
    }

    fn go_on(&mut self) -> Result<(), Failed> {
        let (known, written) = (self.load.known(), self.keys.acknowledged());
        nodes::wait_for("clients to go on", || {
            let more = self.load.known() >= known + OPERATIONS
                && self.keys.acknowledged() >= written + WRITES;
            more.then_some(())
        })?;
        Ok(self.streams.wait_going_on()?)
    }
}

impl Row {
    /// Three nodes, one disk that fails, and everything compared.
    pub(super) fn play(&self, checker: Option<&Checker>) -> Result<Outcome, Failed> {
        let mut dice = Dice::new(self.seed);
        let mut disk = Disk::mount()?;
        let victim = 2 + u32::from(dice.chance(1, 2));
        let mut nodes = Nodes::none("quorate-disks-")?;
        let flags = [&FLAGS[..], &["--store", self.kind.store]].concat();
        let mut specs = process::cluster(&nodes::program(), nodes.folder(), NODES, &flags)?;
        specs[victim as usize - 1].data = disk.place();
        if self.kind.early && self.fault != Fault::Flip {
            self.arm(&mut disk, &mut dice)?;
        }
        let mut lanes = Vec::new();
        let played = nodes.start(specs).map_err(Failed::from).and_then(|()| {
            self.under_load(
                &mut nodes, victim, &mut disk, &mut dice, &mut lanes, checker,
            )
        });
        played.map_err(|Failed(why)| {
            let place = evidence(&format!(
                "disks-{}-{}-{}",
                self.kind.name,
                self.fault.name(),
                self.seed
            ));
            let done = disk.tell("done").unwrap_or_default();
            match place {
                Ok(place) => {
                    let _ = stream_load::save(&lanes, &place);
                    // The folder of the node in question is on the disk, which goes.
                    let _ = Command::new("cp")
                        .arg("-R")
                        .arg(disk.under())
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

    fn arm(&self, disk: &mut Disk, dice: &mut Dice) -> Result<(), Failed> {
        let (fault, files) = (self.fault.name(), self.kind.files);
        let word = dice.word();
        disk.tell(&format!("arm {fault} {files} {word}"))?;
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
        *lanes = clients.streams.lanes();
        clients.go_on()?;
        let under = disk.under();
        let mut waited = 0;
        // The first snapshot is taken when the log is long enough.
        while files(&under, self.kind.files)?.is_empty() && waited < 20 {
            clients.go_on()?;
            waited += 1;
        }
        let before = nodes.log(victim).len();
        let mut found = Vec::new();
        match self.fault {
            Fault::Flip => {
                let done = flip(disk, self.kind.files, dice)?;
                found.extend(scrub(nodes, victim)?);
                let ended = nodes.check_alive();
                let done = match ended {
                    Ok(()) => done,
                    Err(why) => format!("{done}; {why}"),
                };
                let _ = nodes.kill(&[victim]);
                return self.restarted(nodes, victim, done, before, found, clients, checker);
            }
            Fault::Misdirected => {
                if !self.kind.early {
                    self.arm(disk, dice)?;
                }
                self.wait_for_prey(disk, &mut clients)?;
                found.extend(scrub(nodes, victim)?);
                disk.tell("calm")?;
                nodes.kill(&[victim])?;
            }
            Fault::Torn | Fault::Reordered => {
                if !self.kind.early {
                    self.arm(disk, dice)?;
                }
                disk.tell("hold")?;
                let from = Instant::now();
                let _ = wait::at_most(PREY, "a write that is held", || {
                    let some = disk.prey().is_ok_and(|prey| prey > 1);
                    (some || from.elapsed() > HELD).then_some(())
                });
                self.cut(nodes, victim, disk)?;
            }
            Fault::LostOne | Fault::LostTail => {
                if !self.kind.early {
                    self.arm(disk, dice)?;
                }
                self.wait_for_prey(disk, &mut clients)?;
                clients.go_on()?;
                self.cut(nodes, victim, disk)?;
            }
        }
        let done = disk.tell("done")?;
        self.restarted(nodes, victim, done, before, found, clients, checker)
    }

    /// Clients go on until there was a write to such a file, or it is clear that there is none.
    fn wait_for_prey(&self, disk: &mut Disk, clients: &mut Clients) -> Result<(), Failed> {
        let from = Instant::now();
        while disk.prey()? == 0 && from.elapsed() < PREY {
            clients.go_on()?;
        }
        Ok(())
    }

    /// The power of a node's machine.
    fn cut(&self, nodes: &mut Nodes, victim: u32, disk: &mut Disk) -> Result<(), Failed> {
        disk.tell("hold")?;
        // It ends when the disk answers, and does nothing more.
        nodes.node(victim)?.signal(Signal::KILL)?;
        disk.tell("cut")?;
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
        let mut outcome = Outcome {
            done,
            ..Outcome::default()
        };
        let met = !outcome.done.is_empty();
        if outcome.done.is_empty() {
            outcome.done = "there was no such write".to_owned();
        }
        let mut refused = None;
        if let Err(why) = nodes.restart(&[victim]) {
            let why = why.to_string();
            // The lines before are about other things.
            let from = why.find("error: ").unwrap_or(0);
            refused = Some(why[from..].to_owned());
            let _ = nodes.kill(&[victim]);
            nodes.leave(victim);
        }
        nodes.wait_until_all_serve()?;
        clients.go_on()?;
        if refused.is_none() {
            found.extend(scrub(nodes, victim)?);
        }
        // What the node says of itself in the end.
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
        // [lie-4] The others ran, and had heard of what is gone: clients were answered since.
        let lost_end = self.kind.name == "log" && self.fault == Fault::LostTail;
        if lost_end && met && refused.is_none() && !learns {
            return Err(Failed(format!(
                "it lost the end of its log, and goes on: {}",
                outcome.done
            )));
        }
        outcome.end = match refused {
            Some(_) => "the node does not start".to_owned(),
            None if learns => "the node learns without a vote".to_owned(),
            None => fates(&found),
        };
        Ok(outcome)
    }

    /// Everything that was acknowledged, on all nodes that are left.
    fn compare(
        &self,
        nodes: &mut Nodes,
        clients: Clients,
        all: bool,
        checker: Option<&Checker>,
    ) -> Result<(usize, u64), Failed> {
        let lanes = clients.streams.lanes();
        clients.streams.finish()?;
        let shared = Arc::clone(&clients.load.shared);
        let mut seen = clients.load.finish()?;
        if let Some(what) = seen.strange.take() {
            return Err(Failed(format!("a client got {what}")));
        }
        if all {
            let last = final_reads(&seen, &shared)?;
            seen.operations.extend(last);
        }
        nothing_lost(&seen, &shared)?;
        let keys = clients.keys.compare(nodes)?;
        let sum = stream_load::compare(&lanes, &nodes.stream_addresses())?;
        if let Some(checker) = checker {
            let (verdict, text) = checker.judge(&seen.operations, nodes.folder())?;
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
        Ok((keys, sum.bytes))
    }
}

/// What became of what scrubs found.
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

/// A bit of a byte that is not zero, in a block of a file of this kind: zeros are mostly free space.
fn flip(disk: &Disk, kind: &str, dice: &mut Dice) -> Result<String, Failed> {
    let root = disk.under();
    let mut names = files(&root, kind)?;
    names.retain(|name| !name.ends_with("lock"));
    dice.shuffle(&mut names);
    for name in names {
        let bytes = fs::read(root.join(&name))?;
        let blocks = bytes.chunks(BLOCK).enumerate();
        let used: Vec<usize> = blocks
            .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
            .map(|(at, _)| at)
            .collect();
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

/// What a scrub of this node finds: what becomes of it, and what it is. A node that has ended finds nothing.
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
