//! Faults and settings of a run. Each seed draws a subset of the faults, with very different rates.

use quorate_core::{
    configuration::Configuration, laying::Route, lease::LeaseRules, node_id::NodeId,
    quorum::QuorumRule, record::Class,
};
use quorate_node::terms::FoundingTerms;
use quorate_replica::{
    SnapshotOptions, Timeouts, defaults,
    tuner::{Setting, SettingBounds, Settings as Tuning},
};

use crate::{
    air::DatagramFaults,
    device,
    dice::Dice,
    network::{Carrier, NetworkConditions},
    workload::streams::StreamLoad,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A process is killed and restarts soon.
    Crash,
    /// All processes are killed at the same time.
    CrashAll,
    /// A process shuts down gracefully and restarts.
    CleanStop,
    /// A process is down long enough to fall far behind.
    LongOutage,
    /// A process pauses while its connections remain open.
    Pause,
    Reset,
    /// The link from one node to another is blocked for a while.
    OneWay,
    /// Two groups of nodes cannot reach each other.
    Partition,
    /// Links are blocked one by one and unblocked in a different order.
    Clog,
    ClientReset,
    /// A disk becomes very slow for a while.
    SlowDisk,
    /// A write or a sync fails.
    DiskError,
    /// A disk has no space for new segments for a while.
    DiskFull,
    /// A process runs out of file descriptors for a while.
    NoDescriptors,
    /// A bit flips in data written long ago.
    Rot,
    /// A node loses its log, or the end of the log, while its process is down.
    LostLog,
    ClockJump,
    /// An operator requests a transfer of leadership.
    Transfer,
    /// Processes are killed while they found or join a cluster, and the founder while it admits a
    /// node.
    FoundingKill,
    /// A process is killed, and its successor is killed around its first change of the identity.
    /// Alternatively, a process is killed while it marks a clean stop.
    IdentityKill,
    /// A process forgets its votes, and its successor is killed between recording the new
    /// incarnation in the identity and writing to the log for the first time.
    IncarnationKill,
}

impl Fault {
    pub const ALL: [Self; 21] = [
        Self::Crash,
        Self::CrashAll,
        Self::CleanStop,
        Self::LongOutage,
        Self::Pause,
        Self::Reset,
        Self::OneWay,
        Self::Partition,
        Self::Clog,
        Self::ClientReset,
        Self::SlowDisk,
        Self::DiskError,
        Self::DiskFull,
        Self::NoDescriptors,
        Self::Rot,
        Self::LostLog,
        Self::ClockJump,
        Self::Transfer,
        Self::FoundingKill,
        Self::IdentityKill,
        Self::IncarnationKill,
    ];
}

/// Scope of the memory losses in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossScope {
    /// Fewer nodes than a quorum forget their votes, so the group must continue ([model-5]).
    WithinBudget,
    /// A volatile group loses its quorum. The group must stop, report the loss, and never reply
    /// incorrectly ([class-5]).
    Beyond,
}

