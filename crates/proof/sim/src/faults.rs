//! Faults and settings of a run. Each seed draws a subset of the faults, with very different rates.

use quorate_core::{
    configuration::Configuration, laying::Route, lease::Leases, node_id::NodeId,
    quorum::QuorumRule, record::Class,
};
use quorate_node::terms::Terms;
use quorate_replica::{
    SnapshotOptions, Timeouts, defaults,
    tuner::{Bounds, Setting, Settings as Tuning},
};

use crate::{
    air::DatagramFaults,
    device,
    dice::Dice,
    network::{Carrier, NetworkConditions},
    workload::streams::Load,
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
pub enum Losses {
    /// Fewer nodes than a quorum forget their votes, so the group must continue ([model-5]).
    WithinBudget,
    /// A volatile group loses its quorum. The group must stop, report the loss, and never reply
    /// incorrectly ([class-5]).
    Beyond,
}

/// Settings for a run, drawn from its seed.
#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    /// Number of founding members.
    pub nodes: usize,
    /// Number of nodes that may join later.
    pub spares: usize,
    /// Mean interval between operator requests; `None` for a run without operators.
    pub operators_us: Option<u64>,
    pub class: Class,
    pub losses: Losses,
    /// Maximum number of writes in flight per log.
    pub depth: usize,
    pub segment_bytes: u64,
    pub inflight_max: usize,
    /// Maximum number of slots by which a node's votes may be ahead of its decided prefix.
    pub window_slots: u64,
    /// Set if the replicas' queues are tiny, so that they fill up.
    pub tiny_queues: bool,
    /// Automatic tuning of batch size and window; `None` leaves both fixed.
    pub tuning: Option<Tuning>,
    /// Timeout for a client request at a node.
    pub client_timeout_ms: u64,
    pub clients: usize,
    /// Memory limit for the requests and replies of all clients of a node, in bytes.
    pub client_memory: usize,
    /// Maximum time between two requests from a client.
    pub think_us: u64,
    /// Conditions of the network between nodes.
    pub weather: NetworkConditions,
    /// Datagram faults, which apply only if the carrier is packets.
    pub air: DatagramFaults,
    /// Minimum and maximum duration of a disk operation.
    pub disk_us: (u64, u64),
    pub drift_ppm: u64,
    /// Maximum error of wall clocks.
    pub skew_ms: u64,
    /// Kinds of faults in the run, each with its mean interval in microseconds.
    pub faults: Vec<(Fault, u64)>,
    /// Mean interval between disk failures of a service; `None` if none occur.
    pub store_faults_us: Option<u64>,
    /// Snapshot schedule and log size limits of the nodes.
    pub snapshots: SnapshotOptions,
    /// Load of stream clients; `None` for a run without streams.
    pub streams: Option<Load>,
    /// Lease settings; `None` if leases are off.
    pub leases: Option<Leases>,
    /// Mean interval between stalls of a process within a turn; set only in runs with leases.
    pub stalls_us: Option<u64>,
    /// Auxiliaries and quorum rule of the founding configuration.
    pub terms: Terms,
    /// Set if leaders send proposals to no more nodes than a quorum.
    pub thrifty: bool,
    /// Route by which votes reach leaders.
    pub votes: Route,
    /// Parameters and faults of devices; `None` for a run without devices.
    pub devices: Option<device::Faults>,
    pub frame_clients: usize,
    /// Release changes; `None` if all nodes run the newest release.
    pub releases: Option<Releases>,
    /// Scrub settings; `None` if nodes do not scrub.
    pub scrubs: Option<Scrubs>,
    /// Mean interval between losses of acknowledged data on the disk of one node; `None` if none
    /// occur.
    pub lies_us: Option<u64>,
    /// Mean interval between commands that request a class other than the group's. If set, the
    /// feature level is raised at the start.
    pub classes_us: Option<u64>,
}

