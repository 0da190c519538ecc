//! Start configuration of a node: collects, parses and cross-checks all settings.

mod hostname;
mod layers;
mod plane;
mod settings;
mod told;
mod trust;
mod tuning;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    path::PathBuf,
    time::Duration,
};

use quorate_core::{
    configuration::MEMBERS_MAX, node_id::NodeId, quorum::QuorumRule, record::Class,
};
use quorate_kv::front::{ClusterMode, input_bytes_max};
use quorate_log::disk::DriverChoice;
use quorate_net::{IoSpread, IoThreads, Spin, device::Kind as Device, plane::PlaneSettings};
use quorate_node::log_service::STORE_NAME as STORE_NONE;
use quorate_node::terms::FoundingTerms;
use quorate_replica::{
    ScrubOptions, group::MemberRole, rising::RaisePolicy, routing::VoteRoute,
    scrubbing::BYTES_PER_SECOND_MIN, tuner::Settings as Tuning,
};

use crate::{
    addresses::{DEFAULT_PEER, parse_address},
    logging,
    output::Problem,
    values::{Number, Unit, size, switch, whole_ms},
};
use layers::Layers;
pub(crate) use settings::StartArgs;
use settings::{DISK_FLUSH_MS, HOPS, LOG_SEGMENT};
pub(crate) use trust::TrustSettings;

/// Default client address of a node.
pub(crate) const DEFAULT_CLIENT: &str = "127.0.0.1:7450";
/// Bounds for `--command-max`. The largest command must fit into one batch.
const COMMAND_MAX_BOUNDS: Number = Number::between(1024, 64 << 20, Unit::Bytes);
const CLIENT_MEMORY_BOUNDS: Number = Number::between(16 << 20, 1 << 40, Unit::Bytes);
const ETCD_QUOTA_BOUNDS: Number = Number::between(0, 1 << 50, Unit::Bytes);
const AUTO_COMPACTION_VALUES: &str =
    "off, a time such as 1h, or a number of revisions such as 10000rev";
const AUTH_TOKEN_VALUES: &str =
    "simple, or jwt,sign-method=NAME,pub-key=FILE,priv-key=FILE,ttl=TIME";
/// Bounds for `--log-ready`. A larger value is most likely a typing error.
const LOG_READY_BOUNDS: Number = Number::between(0, 1 << 40, Unit::Bytes);
const SNAPSHOT_RATIO_BOUNDS: Number = Number::between(1, 1000, Unit::Count);
/// Bounds for `--log-max`. The log takes at least two segments and a spare one. A value above the
/// upper bound is most likely a typing error.
const LOG_MAX_BOUNDS: Number = Number::between(256 << 20, 1 << 50, Unit::Bytes);
const SCRUB_EVERY_VALUES: &str = "off, or a time from 1m to 3650d, such as 7d, 12h or 30m";
/// Bounds for `--scrub-pace`, and for `--pace` of `quorate scrub`.
pub(crate) const SCRUB_PACE_BOUNDS: Number =
    Number::at_least(BYTES_PER_SECOND_MIN, Unit::BytesPerSecond);
/// Bounds for `--transfer-limit`. At lower rates, the log may outgrow a snapshot in transfer.
const TRANSFER_LIMIT_BOUNDS: Number = Number::at_least(64 << 10, Unit::BytesPerSecond);
/// Bounds for times in milliseconds. A time over an hour is most likely a typing error.
const HOUR_MS_BOUNDS: Number = Number::between(1, 3_600_000, Unit::Milliseconds);

/// Start configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartConfig {
    pub(crate) data_folder: PathBuf,
    pub(crate) node_id: Option<NodeId>,
    /// Peer addresses of all nodes. Empty if `--cluster` was not given.
    pub(crate) peer_addresses: BTreeMap<NodeId, String>,
    /// Admin addresses of the cluster to join. Empty if `--join` was not given.
    pub(crate) join_addresses: Vec<String>,
    pub(crate) role: Option<MemberRole>,
    pub(crate) terms: FoundingTerms,
    pub(crate) thrifty: bool,
    pub(crate) votes: VoteRoute,
    pub(crate) level_raising: RaisePolicy,
    pub(crate) client_address: String,
    pub(crate) peer_address: Option<String>,
    /// Peer address to use if neither `--peer` nor the member list contains one.
    pub(crate) default_peer_address: String,
    pub(crate) admin_address: String,
    pub(crate) stream_address: Option<String>,
    pub(crate) raw_stream_address: Option<String>,
    pub(crate) client_socket: Option<PathBuf>,
    pub(crate) trust_settings: TrustSettings,
    pub(crate) plane: PlaneSettings,
    pub(crate) device: Device,
    pub(crate) durability: Option<Class>,
    /// Client protocol. `None` selects the one recorded in the data folder, else the default.
    pub(crate) service: Option<Service>,
    pub(crate) store: Option<Store>,
    pub(crate) heartbeat_ms: u64,
    pub(crate) election_ms: (u64, u64),
    /// Set if leaders serve reads under a lease ([read-4]).
    pub(crate) lease_reads: bool,
    pub(crate) clock_drift_ppm: u64,
    pub(crate) client_timeout_ms: u64,
    pub(crate) command_bytes_max: usize,
    pub(crate) client_memory_bytes: usize,
    /// Limit on the data size of the etcd service, in bytes. 0 means unlimited.
    pub(crate) etcd_quota_bytes: u64,
    /// Value of `--etcd-auto-compaction`: history that is kept.
    pub(crate) etcd_auto_compaction: String,
    /// Value of `--etcd-auth-token`: type of the tokens issued to etcd clients at login.
    pub(crate) etcd_auth_token: String,
    pub(crate) log_ready_bytes: u64,
    pub(crate) log_segment_bytes: u64,
    pub(crate) snapshot_ratio: u32,
    pub(crate) log_bytes_max: u64,
    pub(crate) transfer_bytes_per_second: Option<u64>,
    pub(crate) scrub: ScrubOptions,
    pub(crate) tuning: Tuning,
    pub(crate) disk_flush_time: Duration,
    /// Set if trace points are recorded for `quorate bench log --trace`.
    pub(crate) records_hops: bool,
    pub(crate) engine: DriverChoice,
    pub(crate) spin: Spin,
    pub(crate) cluster_mode: ClusterMode,
    pub(crate) io_threads: IoThreads,
    pub(crate) spread: IoSpread,
    pub(crate) log_format: logging::Format,
    /// Settings that this node reports to other nodes.
    pub(crate) reported_settings: BTreeMap<String, String>,
}

