//! One row of a report: the repetitions of one setting, with medians and spread.

use serde::Serialize;

use crate::{
    device::{DeviceFigures as OfDevice, DeviceWork},
    environment::{Commit, Environment},
    figure::{Spread, median, round_to_four_digits, spread},
    lan::figures::SegmentFigures as OfSegment,
    load::{LATE_SHARE_MAX, OfferedLoad},
    repetition::{GENERATOR_ROLE, Repetition, RoleCost, role_costs},
    samples::{Latencies, Samples},
    stream::{
        AcknowledgementCounts,
        figures::{StreamFigures, StreamSetting},
    },
};

/// System, load and conditions of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowSetting {
    /// Name of the scenario, such as `kv` or `kernel-paxos-fig5`.
    pub scenario: String,
    pub system: String,
    /// `durable`, `volatile` or `unknown`; stated in every row ([class-5]).
    pub durability: String,
    /// `lsm`, `memory`, `none` or `unknown`.
    pub store: String,
    pub value_bytes: usize,
    pub reads_percent: u32,
    pub connections: u32,
    pub offer: OfferedLoad,
    /// Simulated flush time; 0 for the real disk.
    pub disk_flush_ms: f64,
    /// Batch size and window, if both are fixed.
    pub batching: Option<FixedBatching>,
    /// Emulated network between the nodes, if any.
    pub wan: Option<String>,
    /// Plane and device of the nodes and, if chosen, the route of votes and the class that clients
    /// request; `None` for the defaults.
    pub plane: Option<String>,
}

impl RowSetting {
    /// Returns the parameters of a system with a single connection that only writes, without
    /// simulation, emulation or fixed batches.
    pub fn new(
        scenario: &str,
        durability: &str,
        store: &str,
        value_bytes: usize,
        offer: OfferedLoad,
    ) -> Self {
        Self {
            scenario: scenario.to_owned(),
            system: "quorate".to_owned(),
            durability: durability.to_owned(),
            store: store.to_owned(),
            value_bytes,
            reads_percent: 0,
            connections: 1,
            offer,
            disk_flush_ms: 0.0,
            batching: None,
            wan: None,
            plane: None,
        }
    }
}

/// Fixed batch size and window of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedBatching {
    /// Maximum number of value bytes in a batch.
    pub batch_bytes: u64,
    pub window: u32,
}

/// JSON keys that every row of a report has, in order.
pub const ROW_KEYS: [&str; 20] = [
    "scenario",
    "system",
    "durability",
    "store",
    "value_bytes",
    "connections",
    "outstanding",
    "offered_per_s",
    "achieved_per_s",
    "p50_us",
    "p95_us",
    "p99_us",
    "p999_us",
    "max_us",
    "cpu_us_per_op",
    "errors",
    "repeats",
    "foreign_cpu",
    "ceiling",
    "ratio_to_ceiling",
];

