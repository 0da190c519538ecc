//! Settings of a node at its start.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use quorate_core::{node_id::NodeId, record::Class};
use quorate_log::disk::Want;
use quorate_net::Spin;
use quorate_node::{founding::Wanted, identity::Expected, terms::Terms};
use quorate_replica::{
    ScrubOptions, defaults, group::As, rising::Raising, routing::Votes, tuner::Settings as Tuning,
};

use quorate_tls::Protection;

use crate::descriptors::Descriptors;

/// The settings of a node, from a command line or from a program that embeds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The data folder; made at the first start.
    pub data: PathBuf,
    /// Id of this node; found in the folder after the first start.
    pub node: Option<NodeId>,
    /// All members and their addresses for peers. Needed at the first start of a cluster of more
    /// than one; later the stored membership wins. Empty if not given.
    pub cluster: BTreeMap<NodeId, String>,
    /// Role to take in an existing cluster, which the node joins; `None`: it founds one, or is one
    /// of `cluster`. Fixed once the folder is a node's.
    pub join: Option<As>,
    /// Auxiliaries and quorum rule: the same on all nodes, at the first start.
    pub terms: Terms,
    /// A leader sends proposals to just a quorum, and to all members when an answer is late.
    pub thrifty: bool,
    /// Path of votes to the node when it leads.
    pub votes: Votes,
    /// Policy for raising feature levels when it leads.
    pub raising: Raising,
    /// The class of the group, fixed at its first start; `None` means the present one, or durable.
    pub class: Option<Class>,
    /// The name of the service's store, fixed at the first start; `None` means the present one.
    pub store: Option<String>,
    /// The store of a new cluster for which none is named.
    pub store_default: String,
    /// A leader speaks at least this often.
    pub heartbeat_ms: u64,
    /// An election starts after a silence drawn from this range.
    pub election_ms: (u64, u64),
    /// A leader reads by leases ([read-4]). The same on all nodes.
    pub leases: bool,
    /// By how much a clock may be fast or slow, in parts per million.
    pub clock_drift_ppm: u64,
    /// Maximum wait of a request.
    pub client_timeout_ms: u64,
    /// Largest command.
    pub command_bytes_max: usize,
    /// Log space prepared ahead of need, in addition to the segment in use: a burst within it does
    /// not wait for the disk. One segment of 64 MiB at least.
    pub log_ready_bytes: u64,
    /// A snapshot is taken when the log has grown by this multiple of the last one's size.
    pub snapshot_ratio: u32,
    /// Above this size the log is not kept for nodes that lag: they are sent a snapshot.
    pub log_bytes_max: u64,
    /// Maximum bytes per second of snapshots, written and sent together; `None`: unlimited.
    pub transfer_bytes_per_second: Option<u64>,
    /// Schedule and speed of scrubs, which read all data of the node to verify it.
    pub scrub: ScrubOptions,
    /// Size of a new segment of the log.
    pub log_segment_bytes: u64,
    /// Limits of open files and connections.
    pub descriptors: Descriptors,
    /// Maximum unparsed input of one client that the front may have to see at once.
    pub client_input_bytes_max: usize,
    /// Memory for the replies and requests of all clients.
    pub client_memory_bytes: usize,
    /// Tuning of batch and window. The number of nodes in it does not matter.
    pub tuning: Tuning,
    /// Minimum duration of a flush of the log: for measurements. Zero is the actual disk.
    pub disk_flush: Duration,
    /// Timestamps of the hops of commands are recorded, and written to the folder at the end: for
    /// measurements.
    pub hops: bool,
    /// Polling for the next event before the node sleeps: off, or its duration.
    pub spin: Spin,
    /// Disk driver for the log and for the store of streams.
    pub engine: Want,
    /// Protection from strangers. Without certificates, only this machine may reach the node,
    /// unless the network is declared trusted.
    pub protection: Protection,
}

impl Settings {
    /// A cluster of one in this folder, with the defaults of `quorate start`.
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
            engine: Want::Auto,
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