/// Release changes of a run. Nodes start on the oldest compatible release or on the newest, and
/// other releases are installed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    /// Mean interval between installations.
    pub mean_us: u64,
    /// One in `back_of` installations is of the oldest release.
    pub back_of: u64,
    /// Index of a node that gets only the oldest release until act two.
    pub laggard: Option<usize>,
    /// Time for which a leader waits before it raises the feature level.
    pub raise_ms: u64,
    /// Nodes that start on the newest release, as bits.
    pub founders_newest: u64,
}

impl Releases {
    /// Draws the release changes from separate dice.
    pub fn draw(seed: u64, nodes: usize) -> Self {
        let dice = &mut Dice::new(seed ^ 0x5265_6c65_6173_6573);
        Self {
            mean_us: dice.pick(&[50_000, 150_000, 400_000]),
            back_of: dice.pick(&[3, 6, 12]),
            laggard: dice.chance(1, 3).then(|| dice.index(nodes)),
            raise_ms: dice.pick(&[0, 50, 400]),
            founders_newest: match dice.index(4) {
                0 => u64::MAX,
                1 => dice.word(),
                _ => 0,
            },
        }
    }
}

/// Scrub settings for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrubs {
    /// Time from the end of a scrub to the start of the next; `None` if nodes do not start scrubs
    /// themselves.
    pub every_ms: Option<u64>,
    /// Mean interval between operators' scrub requests.
    pub asked_us: u64,
    /// Rate limit of scrubs.
    pub bytes_per_second: u64,
    /// Mean interval between bit flips, if the seed did not draw bit rot as a fault.
    pub rot_us: u64,
    /// Mean interval between misdirected writes, or between damaged small files, on one node;
    /// `None` if neither occurs.
    pub strays_us: Option<u64>,
}

/// First seed that may draw disks that lose acknowledged data. Earlier seeds replay unchanged.
const LIES_FROM: u64 = 3001;
/// First seed that may draw clients that request other classes. Earlier seeds replay unchanged.
const CLASSES_FROM: u64 = 4001;
/// First seed that may draw scrubs. Earlier seeds replay unchanged.
const SCRUBS_FROM: u64 = 1001;
/// First seed that may draw misdirected writes. Earlier seeds replay unchanged.
const STRAYS_FROM: u64 = 2001;

impl Scrubs {
    /// Draws scrub settings for a third of the seeds starting at `SCRUBS_FROM`, using separate
    /// dice.
    fn draw(seed: u64) -> Option<Self> {
        let dice = &mut Dice::new(seed ^ 0x5363_7275_6262_6564);
        let scrubs = Self {
            every_ms: dice.pick(&[None, Some(20), Some(300)]),
            asked_us: dice.pick(&[30_000, 150_000, 600_000]),
            bytes_per_second: dice.pick(&[64 << 10, 1 << 20, 32 << 20]),
            rot_us: dice.pick(&[30_000, 100_000, 400_000]),
            strays_us: None,
        };
        let strays_us = Dice::new(seed ^ 0x5374_7261_7973).pick(&[20_000, 80_000, 300_000]);
        let scrubs = Self { strays_us: (seed >= STRAYS_FROM).then_some(strays_us), ..scrubs };
        (dice.chance(1, 3) && seed >= SCRUBS_FROM).then_some(scrubs)
    }
}

