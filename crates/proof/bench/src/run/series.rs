//! `quorate bench kv` and `quorate bench log`: a single load, or a series of loads that finds the
//! maximum throughput.

use std::time::Duration;

use quorate_client::Login;
use quorate_core::record::Class;
use quorate_node::log_service::classes::AnswerClass;
use quorate_tls::ClientTrust;

use crate::{
    device::{BY_FRAMES_SUFFIX, DeviceKind, plane_and_device},
    door::ClientAddress,
    emulated::EmulatedNetwork,
    environment::{Commit, Environment},
    fault::Fault,
    life::CommandTimeline,
    load::OfferedLoad,
    report::BenchReport,
    row::{Row, RowSetting},
};

use super::{
    RunTime,
    ceilings::MeasuredCeilings,
    faulty,
    info::ClusterInfo,
    measure::{NodeBench, Service, local_processes},
    segment,
    session::{NodeSession, resolve_address},
    trace,
};
use crate::problem::Problem;

/// Numbers of outstanding commands measured in a series.
const OUTSTANDING_COUNTS: [u32; 5] = [1, 16, 64, 256, 1024];
/// Percentages of the highest throughput at which a series measures latency.
pub const RATE_PERCENTS: [u64; 3] = [25, 50, 75];

/// A load, and the nodes that serve it.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Client addresses of a running cluster. If empty, the bench starts the nodes itself.
    pub client_addresses: Vec<String>,
    /// Certificate authority of the nodes, and the client's certificate if required.
    pub tls_trust: Option<ClientTrust>,
    /// User to log in as; `None` if the nodes require no login.
    pub login: Option<Login>,
    /// Commands per second in an open loop; `None` for a closed loop.
    pub rate_per_second: Option<u64>,
    /// Number of outstanding commands in a closed loop. If this and `rate_per_second` are `None`, a
    /// series of both kinds is run.
    pub outstanding: Option<u32>,
    /// Number of connections. A closed loop uses at most one per outstanding command.
    pub connection_count: u32,
    pub value_bytes: usize,
    pub node_count: u32,
    pub learner_count: u32,
    /// Emulated network between the nodes that the bench starts.
    pub network: Option<EmulatedNetwork>,
    /// Percentage of incoming datagrams that each node discards as lost.
    pub loss_percent: f64,
    /// Plane of the nodes that the bench starts; `None` for their default.
    pub plane: Option<&'static str>,
    /// Device of the nodes that the bench starts; `None` if they vote without devices.
    pub device: Option<DeviceKind>,
    /// Route by which votes reach the leader, in a cluster that the bench starts; `None` for the
    /// default.
    pub vote_route: Option<&'static str>,
    /// Durability class of the cluster; `None` for the class of the running cluster, or for
    /// durable.
    pub durability: Option<Class>,
    /// Durability class of the acknowledgements that clients request.
    pub client_class: AnswerClass,
    /// Minimum flush time of the probe and of the nodes that the bench starts.
    pub disk_flush: Duration,
    /// Fault inflicted on one of the nodes that the bench starts, during the load.
    pub fault: Option<Fault>,
    /// Set if the nodes that the bench starts record stamps of each command's stages.
    pub records_hops: bool,
    /// Interface of a client that sends frames to devices; `None` for other clients. The interface
    /// exists already, or is created at the switch of the nodes that the bench starts.
    pub frame_interface: Option<String>,
}

impl LoadOptions {
    /// Resolves the client addresses of the running cluster.
    fn resolve_addresses(&self) -> Result<Vec<ClientAddress>, Problem> {
        let tls = self.tls_trust.as_ref();
        let door = |name: &String| {
            let door = ClientAddress::with_host_name(resolve_address(name)?, name, tls);
            Ok(door.with_login(self.login.clone()))
        };
        self.client_addresses.iter().map(door).collect()
    }

