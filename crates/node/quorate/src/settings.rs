//! Node settings, fixed when the node starts.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use quorate_core::{node_id::NodeId, record::Class};
use quorate_log::disk::DriverChoice;
use quorate_net::{IoSpread, IoThreads, Spin};
use quorate_node::{founding::FoundingSettings, identity::ExpectedIdentity, terms::FoundingTerms};
use quorate_replica::{
    ScrubOptions, defaults, group::MemberRole, rising::RaisePolicy, routing::VoteRoute,
    tuner::Settings as Tuning,
};

use quorate_tls::Protection;

use crate::descriptors::DescriptorLimits;

/// Node settings, from a command line or from an embedding program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The data folder, created at the first start.
    pub data_folder: PathBuf,
    /// Id of this node. After the first start it is read from the folder.
    pub node: Option<NodeId>,
    /// Peer addresses of all members; empty if not given. Needed at the first start of a cluster of
    /// more than one node. Later the stored membership takes precedence.
    pub cluster: BTreeMap<NodeId, String>,
    /// Role to take in an existing cluster that the node joins; `None` if the node founds a cluster
    /// or is listed in `cluster`. Fixed once the folder belongs to a node.
    pub join_role: Option<MemberRole>,
    /// Auxiliaries and quorum rule. They must be the same on all nodes at the first start.
    pub terms: FoundingTerms,
    /// Send proposals only to a quorum while this node leads, and to all members when a response is
    /// late.
    pub thrifty: bool,
    /// Path on which votes reach this node while it leads.
    pub vote_route: VoteRoute,
    /// Policy for raising the feature level while this node leads.
    pub raise_policy: RaisePolicy,
    /// Durability class of the group, fixed at the first start; `None` for the stored class, or
    /// durable at the first start.
    pub class: Option<Class>,
    /// Name of the service's store, fixed at the first start; `None` for the stored name, or
    /// `store_default` at the first start.
    pub store: Option<String>,
    /// Store of a new cluster if `store` is `None`.
    pub store_default: String,
    /// Maximum interval between messages from a leader, in milliseconds.
    pub heartbeat_ms: u64,
    /// Range of the random election timeout, in milliseconds. A node starts an election after this
    /// long without a message from a leader.
    pub election_ms: (u64, u64),
    /// Serve reads by leases while this node leads ([read-4]). Must be the same on all nodes.
    pub uses_leases: bool,
    /// Maximum drift of a clock in either direction, in parts per million.
    pub clock_drift_ppm: u64,
    /// Timeout for a client's request, in milliseconds.
    pub client_timeout_ms: u64,
    /// Maximum size of a command, in bytes.
    pub command_bytes_max: usize,
    /// Number of log bytes prepared ahead of need, in addition to the current segment. A burst that
    /// fits in them does not wait for the disk. At least one segment of 64 MiB is prepared.
    pub log_ready_bytes: u64,
    /// Growth of the log that triggers a snapshot, as a multiple of the last snapshot's size.
    pub snapshot_ratio: u32,
    /// Log size in bytes above which the log is no longer retained for lagging nodes. They then
    /// receive a snapshot.
    pub log_bytes_max: u64,
    /// Maximum combined rate of writing and sending snapshots, in bytes per second; `None` for no
    /// limit.
    pub transfer_bytes_per_second: Option<u64>,
    /// Schedule and rate of scrubs. A scrub reads and verifies all data of the node.
    pub scrub: ScrubOptions,
    /// Size of a new log segment, in bytes.
    pub log_segment_bytes: u64,
    /// Limits on open files and connections, as shares of the process's descriptors.
    pub descriptors: DescriptorLimits,
    /// Maximum number of bytes of one client's unparsed input that the front may need at once.
    pub client_input_bytes_max: usize,
    /// Memory limit for the requests and replies of all clients, in bytes.
    pub client_memory_bytes: usize,
    /// Tuning of batch and window. Its number of nodes is ignored.
    pub tuning: Tuning,
    /// Minimum duration of a log flush, for measurements. Zero does not slow the disk down.
    pub disk_flush: Duration,
    /// Record the times at which commands pass the trace points and write them to the folder at the
    /// end, for measurements.
    pub record_hops: bool,
    /// Setting for busy polling before the node sleeps.
    pub spin: Spin,
    /// Number of threads that own client connections while the node is busy. None by default, since
    /// a program that embeds a node decides about its threads.
    pub io_threads: IoThreads,
    /// Condition under which these threads own the connections.
    pub io_spread: IoSpread,
    /// Disk driver for the log and for the store of streams.
    pub engine: DriverChoice,
    /// Protection against unauthorized access. Without certificates, only this machine can reach
    /// the node unless the network is declared trusted.
    pub protection: Protection,
}

impl Settings {
    /// Returns the settings for a cluster of one in the folder `data`, with the defaults of
    /// `quorate start`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data_folder: data.into(),
            node: None,
            cluster: BTreeMap::new(),
            join_role: None,
            terms: FoundingTerms::default(),
            thrifty: false,
            vote_route: VoteRoute::default(),
            raise_policy: RaisePolicy::default(),
            class: None,
            store: None,
            store_default: "embedded".to_owned(),
            heartbeat_ms: defaults::HEARTBEAT_MS,
            election_ms: defaults::ELECTION_MS,
            uses_leases: false,
            clock_drift_ppm: defaults::CLOCK_DRIFT_PPM,
            client_timeout_ms: defaults::CLIENT_TIMEOUT_MS,
            command_bytes_max: defaults::COMMAND_BYTES_MAX,
            log_ready_bytes: defaults::PREPARED_LOG_BYTES,
            snapshot_ratio: defaults::SNAPSHOT_RATIO,
            log_bytes_max: defaults::LOG_BYTES_MAX,
            transfer_bytes_per_second: None,
            scrub: ScrubOptions {
                interval_ms: Some(defaults::SCRUB_INTERVAL_MS),
                ..ScrubOptions::default()
            },
            log_segment_bytes: defaults::LOG_SEGMENT_BYTES,
            descriptors: DescriptorLimits::default(),
            client_input_bytes_max: 0,
            client_memory_bytes: defaults::CLIENT_MEMORY_BYTES,
            tuning: Tuning::new(1),
            disk_flush: Duration::ZERO,
            record_hops: false,
            spin: Spin::Auto,
            io_threads: IoThreads::Fixed(0),
            io_spread: IoSpread::ByLoad,
            engine: DriverChoice::Auto,
            protection: Protection::Loopback,
        }
    }

    /// Returns the subset of settings that applies to the first start.
    pub(crate) fn founding_settings(&self) -> FoundingSettings {
        FoundingSettings {
            expected: ExpectedIdentity {
                node: self.node,
                class: self.class,
                store: self.store.clone(),
                supported_level: None,
            },
            cluster: self.cluster.clone(),
            store_default: self.store_default.clone(),
            terms: self.terms.clone(),
        }
    }
}
