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
    nodes::NodeCluster,
    process,
    replace::{self, Step},
    resp::RespConnection,
    run,
    stream_load::{self, Lane},
    trial::faults::FaultPlan,
    writers::Writers,
};

use super::{
    clocks::{ClockLibrary, DeadlineKeys, ShiftedClock},
    sample::{Sample, growing_figures},
};
use crate::{nodes, shell::Failed, writing::RunningWriters};

const NODE_COUNT: u32 = 3;
/// Number of faults in a cycle.
const FAULTS_PER_CYCLE: u32 = 4;
/// Number of faults per clock jump. The jump precedes one of them.
const FAULTS_PER_JUMP: u32 = 2;
/// Mount options for the file system that is filled.
const SMALL_DISK_OPTIONS: &str = "size=512m";
/// Size of each write that fills the disk, in bytes.
const FILL_WRITE_BYTES: usize = 64 << 10;

/// Kind of cluster, with its flags and the faults that it is subject to.
pub(super) struct Kind {
    pub(super) name: &'static str,
    flags: &'static [&'static str],
    is_durable: bool,
    has_streams: bool,
    /// Set if members are replaced.
    replaces_members: bool,
    /// Set if node 3 uses a small disk that the test fills up.
    fills_disk: bool,
}

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        name: "keys on disk and byte streams, durable, members replaced",
        flags: &["--store", "lsm", "--durability", "durable"],
        is_durable: true,
        has_streams: true,
        replaces_members: true,
        fills_disk: false,
    },
    Kind {
        name: "keys in memory, volatile",
        flags: &["--store", "memory", "--durability", "volatile"],
        is_durable: false,
        has_streams: false,
        replaces_members: false,
        fills_disk: false,
    },
    Kind {
        name: "etcd's keys on disk, durable, a disk that fills up",
        flags: &["--service", "etcd", "--store", "lsm"],
        is_durable: true,
        has_streams: false,
        replaces_members: false,
        fills_disk: true,
    },
];

/// Flags for small files, which are created and deleted many times an hour.
const SMALL_FILE_FLAGS: [&str; 6] =
    ["--log-ready", "0", "--log-segment", "8388608", "--snapshot-ratio", "1"];

/// Work done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkDone {
    pub(super) cycles: u64,
    pub(super) faults: u64,
    pub(super) members_replaced: u64,
    pub(super) programs_exchanged: u64,
    pub(super) disks_filled: u64,
    /// Number of clock jumps.
    pub(super) clock_jumps: u64,
    /// Number of keys compared on each node.
    pub(super) keys_compared: u64,
    /// Bytes of streams compared.
    pub(super) stream_bytes_compared: u64,
}

/// Resources available to the run.
pub(super) struct RunResources {
    /// Program of another revision, which alternates with the current one.
    pub(super) old_program: Option<PathBuf>,
    /// Set if a small disk can be mounted.
    pub(super) can_mount: bool,
    /// Library for clock jumps, if it could be built.
    pub(super) clock_library: Option<ClockLibrary>,
}

/// A cluster and the data recorded about it.
pub(super) struct SoakCluster {
    pub(super) kind: &'static Kind,
    pub(super) work_done: WorkDone,
    /// One sample per cycle.
    pub(super) samples: Vec<Sample>,
    nodes: NodeCluster,
    plan: FaultPlan,
    dice: Dice,
    new: PathBuf,
    means: Rc<RunResources>,
    wrong_clock: ShiftedClock,
    /// Folder of the small disk, if it could be mounted.
    small_disk: Option<PathBuf>,
}