    /// Checks that the options of the load fit together and can be measured with the durations in
    /// `time`.
    fn check_options(&self, time: &RunTime) -> Result<(), Problem> {
        if let Some(device) = self.device {
            self.check_device(device)?;
        }
        if self.records_hops {
            self.check_trace()?;
        }
        if self.client_class != AnswerClass::Group && self.frame_interface.is_some() {
            let what =
                "--class cannot be combined with --frames: devices answer when they have decided";
            return Err(Problem::usage_error(what).with_hint("leave one of them out"));
        }
        self.fault.map_or(Ok(()), |fault| {
            let is_series = self.rate_per_second.is_none() && self.outstanding.is_none();
            faulty::check_group(fault, is_series, self.node_count, self.durability)?;
            faulty::check_time(fault, time)
        })
    }

    /// Checks that the nodes can use the device in the chosen network.
    fn check_device(&self, device: DeviceKind) -> Result<(), Problem> {
        if device.needs_segment() && !matches!(self.network, Some(EmulatedNetwork::Lan(_))) {
            let what = format_args!(
                "--device {device} needs --lan: without it nodes have no Ethernet interface of their own"
            );
            return Err(Problem::usage_error(what).with_hint("add --lan 10gbit, as root"));
        }
        if device.conflicts_with_plane(self.plane) {
            let plane = self.plane.unwrap_or("tcp");
            let what = format_args!(
                "--device {device} and --plane {plane} both need the UDP port of each node"
            );
            return Err(Problem::usage_error(what).with_hint("--plane tcp or ethernet"));
        }
        Ok(())
    }

    /// Checks that a client can send frames to the devices that vote.
    fn check_frames(&self) -> Result<(), Problem> {
        let own = self.client_addresses.is_empty();
        let hears = self.device.is_some_and(DeviceKind::needs_segment);
        let counts = self.durability == Some(Class::Volatile);
        if self.frame_interface.is_none() || !own || (hears && counts) {
            return Ok(());
        }
        let what = "--frames needs nodes of a volatile cluster with devices that hear raw frames";
        let hint = "add --lan 10gbit --device kernel --durability volatile, as root";
        Err(Problem::usage_error(what).with_hint(hint))
    }

    /// Checks that the stamps of all nodes and the client come from one clock, and that one command
    /// is in flight at a time.
    fn check_trace(&self) -> Result<(), Problem> {
        let wrong = if !self.client_addresses.is_empty() {
            "--connect: the nodes of a running cluster keep no stamps, and have clocks of their own"
        } else if self.frame_interface.is_some() {
            "--frames: no node has part in its commands"
        } else if self.rate_per_second.is_some()
            || self.outstanding.is_some_and(|outstanding| outstanding != 1)
        {
            "--rate or more than one command outstanding: it is of one command at a time"
        } else if self.learner_count > 0 || self.fault.is_some() {
            "--learners or --lan-fault: it is of voting nodes without faults"
        } else {
            return Ok(());
        };
        let what = format_args!("--trace cannot be combined with {wrong}");
        Err(Problem::usage_error(what)
            .with_hint("leave that out: the bench then starts nodes that stamp"))
    }

    /// Describes the plane, the device, the class that clients request and the route of votes, if
    /// any of these was chosen; `None` for the defaults.
    fn describe_way(&self) -> Option<String> {
        let mut plane = plane_and_device(self.plane.unwrap_or("tcp"), self.device);
        if self.frame_interface.is_some() {
            plane.push_str(BY_FRAMES_SUFFIX);
        }
        let asks = self.client_class != AnswerClass::Group;
        if asks {
            plane.push_str(", clients ask for ");
            plane.push_str(self.client_class.name());
        }
        match self.vote_route {
            None | Some("star") => {
                (self.plane.is_some() || self.device.is_some() || asks).then_some(plane)
            }
            Some("ring") => Some(format!("{plane}, votes by a ring")),
            Some(votes) => Some(format!("{plane}, votes {votes}")),
        }
    }
}

/// A load, or a series of loads that finds the maximum, against one service.
#[derive(Debug)]
pub struct LoadSeries {
    service: Service,
    /// Properties reported by a running cluster.
    info: ClusterInfo,
    load: LoadOptions,
    time: RunTime,
    store: &'static str,
    store_given: Option<&'static str>,
    reads_percent: u32,
}

