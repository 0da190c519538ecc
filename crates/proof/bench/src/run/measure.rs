//! Measures rows: applies the same load repeatedly, and reads all counters before and after.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use quorate_admin::progress::{Progress, ProgressReport};
use quorate_node::log_service::{classes::AnswerClass, introduction::ClientProtocol};
use quorate_testbed::progress;

use crate::{
    by_frames,
    device::{DeviceKind, DeviceReading},
    door::ClientAddress,
    environment::Environment,
    figure::round_to_four_digits,
    generator::RunningLoad,
    listener::{self, ListenerLocation},
    load::{LoadPlan, OfferedLoad},
    protocol::{Protocol, framed::FramedEncoder, resp::RespEncoder},
    repetition::Repetition,
    report::BenchReport,
    row::{Row, RowSetting},
    samples::Samples,
};

use super::{
    RunTime,
    network::Network,
    readings::{CounterReadings, UsageDelta},
    session::{Cluster, NodeSession},
    syscalls,
};
use crate::problem::{Kind, Problem};

/// Maximum time to wait for replies after the last command.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to wait for replies over slow links, where the outstanding commands of 1200 clients
/// take ten seconds.
const REPLY_TIMEOUT_WAN: Duration = Duration::from_secs(60);
const KEY_COUNT: u64 = 100_000;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum time for which system calls are counted. They are counted in a separate repetition,
/// because counting slows the nodes down.
const SYSCALL_COUNT_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Kv,
    Log,
}

impl Service {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Log => "log",
        }
    }
}

/// Nodes to measure, with the clients and durations to use.
#[derive(Clone, Debug)]
pub struct NodeBench {
    pub(super) service: Service,
    /// Nodes started by the bench; `None` for a running cluster.
    pub cluster: Option<Cluster>,
    /// Client addresses of a running cluster; empty if the bench started the nodes.
    pub(super) running_addresses: Vec<ClientAddress>,
    /// Process ids of a running cluster's nodes on this machine; `None` if one of them is unknown.
    pub(super) running_processes: Option<Vec<u32>>,
    pub time: RunTime,
    pub(super) environment: Environment,
    /// Emulated network between nodes started by the bench, if any.
    pub(super) network: Option<Arc<Network>>,
    /// Device that nodes started by the bench must use.
    pub device: Option<DeviceKind>,
    /// Network interface of a client that sends frames to devices; `None` for other clients.
    pub frame_interface: Option<String>,
    /// Durability class of the acknowledgements that clients request.
    pub(super) client_class: AnswerClass,
}

/// Returns the processes on this machine that listen at the addresses in `doors`; `None` unless all
/// are known.
pub(super) fn local_processes(doors: &[ClientAddress]) -> Option<Vec<u32>> {
    let mut processes = Vec::new();
    for door in doors {
        match listener::locate_listener(door.address()) {
            ListenerLocation::Process(id) if !processes.contains(&id) => processes.push(id),
            ListenerLocation::Process(_) | ListenerLocation::OtherMachine => {}
            ListenerLocation::Unknown => return None,
        }
    }
    Some(processes)
}

impl NodeBench {
    /// Returns a bench of nodes that were started for it. Clients ask for the cluster's class, and
    /// nodes need no device.
    #[must_use]
    pub fn with_own_nodes(
        service: Service,
        cluster: Cluster,
        time: RunTime,
        session: &NodeSession,
    ) -> Self {
        Self {
            service,
            cluster: Some(cluster),
            running_addresses: Vec::new(),
            running_processes: None,
            time,
            environment: Environment::of_this_machine(),
            network: session.network(),
            device: None,
            frame_interface: None,
            client_class: AnswerClass::Group,
        }
    }

    /// Measures all repetitions of a setting. If one fails, adds the earlier ones to the document
    /// as an invalid row.
    pub fn measure_row(
        &self,
        setting: &RowSetting,
        document: &mut BenchReport,
    ) -> Result<Row, Problem> {
        let leader = self.wait_ready()?;
        let mut all = Vec::new();
        if let Err(problem) = self.run_repetitions(setting, leader, &mut all) {
            let cut =
                partial_row(setting, &self.environment, &all, self.time.repetition_count, &problem);
            document.rows.extend(cut);
            return Err(problem);
        }
        let row = Row::new(setting, &self.environment, &all);
        let mut row = row.ok_or_else(|| Problem::usage_error("--repeat is at least 1"))?;
        if row.valid {
            match self.syscalls_per_command(setting, leader) {
                Ok(each) => row.syscalls_per_op = each,
                Err(problem) => {
                    document.rows.push(row);
                    return Err(problem);
                }
            }
        }
        Ok(row)
    }