/// Settings for a run, drawn from its seed.
#[derive(Clone, Debug)]
pub struct RunSettings {
    pub seed: u64,
    /// Number of founding members.
    pub founding_member_count: usize,
    /// Number of nodes that may join later.
    pub spare_node_count: usize,
    /// Mean interval between operator requests; `None` for a run without operators.
    pub operator_interval_us: Option<u64>,
    pub class: Class,
    pub loss_scope: LossScope,
    /// Maximum number of writes in flight per log.
    pub inflight_writes_max: usize,
    pub segment_bytes: u64,
    pub inflight_max: usize,
    /// Maximum number of slots by which a node's votes may be ahead of its decided prefix.
    pub window_slots: u64,
    /// Set if the replicas' queues are tiny, so that they fill up.
    pub has_tiny_queues: bool,
    /// Automatic tuning of batch size and window; `None` leaves both fixed.
    pub batch_tuning: Option<Tuning>,
    /// Timeout for a client request at a node.
    pub client_timeout_ms: u64,
    pub client_count: usize,
    /// Memory limit for the requests and replies of all clients of a node, in bytes.
    pub client_memory_bytes: usize,
    /// Maximum time between two requests from a client.
    pub think_us_max: u64,
    /// Conditions of the network between nodes.
    pub network_conditions: NetworkConditions,
    /// Datagram faults, which apply only if the carrier is packets.
    pub datagram_faults: DatagramFaults,
    /// Minimum and maximum duration of a disk operation.
    pub disk_us: (u64, u64),
    pub clock_drift_ppm: u64,
    /// Maximum error of wall clocks.
    pub clock_skew_ms: u64,
    /// Kinds of faults in the run, each with its mean interval in microseconds.
    pub fault_intervals: Vec<(Fault, u64)>,
    /// Mean interval between disk failures of a service; `None` if none occur.
    pub store_fault_interval_us: Option<u64>,
    /// Snapshot schedule and log size limits of the nodes.
    pub snapshot_options: SnapshotOptions,
    /// Load of stream clients; `None` for a run without streams.
    pub stream_load: Option<StreamLoad>,
    /// Lease settings; `None` if leases are off.
    pub leases: Option<LeaseRules>,
    /// Mean interval between stalls of a process within a turn; set only in runs with leases.
    pub stall_interval_us: Option<u64>,
    /// Auxiliaries and quorum rule of the founding configuration.
    pub founding_terms: FoundingTerms,
    /// Set if leaders send proposals to no more nodes than a quorum.
    pub is_thrifty: bool,
    /// Route by which votes reach leaders.
    pub vote_route: Route,
    /// Parameters and faults of devices; `None` for a run without devices.
    pub device_faults: Option<device::DeviceFaults>,
    pub frame_client_count: usize,
    /// Release changes; `None` if all nodes run the newest release.
    pub release_changes: Option<ReleaseChanges>,
    /// Scrub settings; `None` if nodes do not scrub.
    pub scrub_settings: Option<ScrubSettings>,
    /// Mean interval between losses of acknowledged data on the disk of one node; `None` if none
    /// occur.
    pub data_loss_interval_us: Option<u64>,
    /// Mean interval between commands that request a class other than the group's; `None` if none
    /// do. If set, the feature level is raised at the start, unless `release_changes` sets a delay.
    pub class_request_interval_us: Option<u64>,
}

/// Release changes of a run. Nodes start on the oldest compatible release or on the newest, and
/// other releases are installed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseChanges {
    /// Mean interval between installations.
    pub install_interval_us: u64,
    /// One in `oldest_one_in` installations is of the oldest release.
    pub oldest_one_in: u64,
    /// Index of a node that gets only the oldest release until act two.
    pub oldest_only_node: Option<usize>,
    /// Time for which a leader waits before it raises the feature level.
    pub raise_delay_ms: u64,
    /// Nodes that start on the newest release, as bits.
    pub newest_at_start: u64,
}

impl ReleaseChanges {
    /// Draws the release changes from separate dice.
    pub fn draw(seed: u64, nodes: usize) -> Self {
        let dice = &mut Dice::new(seed ^ 0x5265_6c65_6173_6573);
        Self {
            install_interval_us: dice.pick(&[50_000, 150_000, 400_000]),
            oldest_one_in: dice.pick(&[3, 6, 12]),
            oldest_only_node: dice.chance(1, 3).then(|| dice.index(nodes)),
            raise_delay_ms: dice.pick(&[0, 50, 400]),
            newest_at_start: match dice.index(4) {
                0 => u64::MAX,
                1 => dice.word(),
                _ => 0,
            },
        }
    }
}

/// Scrub settings for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubSettings {
    /// Time from the end of a scrub to the start of the next; `None` if nodes do not start scrubs
    /// themselves.
    pub interval_ms: Option<u64>,
    /// Mean interval between operators' scrub requests.
    pub request_interval_us: u64,
    /// Rate limit of scrubs.
    pub bytes_per_second: u64,
    /// Mean interval between bit flips, if the seed did not draw bit rot as a fault.
    pub rot_interval_us: u64,
    /// Mean interval between misdirected writes, or between damaged small files, on one node;
    /// `None` if neither occurs.
    pub stray_interval_us: Option<u64>,
}