impl LoadSeries {
    /// Returns a series for the key-value service. Queries a running cluster for its properties,
    /// which the options must not contradict.
    pub fn new_kv(
        load: LoadOptions,
        time: RunTime,
        store: Option<&'static str>,
        reads_percent: u32,
    ) -> Result<Self, Problem> {
        load.check_options(&time)?;
        let info = query_info(Service::Kv, &load)?;
        ClusterInfo::check_flag("store", store, info.store.as_deref())?;
        Ok(Self {
            service: Service::Kv,
            info,
            load,
            time,
            store: store.unwrap_or("memory"),
            store_given: store,
            reads_percent,
        })
    }

    /// Returns a series for the log service, which measures replication alone, like
    /// [`Self::new_kv`].
    pub fn new_log(load: LoadOptions, time: RunTime) -> Result<Self, Problem> {
        load.check_options(&time)?;
        load.check_frames()?;
        let store = quorate_node::log_service::STORE_NAME;
        Ok(Self {
            service: Service::Log,
            info: query_info(Service::Log, &load)?,
            load,
            time,
            store,
            store_given: Some(store),
            reads_percent: 0,
        })
    }

    /// Returns the network that must be entered before the run
    /// ([`super::network::enter_namespaces`]).
    pub const fn network(&self) -> Option<EmulatedNetwork> {
        self.load.network
    }

    /// Runs the series. If it fails, the rows measured before remain in the document.
    pub fn run(&self, document: &mut BenchReport) -> Result<(), Problem> {
        let LoadOptions { network, node_count: nodes, learner_count: learners, .. } = self.load;
        let mut session = NodeSession::with_capacity(network, nodes + learners)?;
        let measured = self.measure(&mut session, document);
        let measured = measured.map_err(|problem| session.add_last_log_lines(problem));
        session.kill_nodes();
        let has_ceiling = document.rows.iter().any(|row| row.ceiling.is_some());
        if has_ceiling && self.reads_percent > 0 {
            let note = "the ceiling is one of writes: reads need no flush, and can exceed it";
            document.notes.push(note.to_owned());
        }
        measured
    }

    /// Traces the life of a command in a cluster of the requested class, or of each class. If it
    /// fails, the lives found before remain in the document.
    pub fn trace_commands(&self, document: &mut BenchReport) -> Result<(), Problem> {
        let classes = match self.load.durability {
            Some(class) => vec![class],
            None => vec![Class::Volatile, Class::Durable],
        };
        for class in classes {
            let load = LoadOptions { durability: Some(class), ..self.load.clone() };
            let plane = load.describe_way();
            let one = Self { info: ClusterInfo::default(), load, time: self.time.clone(), ..*self };
            let mut session = NodeSession::with_capacity(self.load.network, self.load.node_count)?;
            let life = one.trace_life(&mut session);
            let life = life.map_err(|problem| session.add_last_log_lines(problem));
            session.kill_nodes();
            document.lives.push(CommandTimeline {
                durability: class.name().to_owned(),
                plane,
                value_bytes: self.load.value_bytes,
                ..life?
            });
        }
        Ok(())
    }

    fn trace_life(&self, session: &mut NodeSession) -> Result<CommandTimeline, Problem> {
        let bench = self.start_bench(session)?;
        let cluster = bench.cluster.unwrap_or_default();
        if let Some(device) = self.load.device {
            cluster.wait_for_devices(device)?;
        }
        trace::trace_commands(session, &cluster, self.load.value_bytes, &self.time)
    }

    fn starts_own_nodes(&self) -> bool {
        self.load.client_addresses.is_empty()
    }

    fn measure(
        &self,
        session: &mut NodeSession,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        self.measure_segment(document)?;
        match self.load.fault {
            Some(fault) => self.faulty_row(fault, session, document)?,
            None => self.measure_rows(session, document)?,
        }
        if let Some(network) = session.network() {
            document.notes.push(network.describe());
            if network.has_long_delays() {
                let note = "bare programs ran without that network";
                document.notes.push(note.to_owned());
            }
        }
        Ok(())
    }