impl StartConfig {
    /// Returns the settings of the embedded node.
    pub(crate) fn node_settings(&self) -> quorate::Settings {
        quorate::Settings {
            node: self.node_id,
            cluster: self.peer_addresses.clone(),
            join_role: (!self.join_addresses.is_empty()).then(|| self.role.unwrap_or_default()),
            terms: self.terms.clone(),
            thrifty: self.thrifty,
            vote_route: self.votes.clone(),
            raise_policy: self.level_raising,
            class: self.durability,
            store: self.store.map(|store| store.name().to_owned()),
            store_default: Store::default_for(self.service).name().to_owned(),
            heartbeat_ms: self.heartbeat_ms,
            election_ms: self.election_ms,
            uses_leases: self.lease_reads,
            clock_drift_ppm: self.clock_drift_ppm,
            client_timeout_ms: self.client_timeout_ms,
            command_bytes_max: self.command_bytes_max,
            log_ready_bytes: self.log_ready_bytes,
            log_segment_bytes: self.log_segment_bytes,
            snapshot_ratio: self.snapshot_ratio,
            log_bytes_max: self.log_bytes_max,
            transfer_bytes_per_second: self.transfer_bytes_per_second,
            scrub: self.scrub,
            client_input_bytes_max: input_bytes_max(self.command_bytes_max),
            client_memory_bytes: self.client_memory_bytes,
            tuning: self.tuning,
            disk_flush: self.disk_flush_time,
            record_hops: self.records_hops,
            engine: self.engine,
            spin: self.spin,
            io_threads: self.io_threads,
            io_spread: self.spread,
            ..quorate::Settings::new(&self.data_folder)
        }
    }
}

/// Client protocol that a node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Redis protocol.
    Kv,
    /// etcd v3 protocol.
    Etcd,
}

impl Service {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Etcd => "etcd",
        }
    }

    fn parse_name(name: &str) -> Option<Self> {
        [Self::Kv, Self::Etcd].into_iter().find(|service| service.name() == name)
    }
}

/// Store of the service's data. Each store belongs to one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Data on disk.
    Lsm,
    /// Data in memory, rebuilt from the log at every start.
    Memory,
    /// No data. Selects a stateless service instead of the key-value service, for measurements.
    None,
    /// Data of the etcd service on disk.
    EtcdLsm,
    /// Data of the etcd service in memory.
    EtcdMemory,
}

impl Store {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lsm => "lsm",
            Self::Memory => "memory",
            Self::None => STORE_NONE,
            Self::EtcdLsm => "etcd-lsm",
            Self::EtcdMemory => "etcd-memory",
        }
    }

    /// Parses the store name recorded in a data folder.
    pub(crate) fn parse_name(name: &str) -> Option<Self> {
        let all = [Self::Lsm, Self::Memory, Self::None, Self::EtcdLsm, Self::EtcdMemory];
        all.into_iter().find(|store| store.name() == name)
    }

    /// Parses the value of `--store`, which does not determine the service.
    pub(crate) fn parse_flag(text: &str) -> Option<Self> {
        Self::parse_name(text).filter(|store| store.service() == Service::Kv)
    }

    /// Returns the service that uses the store.
    pub(crate) const fn service(self) -> Service {
        match self {
            Self::Lsm | Self::Memory | Self::None => Service::Kv,
            Self::EtcdLsm | Self::EtcdMemory => Service::Etcd,
        }
    }

    /// Returns the store for a service and the value of `--store`.
    pub(crate) fn for_service(
        service: Option<Service>,
        place: Option<Self>,
    ) -> Result<Option<Self>, Problem> {
        match (service, place) {
            (None | Some(Service::Kv), _) | (_, None) => Ok(place),
            (Some(Service::Etcd), Some(Self::Lsm)) => Ok(Some(Self::EtcdLsm)),
            (Some(Service::Etcd), Some(Self::Memory)) => Ok(Some(Self::EtcdMemory)),
            (Some(Service::Etcd), Some(place)) => {
                let what = format_args!("--service etcd has no --store {}", place.name());
                Err(Problem::usage_error(what)
                    .with_hint("set --store to lsm or memory, or leave it out"))
            }
        }
    }

    /// Returns the default store of a new node.
    pub(crate) const fn default_for(service: Option<Service>) -> Self {
        match service {
            None | Some(Service::Kv) => Self::Lsm,
            Some(Service::Etcd) => Self::EtcdMemory,
        }
    }
}

