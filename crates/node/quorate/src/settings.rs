//! Settings of a node at its start.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use quorate_core::{node_id::NodeId, record::Class};
use quorate_log::disk::DriverChoice;
use quorate_net::Spin;
use quorate_node::{founding::Wanted, identity::Expected, terms::Terms};
use quorate_replica::{
    ScrubOptions, defaults, group::As, rising::Raising, routing::Votes, tuner::Settings as Tuning,
};

use quorate_tls::Protection;

use crate::descriptors::Descriptors;

/// Settings of a node, from a command line or from a program that embeds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The data folder, created at the first start.
    pub data: PathBuf,
    /// Id of this node, read from the folder after the first start.
    pub node: Option<NodeId>,
    /// Peer addresses of all members. Needed at the first start of a cluster of more than one;
    /// later the stored membership takes precedence. Empty if not given.
    pub cluster: BTreeMap<NodeId, String>,
    /// Role to take in an existing cluster that the node joins; `None` if it founds a cluster or is
    /// one of `cluster`. Fixed once the folder belongs to a node.
    pub join: Option<As>,
    /// Auxiliaries and quorum rule; the same on all nodes at the first start.
    pub terms: Terms,
    /// A leader sends proposals only to a quorum, and to all members when a response is late.
    pub thrifty: bool,
    /// Path of votes to this node when it leads.
    pub votes: Votes,
    /// Policy for raising the feature level when this node leads.
    pub raising: Raising,
    /// Durability class of the group, fixed at its first start; `None` means the present one, or
    /// durable.
    pub class: Option<Class>,
    /// Name of the service's store, fixed at the first start; `None` means the present one.
    pub store: Option<String>,
    /// Store of a new cluster if `store` is not given.
    pub store_default: String,
    /// Maximum interval between messages from a leader, in milliseconds.
    pub heartbeat_ms: u64,
    /// Range of the random silence, in milliseconds, after which an election starts.
    pub election_ms: (u64, u64),
    /// A leader serves reads by leases ([read-4]); the same on all nodes.
    pub leases: bool,
    /// Maximum drift of a clock in either direction, in parts per million.
    pub clock_drift_ppm: u64,
    /// Timeout of a request, in milliseconds.
    pub client_timeout_ms: u64,
    /// Maximum size of a command.
    pub command_bytes_max: usize,
    /// Log space prepared ahead of need, in addition to the current segment: a burst that fits in
    /// it does not wait for the disk. At least one segment of 64 MiB.
    pub log_ready_bytes: u64,
    /// Growth of the log that triggers a snapshot, as a multiple of the last snapshot's size.
    pub snapshot_ratio: u32,
    /// Log size above which lagging nodes get a snapshot, because the log is no longer retained for
    /// them.
    pub log_bytes_max: u64,
    /// Maximum transfer rate of snapshots, written and sent together; `None` means unlimited.
    pub transfer_bytes_per_second: Option<u64>,
    /// Schedule and speed of scrubs, which read all data of the node to verify it.
    pub scrub: ScrubOptions,
    /// Size of a new segment of the log.
    pub log_segment_bytes: u64,
    /// Limits on open files and connections.
    pub descriptors: Descriptors,
    /// Maximum unparsed input of one client that the front may need to see at once.
    pub client_input_bytes_max: usize,
    /// Memory for the replies and requests of all clients.
    pub client_memory_bytes: usize,
    /// Tuning of batch and window; its number of nodes is ignored.
    pub tuning: Tuning,
    /// Minimum duration of a log flush, for measurements. Zero leaves the disk's own speed.
    pub disk_flush: Duration,
    /// Record timestamps of the trace points of commands and write them to the folder at the end,
    /// for measurements.
    pub hops: bool,
    /// Busy polling before the node sleeps: off, or its duration.
    pub spin: Spin,
    /// Disk driver for the log and for the store of streams.
    pub engine: DriverChoice,
    /// Protection against unauthorized access. Without certificates, only this machine can reach
    /// the node, unless the network is declared trusted.
    pub protection: Protection,
}

impl Settings {
    /// Returns the settings for a cluster of one in this folder, with the defaults of `quorate
    /// start`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            node: None,
            cluster: BTreeMap::new(),
            join: None,
            terms: Terms::default(),
            thrifty: false,
            votes: Votes::default(),
            raising: Raising::default(),
            class: None,
            store: None,
            store_default: "embedded".to_owned(),
            heartbeat_ms: defaults::HEARTBEAT_MS,
            election_ms: defaults::ELECTION_MS,
            leases: false,
            clock_drift_ppm: defaults::CLOCK_DRIFT_PPM,
            client_timeout_ms: defaults::CLIENT_TIMEOUT_MS,
            command_bytes_max: defaults::COMMAND_BYTES_MAX,
            log_ready_bytes: defaults::LOG_READY_BYTES,
            snapshot_ratio: defaults::SNAPSHOT_RATIO,
            log_bytes_max: defaults::LOG_BYTES_MAX,
            transfer_bytes_per_second: None,
            scrub: ScrubOptions {
                every_ms: Some(defaults::SCRUB_EVERY_MS),
                ..ScrubOptions::default()
            },
            log_segment_bytes: defaults::LOG_SEGMENT_BYTES,
            descriptors: Descriptors::default(),
            client_input_bytes_max: 0,
            client_memory_bytes: defaults::CLIENT_MEMORY_BYTES,
            tuning: Tuning::new(1),
            disk_flush: Duration::ZERO,
            hops: false,
            spin: Spin::Auto,
            engine: DriverChoice::Auto,
            protection: Protection::Loopback,
        }
    }

    /// Returns the settings that apply to the first start.
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            expected: Expected {
                node: self.node,
                class: self.class,
                store: self.store.clone(),
                supports: None,
            },
            cluster: self.cluster.clone(),
            store_default: self.store_default.clone(),
            terms: self.terms.clone(),
        }
    }
}