impl Settings {
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
        let scrubs = Scrubs::draw(seed);
        let rots = faults.iter().any(|(fault, _)| *fault == Fault::Rot);
        if let Some(scrubs) = scrubs.filter(|_| !rots) {
            faults.push((Fault::Rot, scrubs.rot_us));
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
            nodes,
            spares: operators_us.map_or(0, |_| 4),
            operators_us,
            class,
            losses: if beyond { Losses::Beyond } else { Losses::WithinBudget },
            depth: dice.pick(&[1, 2, 3]),
            segment_bytes: dice.pick(&[32 << 10, 64 << 10, 256 << 10]),
            inflight_max: dice.pick(&[2, 8, 256]),
            window_slots: dice.pick(&[16, 64, 4096]),
            tiny_queues,
            tuning: draw_tuning(dice, nodes, tiny_queues),
            client_timeout_ms: dice.pick(&[300, 1000, 3000]),
            clients: dice.pick(&[4, 7, 12]),
            client_memory: if tiny_queues { 4 << 10 } else { 1 << 20 },
            think_us: dice.pick(&[500, 4000, 20_000]),
            weather: draw_weather(dice),
            air: DatagramFaults::calm(),
            disk_us: dice.pick(&[(10, 60), (50, 500), (300, 9000)]),
            drift_ppm: dice.pick(&[0, 100, 50_000]),
            skew_ms: dice.pick(&[0, 20, 5000]),
            faults,
            store_faults_us: draw_store_faults(seed),
            snapshots: draw_snapshots(seed),
            streams: Load::draw(seed),
            leases: None,
            stalls_us: None,
            terms,
            thrifty: Dice::new(seed ^ 0x5468_7269_6674_7921).chance(1, 6),
            votes: if Dice::new(seed ^ 0x5269_6e67_2070_6178).chance(1, 3) {
                Route::Ring
            } else {
                Route::Star
            },
            devices: device::Faults::draw(seed).filter(|_| nodes > 1),
            frame_clients: 0,
            releases: None,
            scrubs,
            lies_us: draw_lies(seed),
            classes_us: draw_classes(seed),
        }
        .draw_leases()
        .draw_frame_clients()
        .draw_packets()
        .fit_streams()
    }

    fn draw_frame_clients(mut self) -> Self {
        if self.devices.is_some() && self.class == Class::Volatile {
            let dice = &mut Dice::new(self.seed ^ 0x4672_436c_6965_6e74);
            self.frame_clients = dice.pick(&[0, 1, 2]);
        }
        self
    }

    /// Adapts the limits to streams, in which a slot is one byte, and a record may contain all
    /// undecided bytes of a stream.
    fn fit_streams(mut self) -> Self {
        if let Some(load) = &self.streams {
            let record_bytes = 2 * load.window_bytes as u64;
            self.segment_bytes = self.segment_bytes.max(record_bytes).max(128 << 10);
            self.window_slots = 32 << 20;
        }
        self
    }

    /// Returns the number of spare segments of each log. The number is derived from the segment
    /// size, so that it needs no draw.
    pub fn spare_segments(&self) -> usize {
        match self.segment_bytes {
            ..=0x8000 => 3,
            _ => 1,
        }
    }

    /// Returns settings without faults for a cluster of `nodes` nodes.
    pub fn calm(seed: u64, nodes: usize, class: Class) -> Self {
        Self {
            seed,
            nodes,
            spares: 0,
            operators_us: None,
            class,
            losses: Losses::WithinBudget,
            depth: 2,
            segment_bytes: 64 << 10,
            inflight_max: 256,
            window_slots: 4096,
            tiny_queues: false,
            tuning: None,
            client_timeout_ms: 3000,
            clients: 0,
            client_memory: 1 << 30,
            think_us: 2000,
            weather: calm_weather(),
            air: DatagramFaults::calm(),
            disk_us: (50, 50),
            drift_ppm: 0,
            skew_ms: 0,
            faults: Vec::new(),
            store_faults_us: None,
            snapshots: SnapshotOptions::default(),
            streams: None,
            leases: None,
            stalls_us: None,
            terms: Terms::default(),
            thrifty: false,
            votes: Route::Star,
            devices: None,
            frame_clients: 0,
            releases: None,
            scrubs: None,
            lies_us: None,
            classes_us: None,
        }
    }

    /// Draws the carrier and the datagram faults from separate dice.
    fn draw_packets(mut self) -> Self {
        (self.weather.carrier, self.air) = DatagramFaults::draw(self.seed, self.weather.carrier);
        self
    }

    /// Draws lease settings from separate dice. The leases allow for the drift of the run's clocks.
    fn draw_leases(mut self) -> Self {
        let dice = &mut Dice::new(self.seed ^ 0x4c65_6173_6564_7265);
        let stalls_ms = dice.pick(&[None, Some(100), Some(400)]);
        if dice.chance(1, 4) {
            let election_min_ms = Timeouts::default().election_min_ms;
            let drift_ppm = self.drift_ppm.max(defaults::CLOCK_DRIFT_PPM);
            self.leases = Some(Leases::below(election_min_ms, drift_ppm));
            self.stalls_us = stalls_ms.map(|ms| ms * 1000);
        }
        self
    }

    /// Returns the founding configuration. Panics if the terms do not fit the number of nodes.
    pub fn founding(&self) -> Configuration {
        let nodes: Vec<NodeId> = (0..self.nodes).map(crate::ids::id).collect();
        let founding = self.terms.configuration(&nodes, self.class);
        founding.expect("terms are drawn to fit")
    }

    pub fn is_auxiliary(&self, index: usize) -> bool {
        self.terms.auxiliaries.contains(&crate::ids::id(index))
    }

    /// Returns the number of nodes that may forget their votes in this run.
    pub fn budget(&self) -> usize {
        match self.terms.rule {
            // Phase 1 may need promises from all three nodes, so no node may lose its votes.
            QuorumRule::Flexible { .. } => 0,
            QuorumRule::Majority | QuorumRule::Grid { .. } => (self.nodes - 1) / 2,
        }
    }
}