/// A row in the form in which it is written to JSON. The keys begin with [`ROW_KEYS`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub scenario: String,
    pub system: String,
    /// Durability class of the cluster: `durable`, `volatile` or `unknown`.
    pub durability: String,
    /// Store of the service: `lsm`, `memory`, `none` or `unknown`.
    pub store: String,
    pub value_bytes: usize,
    pub connections: u32,
    /// Number of outstanding commands in a closed loop; null in an open loop.
    pub outstanding: Option<u32>,
    /// Commands offered per second in an open loop; null in a closed loop.
    pub offered_per_s: Option<u64>,
    pub achieved_per_s: f64,
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// Longest latency of all repetitions.
    pub max_us: f64,
    /// CPU time of all nodes per command, excluding the load generator.
    pub cpu_us_per_op: Option<f64>,
    /// Number of error replies over all repetitions.
    pub errors: u64,
    pub repeats: usize,
    /// Share of the CPU used by other processes, 0 to 1, in the worst repetition.
    pub foreign_cpu: Option<f64>,
    /// Commands per second of a bare program (no protocol, same I/O) with the same value size,
    /// window and class.
    pub ceiling: Option<f64>,
    /// Achieved rate as a share of the ceiling.
    pub ratio_to_ceiling: Option<f64>,
    /// Set if the row is a valid result; otherwise `why_not` explains why it is not.
    pub valid: bool,
    /// Reasons why the row is invalid; empty if it is valid.
    pub why_not: Vec<String>,
    /// Number of commands without a reply, over all repetitions.
    pub lost: u64,
    /// Share of commands that the generator sent late, in the worst repetition.
    pub late_share: f64,
    /// Longest delay with which a command was sent.
    pub latest_us: f64,
    pub mean_us: f64,
    pub deviation_us: f64,
    pub reads_percent: u32,
    /// Simulated flush time; 0 for the real disk.
    pub disk_flush_ms: f64,
    /// Minimum and maximum of `achieved_per_s` over the repetitions.
    pub achieved_spread: Spread,
    /// Minimum and maximum of `p50_us` over the repetitions.
    pub p50_spread: Spread,
    /// Minimum and maximum of `p99_us` over the repetitions.
    pub p99_spread: Spread,
    pub roles: Vec<RoleCost>,
    /// Context switches of all nodes per command.
    pub switches_per_op: Option<f64>,
    /// System calls of all nodes per command, if they can be counted.
    pub syscalls_per_op: Option<f64>,
    /// Log writes of all nodes per command.
    pub writes_per_op: Option<f64>,
    /// Flushes of all nodes per command.
    pub flushes_per_op: Option<f64>,
    /// Maximum number of value bytes in a batch, if fixed.
    pub batch_bytes: Option<u64>,
    /// Maximum number of batches in flight, if fixed.
    pub window: Option<u32>,
    /// Mean number of commands in the leader's batches.
    pub commands_per_batch: Option<f64>,
    /// Bytes that the leader sent to its peers, per command.
    pub peer_bytes_per_op: Option<f64>,
    /// Emulated network between the nodes, if any.
    pub wan: Option<String>,
    /// Plane and device of the nodes and, if chosen, the route of votes and the class that clients
    /// request; `None` for the defaults.
    pub plane: Option<String>,
    /// Devices that the nodes used, if devices were requested.
    pub device: Option<OfDevice>,
    /// Number of packets dropped by the emulated network, over all repetitions.
    pub dropped_packets: Option<u64>,
    /// Commands per second executed by the slowest node.
    pub delivered_per_s: Option<f64>,
    /// Commit of the program that served the load; unknown if that program does not report it.
    pub commit: Commit,
    pub kernel: String,
    pub cpus: usize,
    /// Latency distribution over all repetitions, as (share, microseconds).
    pub cdf: Vec<(f64, f64)>,
    /// Number of replies in each tenth of a second of the first repetition, including warm-up.
    pub over_time: Vec<u32>,
    /// Time of an intervention in the system, in seconds from the start of the first repetition.
    pub event_s: Option<f64>,
    /// Longest time without a reply after the intervention, in milliseconds; the median over the
    /// repetitions.
    pub gap_ms: Option<f64>,
    /// Longest time without a reply after the intervention in each repetition, in milliseconds.
    pub gaps_ms: Vec<f64>,
    /// Figures about byte streams, if the commands are stream writes.
    pub stream: Option<StreamFigures>,
    /// Figures about a segment, if the commands are datagrams of bare programs.
    pub segment: Option<OfSegment>,
}