/// First seed that may draw disks that lose acknowledged data. Earlier seeds replay unchanged.
const FIRST_SEED_WITH_LIES: u64 = 3001;
/// First seed that may draw clients that request other classes. Earlier seeds replay unchanged.
const FIRST_SEED_WITH_CLASSES: u64 = 4001;
/// First seed that may draw scrubs. Earlier seeds replay unchanged.
const FIRST_SEED_WITH_SCRUBS: u64 = 1001;
/// First seed that may draw misdirected writes. Earlier seeds replay unchanged.
const FIRST_SEED_WITH_STRAYS: u64 = 2001;

impl ScrubSettings {
    /// Draws scrub settings for a third of the seeds starting at `FIRST_SEED_WITH_SCRUBS`, using
    /// separate dice.
    fn draw(seed: u64) -> Option<Self> {
        let dice = &mut Dice::new(seed ^ 0x5363_7275_6262_6564);
        let scrubs = Self {
            interval_ms: dice.pick(&[None, Some(20), Some(300)]),
            request_interval_us: dice.pick(&[30_000, 150_000, 600_000]),
            bytes_per_second: dice.pick(&[64 << 10, 1 << 20, 32 << 20]),
            rot_interval_us: dice.pick(&[30_000, 100_000, 400_000]),
            stray_interval_us: None,
        };
        let strays_us = Dice::new(seed ^ 0x5374_7261_7973).pick(&[20_000, 80_000, 300_000]);
        let scrubs = Self {
            stray_interval_us: (seed >= FIRST_SEED_WITH_STRAYS).then_some(strays_us),
            ..scrubs
        };
        (dice.chance(1, 3) && seed >= FIRST_SEED_WITH_SCRUBS).then_some(scrubs)
    }
}