/// Returns network conditions without loss or delay variation.
pub fn calm_weather() -> NetworkConditions {
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

/// Draws disks that lose acknowledged data for a third of the seeds starting at `LIES_FROM`, using
/// separate dice.
fn draw_lies(seed: u64) -> Option<u64> {
    let dice = &mut Dice::new(seed ^ 0x4c69_6172_7321);
    let mean_us = dice.pick(&[8_000, 30_000, 100_000]);
    (dice.chance(1, 3) && seed >= LIES_FROM).then_some(mean_us)
}

/// Draws requests for other classes for half of the seeds starting at `CLASSES_FROM`.
fn draw_classes(seed: u64) -> Option<u64> {
    let dice = &mut Dice::new(seed ^ 0x436c_6173_7365_7321);
    let mean_us = dice.pick(&[500, 3_000, 20_000]);
    (dice.chance(1, 2) && seed >= CLASSES_FROM).then_some(mean_us)
}

fn draw_operators(seed: u64) -> Option<u64> {
    let dice = &mut Dice::new(seed ^ 0x4d65_6d62_6572_7321);
    let mean_ms = dice.pick(&[5, 20, 80]);
    dice.chance(1, 2).then_some(mean_ms * 1000)
}

/// Draws auxiliaries and the quorum rule from separate dice. Groups of fewer than three nodes have
/// neither, nor have volatile groups, whose tolerated losses are counted in nodes.
fn draw_terms(seed: u64, nodes: usize, class: Class) -> Terms {
    let dice = &mut Dice::new(seed ^ 0x4175_7869_6c69_6172);
    let (flexible, spared) = (dice.chance(1, 5), dice.chance(1, 3));
    let mut terms = Terms::default();
    if nodes < 3 || class == Class::Volatile {
        return terms;
    }
    if flexible {
        let (phase1, phase2) = if nodes == 3 { (3, 1) } else { (4, 2) };
        terms.rule = QuorumRule::Flexible { phase1, phase2 };
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

fn draw_weather(dice: &mut Dice) -> NetworkConditions {
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
        bounds: Bounds { batch_bytes_max, window_max: dice.pick(&[2, 8, 64]) },
        latency_goal_ns: dice.pick(&[None, Some(3_000_000)]),
        ..Tuning::new(nodes)
    };
    dice.chance(3, 4).then_some(tuning)
}
