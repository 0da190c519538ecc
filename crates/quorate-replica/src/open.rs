//! How a replica starts: what the caller chooses, what the log remembers, what may go wrong.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
};

use quorate_core::{
    configuration::Configuration,
    effect::{Effects, Role},
    message::Extent,
    node::{Node, Options, Recovered},
    node_id::{Member, NodeId},
    record::RecordSeq,
    slot::SlotRange,
    time::Time,
};
use quorate_disk::Disk;
use quorate_log::{Log, Recovery};
use quorate_tuner::{Bounds, Setting, Settings};
use quorate_wire::BODY_BYTES_MAX;

use crate::{
    applying::applier::Applier,
    applying::health::Tended,
    applying::sessions::Unreadable,
    catching_up::COMPARE_EVERY_MS,
    catching_up::repair::Repair,
    catching_up::serving::{History, Serving},
    completions::Completions,
    contents::fetches::Fetches,
    contents::payloads::Payloads,
    counters::Counters,
    ending::Stop,
    limits::{Limits, OPEN_BATCHES_MAX},
    observing::events::Events,
    observing::promises::Promises,
    observing::pursuit::Pursuit,
    observing::watch::Watch,
    proposing::batch,
    proposing::forwarded::Forwarded,
    proposing::origin::Origin,
    reading::confirmations::Reads,
    reading::probe::Probe,
    replica::Replica,
    service::StateMachine,
    status::Addresses,
    storing::reads::LogReads,
    tuning::Tuning,
};

/// How long nodes wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A leader speaks at least this often.
    pub heartbeat_ms: u64,
    /// An election starts after a silence drawn from this range,
    pub election_min_ms: u64,
    /// up to here.
    pub election_max_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            heartbeat_ms: 20,
            election_min_ms: 100,
            election_max_ms: 200,
        }
    }
}

/// What the caller chooses; constant while the replica runs.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// The group's id.
    pub cluster: u128,
    /// Who this is, in which incarnation ([volatile-1]).
    pub member: Member,
    /// This process start; never used before by this node ([value-2]).
    pub boot: u32,
    /// How long nodes wait for each other.
    pub timeouts: Timeouts,
    /// Where randomised time-outs come from; different on every node and start.
    pub seed: u64,
    /// Largest command taken, in bytes.
    pub command_bytes_max: usize,
    /// A request that is not done by then fails.
    pub client_timeout_ms: u64,
    /// Most proposals of a leader in flight.
    pub inflight_max: usize,
    /// Slots at or above `decided_to + window_slots` are refused ([p2-3]).
    pub window_slots: u64,
    /// Capacity of every queue.
    pub limits: Limits,
    /// Where the founding members listen, as far as that is known; this node included.
    pub addresses: BTreeMap<NodeId, Addresses>,
    /// How batch and window are chosen. Without it they stay as `limits` has them.
    pub tuning: Option<Settings>,
    /// The founding configuration ([era-11]).
    pub founding: Configuration,
}

impl ReplicaOptions {
    /// Everything by default but who this is.
    pub fn new(cluster: u128, member: Member, boot: u32, founding: Configuration) -> Self {
        Self {
            cluster,
            member,
            boot,
            timeouts: Timeouts::default(),
            seed: u64::from(member.node.0) << 32 | u64::from(boot),
            command_bytes_max: 8 << 20,
            client_timeout_ms: 5_000,
            inflight_max: 256,
            window_slots: 4_096,
            limits: Limits::default(),
            addresses: BTreeMap::new(),
            tuning: None,
            founding,
        }
    }
}