impl RunSettings {
    pub fn draw(seed: u64) -> Self {
        let dice = &mut Dice::new(seed ^ 0x5175_6f72_6174_6521);
        let nodes = dice.pick(&[1, 3, 3, 3, 3, 5]);
        let class = dice.pick(&[Class::Durable, Class::Durable, Class::Volatile]);
        let beyond = class == Class::Volatile && dice.chance(1, 4);
        let mut faults = Vec::new();
        for fault in Fault::ALL {
            let mean_ms = dice.pick(&[60, 200, 600, 2000]);
            if dice.chance(2, 5) {
                faults.push((fault, mean_ms * 1000));
            }
        }
        let scrubs = ScrubSettings::draw(seed);
        let rots = faults.iter().any(|(fault, _)| *fault == Fault::Rot);
        if let Some(scrubs) = scrubs.filter(|_| !rots) {
            faults.push((Fault::Rot, scrubs.rot_interval_us));
        }
        let tiny_queues = dice.chance(1, 3);
        let terms = draw_terms(seed, nodes, class);
        // A plan tolerates the loss of one node, not of two. With an auxiliary, a full replica that
        // forgets in the middle of a plan leaves no step that [era-12] allows.
        let forgets = |(fault, _): &(Fault, u64)| {
            matches!(fault, Fault::Rot | Fault::LostLog | Fault::IncarnationKill)
        };
        let spared = !terms.auxiliaries.is_empty() && faults.iter().any(forgets);
        let operators_us = draw_operators(seed).filter(|_| nodes < 5 && !beyond && !spared);
        Self {
            seed,
            founding_member_count: nodes,
            spare_node_count: operators_us.map_or(0, |_| 4),
            operator_interval_us: operators_us,
            class,
            loss_scope: if beyond { LossScope::Beyond } else { LossScope::WithinBudget },
            inflight_writes_max: dice.pick(&[1, 2, 3]),
            segment_bytes: dice.pick(&[32 << 10, 64 << 10, 256 << 10]),
            inflight_max: dice.pick(&[2, 8, 256]),
            window_slots: dice.pick(&[16, 64, 4096]),
            has_tiny_queues: tiny_queues,
            batch_tuning: draw_tuning(dice, nodes, tiny_queues),
            client_timeout_ms: dice.pick(&[300, 1000, 3000]),
            client_count: dice.pick(&[4, 7, 12]),
            client_memory_bytes: if tiny_queues { 4 << 10 } else { 1 << 20 },
            think_us_max: dice.pick(&[500, 4000, 20_000]),
            network_conditions: draw_network(dice),
            datagram_faults: DatagramFaults::none(),
            disk_us: dice.pick(&[(10, 60), (50, 500), (300, 9000)]),
            clock_drift_ppm: dice.pick(&[0, 100, 50_000]),
            clock_skew_ms: dice.pick(&[0, 20, 5000]),
            fault_intervals: faults,
            store_fault_interval_us: draw_store_faults(seed),
            snapshot_options: draw_snapshots(seed),
            stream_load: StreamLoad::draw(seed),
            leases: None,
            stall_interval_us: None,
            founding_terms: terms,
            is_thrifty: Dice::new(seed ^ 0x5468_7269_6674_7921).chance(1, 6),
            vote_route: if Dice::new(seed ^ 0x5269_6e67_2070_6178).chance(1, 3) {
                Route::Ring
            } else {
                Route::Star
            },
            device_faults: device::DeviceFaults::draw(seed).filter(|_| nodes > 1),
            frame_client_count: 0,
            release_changes: None,
            scrub_settings: scrubs,
            data_loss_interval_us: draw_lies(seed),
            class_request_interval_us: draw_classes(seed),
        }
        .draw_leases()
        .draw_frame_clients()
        .draw_packets()
        .adapt_to_streams()
    }

    fn draw_frame_clients(mut self) -> Self {
        if self.device_faults.is_some() && self.class == Class::Volatile {
            let dice = &mut Dice::new(self.seed ^ 0x4672_436c_6965_6e74);
            self.frame_client_count = dice.pick(&[0, 1, 2]);
        }
        self
    }

    /// Adapts the limits to streams, in which a slot is one byte, and a record may contain all
    /// undecided bytes of a stream.
    fn adapt_to_streams(mut self) -> Self {
        if let Some(load) = &self.stream_load {
            let record_bytes = 2 * load.window_bytes as u64;
            self.segment_bytes = self.segment_bytes.max(record_bytes).max(128 << 10);
            self.window_slots = 32 << 20;
        }
        self
    }

    /// Returns the number of spare segments of each log. The number is derived from the segment
    /// size, so that it needs no draw.
    pub fn spare_segment_count(&self) -> usize {
        match self.segment_bytes {
            ..=0x8000 => 3,
            _ => 1,
        }
    }

    /// Returns settings without faults for a cluster of `nodes` nodes.
    pub fn without_faults(seed: u64, nodes: usize, class: Class) -> Self {
        Self {
            seed,
            founding_member_count: nodes,
            spare_node_count: 0,
            operator_interval_us: None,
            class,
            loss_scope: LossScope::WithinBudget,
            inflight_writes_max: 2,
            segment_bytes: 64 << 10,
            inflight_max: 256,
            window_slots: 4096,
            has_tiny_queues: false,
            batch_tuning: None,
            client_timeout_ms: 3000,
            client_count: 0,
            client_memory_bytes: 1 << 30,
            think_us_max: 2000,
            network_conditions: calm_network(),
            datagram_faults: DatagramFaults::none(),
            disk_us: (50, 50),
            clock_drift_ppm: 0,
            clock_skew_ms: 0,
            fault_intervals: Vec::new(),
            store_fault_interval_us: None,
            snapshot_options: SnapshotOptions::default(),
            stream_load: None,
            leases: None,
            stall_interval_us: None,
            founding_terms: FoundingTerms::default(),
            is_thrifty: false,
            vote_route: Route::Star,
            device_faults: None,
            frame_client_count: 0,
            release_changes: None,
            scrub_settings: None,
            data_loss_interval_us: None,
            class_request_interval_us: None,
        }
    }