    /// Measures more repetitions of a setting, for rows that are measured in turn.
    pub fn measure_more(
        &self,
        setting: &RowSetting,
        all: &mut Vec<Repetition>,
    ) -> Result<(), Problem> {
        let leader = self.wait_ready()?;
        self.run_repetitions(setting, leader, all)
    }

    fn run_repetitions(
        &self,
        setting: &RowSetting,
        leader: u32,
        all: &mut Vec<Repetition>,
    ) -> Result<(), Problem> {
        let shown = format_setting(setting);
        for number in 1..=self.time.repetition_count {
            let head = format!("{shown}, {number} of {}", self.time.repetition_count);
            let repetition = self.run_repetition(setting, leader, &head)?;
            let samples = &repetition.samples;
            progress(&format!(
                "{head}: {:.0}/s, p50 {:.0} µs, p99 {:.0} µs{}",
                samples.completed_per_second(),
                samples.latencies.quantile_us(0.5),
                samples.latencies.quantile_us(0.99),
                describe_errors(samples)
            ));
            all.push(repetition);
        }
        Ok(())
    }

    /// Waits until the nodes use the required device, and returns the leader, or 0 for a running
    /// cluster.
    fn wait_ready(&self) -> Result<u32, Problem> {
        if let (Some(cluster), Some(device)) = (&self.cluster, self.device) {
            cluster.wait_for_devices(device)?;
        }
        self.leader()
    }

    /// Reads the counters of the leader's device, if a device is required.
    fn device_reading(&self, leader: u32) -> Option<DeviceReading> {
        self.device?;
        let view = self.cluster.as_ref()?.node_view(leader)?;
        DeviceReading::of_leader(&view)
    }

    /// Returns the leader, or 0 for a running cluster.
    pub fn leader(&self) -> Result<u32, Problem> {
        self.cluster.as_ref().map_or(Ok(0), Cluster::wait_for_leader)
    }

    /// Returns the addresses to which clients connect. For nodes started by the bench, this is only
    /// the leader's address, so that no command is forwarded.
    fn target_addresses(&self, leader: u32) -> Vec<ClientAddress> {
        let doors: Vec<ClientAddress> = match &self.cluster {
            Some(cluster) => {
                cluster.client_address(leader).map(ClientAddress::from).into_iter().collect()
            }
            None => self.running_addresses.clone(),
        };
        let speaks = match self.service {
            Service::Kv => ClientProtocol::Resp,
            Service::Log => ClientProtocol::Frames,
        };
        doors.into_iter().map(|door| door.with_class(self.client_class, speaks)).collect()
    }

    pub fn load_plan(&self, setting: &RowSetting) -> LoadPlan {
        LoadPlan {
            offer: setting.offer,
            connections: setting.connections,
            warmup_ns: to_nanos(self.time.warmup),
            measure_ns: to_nanos(self.time.duration),
            reply_timeout_ns: to_nanos(match &self.network {
                Some(network) if network.has_long_delays() => REPLY_TIMEOUT_WAN,
                _ => REPLY_TIMEOUT,
            }),
        }
    }

    fn run_repetition(
        &self,
        setting: &RowSetting,
        leader: u32,
        head: &str,
    ) -> Result<Repetition, Problem> {
        let plan = self.load_plan(setting);
        let device_before = self.device_reading(leader);
        let running = self.start(plan, setting, self.target_addresses(leader))?;
        let Some(started) = running.wait_started() else {
            return Err(unreachable_problem(running.finish().err()));
        };
        let cluster = self.cluster.as_ref();
        let from = started + self.time.warmup;
        show_progress(&running, from, &format!("{head}: warming up"));
        let dropped = || Some(self.network.as_ref()?.counts()?.dropped_count);
        let dropped_before = dropped();
        let connected = self.running_processes.as_deref();
        let before =
            CounterReadings::read_all(cluster, running.completed()).add_usage_of(connected);
        show_progress(&running, from + self.time.duration, head);
        let after = CounterReadings::read_all(cluster, running.completed()).add_usage_of(connected);
        let samples = running.finish().map_err(|error| unreachable_problem(Some(error)))?;
        let mut repetition = Repetition { samples, ..Repetition::default() };
        UsageDelta::between(&before, &after, Some(leader)).fill_repetition(&mut repetition);
        if self.device.is_some() {
            let seen = self.device_reading(leader).zip(device_before);
            let used = seen.map(|(now, then)| now.work_since(&then));
            repetition.device_work = Some(used.unwrap_or_default());
        }
        repetition.dropped_packets = dropped().zip(dropped_before).map(|(now, then)| now - then);
        Ok(repetition)
    }