impl SoakCluster {
    /// Starts a cluster and waits until its nodes serve.
    pub(super) fn start(
        kind: &'static Kind,
        means: Rc<RunResources>,
        seed: u64,
    ) -> io::Result<Self> {
        let new = nodes::program_path();
        let flags = [kind.flags, &SMALL_FILE_FLAGS].concat();
        let mut nodes = NodeCluster::with_empty_folder("quorate-soak-")?;
        let mut specs = process::loopback_cluster(&new, nodes.data_folder(), NODE_COUNT, &flags)?;
        let mut disk = None;
        if let (true, true, Some(spec)) = (kind.fills_disk, means.can_mount, specs.last_mut()) {
            let place = nodes.data_folder().join("disk");
            fs::create_dir(&place)?;
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", SMALL_DISK_OPTIONS, "tmpfs"]);
            run::read_output(mount.arg(&place))?;
            spec.data_folder = place.join("node");
            disk = Some(place);
        }
        prepare_nodes(&means, &mut specs)?;
        nodes.start(specs)?;
        nodes.wait_until_all_serve()?;
        let mut dice = Dice::new(seed);
        Ok(Self {
            kind,
            work_done: WorkDone::default(),
            samples: Vec::new(),
            plan: FaultPlan::new(kind.is_durable, false, dice.word()),
            nodes,
            dice,
            new,
            means,
            wrong_clock: ShiftedClock::default(),
            small_disk: disk,
        })
    }

    /// Runs a cycle of load, faults, comparison and rest.
    pub(super) fn run_cycle(&mut self) -> Result<(), Failed> {
        let kind = self.kind.name;
        let cycle = self.work_done.cycles + 1;
        let played = self.run_under_load();
        played.map_err(|why| Failed(format!("{kind}, cycle {cycle}: {why}")))?;
        let sample = Sample::measure(&self.nodes);
        let sample =
            sample.map_err(|why| Failed(format!("{kind}, cycle {cycle}, at rest: {why}")))?;
        println!("{kind}, cycle {cycle}: {sample}");
        self.samples.push(sample);
        self.work_done.cycles = cycle;
        Ok(())
    }

    fn run_under_load(&mut self) -> io::Result<()> {
        let mut newcomers = match self.kind.replaces_members {
            true => replace::newcomer_specs(&self.nodes, &self.new, 1, &SMALL_FILE_FLAGS)?,
            false => Vec::new(),
        };
        prepare_nodes(&self.means, &mut newcomers)?;
        let addresses = replace::client_addresses(&self.nodes, &newcomers);
        let keys = match self.nodes.uses_etcd() {
            true => Writers::start_calm_etcd(&addresses),
            false => Writers::start_calm(&addresses),
        };
        let mut writing = RunningWriters::with_keys(keys);
        if self.kind.has_streams {
            let mut at = self.nodes.stream_addresses();
            let later = newcomers.iter().filter_map(|spec| spec.flag_value("--stream"));
            at.extend(later.map(str::to_owned));
            writing = writing.with_streams(&at, false, self.dice.word())?;
        }
        let mut deadlines = None;
        for fault in 0..FAULTS_PER_CYCLE {
            writing.wait_for_progress()?;
            if fault % FAULTS_PER_JUMP == 0 && self.means.clock_library.is_some() {
                self.wrong_clock.shift_clock(&mut self.nodes, &self.new, &mut self.dice)?;
                self.work_done.clock_jumps += u64::from(self.wrong_clock.is_some());
                if deadlines.is_none() {
                    deadlines = Some(DeadlineKeys::set(&self.nodes)?);
                }
            }
            let step = self.plan.draw_step();
            let played = self.plan.run_step(step, &mut self.nodes, None);
            played.map_err(|why| io::Error::other(format!("{step}: {why}")))?;
            self.work_done.faults += 1;
        }
        for spec in newcomers {
            self.replace_member(spec, &mut writing)?;
        }
        self.exchange_program(&mut writing)?;
        self.fill_small_disk(&mut writing)?;
        writing.wait_for_progress()?;
        if let Some(deadlines) = deadlines {
            deadlines.check_deadlines(&self.nodes)?;
        }
        self.wrong_clock.reset_clock(&mut self.nodes)?;
        self.compare_nodes(writing)
    }

