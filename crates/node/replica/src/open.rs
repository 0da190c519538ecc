//! Options of a replica, and errors when it starts.

use std::{collections::BTreeMap, fmt};

use quorate_core::{
    configuration::Configuration,
    lease::LeaseRules,
    level::Level,
    node_id::{Member, NodeId},
};
use quorate_log::disk::DiskError;
use quorate_stream::store::{Layout, StoreError, StoreLimits};
use quorate_tuner::Settings;

use crate::{
    applying::sessions::UnreadableMetadata, defaults, limits::Limits, members::rising::RaisePolicy,
    ports::status::Addresses, routing::VoteRoute, scrubbing::ScrubOptions,
    snapshots::trimming::SnapshotOptions,
};

/// Timeouts between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum interval in milliseconds between a leader's messages.
    pub heartbeat_ms: u64,
    /// Minimum of the random election timeout in milliseconds.
    pub election_min_ms: u64,
    /// Maximum of the random election timeout in milliseconds.
    pub election_max_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            heartbeat_ms: defaults::HEARTBEAT_MS,
            election_min_ms: defaults::ELECTION_MS.0,
            election_max_ms: defaults::ELECTION_MS.1,
        }
    }
}

/// Options of a replica, constant while it runs.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    pub cluster: u128,
    /// This node and its incarnation ([volatile-1]).
    pub member: Member,
    /// Boot number of this process. The node must never have used it before ([value-2]).
    pub boot: u32,
    pub timeouts: Timeouts,
    /// Random seed for the timeouts. Must differ between nodes and between starts.
    pub seed: u64,
    /// Maximum size of a command, in bytes.
    pub command_bytes_max: usize,
    /// Time in milliseconds after which an unfinished request fails.
    pub client_timeout_ms: u64,
    /// Maximum number of this node's proposals in flight while it leads.
    pub inflight_max: usize,
    /// Number of slots accepted above `decided_to`. Messages about later slots are refused
    /// ([p2-3]).
    pub window_slots: u64,
    /// Leases for reads at the leader ([read-4]). Requires a clock
    /// ([`crate::Replica::set_clock`]).
    pub leases: Option<LeaseRules>,
    /// Duration in microseconds of leases that an earlier process may have granted; 0 if it cannot
    /// have granted any.
    pub earlier_lease_us: u64,
    /// Time in microseconds for which the node waits for others to connect before it leads as a
    /// quorum by itself ([lie-6]); 0 if this process created the folder for a new group.
    pub lead_alone_after_us: u64,
    /// Maximum drift of a clock, in parts per million.
    pub clock_drift_ppm: u64,
    pub limits: Limits,
    /// Known addresses of the founding members, including this node.
    pub addresses: BTreeMap<NodeId, Addresses>,
    /// Peer addresses of the founding members, as configured on every node of the group.
    pub founding_peers: BTreeMap<NodeId, String>,
    /// Settings for the tuner of batch size and window; `None` leaves both as set in `limits`.
    pub tuning: Option<Settings>,
    /// Schedule of snapshots and of trimming the log.
    pub snapshots: SnapshotOptions,
    pub stream_limits: StoreLimits,
    /// Layout of the store's files, used only if they do not exist yet.
    pub stream_layout: Layout,
    /// The founding configuration ([era-11]).
    pub founding: Configuration,
    /// As leader, sends proposals only to a quorum, and to all nodes if an answer is late.
    pub is_thrifty: bool,
    /// Route of votes to this node while it leads.
    pub vote_route: VoteRoute,
    /// Highest level that this node supports. Tests set a lower one to simulate an earlier release.
    pub supported_level: Level,
    /// Highest feature level whose formats may already be in the folder ([level-8]).
    pub marked_level: Level,
    /// As leader, policy for raising the level.
    pub raise_policy: RaisePolicy,
    /// Schedule of scrubs, which read all data to verify that it is intact.
    pub scrub: ScrubOptions,
}

impl ReplicaOptions {
    /// Creates the default options for this node.
    pub fn new(cluster: u128, member: Member, boot: u32, founding: Configuration) -> Self {
        Self {
            cluster,
            member,
            boot,
            timeouts: Timeouts::default(),
            seed: u64::from(member.node.0) << 32 | u64::from(boot),
            command_bytes_max: defaults::COMMAND_BYTES_MAX,
            client_timeout_ms: defaults::CLIENT_TIMEOUT_MS,
            inflight_max: 256,
            // Content takes a slot per byte; the limit on proposals bounds the other slots.
            window_slots: 32 << 20,
            leases: None,
            earlier_lease_us: 0,
            lead_alone_after_us: 0,
            clock_drift_ppm: defaults::CLOCK_DRIFT_PPM,
            limits: Limits::default(),
            addresses: BTreeMap::new(),
            founding_peers: BTreeMap::new(),
            tuning: None,
            snapshots: SnapshotOptions::default(),
            stream_limits: StoreLimits::DEFAULT,
            stream_layout: Layout::DEFAULT,
            founding,
            is_thrifty: false,
            vote_route: VoteRoute::default(),
            supported_level: Level::NEWEST,
            marked_level: Level::NEWEST,
            raise_policy: RaisePolicy::default(),
            scrub: ScrubOptions::default(),
        }
    }
}

/// Error that prevents a replica from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The log lost votes or promises, so the node needs its next incarnation ([disk-8]).
    Forgotten {
        /// Damaged places of the log.
        places: Vec<String>,
    },
    /// The service's metadata cannot be read.
    Metadata(UnreadableMetadata),
    /// The replica's note at the base of the log cannot be read.
    Base,
    /// The snapshot files cannot be listed.
    Snapshots(DiskError),
    /// The store of streams cannot be opened.
    Streams(StoreError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forgotten { places } => {
                write!(f, "the log lost votes or promises: {}", places.join("; "))
            }
            Self::Metadata(unreadable) => unreadable.fmt(f),
            Self::Base => f.write_str(
                "the base of the log was written by a newer version, or is damaged: start the newer version",
            ),
            Self::Snapshots(error) => error.fmt(f),
            Self::Streams(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}