impl Row {
    /// Returns the medians over the repetitions; `None` if there are none.
    pub fn new(
        setting: &RowSetting,
        environment: &Environment,
        all: &[Repetition],
    ) -> Option<Self> {
        let first = all.first()?;
        let median_of = |figure: &dyn Fn(&Samples) -> f64| {
            round_to_four_digits(median(all.iter().map(|repetition| figure(&repetition.samples))))
        };
        let spread_of = |figure: &dyn Fn(&Samples) -> f64| {
            spread(all.iter().map(|repetition| figure(&repetition.samples)))
        };
        let quantile = |share: f64| move |samples: &Samples| samples.latencies.quantile_us(share);
        let (outstanding, offered_per_s) = match setting.offer {
            OfferedLoad::Closed { outstanding } => (Some(outstanding), None),
            OfferedLoad::Open { per_second } => (None, Some(per_second)),
        };
        let mut together = Latencies::default();
        for repetition in all {
            together.add(&repetition.samples.latencies);
        }
        let worst =
            |figure: &dyn Fn(&Repetition) -> f64| all.iter().map(figure).fold(0.0, f64::max);
        let roles = role_costs(all);
        let servers = || roles.iter().filter(|role| role.role != GENERATOR_ROLE);
        let known = !roles.is_empty();
        let cpu = servers().map(|role| role.user_us_per_op + role.system_us_per_op);
        let cpu = known.then(|| round_to_four_digits(cpu.sum()));
        let switches =
            known.then(|| round_to_four_digits(servers().map(|role| role.switches_per_op).sum()));
        let why_not = invalid_reasons(all);
        Some(Self {
            scenario: setting.scenario.clone(),
            system: setting.system.clone(),
            durability: setting.durability.clone(),
            store: setting.store.clone(),
            value_bytes: setting.value_bytes,
            connections: setting.connections,
            outstanding,
            offered_per_s,
            achieved_per_s: median_of(&Samples::completed_per_second),
            p50_us: median_of(&quantile(0.5)),
            p95_us: median_of(&quantile(0.95)),
            p99_us: median_of(&quantile(0.99)),
            p999_us: median_of(&quantile(0.999)),
            max_us: round_to_four_digits(together.max_us()),
            cpu_us_per_op: cpu,
            errors: all.iter().map(|repetition| repetition.samples.errors).sum(),
            repeats: all.len(),
            foreign_cpu: worst_foreign_cpu(all),
            ceiling: None,
            ratio_to_ceiling: None,
            valid: why_not.is_empty(),
            why_not,
            lost: all.iter().map(|repetition| repetition.samples.lost).sum(),
            late_share: round_to_four_digits(worst(&|repetition| repetition.samples.late_share())),
            #[expect(clippy::cast_precision_loss, reason = "a time for people")]
            latest_us: round_to_four_digits(worst(&|repetition| {
                repetition.samples.worst_lateness as f64 / 1000.0
            })),
            mean_us: median_of(&|samples| samples.latencies.mean_us()),
            deviation_us: median_of(&|samples| samples.latencies.deviation_us()),
            reads_percent: setting.reads_percent,
            disk_flush_ms: setting.disk_flush_ms,
            achieved_spread: spread_of(&Samples::completed_per_second),
            p50_spread: spread_of(&quantile(0.5)),
            p99_spread: spread_of(&quantile(0.99)),
            roles,
            switches_per_op: switches,
            syscalls_per_op: None,
            writes_per_op: median_per_command(all, |repetition| repetition.log_writes),
            flushes_per_op: median_per_command(all, |repetition| repetition.flushes),
            batch_bytes: setting.batching.map(|batching| batching.batch_bytes),
            window: setting.batching.map(|batching| batching.window),
            commands_per_batch: median_per_command(all, |repetition| repetition.leader_batches)
                .filter(|batches| *batches > 0.0)
                .map(|batches| round_to_four_digits(1.0 / batches)),
            peer_bytes_per_op: median_per_command(all, |repetition| repetition.leader_peer_bytes),
            wan: setting.wan.clone(),
            plane: setting.plane.clone(),
            device: device_figures(all),
            dropped_packets: all.iter().map(|repetition| repetition.dropped_packets).sum(),
            delivered_per_s: all
                .iter()
                .map(|repetition| repetition.delivered_per_s)
                .collect::<Option<Vec<f64>>>()
                .map(|all| round_to_four_digits(median(all))),
            commit: environment.commit.clone(),
            kernel: environment.kernel.clone(),
            cpus: environment.cpus,
            cdf: together
                .distribution()
                .into_iter()
                .map(|(share, us)| (share, round_to_four_digits(us)))
                .collect(),
            over_time: first.samples.replies_over_time.clone(),
            event_s: None,
            gap_ms: None,
            gaps_ms: Vec::new(),
            stream: None,
            segment: None,
        })
    }