    /// Draws the carrier and the datagram faults from separate dice.
    fn draw_packets(mut self) -> Self {
        (self.network_conditions.carrier, self.datagram_faults) =
            DatagramFaults::draw(self.seed, self.network_conditions.carrier);
        self
    }

    /// Draws lease settings from separate dice. The leases allow for the drift of the run's clocks.
    fn draw_leases(mut self) -> Self {
        let dice = &mut Dice::new(self.seed ^ 0x4c65_6173_6564_7265);
        let stalls_ms = dice.pick(&[None, Some(100), Some(400)]);
        if dice.chance(1, 4) {
            let election_min_ms = Timeouts::default().election_min_ms;
            let drift_ppm = self.clock_drift_ppm.max(defaults::CLOCK_DRIFT_PPM);
            self.leases = Some(LeaseRules::within_election_timeout(election_min_ms, drift_ppm));
            self.stall_interval_us = stalls_ms.map(|ms| ms * 1000);
        }
        self
    }

    /// Returns the founding configuration. Panics if the terms do not fit the number of nodes.
    pub fn founding_configuration(&self) -> Configuration {
        let nodes: Vec<NodeId> = (0..self.founding_member_count).map(crate::ids::id).collect();
        let founding = self.founding_terms.configuration(&nodes, self.class);
        founding.expect("terms are drawn to fit")
    }

    pub fn is_auxiliary(&self, index: usize) -> bool {
        self.founding_terms.auxiliaries.contains(&crate::ids::id(index))
    }

    /// Returns the number of nodes that may forget their votes in this run.
    pub fn forgetting_nodes_max(&self) -> usize {
        match self.founding_terms.quorum_rule {
            // Phase 1 may need promises from all three nodes, so no node may lose its votes.
            QuorumRule::Flexible { .. } => 0,
            QuorumRule::Majority | QuorumRule::Grid { .. } => (self.founding_member_count - 1) / 2,
        }
    }
}

/// Returns network conditions without loss or delay variation.
pub fn calm_network() -> NetworkConditions {
    NetworkConditions {
        carrier: Carrier::Streams,
        delay_min_us: 100,
        delay_max_us: 100,
        late_of_1000: 0,
        lost_of_1000: 0,
        repeated_of_1000: 0,
        corrupt_of_100k: 0,
        queue_bytes_max: 1 << 20,
        window_bytes: 256 << 10,
    }
}

/// Draws disk failures of services from separate dice, so that seeds without them replay unchanged.
fn draw_store_faults(seed: u64) -> Option<u64> {
    let dice = &mut Dice::new(seed ^ 0x5374_6f72_6564_6965);
    let mean_ms = dice.pick(&[40, 150, 600]);
    dice.chance(1, 4).then_some(mean_ms * 1000)
}

/// Draws disks that lose acknowledged data for a third of the seeds starting at
/// `FIRST_SEED_WITH_LIES`, using separate dice.
fn draw_lies(seed: u64) -> Option<u64> {
    let dice = &mut Dice::new(seed ^ 0x4c69_6172_7321);
    let mean_us = dice.pick(&[8_000, 30_000, 100_000]);
    (dice.chance(1, 3) && seed >= FIRST_SEED_WITH_LIES).then_some(mean_us)
}

/// Draws requests for other classes for half of the seeds starting at `FIRST_SEED_WITH_CLASSES`.
fn draw_classes(seed: u64) -> Option<u64> {
    let dice = &mut Dice::new(seed ^ 0x436c_6173_7365_7321);
    let mean_us = dice.pick(&[500, 3_000, 20_000]);
    (dice.chance(1, 2) && seed >= FIRST_SEED_WITH_CLASSES).then_some(mean_us)
}