    fn measure_rows(
        &self,
        session: &mut NodeSession,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        let bench = self.start_bench(session)?;
        let mut ceilings =
            MeasuredCeilings::new(session, &self.time, document.environment.clone())?;
        let measured = self.measure_load(&bench, &mut ceilings, document);
        document.rows.extend(ceilings.into_rows());
        if !self.starts_own_nodes() {
            document.notes.push(self.info.describe_version());
            if self.load.tls_trust.is_some() {
                let note = "clients and nodes speak TLS; a bare program does not";
                document.notes.push(note.to_owned());
            }
        }
        measured
    }

    /// Measures the load with a fault during the measured time.
    fn faulty_row(
        &self,
        fault: Fault,
        session: &mut NodeSession,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        let offer = match (self.load.rate_per_second, self.load.outstanding) {
            (Some(per_second), _) => OfferedLoad::Open { per_second },
            (None, outstanding) => OfferedLoad::Closed { outstanding: outstanding.unwrap_or(1) },
        };
        let setting = self.setting(offer);
        let boot = |session: &mut NodeSession| self.start_bench(session);
        let mut row = faulty::measure_row(fault, &setting, session, document, boot)?;
        if let Some(payload_bits) = segment::find_measured(document, self.receiver_count()) {
            segment::set_row_ceiling(&mut row, payload_bits);
        }
        document.rows.push(row);
        Ok(())
    }

    /// Measures the throughput from one bare sender to as many receivers as a node has on the
    /// segment.
    fn measure_segment(&self, document: &mut BenchReport) -> Result<(), Problem> {
        if let Some(EmulatedNetwork::Lan(_)) = self.load.network {
            let ceiling = segment::measure_ceiling(self.receiver_count(), &self.time)?;
            document.ceilings.push(ceiling);
        }
        Ok(())
    }

    /// Returns the number of nodes to which the leader sends.
    const fn receiver_count(&self) -> u32 {
        self.load.node_count + self.load.learner_count - 1
    }

    fn measure_load(
        &self,
        bench: &NodeBench,
        ceilings: &mut MeasuredCeilings,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        match (self.load.rate_per_second, self.load.outstanding) {
            (Some(per_second), _) => {
                // At a fixed rate the number of outstanding commands varies, so no window of a bare
                // program corresponds to it.
                self.measure_row(bench, ceilings, OfferedLoad::Open { per_second }, None, document)
            }
            (None, Some(outstanding)) => {
                let offer = OfferedLoad::Closed { outstanding };
                self.measure_row(bench, ceilings, offer, Some(outstanding), document)
            }
            (None, None) => self.measure_whole_series(bench, ceilings, document),
        }
    }

    /// Measures the maximum throughput first, and then latency at rates well below it.
    fn measure_whole_series(
        &self,
        bench: &NodeBench,
        ceilings: &mut MeasuredCeilings,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        for outstanding in OUTSTANDING_COUNTS {
            let offer = OfferedLoad::Closed { outstanding };
            self.measure_row(bench, ceilings, offer, Some(outstanding), document)?;
        }
        let Some(greatest) = highest_throughput(&document.rows) else {
            let note = "no closed loop gave a result, so no rate was tried";
            document.notes.push(note.to_owned());
            return Ok(());
        };
        for percent in RATE_PERCENTS {
            let per_second = percent_of(greatest.per_second, percent);
            let offer = OfferedLoad::Open { per_second };
            self.measure_row(bench, ceilings, offer, greatest.window, document)?;
        }
        document.notes.push(format!(
            "rows at a fixed rate: {RATE_PERCENTS:?} % of {:.0}/s, the greatest found, each with \
             its ceiling",
            greatest.per_second
        ));
        Ok(())
    }