    pub fn start(
        &self,
        plan: LoadPlan,
        setting: &RowSetting,
        targets: Vec<ClientAddress>,
    ) -> Result<RunningLoad, Problem> {
        fn start<P: Protocol + Send + 'static>(
            plan: LoadPlan,
            targets: Vec<ClientAddress>,
            protocol: P,
        ) -> Result<RunningLoad, Problem> {
            RunningLoad::start(plan, targets, protocol)
                .map_err(|error| Problem::io_error("start the load generator", &error))
        }
        if let Some(interface) = &self.frame_interface {
            // The client finds the leader itself.
            let nodes = match &self.cluster {
                Some(cluster) => cluster.client_addresses(),
                None => self.running_addresses.iter().map(ClientAddress::address).collect(),
            };
            return by_frames::start(plan, nodes, interface.clone(), setting.value_bytes)
                .map_err(|error| Problem::io_error("start the load generator", &error));
        }
        match self.service {
            Service::Kv => {
                let protocol =
                    RespEncoder::new(setting.value_bytes, KEY_COUNT, setting.reads_percent);
                start(plan, targets, protocol)
            }
            Service::Log => start(plan, targets, FramedEncoder::new(setting.value_bytes)),
        }
    }

    /// Counts system calls in a short separate repetition, and returns their number per command.
    fn syscalls_per_command(
        &self,
        setting: &RowSetting,
        leader: u32,
    ) -> Result<Option<f64>, Problem> {
        let Some(cluster) = &self.cluster else {
            return Ok(None);
        };
        // Over slow links another repetition would take too long.
        if self.network.is_some() || !syscalls::is_available() {
            return Ok(None);
        }
        let processes: Vec<u32> = cluster.members.iter().map(|place| place.process).collect();
        let time = SYSCALL_COUNT_MAX.min(self.time.duration);
        let plan = LoadPlan {
            warmup_ns: 0,
            // `perf` takes time to start. The load is stopped once `perf` has finished.
            measure_ns: to_nanos(time + SYSCALL_COUNT_MAX * 3),
            ..self.load_plan(setting)
        };
        let running = self.start(plan, setting, self.target_addresses(leader))?;
        if running.wait_started().is_none() {
            return Err(unreachable_problem(running.finish().err()));
        }
        let before = running.completed();
        let counted = syscalls::count_syscalls(&processes, time);
        let commands = running.completed().saturating_sub(before);
        running.stop();
        let _ = running.finish();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let each =
            counted.map(|counted| round_to_four_digits(counted as f64 / commands.max(1) as f64));
        Ok(each)
    }
}

/// Returns a row about the repetitions that preceded a failure; `None` if there are none.
pub fn partial_row(
    setting: &RowSetting,
    environment: &Environment,
    all: &[Repetition],
    wanted: u32,
    problem: &Problem,
) -> Option<Row> {
    let mut row = Row::new(setting, environment, all)?;
    row.invalidate(format!("only {} of {wanted} repetitions: {}", all.len(), problem.message));
    Some(row)
}

/// Shows progress on a terminal until the given time. Elsewhere, the line printed after the
/// repetition suffices.
pub(super) fn show_progress<T: Send + 'static>(
    running: &RunningLoad<T>,
    until: Instant,
    head: &str,
) {
    let mut told = Progress::start();
    let mut before = running.completed();
    while !running.is_finished() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        thread::sleep(left.min(PROGRESS_INTERVAL));
        let completed = running.completed();
        if told.redraws_line() && left > PROGRESS_INTERVAL {
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            let rate = (completed - before) as f64 / PROGRESS_INTERVAL.as_secs_f64();
            told.report(|| ProgressReport::text(format_args!("{head}: {rate:.0}/s")));
        }
        before = completed;
    }
}

fn format_setting(setting: &RowSetting) -> String {
    let load = match setting.offer {
        OfferedLoad::Open { per_second } => format!("{per_second}/s"),
        OfferedLoad::Closed { outstanding } => format!("{outstanding} outstanding"),
    };
    format!("{} {}, {} B, {load}", setting.scenario, setting.durability, setting.value_bytes)
}

pub(super) fn describe_errors(samples: &Samples) -> String {
    if samples.errors + samples.lost == 0 {
        return String::new();
    }
    let words = samples.first_error.as_deref().unwrap_or("no reason given");
    format!("; NO RESULT: {} errors, {} replies lost ({words})", samples.errors, samples.lost)
}

pub fn unreachable_problem(error: Option<io::Error>) -> Problem {
    let error = error.map_or_else(|| "no reason given".to_owned(), |error| error.to_string());
    let what = format_args!("cannot generate the load: {error}");
    Problem::new(Kind::Unreachable, "unreachable", what).with_hint(
        "check that it is running; --connect takes client addresses, and nodes with certificates need --tls",
    )
}

pub fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