fn draw_operators(seed: u64) -> Option<u64> {
    let dice = &mut Dice::new(seed ^ 0x4d65_6d62_6572_7321);
    let mean_ms = dice.pick(&[5, 20, 80]);
    dice.chance(1, 2).then_some(mean_ms * 1000)
}

/// Draws auxiliaries and the quorum rule from separate dice. Groups of fewer than three nodes have
/// neither, nor have volatile groups, whose tolerated losses are counted in nodes.
fn draw_terms(seed: u64, nodes: usize, class: Class) -> FoundingTerms {
    let dice = &mut Dice::new(seed ^ 0x4175_7869_6c69_6172);
    let (flexible, spared) = (dice.chance(1, 5), dice.chance(1, 3));
    let mut terms = FoundingTerms::default();
    if nodes < 3 || class == Class::Volatile {
        return terms;
    }
    if flexible {
        let (phase1, phase2) = if nodes == 3 { (3, 1) } else { (4, 2) };
        terms.quorum_rule = QuorumRule::Flexible { phase1, phase2 };
    }
    if spared {
        let all = (0..nodes).map(crate::ids::id);
        terms.auxiliaries = all.skip(nodes / 2 + 1).collect();
    }
    terms
}

/// Draws snapshot settings from separate dice. Unless the defaults are drawn, files are as small as
/// possible, so that each snapshot consists of many.
fn draw_snapshots(seed: u64) -> SnapshotOptions {
    let dice = &mut Dice::new(seed ^ 0x536e_6170_7368_6f74);
    let (log_bytes_min, ratio) = (dice.pick(&[16 << 10, 48 << 10, 160 << 10]), dice.pick(&[0, 2]));
    let log_bytes_max = dice.pick(&[0, 96 << 10, 1 << 30]);
    let transfer_bytes_per_second = dice.pick(&[None, Some(64 << 10), Some(4 << 20)]);
    let chunks = dice.pick(&[1, 2, 8]);
    let mut options = SnapshotOptions::default();
    if dice.chance(1, 4) {
        return options;
    }
    (options.ratio, options.log_bytes_min) = (ratio, log_bytes_min);
    options.log_bytes_max = log_bytes_max;
    options.transfer_bytes_per_second = transfer_bytes_per_second;
    options.in_files_of(4 << 10, chunks)
}

fn draw_network(dice: &mut Dice) -> NetworkConditions {
    let delay_min_us = dice.pick(&[20, 100, 1000]);
    NetworkConditions {
        carrier: dice.pick(&[Carrier::Streams, Carrier::Streams, Carrier::Datagrams]),
        delay_min_us,
        delay_max_us: delay_min_us * dice.pick(&[1, 3, 8]),
        late_of_1000: dice.pick(&[0, 5, 50]),
        lost_of_1000: dice.pick(&[0, 10, 100, 500]),
        repeated_of_1000: dice.pick(&[0, 10, 200]),
        corrupt_of_100k: dice.pick(&[0, 0, 100]),
        queue_bytes_max: dice.pick(&[4 << 10, 64 << 10, 1 << 20]),
        window_bytes: dice.pick(&[2 << 10, 32 << 10, 256 << 10]),
    }
}

/// Draws the tuning. Batches are small enough to matter with the few commands of a run.
fn draw_tuning(dice: &mut Dice, nodes: usize, tiny: bool) -> Option<Tuning> {
    let batch_bytes_max = if tiny { 512 } else { 16 << 10 };
    let tuning = Tuning {
        start: Setting {
            batch_bytes: dice.pick(&[128, batch_bytes_max]),
            window: dice.pick(&[1, 4]),
        },
        bounds: SettingBounds { batch_bytes_max, window_max: dice.pick(&[2, 8, 64]) },
        latency_goal_ns: dice.pick(&[None, Some(3_000_000)]),
        ..Tuning::new(nodes)
    };
    dice.chance(3, 4).then_some(tuning)
}