    /// Measures a row, and right after it a bare program, because other load on the machine changes
    /// from minute to minute. Our nodes are idle while the bare program runs. `window` is that of
    /// the bare program; without a window there is no ceiling.
    fn measure_row(
        &self,
        bench: &NodeBench,
        ceilings: &mut MeasuredCeilings,
        offer: OfferedLoad,
        window: Option<u32>,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        let mut row = bench.measure_row(&self.setting(offer), document)?;
        let mut measured = Ok(());
        let here = self.starts_own_nodes() || all_run_locally(&bench.running_addresses);
        let durable = is_durable(self.durability());
        let segment = segment::find_measured(document, self.receiver_count());
        if let Some(payload_bits) = segment {
            segment::set_row_ceiling(&mut row, payload_bits);
        } else if let (true, Some(window), Some(durable)) = (here, window, durable) {
            let flush = if self.starts_own_nodes() { self.load.disk_flush } else { Duration::ZERO };
            match ceilings.ceiling_per_second(row.value_bytes, window, durable, flush) {
                Ok(Some(per_second)) => row.set_bare_ceiling(per_second),
                Ok(None) => {}
                Err(problem) => measured = Err(problem),
            }
        }
        if !self.starts_own_nodes() {
            row.commit = Commit(self.info.version.clone());
        }
        document.rows.push(row);
        measured
    }

    fn start_bench(&self, session: &mut NodeSession) -> Result<NodeBench, Problem> {
        let environment = Environment::of_this_machine();
        let (cluster, doors) = if self.starts_own_nodes() {
            let flush = format!("{}", self.disk_flush_ms());
            let durability = self.durability();
            let mut flags =
                vec!["--durability", durability, "--store", self.store, "--disk-flush-ms", &flush];
            if let Some(plane) = self.load.plane {
                flags.extend(["--plane", plane]);
            }
            if let Some(device) = self.load.device {
                flags.extend(["--device", device.name()]);
            }
            if self.load.plane.is_some() || self.load.device.is_some() {
                flags.push("--plane-trusted");
            }
            if let Some(votes) = self.load.vote_route {
                flags.extend(["--votes", votes]);
            }
            if self.load.records_hops {
                flags.extend(["--hops", "on"]);
            }
            let loss = self.load.loss_percent.to_string();
            if self.load.loss_percent > 0.0 {
                flags.extend(["--plane-loss", &loss]);
            }
            if let (Some(interface), Some(network)) =
                (&self.load.frame_interface, session.network())
            {
                network.create_interface(interface).map_err(|error| {
                    Problem::io_error("make an interface for the client", &error)
                })?;
            }
            let mut cluster = session.boot_some(self.load.node_count, None, &flags)?;
            if self.load.learner_count > 0 {
                cluster = session.join(self.load.learner_count, &flags)?;
            }
            (Some(cluster), Vec::new())
        } else {
            (None, self.load.resolve_addresses()?)
        };
        Ok(NodeBench {
            service: self.service,
            cluster,
            running_processes: local_processes(&doors),
            running_addresses: doors,
            time: self.time.clone(),
            environment,
            network: session.network(),
            device: self.load.device,
            frame_interface: self.load.frame_interface.clone(),
            client_class: self.load.client_class,
        })
    }

    fn durability(&self) -> &str {
        let durability = self.load.durability;
        match (durability, self.starts_own_nodes()) {
            (Some(durability), _) => durability.name(),
            (None, true) => Class::Durable.name(),
            (None, false) => self.info.durability.as_deref().unwrap_or("unknown"),
        }
    }

    fn disk_flush_ms(&self) -> f64 {
        self.load.disk_flush.as_secs_f64() * 1000.0
    }

    fn setting(&self, offer: OfferedLoad) -> RowSetting {
        let store = if self.starts_own_nodes() {
            self.store
        } else {
            let known = self.info.store.as_deref();
            self.store_given.or(known).unwrap_or("unknown")
        };
        RowSetting {
            reads_percent: self.reads_percent,
            connections: match offer {
                OfferedLoad::Open { .. } => self.load.connection_count,
                OfferedLoad::Closed { outstanding } => self.load.connection_count.min(outstanding),
            },
            disk_flush_ms: if self.starts_own_nodes() { self.disk_flush_ms() } else { 0.0 },
            wan: self.load.network.map(|network| network.name()),
            plane: self.load.describe_way(),
            ..RowSetting::new(
                self.service.name(),
                self.durability(),
                store,
                self.load.value_bytes,
                offer,
            )
        }
    }
}