/// Why a replica cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The log lost votes or promises: the node must come with its next incarnation ([disk-8]).
    Forgotten {
        /// What is damaged, and where.
        places: Vec<String>,
    },
    /// The service's metadata cannot be read.
    Metadata(Unreadable),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forgotten { places } => {
                write!(f, "the log lost votes or promises: {}", places.join("; "))
            }
            Self::Metadata(unreadable) => unreadable.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Goes on from what the log and the service remember. Nothing is sent before the first
    /// [`Replica::poll`].
    pub fn open(
        options: ReplicaOptions,
        log: Log<D>,
        recovery: Recovery,
        service: S,
        now: Time,
    ) -> Result<Self, OpenError> {
        let damage = recovery.damage.clone().unwrap_or_default();
        if damage.forgotten {
            return Err(OpenError::Forgotten {
                places: damage.places,
            });
        }
        let ReplicaOptions {
            member,
            boot,
            timeouts,
            ..
        } = options;
        let command_bytes_max = command_bytes_max(options.command_bytes_max, &log);
        let limits = options
            .limits
            .at_least(command_bytes_max + batch::OVERHEAD_BYTES);
        let applier = Applier::new(member.node, boot, limits.decided_entries, service)
            .map_err(OpenError::Metadata)?;
        let unread_votes = with_bytes(&recovery.votes);
        let recovered = Recovered::replayed(
            recovery.hard,
            options.founding,
            recovery.reconfigurations,
            damage.ranges,
            recovery.votes,
        );
        let class = recovered.configuration.class();
        let voters = recovered.configuration.members().len();
        let node_options = Options {
            member,
            heartbeat_ms: timeouts.heartbeat_ms,
            election_min_ms: timeouts.election_min_ms,
            election_max_ms: timeouts.election_max_ms,
            inflight_max: options.inflight_max,
            window_slots: options.window_slots,
            seed: options.seed,
        };
        // Longer than an election usually takes: by then a new leader has heard of everything.
        let repeat_ms = timeouts.election_max_ms.saturating_mul(2).max(1);
        let node = member.node;
        // [session-2] bounds the open batches of a session.
        let possible = Bounds {
            batch_bytes_max: batch_bytes_max(&log),
            window_max: OPEN_BATCHES_MAX,
        };
        let tuning = tuning_settings(options.tuning, &limits, voters, possible);
        let repair = Repair::new(timeouts.election_min_ms);
        let unread = unread_votes.iter().map(|range| range.len()).sum();
        let replay_to = recovered.hard.decided_to;
        let pursuit = Pursuit::new(now, replay_to, unread, recovered.lost.slots());
        Ok(Self {
            cluster: options.cluster,
            member,
            boot,
            command_bytes_max,
            client_timeout_ms: options.client_timeout_ms,
            patience_ms: repeat_ms,
            election_max_ms: timeouts.election_max_ms,
            window_slots: options.window_slots,
            node: Node::new(node_options, recovered),
            effects: Effects::with_capacity(64),
            inbox: Default::default(),
            node_wake: Time(0),
            write_by: None,
            role: Role::Follower,
            promises: Promises::new(timeouts.election_max_ms),
            log,
            log_reads: LogReads::default(),
            last_record: RecordSeq(0),
            persisted_to: RecordSeq(0),
            storage_error: None,
            read_error: None,
            unread_votes,
            repair,
            payloads: Payloads::new(limits.payload_bytes, limits.recent_bytes),
            origin: Origin::new(
                node,
                boot,
                options.client_timeout_ms,
                repeat_ms,
                limits.clone(),
            ),
            applier,
            tended: Tended::default(),
            reads: Reads::default(),
            completions: Completions::default(),
            forwarded: Forwarded::default(),
            fetches: Fetches::new(timeouts.election_min_ms),
            serving: Serving::default(),
            history: History::default(),
            peers: BTreeMap::new(),
            addresses: options.addresses,
            due_at: now,
            wall_ms: 0,
            retry_at: None,
            short_retry_at: now,
            watch: Watch::new(now, pursuit),
            probe: Probe::new(repeat_ms),
            events: Events::default(),
            stop: Stop::Running,
            transfer_ended: None,
            alarm: None,
            different: BTreeSet::new(),
            compare_at: now.plus_ms(COMPARE_EVERY_MS),
            tuning: Tuning::new(tuning, possible, class),
            limits,
            counters: Counters::default(),
        })
    }
}

/// Within what is possible. Without a wish, what `limits` says stays in force.
fn tuning_settings(
    wanted: Option<Settings>,
    limits: &Limits,
    voters: usize,
    possible: Bounds,
) -> Settings {
    let start = Setting {
        batch_bytes: limits.batch_bytes,
        window: limits.window_batches,
    };
    let mut settings = wanted.unwrap_or(Settings {
        start,
        fixed: true,
        ..Settings::new(voters)
    });
    settings.nodes = voters;
    let bounds = &mut settings.bounds;
    bounds.window_max = bounds.window_max.clamp(1, possible.window_max);
    bounds.batch_bytes_max = bounds.batch_bytes_max.clamp(1, possible.batch_bytes_max);
    settings.start = bounds.clamp(settings.start);
    settings
}

/// Slots of the votes whose payloads are to be read back.
fn with_bytes(votes: &[Extent]) -> VecDeque<SlotRange> {
    let mut ranges: VecDeque<SlotRange> = VecDeque::new();
    for vote in votes.iter().filter(|vote| vote.value.has_bytes()) {
        match ranges.back_mut() {
            Some(last) if last.to == vote.range.from => last.to = vote.range.to,
            _ => ranges.push_back(vote.range),
        }
    }
    ranges
}

/// A batch must fit into one record, and into one frame.
fn batch_bytes_max<D: Disk>(log: &Log<D>) -> usize {
    log.record_bytes_max().min(BODY_BYTES_MAX)
}

/// The largest command that any batch has room for.
pub(crate) fn largest_command<D: Disk>(log: &Log<D>) -> usize {
    batch_bytes_max(log).saturating_sub(batch::OVERHEAD_BYTES)
}

/// So must a command, in a batch of its own.
fn command_bytes_max<D: Disk>(wanted: usize, log: &Log<D>) -> usize {
    wanted.min(largest_command(log))
}