    /// Replaces one of the members.
    fn replace_member(
        &mut self,
        spec: process::NodeSpec,
        writing: &mut RunningWriters,
    ) -> io::Result<()> {
        let ids = self.nodes.ids();
        let old = ids[self.dice.index(ids.len())];
        let mut failed = Ok(());
        replace::replace_one(&mut self.nodes, &self.new, old, spec, &mut |_, step: &Step| {
            if failed.is_ok() {
                failed = writing
                    .wait_for_progress()
                    .map_err(|why| io::Error::other(format!("after {step}: {why}")));
            }
        })?;
        failed?;
        let left = self.nodes.node(old)?;
        fs::remove_dir_all(&left.spec.data_folder)?;
        self.work_done.members_replaced += 1;
        Ok(())
    }

    /// Restarts a node with the other program.
    fn exchange_program(&mut self, writing: &mut RunningWriters) -> io::Result<()> {
        let Some(old) = &self.means.old_program else {
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
        self.work_done.programs_exchanged += 1;
        writing.wait_for_progress()
    }

    /// Fills the small disk for a while.
    fn fill_small_disk(&mut self, writing: &mut RunningWriters) -> io::Result<()> {
        let Some(disk) = &self.small_disk else {
            return Ok(());
        };
        let filler = disk.join("filler");
        fill_file_system(&filler)?;
        let went_on = writing.wait_for_progress().and_then(|()| writing.wait_for_progress());
        fs::remove_file(&filler)?;
        went_on.map_err(|why| io::Error::other(format!("a full disk: {why}")))?;
        self.nodes.wait_until_all_serve()?;
        self.work_done.disks_filled += 1;
        Ok(())
    }

    /// Checks that all acknowledged data is on all nodes, then deletes it.
    fn compare_nodes(&mut self, writing: RunningWriters) -> io::Result<()> {
        let compared = writing.stop_and_compare(&mut self.nodes)?;
        self.work_done.keys_compared += compared.keys as u64;
        self.work_done.stream_bytes_compared += compared.stream_totals.map_or(0, |sum| sum.bytes);
        remove(&compared.lanes, &self.nodes.stream_addresses())?;
        let any = self.nodes.client_addresses();
        let any = any.first().map_or("", String::as_str);
        match self.nodes.uses_etcd() {
            true => etcd::clear(any),
            false => RespConnection::connect(any)?.run_command(&["FLUSHALL"]).map(drop),
        }
    }

    /// Describes the figures that grew from the second quarter to the end.
    pub(super) fn growing_figures(&self) -> Vec<String> {
        let grown = growing_figures(&self.samples).into_iter();
        grown.map(|what| format!("{}: {what}", self.kind.name)).collect()
    }

    /// Stops the nodes and keeps their folders. Returns the path.
    pub(super) fn keep_folders(self, place: &Path) -> PathBuf {
        let name = self.kind.flags.join("").replace("--", "-");
        self.nodes.keep_for_inspection(&place.join(format!("nodes{name}")))
    }
}

/// Prepares nodes before their first start.
fn prepare_nodes(means: &RunResources, specs: &mut [process::NodeSpec]) -> io::Result<()> {
    match &means.clock_library {
        Some(clocks) => specs.iter_mut().try_for_each(|spec| clocks.prepare_node(spec)),
        None => Ok(()),
    }
}

/// Writes until the file system is full.
fn fill_file_system(filler: &Path) -> io::Result<()> {
    let mut file = File::create(filler)?;
    let zeros = vec![0; FILL_WRITE_BYTES];
    loop {
        match file.write_all(&zeros) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn remove(lanes: &[Arc<Lane>], addresses: &[String]) -> io::Result<()> {
    let mut streams = Streams::new(addresses, stream_load::patient_options());
    for lane in lanes {
        let removed = streams.remove(&lane.name);
        removed.map_err(|why| io::Error::other(format!("remove {}: {why}", lane.name)))?;
    }
    Ok(())
}