    /// Returns the medians over repetitions of stream writes; `None` if there are none.
    /// `acknowledged` belongs to the same repetitions. A load that is not fully delivered is
    /// necessarily late, but still a valid result.
    pub fn from_streams(
        setting: &RowSetting,
        environment: &Environment,
        asked: StreamSetting,
        all: &[Repetition],
        acknowledged: &[AcknowledgementCounts],
    ) -> Option<Self> {
        let mut row = Self::new(setting, environment, all)?;
        let figures = StreamFigures::new(asked, all, acknowledged);
        if !figures.is_delivered() {
            let on_time = |repetition: &Repetition| {
                let mut repetition = repetition.clone();
                repetition.samples.late_count = 0;
                repetition
            };
            let on_time: Vec<Repetition> = all.iter().map(on_time).collect();
            row.why_not = invalid_reasons(&on_time);
            row.valid = row.why_not.is_empty();
        }
        row.stream = Some(figures);
        Some(row)
    }

    /// Marks the row as invalid and adds the reason.
    pub fn invalidate(&mut self, why: String) {
        self.valid = false;
        self.why_not.push(why);
    }

    /// Records that the commands are datagrams of bare programs, which have no loop and no replies.
    pub fn set_segment(&mut self, figures: OfSegment) {
        self.outstanding = None;
        self.segment = Some(figures);
    }

    /// Sets the rate of a bare program as the ceiling.
    pub fn set_bare_ceiling(&mut self, per_second: f64) {
        self.ceiling = Some(round_to_four_digits(per_second));
        self.ratio_to_ceiling =
            (per_second > 0.0).then(|| round_to_four_digits(self.achieved_per_s / per_second));
    }

    /// Sets the ceiling, and compares it with the rate of the slowest node instead of the clients'
    /// rate.
    pub fn set_delivery_ceiling(&mut self, per_second: f64) {
        self.set_bare_ceiling(per_second);
        if let Some(delivered) = self.delivered_per_s {
            let least = self.achieved_per_s.min(delivered);
            self.ratio_to_ceiling =
                (per_second > 0.0).then(|| round_to_four_digits(least / per_second));
        }
    }

    /// Sets the time of an intervention and, for each repetition, the longest time without a reply
    /// after it.
    pub fn set_event(&mut self, event_s: f64, gaps_ms: &[f64]) {
        self.event_s = Some(event_s);
        self.gap_ms =
            (!gaps_ms.is_empty()).then(|| round_to_four_digits(median(gaps_ms.iter().copied())));
        self.gaps_ms = gaps_ms.iter().copied().map(round_to_four_digits).collect();
    }

    /// Returns whether latencies from the intended send time are meaningful. Under overload they
    /// grow without bound, and datagrams of bare programs have no replies.
    pub fn has_latency(&self) -> bool {
        self.segment.is_none() && self.stream.as_ref().is_none_or(StreamFigures::is_delivered)
    }

    /// Returns the share of commands sent late; `None` in a closed loop, where commands have no
    /// intended send time.
    pub fn late_share_if_open(&self) -> Option<f64> {
        self.offered_per_s.map(|_| self.late_share)
    }

    /// Describes the load, and the batch size and window if they are fixed.
    pub fn describe_load(&self) -> String {
        if let Some(figures) = &self.stream {
            return figures.describe_load(self.outstanding, self.connections);
        }
        if let Some(figures) = &self.segment {
            return figures.describe_load();
        }
        let load = match (self.outstanding, self.offered_per_s) {
            (Some(outstanding), _) => format!("{outstanding} outstanding"),
            (None, Some(rate)) => format!("{rate}/s"),
            (None, None) => "none".to_owned(),
        };
        let load = match (self.batch_bytes, self.window) {
            (Some(batch), Some(window)) => format!("{load}, {window} × {batch} B"),
            _ => load,
        };
        match &self.plane {
            Some(plane) => format!("{load}, {plane}"),
            None => load,
        }
    }
}