/// Accepts any non-empty text, to be parsed later by the caller.
fn parse_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl StartConfig {
    /// Resolves every setting through all layers and checks the result.
    pub(crate) fn resolve(
        flags: &StartArgs,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Problem> {
        let layers = Layers::read_layers(flags, environment)?;
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let address = "HOST:PORT";
        let (plane, device) = plane::resolve_plane(&layers)?;
        let service = layers.optional("service", "kv or etcd", Service::parse_name)?;
        let place = layers.optional("store", "lsm or memory", Store::parse_flag)?;
        let config = Self {
            data_folder: layers.required("data", "the path of a folder", path)?,
            node_id: hostname::resolve_node(&layers)?,
            peer_addresses: layers
                .optional(
                    "cluster",
                    "a list such as 1=HOST:PORT,2=HOST:PORT, each node and address once",
                    parse_cluster,
                )?
                .unwrap_or_default(),
            join_addresses: layers
                .optional("join", "a list of HOST:PORT", parse_addresses)?
                .unwrap_or_default(),
            role: layers.optional("as", "voter, learner or auxiliary", MemberRole::from_name)?,
            terms: FoundingTerms {
                auxiliaries: layers
                    .optional("auxiliary", "a list of node ids such as 3 or 4,5", parse_nodes)?
                    .unwrap_or_default(),
                quorum_rule: layers
                    .optional("quorum", "majority or flexible:Q1,Q2", QuorumRule::parse)?
                    .unwrap_or_default(),
            },
            thrifty: layers.optional("thrifty", "on or off", switch)?.unwrap_or_default(),
            votes: layers.required("votes", "star, ring or auto", VoteRoute::from_name)?,
            level_raising: layers.required(
                "feature-level",
                "auto or hold",
                RaisePolicy::from_name,
            )?,
            client_address: layers.required_address("client", 7450, address, parse_address)?,
            peer_address: layers.optional("peer", address, parse_address)?,
            default_peer_address: layers
                .listen_address(7451)?
                .unwrap_or_else(|| DEFAULT_PEER.to_owned()),
            admin_address: layers.required_address("admin", 7452, address, parse_address)?,
            stream_address: layers.optional_address("stream", 7453, address, parse_address)?,
            raw_stream_address: layers.optional("stream-raw", address, parse_address)?,
            client_socket: layers.optional("client-socket", "a path", path)?,
            trust_settings: trust::resolve_trust(&layers)?,
            plane,
            device,
            durability: layers.optional("durability", "durable or volatile", parse_class)?,
            service,
            store: Store::for_service(service, place)?,
            heartbeat_ms: layers.number_or_default("heartbeat-ms", HOUR_MS_BOUNDS)?,
            election_ms: layers.required(
                "election-ms",
                "MIN-MAX in milliseconds, MIN below MAX, such as 100-200",
                parse_range,
            )?,
            lease_reads: layers.required("reads", READS_VALUES, parse_reads)?,
            clock_drift_ppm: layers.required("clock-drift-max", DRIFT_VALUES, parse_drift)?,
            client_timeout_ms: layers.number_or_default("client-timeout-ms", HOUR_MS_BOUNDS)?,
            command_bytes_max: layers.number_or_default("command-max", COMMAND_MAX_BOUNDS)?,
            client_memory_bytes: layers.number_or_default("client-memory", CLIENT_MEMORY_BOUNDS)?,
            etcd_quota_bytes: layers.number_or_default("etcd-quota", ETCD_QUOTA_BOUNDS)?,
            etcd_auto_compaction: layers.required(
                "etcd-auto-compaction",
                AUTO_COMPACTION_VALUES,
                parse_text,
            )?,
            etcd_auth_token: layers.required("etcd-auth-token", AUTH_TOKEN_VALUES, parse_text)?,
            log_ready_bytes: layers.number_or_default("log-ready", LOG_READY_BOUNDS)?,
            log_segment_bytes: layers.required(LOG_SEGMENT, SEGMENT_VALUES, parse_segment)?,
            snapshot_ratio: layers.number_or_default("snapshot-ratio", SNAPSHOT_RATIO_BOUNDS)?,
            log_bytes_max: layers.number_or_default("log-max", LOG_MAX_BOUNDS)?,
            transfer_bytes_per_second: layers
                .optional_number("transfer-limit", TRANSFER_LIMIT_BOUNDS)?,
            scrub: ScrubOptions {
                interval_ms: layers.required(
                    "scrub-every",
                    SCRUB_EVERY_VALUES,
                    parse_scrub_every,
                )?,
                bytes_per_second: layers.number_or_default("scrub-pace", SCRUB_PACE_BOUNDS)?,
            },
            tuning: tuning::resolve_tuning(&layers)?,
            engine: layers.required(
                "stream-engine",
                "auto, uring or portable",
                DriverChoice::from_name,
            )?,
            spin: layers.required(
                "spin",
                "auto, off, or 1 to 1000 microseconds",
                Spin::from_name,
            )?,
            cluster_mode: layers.required(
                "cluster-mode",
                "off, emulated or leader",
                ClusterMode::parse_mode,
            )?,
            io_threads: layers.required("io-threads", "auto, or 0 to 64", IoThreads::from_name)?,
            spread: layers.required("io-spread", "load or always", IoSpread::from_name)?,
            log_format: layers.required(
                "log-format",
                "text or json",
                logging::Format::parse_name,
            )?,
            reported_settings: told::reported_settings(&layers),
            disk_flush_time: layers.required(DISK_FLUSH_MS, FLUSH_VALUES, parse_flush)?,
            records_hops: layers.required(HOPS, "on or off", switch)?,
        };
        config.check_consistency()?;
        Ok(config)
    }

    fn check_consistency(&self) -> Result<(), Problem> {
        // A single client could use up a smaller limit with a few commands of the maximum size.
        let least = self.command_bytes_max.saturating_mul(8);
        if self.client_memory_bytes < least {
            let message = format_args!(
                "--client-memory {} is too small for --command-max {}",
                self.client_memory_bytes, self.command_bytes_max
            );
            return Err(Problem::usage_error(message).with_hint(format!(
                "set --client-memory to at least {least} (eight times --command-max), or lower --command-max"
            )));
        }
        if self.heartbeat_ms * 2 > self.election_ms.0 {
            let message = format_args!(
                "--heartbeat-ms {} is too slow for --election-ms {}-{}",
                self.heartbeat_ms, self.election_ms.0, self.election_ms.1
            );
            return Err(Problem::usage_error(message)
                .with_hint("the shortest election timeout must be at least two heartbeats: lower --heartbeat-ms or raise --election-ms"));
        }
        if self.lease_reads && !cfg!(target_os = "linux") {
            let message =
                "--reads lease needs a clock that counts suspended time, which this system lacks";
            return Err(Problem::usage_error(message).with_hint("use --reads index"));
        }
        if self.peer_addresses.len() > MEMBERS_MAX {
            return Err(Problem::usage_error(format_args!(
                "--cluster must list at most {MEMBERS_MAX} nodes"
            )));
        }
        if self.service == Some(Service::Etcd) && self.client_socket.is_some() {
            return Err(Problem::usage_error("--client-socket has no effect with --service etcd")
                .with_hint("clients of etcd connect to --client"));
        }
        if self.service == Some(Service::Etcd) && self.cluster_mode != ClusterMode::Off {
            return Err(Problem::usage_error("--cluster-mode has no effect with --service etcd")
                .with_hint("it is for Redis clients in cluster mode"));
        }
        if !self.join_addresses.is_empty() && !self.peer_addresses.is_empty() {
            return Err(Problem::usage_error("--join and --cluster exclude each other")
                .with_hint("use --cluster to found a cluster, or --join to join one that exists"));
        }
        if self.role.is_some() && self.join_addresses.is_empty() {
            return Err(Problem::usage_error("--as has no effect without --join")
                .with_hint("add --join with the --admin address of a node of the cluster"));
        }
        if !self.terms.are_default() && self.peer_addresses.is_empty() {
            // Either this is not the first start, or a single-node cluster, which has no node to
            // spare.
            return match self.terms.auxiliaries.is_empty() {
                true => Ok(()),
                false => Err(Problem::usage_error("--auxiliary needs --cluster")
                    .with_hint("give all nodes the same list and the same --auxiliary")),
            };
        }
        if let Some(trouble) = self.terms.why_invalid(&self.peer_addresses) {
            return Err(Problem::usage_error(trouble).with_hint(
                "each election quorum must share a node with each write quorum: Q1 + Q2 > number of nodes",
            ));
        }
        if let Some(node) = self.node_id
            && !self.peer_addresses.is_empty()
            && !self.peer_addresses.contains_key(&node)
        {
            return Err(Problem::usage_error(format_args!("--cluster does not list node {node}"))
                .with_hint("list all nodes, including this one"));
        }
        Ok(())
    }
}

fn parse_nodes(text: &str) -> Option<BTreeSet<NodeId>> {
    text.split(',').map(|node| parse_node(node.trim())).collect()
}

fn parse_node(text: &str) -> Option<NodeId> {
    text.parse().ok().filter(|id| *id > 0).map(NodeId)
}

/// Description of the values that [`parse_flush`] accepts.
pub const FLUSH_VALUES: &str = "between 0 and 1000 ms";

/// Parses a duration in milliseconds. The number may have a fraction.
pub fn parse_flush(text: &str) -> Option<Duration> {
    let ms: f64 = text.parse().ok()?;
    (0.0..=1000.0).contains(&ms).then(|| Duration::from_secs_f64(ms / 1000.0))
}

/// Parses a host name or an address without a port. Puts an IPv6 address into brackets.
fn parse_host(text: &str) -> Option<String> {
    let host = match text.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => text.to_owned(),
    };
    let in_brackets = host.starts_with('[') && host.ends_with(']');
    let is_host = in_brackets || !host.contains([':', ',', '/', '=']);
    parse_address(&format!("{host}:1")).filter(|_| is_host)?;
    Some(host)
}

