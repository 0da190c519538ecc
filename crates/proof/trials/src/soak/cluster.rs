//! Long-lived cluster, and the actions that each cycle performs on it.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    sync::Arc,
};

use quorate_client::stream::Streams;
use quorate_core::dice::Dice;
use quorate_testbed::{
    etcd,
    nodes::Nodes,
    process,
    replace::{self, Step},
    resp::Link,
    run,
    stream_load::{self, Lane},
    trial::faults::Plan,
    writers::Writers,
};

use super::{
    clocks::{Clocks, Deadlines, WrongClock},
    sample::{Sample, growing_figures},
};
use crate::{nodes, shell::Failed, writing::Writing};

const NODES: u32 = 3;
/// Number of faults in a cycle.
const FAULTS: u32 = 4;
/// Number of faults per clock jump. The jump precedes one of them.
const FAULTS_PER_JUMP: u32 = 2;
/// Mount options for the file system that is filled.
const DISK: &str = "size=512m";
/// Size of each write that fills the disk, in bytes.
const FILL: usize = 64 << 10;

/// Kind of cluster, with its flags and the faults that it is subject to.
pub(super) struct Kind {
    pub(super) name: &'static str,
    flags: &'static [&'static str],
    durable: bool,
    streams: bool,
    /// Set if members are replaced.
    replaced: bool,
    /// Set if node 3 uses a small disk that the test fills up.
    filled: bool,
}

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        name: "keys on disk and byte streams, durable, members replaced",
        flags: &["--store", "lsm", "--durability", "durable"],
        durable: true,
        streams: true,
        replaced: true,
        filled: false,
    },
    Kind {
        name: "keys in memory, volatile",
        flags: &["--store", "memory", "--durability", "volatile"],
        durable: false,
        streams: false,
        replaced: false,
        filled: false,
    },
    Kind {
        name: "etcd's keys on disk, durable, a disk that fills up",
        flags: &["--service", "etcd", "--store", "lsm"],
        durable: true,
        streams: false,
        replaced: false,
        filled: true,
    },
];

/// Flags for small files, which are created and deleted many times an hour.
const SMALL: [&str; 6] = ["--log-ready", "0", "--log-segment", "8388608", "--snapshot-ratio", "1"];

/// Work done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkDone {
    pub(super) cycles: u64,
    pub(super) faults: u64,
    pub(super) replaced: u64,
    pub(super) exchanged: u64,
    pub(super) filled: u64,
    /// Number of clock jumps.
    pub(super) jumped: u64,
    /// Number of keys compared on each node.
    pub(super) keys: u64,
    /// Bytes of streams compared.
    pub(super) stream_bytes: u64,
}

/// Resources available to the run.
pub(super) struct Means {
    /// Program of another revision, which alternates with the current one.
    pub(super) old: Option<PathBuf>,
    /// Set if a small disk can be mounted.
    pub(super) mounts: bool,
    /// Library for clock jumps, if it could be built.
    pub(super) clocks: Option<Clocks>,
}

/// A cluster and the data recorded about it.
pub(super) struct Cluster {
    pub(super) kind: &'static Kind,
    pub(super) done: WorkDone,
    /// One sample per cycle.
    pub(super) samples: Vec<Sample>,
    nodes: Nodes,
    plan: Plan,
    dice: Dice,
    new: PathBuf,
    means: Rc<Means>,
    wrong_clock: WrongClock,
    /// Folder of the small disk, if it could be mounted.
    disk: Option<PathBuf>,
}

impl Cluster {
    /// Starts a cluster and waits until its nodes serve.
    pub(super) fn start(kind: &'static Kind, means: Rc<Means>, seed: u64) -> io::Result<Self> {
        let new = nodes::program();
        let flags = [kind.flags, &SMALL].concat();
        let mut nodes = Nodes::none("quorate-soak-")?;
        let mut specs = process::cluster(&new, nodes.folder(), NODES, &flags)?;
        let mut disk = None;
        if let (true, true, Some(spec)) = (kind.filled, means.mounts, specs.last_mut()) {
            let place = nodes.folder().join("disk");
            fs::create_dir(&place)?;
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", DISK, "tmpfs"]);
            run::read(mount.arg(&place))?;
            spec.data = place.join("node");
            disk = Some(place);
        }
        prepare(&means, &mut specs)?;
        nodes.start(specs)?;
        nodes.wait_until_all_serve()?;
        let mut dice = Dice::new(seed);
        Ok(Self {
            kind,
            done: WorkDone::default(),
            samples: Vec::new(),
            plan: Plan::new(kind.durable, false, dice.word()),
            nodes,
            dice,
            new,
            means,
            wrong_clock: WrongClock::default(),
            disk,
        })
    }

    /// Runs a cycle of load, faults, comparison and rest.
    pub(super) fn cycle(&mut self) -> Result<(), Failed> {
        let kind = self.kind.name;
        let cycle = self.done.cycles + 1;
        let played = self.under_load();
        played.map_err(|why| Failed(format!("{kind}, cycle {cycle}: {why}")))?;
        let sample = Sample::measure(&self.nodes);
        let sample =
            sample.map_err(|why| Failed(format!("{kind}, cycle {cycle}, at rest: {why}")))?;
        println!("{kind}, cycle {cycle}: {sample}");
        self.samples.push(sample);
        self.done.cycles = cycle;
        Ok(())
    }