/// Returns the reasons why the repetitions are invalid; empty if they are valid.
fn invalid_reasons(all: &[Repetition]) -> Vec<String> {
    let samples = || all.iter().map(|repetition| &repetition.samples);
    let sum = |count: fn(&Samples) -> u64| samples().map(count).sum::<u64>();
    let words = samples().find_map(|samples| samples.first_error.clone());
    let words = words.map_or_else(String::new, |words| format!(" (the first: {words})"));
    let mut objections = Vec::new();
    let errors = sum(|samples| samples.errors);
    if errors > 0 {
        objections.push(format!("{errors} errors{words}"));
    }
    let lost = sum(|samples| samples.lost);
    if lost > 0 {
        objections.push(format!("{lost} replies lost{words}"));
    }
    let late = samples().map(Samples::late_share).fold(0.0, f64::max);
    if late > LATE_SHARE_MAX {
        let percent = late * 100.0;
        objections.push(format!(
            "the generator was more than 1 ms late with {percent:.1} % of the commands"
        ));
    }
    if samples().any(|samples| samples.completed == 0) {
        objections.push("a repetition without any reply".to_owned());
    }
    let mut used = all.iter().filter_map(|repetition| repetition.device_work.as_ref());
    objections.extend(used.find_map(DeviceWork::invalid_reason));
    objections
}