fn parse_addresses(text: &str) -> Option<Vec<String>> {
    let address = |address: &str| parse_address(address.trim());
    let addresses: Option<Vec<String>> = text.split(',').map(address).collect();
    addresses.filter(|addresses| !addresses.iter().any(|address| address.ends_with(":0")))
}

fn parse_cluster(text: &str) -> Option<BTreeMap<NodeId, String>> {
    let mut nodes = BTreeMap::new();
    for entry in text.split(',') {
        let (node, address) = entry.trim().split_once('=')?;
        let address = parse_address(address).filter(|address| !address.ends_with(":0"))?;
        let elsewhere = nodes.values().any(|known| *known == address);
        if elsewhere || nodes.insert(parse_node(node)?, address).is_some() {
            return None;
        }
    }
    Some(nodes)
}

fn parse_class(text: &str) -> Option<Class> {
    [Class::Durable, Class::Volatile].into_iter().find(|class| class.name() == text)
}

/// Description of the values that [`parse_reads`] accepts.
const READS_VALUES: &str = "index or lease";

/// Parses the value of `--reads`. Returns whether reads use leases.
fn parse_reads(text: &str) -> Option<bool> {
    match text {
        "index" => Some(false),
        "lease" => Some(true),
        _ => None,
    }
}

/// Description of the values that [`parse_drift`] accepts. A clock with more drift is broken, so no
/// bound would be safe.
const DRIFT_VALUES: &str = "a percentage between 0% and 20%, such as 1% or 0.05%";