/// Returns the properties of the running cluster, if there is one. Fails if its durability class is
/// not the one in the options.
fn query_info(service: Service, load: &LoadOptions) -> Result<ClusterInfo, Problem> {
    if service == Service::Log && load.login.is_some() {
        return Err(Problem::usage_error("--login: the log service takes no passwords")
            .with_hint("use the certificate of a writer: --tls DIR"));
    }
    let info = ClusterInfo::query_nodes(service, &load.resolve_addresses()?)?;
    let durability = load.durability.map(Class::name);
    ClusterInfo::check_flag("durability", durability, info.durability.as_deref())?;
    Ok(info)
}

/// Highest throughput found by [`highest_throughput`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HighestThroughput {
    pub per_second: f64,
    /// Number of outstanding commands at which it was reached; `None` in an open loop.
    pub window: Option<u32>,
}

/// Returns the highest throughput of all valid rows.
pub fn highest_throughput(rows: &[Row]) -> Option<HighestThroughput> {
    let results = rows.iter().filter(|row| row.valid);
    let best = results.max_by(|a, b| a.achieved_per_s.total_cmp(&b.achieved_per_s))?;
    Some(HighestThroughput { per_second: best.achieved_per_s, window: best.outstanding })
}

/// Returns whether all nodes run on this machine, as a bare program does.
fn all_run_locally(doors: &[ClientAddress]) -> bool {
    let loopback = |door: &ClientAddress| door.address().ip().to_canonical().is_loopback();
    !doors.is_empty() && doors.iter().all(loopback)
}

/// Returns whether nodes of durability class `class` flush; `None` if unknown.
fn is_durable(class: &str) -> Option<bool> {
    match class {
        _ if class == Class::Durable.name() => Some(true),
        _ if class == Class::Volatile.name() => Some(false),
        _ => None,
    }
}

/// Returns a percentage of a rate, but at least one per second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rate is far below 2^53"
)]
pub fn percent_of(per_second: f64, percent: u64) -> u64 {
    ((per_second * percent as f64 / 100.0) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use crate::repetition::Repetition;

    use super::*;

    fn setting(offer: OfferedLoad) -> RowSetting {
        RowSetting::new("log", "durable", "none", 64, offer)
    }

    fn row(outstanding: u32, completed: u64) -> Row {
        let mut repetition = Repetition::default();
        repetition.samples.completed = completed;
        repetition.samples.measured_ns = 1_000_000_000;
        Row::new(
            &setting(OfferedLoad::Closed { outstanding }),
            &Environment::of_this_machine(),
            &[repetition],
        )
        .unwrap()
    }

    #[test]
    fn window_is_that_of_the_row_with_the_highest_rate() {
        let mut rows = [row(1, 100), row(64, 900), row(256, 800), row(1024, 5000)];
        rows[3].valid = false;
        let wanted = HighestThroughput { per_second: 900.0, window: Some(64) };
        assert_eq!(highest_throughput(&rows), Some(wanted));
        assert_eq!(highest_throughput(&[]), None);
    }

    #[test]
    fn only_loopback_certainly_is_this_machine() {
        let here = |texts: &[&str]| {
            let addresses = texts.iter().map(|text| text.parse().unwrap());
            all_run_locally(
                &addresses
                    .map(|address: SocketAddr| address.into())
                    .collect::<Vec<ClientAddress>>(),
            )
        };
        assert!(here(&["127.0.0.1:1", "127.9.9.9:2", "[::1]:3"]));
        assert!(here(&["[::ffff:127.0.0.1]:1"]));
        assert!(!here(&["127.0.0.1:1", "192.168.1.1:2"]) && !here(&[]));
    }

    #[test]
    fn an_unknown_class_has_no_ceiling() {
        let classes = ["durable", "volatile", "unknown"];
        assert_eq!(classes.map(is_durable), [Some(true), Some(false), None]);
    }
}