fn worst_foreign_cpu(all: &[Repetition]) -> Option<f64> {
    let shares = all.iter().filter_map(|repetition| repetition.foreign_cpu);
    shares.reduce(f64::max).map(round_to_four_digits)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn median_per_command(all: &[Repetition], count: fn(&Repetition) -> Option<u64>) -> Option<f64> {
    let each = |repetition: &Repetition| {
        let commands = repetition.replies_between_readings.max(1) as f64;
        Some(count(repetition)? as f64 / commands)
    };
    let figures: Vec<f64> = all.iter().filter_map(each).collect();
    (!figures.is_empty()).then(|| round_to_four_digits(median(figures)))
}

fn device_figures(all: &[Repetition]) -> Option<OfDevice> {
    let used = all.iter().map(|repetition| repetition.device_work.clone());
    OfDevice::new(&used.collect::<Option<Vec<DeviceWork>>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_testbed::usage::ResourceUsage;

    use crate::{repetition::RoleUsage, schedule::SECOND};

    fn setting() -> RowSetting {
        RowSetting {
            connections: 4,
            ..RowSetting::new(
                "kv",
                "durable",
                "memory",
                64,
                OfferedLoad::Closed { outstanding: 16 },
            )
        }
    }

    fn environment() -> Environment {
        Environment {
            commit: Commit(Some("abc".into())),
            kernel: "Linux 6".into(),
            cpus: 2,
            cpu_model: "x".into(),
        }
    }

    fn repetition(completed: u64, latency_us: u64) -> Repetition {
        let mut samples =
            Samples { completed, measured_ns: SECOND, sent_count: completed, ..Samples::default() };
        (0..completed).for_each(|_| samples.latencies.record(latency_us * 1000));
        let usage = ResourceUsage { user_s: 0.1, system_s: 0.2, context_switches: 500 };
        let role = |role: &str| RoleUsage { role: role.into(), usage };
        Repetition {
            samples,
            replies_between_readings: completed,
            roles: vec![role("leader"), role("followers"), role(GENERATOR_ROLE)],
            log_writes: Some(completed * 3),
            flushes: Some(completed * 3),
            foreign_cpu: Some(0.1),
            leader_batches: Some(completed / 4),
            leader_peer_bytes: Some(completed * 300),
            dropped_packets: None,
            delivered_per_s: None,
            device_work: None,
        }
    }

    /// The ceiling of delivery is compared with the slowest node, even if clients see a higher
    /// rate.
    #[test]
    fn slowest_node_is_compared_with_the_delivery_ceiling() {
        let delivering = |per_second| {
            let delivered_per_s = Some(per_second);
            Repetition { delivered_per_s, ..repetition(1000, 100) }
        };
        let all = [delivering(900.0), delivering(500.0), delivering(1100.0)];
        let mut row = Row::new(&setting(), &environment(), &all).unwrap();
        assert_eq!(row.delivered_per_s, Some(900.0));
        row.set_delivery_ceiling(2000.0);
        assert_eq!(row.ratio_to_ceiling, Some(0.45));
        row.set_bare_ceiling(2000.0);
        assert_eq!(row.ratio_to_ceiling, Some(0.5));
    }

    #[test]
    fn a_row_has_the_medians_and_the_spread() {
        let all = [repetition(1000, 100), repetition(3000, 300), repetition(2000, 200)];
        let row = Row::new(&setting(), &environment(), &all).unwrap();
        assert_eq!((row.achieved_per_s, row.repeats, row.valid), (2000.0, 3, true));
        assert!((row.p50_us - 200.0).abs() < 1.0);
        assert_eq!(row.achieved_spread, Spread(1000.0, 3000.0));
        assert_eq!((row.writes_per_op, row.flushes_per_op), (Some(3.0), Some(3.0)));
        // Two repetitions use 0.3 s of CPU for 2000 commands each, not counting the generator.
        assert_eq!(row.cpu_us_per_op, Some(300.0));
        assert_eq!(row.switches_per_op, Some(0.5));
        assert_eq!(row.commands_per_batch, Some(4.0));
        assert_eq!(row.peer_bytes_per_op, Some(300.0));
        assert_eq!(row.dropped_packets, None);
    }

    #[test]
    fn fixed_batch_and_window_are_part_of_the_load() {
        let mut fixed = setting();
        fixed.batching = Some(FixedBatching { batch_bytes: 8192, window: 5 });
        let row = Row::new(&fixed, &environment(), &[repetition(1, 1)]).unwrap();
        assert_eq!(row.describe_load(), "16 outstanding, 5 × 8192 B");
        assert_eq!((row.batch_bytes, row.window), (Some(8192), Some(5)));
    }

    #[test]
    fn errors_lost_replies_and_late_generators_invalidate_a_row() {
        let spoil: [fn(&mut Samples); 4] = [
            |samples| samples.errors = 1,
            |samples| samples.lost = 1,
            |samples| samples.late_count = 11,
            |samples| samples.completed = 0,
        ];
        for spoil in spoil {
            let mut all = [repetition(1000, 100), repetition(1000, 100)];
            spoil(&mut all[1].samples);
            let row = Row::new(&setting(), &environment(), &all).unwrap();
            assert!(!row.valid && row.why_not.len() == 1, "{:?}", row.why_not);
        }
        let mut all = [repetition(1000, 100)];
        all[0].samples.late_count = 10;
        assert!(Row::new(&setting(), &environment(), &all).unwrap().valid);
    }

    #[test]
    fn an_event_has_the_gap_of_each_repetition() {
        let mut row = Row::new(&setting(), &environment(), &[repetition(800, 1)]).unwrap();
        assert_eq!((row.gap_ms, row.event_s), (None, None));
        row.set_event(6.0, &[183.26, 90.0, 201.0]);
        assert_eq!((row.gap_ms, row.event_s), (Some(183.3), Some(6.0)));
        assert_eq!(row.gaps_ms, [183.3, 90.0, 201.0]);
    }

    #[test]
    fn lateness_exists_only_for_an_open_load() {
        let mut all = [repetition(1000, 100)];
        all[0].samples.late_count = 5;
        let mut setting = setting();
        assert_eq!(Row::new(&setting, &environment(), &all).unwrap().late_share_if_open(), None);
        setting.offer = OfferedLoad::Open { per_second: 1000 };
        assert_eq!(
            Row::new(&setting, &environment(), &all).unwrap().late_share_if_open(),
            Some(0.005)
        );
    }

    #[test]
    fn row_with_an_objection_is_invalid() {
        let mut row = Row::new(&setting(), &environment(), &[repetition(800, 1)]).unwrap();
        row.invalidate("1 of 2 repetitions".to_owned());
        assert_eq!((row.valid, row.why_not), (false, vec!["1 of 2 repetitions".to_owned()]));
    }

    #[test]
    fn ceiling_yields_a_ratio() {
        let mut row = Row::new(&setting(), &environment(), &[repetition(800, 1)]).unwrap();
        row.set_bare_ceiling(1000.0);
        assert_eq!(row.ratio_to_ceiling, Some(0.8));
    }

    #[test]
    fn fixed_keys_come_first_and_in_order() {
        let row = Row::new(&setting(), &environment(), &[repetition(1, 1)]).unwrap();
        let json = serde_json::to_string(&row).unwrap();
        let places: Vec<_> =
            ROW_KEYS.iter().map(|key| json.find(&format!("\"{key}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{json}");
    }
}
