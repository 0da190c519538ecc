//! Loads a running system and measures its resource usage.

use std::{
    io::{self, BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use quorate_testbed::usage::{MachineCpuTime, ResourceUsage};
use rustix::process::{getpriority_process, setpriority_process};

use super::{
    OUTSTANDING, VALUE_BYTES,
    build::{BuiltPrograms, LOAD_PROGRAM},
    cluster::{ChildProcess, RunningSystem},
    figures::MeasuredLoad,
    systems::{Protocol, System},
};
use crate::shell::Failed;

/// Nice value of the load generator. A real-time priority would keep the kernel's own threads from
/// completing the writes of the measured system.
const LOAD_PRIORITY: i32 = -10;

/// Offered load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfferedLoad {
    /// Number of outstanding commands.
    Closed(u32),
    /// Number of commands per second.
    Open(u64),
}

/// A load to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RequestedLoad {
    pub(super) offer: OfferedLoad,
    pub(super) connections: u32,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
}

/// Resource usage up to a point in time.
struct UsageReading {
    system_usage: ResourceUsage,
    load_usage: ResourceUsage,
    own_usage: ResourceUsage,
    machine: Option<MachineCpuTime>,
}

impl UsageReading {
    fn read_now(cluster: &RunningSystem, load: u32) -> Self {
        Self {
            system_usage: ResourceUsage::of_processes(&cluster.process_ids()),
            load_usage: ResourceUsage::of_process(load).unwrap_or_default(),
            own_usage: ResourceUsage::of_process(std::process::id()).unwrap_or_default(),
            machine: MachineCpuTime::now(),
        }
    }
}

/// Loads the system, and returns the results.
pub(super) fn run(
    built: &BuiltPrograms,
    system: &System,
    cluster: &mut RunningSystem,
    ask: &RequestedLoad,
) -> Result<MeasuredLoad, Failed> {
    let mut command = load_command(built, system, cluster, ask);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn_with_precedence(&mut command)?;
    let stdout = child.stdout.take();
    // The child is killed when this function returns.
    let mut load = ChildProcess::new(child);
    let lines = BufReader::new(stdout.ok_or_else(|| Failed("no output".to_owned()))?).lines();
    let mut readings = Vec::new();
    let mut measured = None;
    for line in lines {
        let line = line?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("measuring" | "measured", _) => {
                readings.push(UsageReading::read_now(cluster, load.id()))
            }
            ("result", words) => measured = MeasuredLoad::parse(words),
            ("error", why) => {
                if let Some(measured) = &mut measured {
                    measured.first_error = Some(why.to_owned());
                }
            }
            ("applied", rest) => cluster.record_applied(rest),
            _ => {}
        }
    }
    let said = load.wait_exit()?;
    let mut measured =
        measured.ok_or_else(|| Failed(format!("the load gave no result: {}", said.trim())))?;
    if let [before, after] = &readings[..] {
        fill_measured(&mut measured, before, after);
    }
    cluster.check_alive()?;
    Ok(measured)
}

/// Spawns the load generator with a higher priority, so that it is not late because the measured
/// systems use all CPUs. Without the permission to do so, late rows are reported as invalid.
fn spawn_with_precedence(command: &mut Command) -> io::Result<Child> {
    // The child and all its threads inherit the priority; set later, it would apply to one thread
    // only.
    let own = getpriority_process(None)?;
    let _ = setpriority_process(None, LOAD_PRIORITY);
    let child = command.spawn();
    let _ = setpriority_process(None, own);
    child
}

fn load_command(
    built: &BuiltPrograms,
    system: &System,
    cluster: &RunningSystem,
    ask: &RequestedLoad,
) -> Command {
    let program = match system.protocol {
        Protocol::Framed | Protocol::Resp => LOAD_PROGRAM,
        Protocol::EtcdPuts => "etcd-load",
    };
    let mut command = Command::new(built.program_path(program));
    match system.protocol {
        Protocol::Framed => command.args(["--protocol", "framed"]),
        Protocol::Resp => command.args(["--protocol", "resp"]),
        Protocol::EtcdPuts => &mut command,
    };
    let (flag, amount) = match ask.offer {
        OfferedLoad::Closed(outstanding) => ("--outstanding", u64::from(outstanding)),
        OfferedLoad::Open(rate) => ("--rate", rate),
    };
    let time = |time: Duration| match system.protocol {
        Protocol::Framed | Protocol::Resp => time.as_secs_f64().to_string(),
        Protocol::EtcdPuts => format!("{}ms", time.as_millis()),
    };
    command
        .args(["--connect", &cluster.load_address()])
        .args([flag, &amount.to_string()])
        .args(["--connections", &ask.connections.min(OUTSTANDING).to_string()])
        .args(["--value-size", &VALUE_BYTES.to_string()])
        .args(["--warmup", &time(ask.warmup)])
        .args(["--duration", &time(ask.duration)]);
    command
}

fn fill_measured(measured: &mut MeasuredLoad, before: &UsageReading, after: &UsageReading) {
    let system = after.system_usage.since(before.system_usage).cpu_s();
    let load = after.load_usage.since(before.load_usage).cpu_s();
    let own = after.own_usage.since(before.own_usage).cpu_s();
    #[expect(clippy::cast_precision_loss, reason = "a count of a few seconds")]
    let commands = measured.completed.max(1) as f64;
    measured.cpu_us = system * 1e6 / commands;
    measured.load_cpu_us = load * 1e6 / commands;
    if let (Some(before), Some(after)) = (before.machine, after.machine) {
        measured.foreign_cpu = after.other_processes_share(before, system + load + own);
    }
}