/// Parses an interval such as `7d` or `12h` to milliseconds. For `off`, the inner value is `None`.
fn parse_scrub_every(text: &str) -> Option<Option<u64>> {
    match text {
        "off" => Some(None),
        _ => whole_ms(text).filter(|ms| (60_000..=3650 * 86_400_000).contains(ms)).map(Some),
    }
}

/// Parses a percentage to parts per million, rounding up.
fn parse_drift(text: &str) -> Option<u64> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 … 200000")]
    let ppm = (percent * 10_000.0).ceil() as u64;
    (0.0..=20.0).contains(&percent).then_some(ppm)
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (min, max) = text.split_once('-')?;
    let (min, max) = (HOUR_MS_BOUNDS.parse(min)?, HOUR_MS_BOUNDS.parse(max)?);
    (min < max).then_some((min, max))
}

/// Description of the values that [`parse_segment`] accepts.
const SEGMENT_VALUES: &str = "a multiple of 4096 bytes between 64 KiB and 1 GiB";

fn parse_segment(text: &str) -> Option<u64> {
    let bytes = size(text)?;
    let fits = (64 << 10..=1 << 30).contains(&bytes) && bytes.is_multiple_of(4096);
    fits.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        start: StartArgs,
    }

    pub(super) fn resolve(
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<StartConfig, Problem> {
        let line = Line::try_parse_from([&["start"], flags].concat()).unwrap();
        let environment = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        };
        StartConfig::resolve(&line.start, &environment)
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn explicit_device_overrides_that_of_the_plane() {
        let device = |flags: &[&str]| {
            let flags = [&["--data", "d"], flags].concat();
            resolve(&flags, &[]).unwrap().device
        };
        assert_eq!(device(&[]), Device::Off);
        assert_eq!(device(&["--plane", "kernel"]), Device::Kernel);
        assert_eq!(device(&["--plane", "kernel", "--device", "off"]), Device::Off);
        assert_eq!(device(&["--plane", "kernel", "--device", "tc"]), Device::Tc);
    }

    #[test]
    fn switches_accept_an_optional_value() {
        for (flags, expected) in [
            (&["--thrifty"][..], true),
            (&["--thrifty", "on"], true),
            (&["--thrifty=on"], true),
            (&["--thrifty", "off"], false),
        ] {
            let flags = [flags, &["--data", "d"]].concat();
            assert_eq!(resolve(&flags, &[]).unwrap().thrifty, expected, "{flags:?}");
        }
    }

    #[test]
    fn data_folder_is_the_only_required_setting() {
        let config = resolve(&["--data", "d"], &[]).unwrap();
        assert_eq!(config.data_folder, PathBuf::from("d"));
        assert_eq!(config.client_address, "127.0.0.1:7450");
        assert_eq!(config.admin_address, "127.0.0.1:7452");
        assert_eq!(
            (config.peer_address, config.node_id, config.durability, config.stream_address),
            (None, None, None, None)
        );
        assert_eq!((config.heartbeat_ms, config.election_ms), (20, (100, 200)));
        assert_eq!((config.client_timeout_ms, config.command_bytes_max), (5000, 8 << 20));
        assert_eq!(config.log_ready_bytes, 64 << 20);
        let snapshots =
            (config.snapshot_ratio, config.log_bytes_max, config.transfer_bytes_per_second);
        assert_eq!(snapshots, (2, 8 << 30, None));
    }

    /// One setting determines all four addresses. A setting from the layer closest to the user
    /// takes precedence.
    #[test]
    fn listen_sets_all_addresses_with_default_ports() {
        let of = |flags: &str, variables: &[(&str, &str)]| {
            let flags: Vec<&str> = flags.split(' ').collect();
            let config = resolve(&flags, variables).unwrap();
            let stream = config.stream_address.unwrap_or_default();
            [
                config.client_address,
                config.peer_address.unwrap_or(config.default_peer_address),
                config.admin_address,
                stream,
            ]
            .join(" ")
        };
        assert_eq!(of("--data d", &[]), "127.0.0.1:7450 127.0.0.1:7451 127.0.0.1:7452 ");
        let all = "10.0.0.1:7450 10.0.0.1:7451 10.0.0.1:7452 10.0.0.1:7453";
        assert_eq!(of("--data d --listen 10.0.0.1", &[]), all);
        assert_eq!(of("--data d", &[("QUORATE_LISTEN", "10.0.0.1")]), all);
        assert_eq!(
            of("--data d --listen ::1 --admin a:1 --peer b:2", &[]),
            "[::1]:7450 b:2 a:1 [::1]:7453"
        );
        // In a shell, variables may list the addresses of all nodes for other commands.
        let variables = [("QUORATE_CLIENT", "a:1,b:1"), ("QUORATE_ADMIN", "a:2")];
        assert_eq!(of("--data d --listen 10.0.0.1", &variables), all);
        let variables = [("QUORATE_LISTEN", "h"), ("QUORATE_ADMIN", "a:2")];
        assert_eq!(of("--data d", &variables), "h:7450 h:7451 a:2 h:7453");
        let variables = [("QUORATE_LISTEN", "h")];
        assert_eq!(of("--data d --client c:1", &variables), "c:1 h:7451 h:7452 h:7453");
        for wrong in ["10.0.0.1:7450", "a b", "1=a"] {
            let message =
                format!("--listen must be a name or an address without a port (got {wrong})");
            check_refused(&["--listen", wrong], &[], &message);
        }
    }

    /// An embedded node and one started on the command line have the same defaults.
    #[test]
    fn the_defaults_are_those_of_an_embedded_node() {
        let settings = resolve(&["--data", "d"], &[]).unwrap().node_settings();
        let embedded = quorate::Settings {
            store_default: settings.store_default.clone(),
            client_input_bytes_max: settings.client_input_bytes_max,
            ..quorate::Settings::new("d")
        };
        assert_eq!(settings, embedded);
    }

    /// The store recorded in a folder determines the service.
    #[test]
    fn store_name_implies_the_service() {
        let store = |flags: &str| {
            let flags: Vec<&str> = flags.split(' ').collect();
            resolve(&flags, &[]).map(|config| config.node_settings().store)
        };
        let named = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(store("--data d"), Ok(None));
        assert_eq!(store("--data d --service kv"), Ok(None));
        assert_eq!(store("--data d --service kv --store lsm"), named("lsm"));
        // Then the folder or the default determines the store.
        assert_eq!(store("--data d --service etcd"), Ok(None));
        for (place, name) in [("lsm", "etcd-lsm"), ("memory", "etcd-memory")] {
            let flags = format!("--data d --service etcd --store {place}");
            assert_eq!(store(&flags), named(name));
        }
        let none = store("--data d --service etcd --store none").unwrap_err();
        assert_eq!(none.message, "--service etcd has no --store none");
        let default = |flags: &[&str]| resolve(flags, &[]).unwrap().node_settings().store_default;
        assert_eq!(default(&["--data", "d"]), "lsm");
        assert_eq!(default(&["--data", "d", "--service", "etcd"]), "etcd-memory");
        check_refused(
            &["--store", "etcd-memory"],
            &[],
            "--store must be lsm or memory (got etcd-memory)",
        );
        check_refused(
            &["--service", "etcd", "--client-socket", "s"],
            &[],
            "--client-socket has no effect with --service etcd",
        );
    }

    #[test]
    fn snapshot_settings_reach_the_node() {
        let flags = "--data d --snapshot-ratio 5 --log-max 1073741824 --transfer-limit 1000000";
        let flags: Vec<&str> = flags.split(' ').collect();
        let settings = resolve(&flags, &[]).unwrap().node_settings();
        assert_eq!((settings.snapshot_ratio, settings.log_bytes_max), (5, 1 << 30));
        assert_eq!(settings.transfer_bytes_per_second, Some(1_000_000));
    }

    #[test]
    fn every_size_takes_a_unit_in_every_layer() {
        let sizes = settings::SETTINGS.iter().filter(|setting| setting.value == "BYTES");
        for name in sizes.map(|setting| setting.name) {
            let tune = if name == "batch" { "off" } else { "on" };
            let large = ["client-memory", "etcd-quota", "log-max"].contains(&name);
            let (plain, unit) = if large { ("1073741824", "1GiB") } else { ("1048576", "1MiB") };
            let with = |flag: &str, variables: &[(&str, &str)]| {
                let config = resolve(&["--data", "d", "--tune", tune, flag], variables).unwrap();
                StartConfig { reported_settings: BTreeMap::new(), ..config }
            };
            let expected = with(&format!("--{name}={plain}"), &[]);
            assert_eq!(with(&format!("--{name}={unit}"), &[]), expected);
            let variable = settings::variable_name(name);
            assert_eq!(with("--votes=star", &[(&variable, unit)]), expected);
            let key = file(&format!("{name} = '{unit}'"));
            assert_eq!(with(&format!("--config={}", key.path().display()), &[]), expected);
        }
    }

    #[test]
    fn scrub_settings_reach_the_node() {
        let of = |flags: &str| {
            let flags: Vec<&str> = flags.split(' ').collect();
            let scrub = resolve(&flags, &[]).unwrap().node_settings().scrub;
            (scrub.interval_ms, scrub.bytes_per_second)
        };
        assert_eq!(of("--data d"), (Some(7 * 86_400_000), 32 << 20));
        assert_eq!(of("--data d --scrub-every off --scrub-pace 50MB/s"), (None, 50_000_000));
        assert_eq!(of("--data d --scrub-every 30m").0, Some(1_800_000));
        for wrong in ["0d", "7", "4000d", "d", "7w"] {
            let message = format!("--scrub-every must be {SCRUB_EVERY_VALUES} (got {wrong})");
            check_refused(&["--scrub-every", wrong], &[], &message);
        }
        let message = format!("--scrub-pace must be {SCRUB_PACE_BOUNDS} (got 1000 bytes/s)");
        check_refused(&["--scrub-pace", "1kB"], &[], &message);
    }

    #[test]
    fn read_settings_reach_the_node() {
        let of = |flags: &str| {
            let flags: Vec<&str> = flags.split(' ').collect();
            resolve(&flags, &[]).map(|config| {
                let settings = config.node_settings();
                (settings.uses_leases, settings.clock_drift_ppm)
            })
        };
        assert_eq!(of("--data d"), Ok((false, 10_000)));
        assert_eq!(of("--data d --reads lease"), Ok((true, 10_000)));
        let drift = "--data d --reads lease --clock-drift-max 0.05%";
        assert_eq!(of(drift), Ok((true, 500)));
        for wrong in ["--reads leases", "--clock-drift-max 1", "--clock-drift-max 21%"] {
            assert!(of(&format!("--data d {wrong}")).is_err(), "{wrong}");
        }
    }

    /// The installed packaging/quorate.toml sets only defaults, and every commented line in it is
    /// valid.
    #[test]
    fn packaged_settings_are_valid() {
        let text = include_str!("../../../../packaging/quorate.toml");
        let installed = file(text);
        let installed = installed.path().to_str().unwrap();
        let config = resolve(&["--config", installed], &[]).unwrap();
        let data = "/var/lib/quorate/node";
        assert_eq!(config, resolve(&["--data", data], &[]).unwrap());
        let setting = |line: &str| {
            let line = line.strip_prefix('#').unwrap_or(line);
            let key = line.split_once(" = ").map(|(key, _)| key.to_owned());
            key.filter(|key| !key.contains(' ')).map(|key| (key, line.to_owned()))
        };
        let mut all: BTreeMap<String, String> = text.lines().filter_map(setting).collect();
        assert!(all.len() > 8, "{all:?}");
        let join = all.remove("join").unwrap();
        let lines: Vec<String> = all.into_values().collect();
        for used in [lines.join("\n"), format!("{}\n{join}", lines[0])] {
            let used = file(&used);
            let used = used.path().to_str().unwrap();
            resolve(&["--config", used, "--data", data], &[]).unwrap();
        }
    }

    #[test]
    fn precedence_is_flag_then_variable_then_file_then_default() {
        let file =
            file("heartbeat-ms = 11\nclient-timeout-ms = 111\ncommand-max = '4096'\nnode = 3\n");
        let path = file.path().to_str().unwrap();
        let variables = [
            ("QUORATE_HEARTBEAT_MS", "22"),
            ("QUORATE_CLIENT_TIMEOUT_MS", "222"),
            ("QUORATE_CONFIG", path),
        ];
        let config = resolve(&["--data", "d", "--heartbeat-ms", "33"], &variables).unwrap();
        assert_eq!(config.heartbeat_ms, 33);
        assert_eq!(config.client_timeout_ms, 222);
        assert_eq!(config.command_bytes_max, 4096);
        assert_eq!(config.node_id, Some(NodeId(3)));
        assert_eq!(config.election_ms, (100, 200));
    }

    pub(super) fn check_refused(flags: &[&str], variables: &[(&str, &str)], message: &str) {
        let problem = resolve(&[&["--data", "d"], flags].concat(), variables).unwrap_err();
        assert_eq!(problem.message, message);
        assert_eq!(problem.exit, crate::output::Exit::Usage);
    }

    #[test]
    fn an_error_names_where_the_value_came_from() {
        let what = "--node must be a node id (1, 2, …) or from-hostname (got 0)";
        check_refused(&["--node", "0"], &[], what);
        let limits = "--log-ready must be between 0 bytes and 1 TiB, such as 1GiB (got 2 TiB)";
        check_refused(&["--log-ready", "2TiB"], &[], limits);
        let limits = "--snapshot-ratio must be between 1 and 1000 (got 0)";
        check_refused(&["--snapshot-ratio", "0"], &[], limits);
        let limits = "--log-max must be between 256 MiB and 1 PiB, such as 1GiB (got 128 MiB)";
        check_refused(&["--log-max", "134217728"], &[], limits);
        let variables = [("QUORATE_TRANSFER_LIMIT", "1000")];
        let limits =
            "QUORATE_TRANSFER_LIMIT must be at least 64 KiB/s, such as 50MB (got 1000 bytes/s)";
        check_refused(&[], &variables, limits);
        let variables = [("QUORATE_STORE", "tape")];
        check_refused(&[], &variables, "QUORATE_STORE must be lsm or memory (got tape)");
        let file = file("durability = 'none'\n");
        let path = file.path().to_str().unwrap();
        let message = format!("{path}: durability must be durable or volatile (got none)");
        check_refused(&["--config", path], &[], &message);
    }

    #[test]
    fn an_unknown_key_of_the_file_is_refused() {
        for (text, complaint) in [
            ("heartbeat = 20\n", "unknown key heartbeat"),
            ("config = 'other'\n", "unknown key config"),
        ] {
            let file = file(text);
            let path = file.path().to_str().unwrap();
            check_refused(&["--config", path], &[], &format!("{path}: {complaint}"));
        }
    }

    /// The hint shows what to write in the file instead.
    #[test]
    fn a_value_of_another_type_is_refused_with_what_to_write() {
        for (text, complaint, hint) in [
            ("tune = false\n", "tune must be text (got true or false)", r#"write tune = "off""#),
            (
                "node = true\n",
                "node must be text (got true or false)",
                r#"write node = "N|from-hostname""#,
            ),
            (
                "[cluster]\n1 = 'a:1'\n2 = 'b:2'\n",
                "cluster must be text (got a section)",
                r#"write cluster = "1=a:1,2=b:2""#,
            ),
            (
                "cluster = ['1=a:1', '2=b:2']\n",
                "cluster must be text (got a list)",
                r#"write cluster = "1=a:1,2=b:2""#,
            ),
            (
                "[cluster]\nfirst = 1\n",
                "cluster must be text (got a section)",
                r#"write cluster = "1=HOST:PORT,…""#,
            ),
            ("[start]\nnode = 1\n", "unknown key start", "write the keys without sections"),
        ] {
            let file = file(text);
            let path = file.path().to_str().unwrap();
            let problem = resolve(&["--data", "d", "--config", path], &[]).unwrap_err();
            assert_eq!(problem.message, format!("{path}: {complaint}"));
            assert_eq!(problem.hint, hint);
        }
    }

    #[test]
    fn settings_that_do_not_fit_together_are_refused() {
        check_refused(
            &["--heartbeat-ms", "90"],
            &[],
            "--heartbeat-ms 90 is too slow for --election-ms 100-200",
        );
        check_refused(
            &["--node", "3", "--cluster", "1=a:1,2=b:1"],
            &[],
            "--cluster does not list node 3",
        );
        check_refused(
            &["--join", "a:1", "--node", "3", "--cluster", "3=a:1,2=b:1"],
            &[],
            "--join and --cluster exclude each other",
        );
        check_refused(&["--as", "learner"], &[], "--as has no effect without --join");
    }

    #[test]
    fn join_takes_addresses_and_an_optional_role() {
        let flags = ["--data", "d", "--join", "a:1, b:2", "--node", "3"];
        let config = resolve(&flags, &[]).unwrap();
        assert_eq!(config.join_addresses, ["a:1", "b:2"]);
        assert_eq!(config.node_settings().join_role, Some(MemberRole::Voter));
        let config = resolve(&[&flags[..], &["--as", "auxiliary"]].concat(), &[]).unwrap();
        assert_eq!(config.node_settings().join_role, Some(MemberRole::Auxiliary));
        assert_eq!(resolve(&["--data", "d"], &[]).unwrap().node_settings().join_role, None);
        check_refused(
            &["--join", "a:1,b:0"],
            &[],
            "--join must be a list of HOST:PORT (got a:1,b:0)",
        );
        check_refused(
            &["--join", "a:1", "--as", "leader"],
            &[],
            "--as must be voter, learner or auxiliary (got leader)",
        );
    }

    #[test]
    fn cluster_needs_distinct_nodes_and_addresses() {
        assert_eq!(parse_cluster("2=b:2, 1=a:1").map(|nodes| nodes.len()), Some(2));
        for bad in
            ["", "1", "1=a", "0=a:1", "1=a:1,1=b:1", "1=a:1,2=a:1", "1=a:0", "1=:5", "1=a b:5"]
        {
            assert_eq!(parse_cluster(bad), None, "{bad}");
        }
    }

    #[test]
    fn missing_data_folder_is_one_error() {
        let problem = resolve(&[], &[]).unwrap_err();
        assert_eq!(problem.message, "--data is missing");
        assert_eq!(problem.hint, "give --data, or set QUORATE_DATA");
    }
}