    fn under_load(&mut self) -> io::Result<()> {
        let mut newcomers = match self.kind.replaced {
            true => replace::newcomers(&self.nodes, &self.new, 1, &SMALL)?,
            false => Vec::new(),
        };
        prepare(&self.means, &mut newcomers)?;
        let addresses = replace::client_addresses(&self.nodes, &newcomers);
        let keys = match self.nodes.speak_etcd() {
            true => Writers::calm_etcd(&addresses),
            false => Writers::calm(&addresses),
        };
        let mut writing = Writing::keys(keys);
        if self.kind.streams {
            let mut at = self.nodes.stream_addresses();
            let later = newcomers.iter().filter_map(|spec| spec.flag("--stream"));
            at.extend(later.map(str::to_owned));
            writing = writing.and_streams(&at, false, self.dice.word())?;
        }
        let mut deadlines = None;
        for fault in 0..FAULTS {
            writing.goes_on()?;
            if fault % FAULTS_PER_JUMP == 0 && self.means.clocks.is_some() {
                self.wrong_clock.shift_clock(&mut self.nodes, &self.new, &mut self.dice)?;
                self.done.jumped += u64::from(self.wrong_clock.is_some());
                if deadlines.is_none() {
                    deadlines = Some(Deadlines::set(&self.nodes)?);
                }
            }
            let step = self.plan.draw();
            let played = self.plan.play(step, &mut self.nodes, None);
            played.map_err(|why| io::Error::other(format!("{step}: {why}")))?;
            self.done.faults += 1;
        }
        for spec in newcomers {
            self.replace(spec, &mut writing)?;
        }
        self.exchange(&mut writing)?;
        self.fill(&mut writing)?;
        writing.goes_on()?;
        if let Some(deadlines) = deadlines {
            deadlines.check_deadlines(&self.nodes)?;
        }
        self.wrong_clock.right(&mut self.nodes)?;
        self.compare(writing)
    }

    /// Replaces one of the members.
    fn replace(&mut self, spec: process::Spec, writing: &mut Writing) -> io::Result<()> {
        let ids = self.nodes.ids();
        let old = ids[self.dice.index(ids.len())];
        let mut failed = Ok(());
        replace::one(&mut self.nodes, &self.new, old, spec, &mut |_, step: &Step| {
            if failed.is_ok() {
                failed = writing
                    .goes_on()
                    .map_err(|why| io::Error::other(format!("after {step}: {why}")));
            }
        })?;
        failed?;
        let left = self.nodes.node(old)?;
        fs::remove_dir_all(&left.spec.data)?;
        self.done.replaced += 1;
        Ok(())
    }

    /// Restarts a node with the other program.
    fn exchange(&mut self, writing: &mut Writing) -> io::Result<()> {
        let Some(old) = &self.means.old else {
            return Ok(());
        };
        let ids = self.nodes.ids();
        let id = ids[self.dice.index(ids.len())];
        self.nodes.terminate(&[id])?;
        let program = &mut self.nodes.node(id)?.spec.program;
        *program = match *program == self.new {
            true => old.clone(),
            false => self.new.clone(),
        };
        self.nodes.restart(&[id])?;
        self.nodes.wait_until_all_serve()?;
        self.done.exchanged += 1;
        writing.goes_on()
    }

    /// Fills the small disk for a while.
    fn fill(&mut self, writing: &mut Writing) -> io::Result<()> {
        let Some(disk) = &self.disk else {
            return Ok(());
        };
        let filler = disk.join("filler");
        fill_up(&filler)?;
        let went_on = writing.goes_on().and_then(|()| writing.goes_on());
        fs::remove_file(&filler)?;
        went_on.map_err(|why| io::Error::other(format!("a full disk: {why}")))?;
        self.nodes.wait_until_all_serve()?;
        self.done.filled += 1;
        Ok(())
    }

    /// Checks that all acknowledged data is on all nodes, then deletes it.
    fn compare(&mut self, writing: Writing) -> io::Result<()> {
        let compared = writing.compare(&mut self.nodes)?;
        self.done.keys += compared.keys as u64;
        self.done.stream_bytes += compared.sum.map_or(0, |sum| sum.bytes);
        remove(&compared.lanes, &self.nodes.stream_addresses())?;
        let any = self.nodes.client_addresses();
        let any = any.first().map_or("", String::as_str);
        match self.nodes.speak_etcd() {
            true => etcd::clear(any),
            false => Link::connect(any)?.ask(&["FLUSHALL"]).map(drop),
        }
    }

    /// Describes the figures that grew from the second quarter to the end.
    pub(super) fn growing_figures(&self) -> Vec<String> {
        let grown = growing_figures(&self.samples).into_iter();
        grown.map(|what| format!("{}: {what}", self.kind.name)).collect()
    }

    /// Stops the nodes and keeps their folders. Returns the path.
    pub(super) fn keep(self, place: &Path) -> PathBuf {
        let name = self.kind.flags.join("").replace("--", "-");
        self.nodes.keep_for_inspection(&place.join(format!("nodes{name}")))
    }
}

/// Prepares nodes before their first start.
fn prepare(means: &Means, specs: &mut [process::Spec]) -> io::Result<()> {
    match &means.clocks {
        Some(clocks) => specs.iter_mut().try_for_each(|spec| clocks.prepare_node(spec)),
        None => Ok(()),
    }
}

/// Writes until the file system is full.
fn fill_up(filler: &Path) -> io::Result<()> {
    let mut file = File::create(filler)?;
    let zeros = vec![0; FILL];
    loop {
        match file.write_all(&zeros) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn remove(lanes: &[Arc<Lane>], addresses: &[String]) -> io::Result<()> {
    let mut streams = Streams::new(addresses, stream_load::options());
    for lane in lanes {
        let removed = streams.remove(&lane.name);
        removed.map_err(|why| io::Error::other(format!("remove {}: {why}", lane.name)))?;
    }
    Ok(())
}
