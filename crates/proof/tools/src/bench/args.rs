//! The flags of `quorate bench`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use quorate_bench::{
    device::DeviceKind,
    emulated::EmulatedNetwork,
    fault::Fault,
    lan::Lan,
    run::{RunTime, bare_stream, probe, series::LoadOptions, stream},
    stream::speech::StreamProtocol,
    wan::LinkProfile,
};
use quorate_core::record::Class;
use quorate_node::log_service::classes::AnswerClass;
use quorate_replica::status::PlaneKind;

use quorate_cli::output::Problem;
use quorate_cli::values::{Number, Unit, duration, must_be};

/// Maximum size of a value in bytes. A larger value does not fit into a batch.
const VALUE_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of connections. A node accepts no more.
const CONNECTIONS_MAX: u64 = 10_000;
/// Maximum number of outstanding commands.
const OUTSTANDING_MAX: u64 = 1_000_000;
/// Maximum rate in bytes per second.
const BYTE_RATE_MAX: u64 = 1_000_000_000_000;
/// Maximum number of nodes in a temporary cluster with byte streams.
const NODES_MAX: u64 = 7;
/// Maximum number of voters in a temporary cluster without byte streams. Such a cluster takes fewer
/// resources.
const VOTERS_MAX: u64 = 9;
/// Maximum number of learners in a temporary cluster.
const LEARNERS_MAX: u64 = 32;
/// Maximum rate in commands per second.
const RATE_MAX: u64 = 10_000_000;

/// `quorate bench kv`
#[derive(Args, Clone, Debug)]
pub(crate) struct KvArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Store of the nodes [default: memory]
    #[arg(long, env = "QUORATE_STORE", value_enum)]
    pub(crate) store: Option<KvStore>,
    /// Share of reads, in percent
    #[arg(long, env = "QUORATE_READS", value_name = "PCT", default_value_t = 0,
          value_parser = Number::between(0, 100, Unit::Percent).argument::<u32>())]
    pub(crate) reads: u32,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// `quorate bench log`
#[derive(Args, Clone, Debug)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Send commands by frames to the devices of the nodes, from this interface of their segment,
    /// and learn from their frames; with --lan the interface is made. Needs a volatile cluster and
    /// the right to raw sockets
    #[arg(long, env = "QUORATE_FRAMES", value_name = "INTERFACE", num_args = 0..=1, default_missing_value = "clients")]
    pub(crate) frames: Option<String>,
    /// Draw the life of one command in this file, as SVG: what its client and each node did when.
    /// Starts nodes that keep time stamps, of --durability or of both classes in turn
    #[arg(long, env = "QUORATE_TRACE", value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// `quorate bench stream`
#[derive(Args, Clone, Debug)]
pub(crate) struct StreamArgs {
    /// Number of streams to write at the same time
    #[arg(long, env = "QUORATE_STREAMS", value_name = "N", default_value_t = 1,
          value_parser = Number::between(1, CONNECTIONS_MAX, Unit::Count).argument::<u32>())]
    pub(crate) streams: u32,
    /// Bytes per write, which is one system call
    #[arg(long, env = "QUORATE_WRITE_SIZE", value_name = "B", default_value_t = 256 << 10,
          value_parser = Number::between(1, VALUE_BYTES_MAX, Unit::Bytes).argument::<u64>())]
    pub(crate) write_size: u64,
    /// Total bytes per second to send over all streams, no matter how fast they become durable
    /// [default: as fast as possible]
    #[arg(long, env = "QUORATE_RATE", value_name = "BYTES/s", conflicts_with = "outstanding",
          value_parser = Number::between(1, BYTE_RATE_MAX, Unit::BytesPerSecond).argument::<u64>())]
    pub(crate) rate: Option<u64>,
    /// Writes in flight at any time over all streams [default: 16 MiB]
    #[arg(long, env = "QUORATE_OUTSTANDING", value_name = "N",
          value_parser = Number::between(1, OUTSTANDING_MAX, Unit::Count).argument::<u32>())]
    pub(crate) outstanding: Option<u32>,
    /// Combine writes that are due together into one system call
    #[arg(long)]
    pub(crate) gather: bool,
    /// Give the writer a CPU of its own; everything else uses the other CPUs
    #[arg(long)]
    pub(crate) pin: bool,
    /// Use the raw port instead of the framed protocol: bytes in, counts out
    #[arg(long)]
    pub(crate) raw: bool,
    /// Number of nodes to start
    #[arg(long, env = "QUORATE_NODES", value_name = "N", default_value_t = 3,
          value_parser = Number::between(1, NODES_MAX, Unit::Count).argument::<u32>())]
    pub(crate) nodes: u32,
    /// Make the last node an auxiliary, which receives no bytes while the others are up
    #[arg(long)]
    pub(crate) auxiliary: bool,
    /// Durability class of the cluster
    #[arg(long, env = "QUORATE_DURABILITY", value_enum, default_value = "durable")]
    pub(crate) durability: Durability,
    /// Make each flush take at least this many milliseconds
    #[arg(long, env = "QUORATE_DISK_FLUSH_MS", value_name = "F", default_value = "0",
          value_parser = flush)]
    pub(crate) disk_flush_ms: Duration,
    #[command(flatten)]
    pub(crate) time: TimeArgs,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

impl StreamArgs {
    pub(crate) fn to_options(&self) -> stream::StreamOptions {
        stream::StreamOptions {
            nodes: stream::NodeOptions {
                node_count: self.nodes,
                last_is_auxiliary: self.auxiliary,
                durability: self.durability.to_class(),
                disk_flush: self.disk_flush_ms,
            },
            load: stream::StreamLoad {
                protocol: if self.raw { StreamProtocol::Raw } else { StreamProtocol::Framed },
                stream_count: self.streams,
                write_bytes: usize::try_from(self.write_size).expect("bounded by its flag"),
                bytes_per_second: self.rate,
                outstanding_writes: self.outstanding,
                gathers_writes: self.gather,
            },
            pins_writer: self.pin,
            time: self.time.to_run_time(),
        }
    }
}

/// Load, and the nodes that serve it.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    /// Client addresses of a running cluster [default: start three nodes on this machine, without
    /// certificates]
    #[arg(long, env = "QUORATE_CONNECT", value_name = "ADDR,…", value_delimiter = ',')]
    pub(crate) connect: Vec<String>,
    /// Commands per second to send, no matter how fast they are answered (open loop)
    #[arg(long, env = "QUORATE_RATE", value_name = "N", conflicts_with = "outstanding",
          value_parser = Number::between(1, RATE_MAX, Unit::Count).argument::<u64>())]
    pub(crate) rate: Option<u64>,
    /// Commands in flight at any time (closed loop) [default: a series of both]
    #[arg(long, env = "QUORATE_OUTSTANDING", value_name = "N",
          value_parser = Number::between(1, OUTSTANDING_MAX, Unit::Count).argument::<u32>())]
    pub(crate) outstanding: Option<u32>,
    /// Number of connections; never more than commands in flight
    #[arg(long, env = "QUORATE_CONNECTIONS", value_name = "N", default_value_t = 16,
          value_parser = Number::between(1, CONNECTIONS_MAX, Unit::Count).argument::<u32>())]
    pub(crate) connections: u32,
    /// Size of a value in bytes
    #[arg(long, env = "QUORATE_VALUE_SIZE", value_name = "B", default_value_t = 64,
          value_parser = Number::between(1, VALUE_BYTES_MAX, Unit::Bytes).argument::<u64>())]
    pub(crate) value_size: u64,
    /// Emulate a wide-area network between the nodes; needs root
    #[arg(long, env = "QUORATE_WAN", value_name = "NAME", value_enum, conflicts_with = "connect")]
    pub(crate) wan: Option<Wan>,
    /// Emulate a network segment between the nodes, with links of this speed, such as 100mbit or
    /// 1gbit; needs root
    #[arg(
        long,
        env = "QUORATE_LAN",
        value_name = "SPEED",
        conflicts_with_all = ["connect", "wan"],
        value_parser = lan
    )]
    pub(crate) lan: Option<Lan>,
    /// Number of voting nodes to start
    #[arg(long, env = "QUORATE_NODES", value_name = "N", default_value_t = 3,
          conflicts_with = "connect", value_parser = Number::between(1, VOTERS_MAX, Unit::Count).argument::<u32>())]
    pub(crate) nodes: u32,
    /// Number of learners to start
    #[arg(long, env = "QUORATE_LEARNERS", value_name = "N", default_value_t = 0,
          conflicts_with = "connect", value_parser = Number::between(0, LEARNERS_MAX, Unit::Count).argument::<u32>())]
    pub(crate) learners: u32,
    /// Share of the datagrams arriving at each node to drop, in percent
    #[arg(long, env = "QUORATE_PLANE_LOSS", value_name = "PCT", default_value = "0",
          requires = "plane", value_parser = loss)]
    pub(crate) plane_loss: f64,
    /// Fault to inject into one follower: stop:2s (stop its process), narrow:10% (of its link
    /// speed), or slow-disk:100ms (per flush, after a kill)
    #[arg(long, env = "QUORATE_LAN_FAULT", value_name = "FAULT", requires = "lan", value_parser = fault)]
    pub(crate) lan_fault: Option<Fault>,
    /// How the nodes talk; ethernet and kernel (tcp with --device kernel) need --lan [default: tcp]
    #[arg(
        long,
        env = "QUORATE_PLANE",
        value_name = "PLANE",
        conflicts_with = "connect",
        value_parser = plane
    )]
    pub(crate) plane: Option<PlaneAndDevice>,
    /// Device that votes for the nodes: udp, or with --lan packet, tc or kernel [default: the nodes
    /// themselves]
    #[arg(
        long,
        env = "QUORATE_DEVICE",
        value_name = "KIND",
        conflicts_with = "connect",
        value_parser = device
    )]
    pub(crate) device: Option<DeviceKind>,
    /// How votes reach the leader: star, ring or auto [default: star]
    #[arg(
        long,
        env = "QUORATE_VOTES",
        value_name = "ROUTE",
        conflicts_with = "connect",
        value_parser = votes
    )]
    pub(crate) votes: Option<&'static str>,
    /// Durability class of the cluster [default: durable]
    #[arg(long, env = "QUORATE_DURABILITY", value_enum)]
    pub(crate) durability: Option<Durability>,
    /// Class that clients ask for: durable, in a volatile cluster, means that replies come when
    /// commands are on the disks of a quorum; volatile, in a durable cluster and with bench log,
    /// when they are in the memory of a quorum; group, as the cluster decides
    #[arg(long, env = "QUORATE_CLASS", value_enum, default_value = "group")]
    pub(crate) class: RequestedClass,
    /// Make each flush take at least this many milliseconds, in the probe and the nodes
    #[arg(long, env = "QUORATE_DISK_FLUSH_MS", value_name = "F", default_value = "0",
          value_parser = flush, conflicts_with = "connect")]
    pub(crate) disk_flush_ms: Duration,
}

/// Acknowledgement class that clients request ([class-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequestedClass {
    /// As the cluster decides.
    Group,
    /// On the disks of a quorum.
    Durable,
    /// In the memory of a quorum.
    Volatile,
}

impl RequestedClass {
    const fn to_answer_class(self) -> AnswerClass {
        match self {
            Self::Group => AnswerClass::Group,
            Self::Durable => AnswerClass::Durable,
            Self::Volatile => AnswerClass::Volatile,
        }
    }
}

impl LoadArgs {
    pub(crate) fn to_load(&self) -> Result<LoadOptions, Problem> {
        let plane = self.plane.map(|PlaneAndDevice(way, _)| way);
        if plane == Some(PlaneKind::Ethernet) && self.lan.is_none() {
            let what = "--plane ethernet needs --lan: nodes on loopback have no Ethernet";
            return Err(Problem::usage_error(what).with_hint("add --lan 10gbit, as root"));
        }
        let wan = self.wan.map(|wan| EmulatedNetwork::Wan(wan.link_profile()));
        Ok(LoadOptions {
            client_addresses: self.connect.clone(),
            tls_trust: quorate_cli::certificate(),
            login: quorate_cli::login(),
            rate_per_second: self.rate,
            outstanding: self.outstanding,
            connection_count: self.connections,
            value_bytes: usize::try_from(self.value_size).expect("bounded by its flag"),
            node_count: self.nodes,
            learner_count: self.learners,
            network: wan.or(self.lan.map(EmulatedNetwork::Lan)),
            loss_percent: self.plane_loss,
            plane: plane.map(PlaneKind::name),
            device: self.device.or(self.plane.and_then(|PlaneAndDevice(_, device)| device)),
            vote_route: self.votes,
            durability: self.durability.map(Durability::to_class),
            client_class: self.class.to_answer_class(),
            disk_flush: self.disk_flush_ms,
            fault: self.lan_fault,
            records_hops: false,
            frame_interface: None,
        })
    }
}

/// A plane, and the device that nodes vote with by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaneAndDevice(PlaneKind, Option<DeviceKind>);

fn plane(text: &str) -> Result<PlaneAndDevice, String> {
    if text == "kernel" {
        return Ok(PlaneAndDevice(PlaneKind::Tcp, Some(DeviceKind::Kernel)));
    }
    let way = PlaneKind::from_name(text).map(|way| PlaneAndDevice(way, None));
    way.ok_or_else(|| must_be("tcp, udp, chain, multicast, ethernet, kernel or auto", text))
}

fn device(text: &str) -> Result<DeviceKind, String> {
    DeviceKind::from_name(text).ok_or_else(|| must_be("udp, packet, tc, kernel or p4", text))
}

fn votes(text: &str) -> Result<&'static str, String> {
    let mut ways = ["star", "ring", "auto"].into_iter();
    ways.find(|way| *way == text).ok_or_else(|| must_be("star, ring or auto", text))
}

fn lan(text: &str) -> Result<Lan, String> {
    Lan::parse_speed(text)
        .ok_or_else(|| must_be("a speed such as 100mbit or 1gbit, up to 100gbit", text))
}

fn fault(text: &str) -> Result<Fault, String> {
    Fault::parse(text)
        .ok_or_else(|| must_be("a fault such as stop:2s, narrow:10% or slow-disk:100ms", text))
}

fn loss(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    let known = percent.filter(|percent| (0.0..=90.0).contains(percent));
    known.ok_or_else(|| must_be("between 0 and 90 percent", text))
}

/// Durations and repetitions of a measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct TimeArgs {
    /// Measured time of each repetition
    #[arg(long, env = "QUORATE_DURATION", value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) duration: Duration,
    /// Warm-up before it, which is not measured
    #[arg(long, env = "QUORATE_WARMUP", value_name = "TIME", default_value = "2s", value_parser = time)]
    pub(crate) warmup: Duration,
    /// Repetitions of each row; the median is shown
    #[arg(long, env = "QUORATE_REPEAT", value_name = "N", default_value_t = 5,
          value_parser = Number::between(1, 1000, Unit::Count).argument::<u32>())]
    pub(crate) repeat: u32,
}

impl TimeArgs {
    pub(crate) const fn to_run_time(&self) -> RunTime {
        RunTime { duration: self.duration, warmup: self.warmup, repetition_count: self.repeat }
    }
}

/// `quorate bench wan`
#[derive(Args, Clone, Debug)]
pub(crate) struct WanArgs {
    /// Network to measure
    #[arg(value_enum, default_value = "jpaxos")]
    pub(crate) profile: Wan,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Output files.
#[derive(Args, Clone, Debug)]
pub struct FileArgs {
    /// Write the results as JSON to this file, or to standard output
    #[arg(long, id = "json", env = "QUORATE_JSON", value_name = "FILE", num_args = 0..=1, default_missing_value = "true")]
    pub json: Option<String>,
    /// Write the rows as CSV to this file
    #[arg(long, env = "QUORATE_CSV", value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the results as an HTML page
    #[arg(long, env = "QUORATE_HTML", value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `quorate bench probe`
#[derive(Args, Clone, Debug)]
pub(crate) struct ProbeArgs {
    /// Measure the dataflow of a byte stream: one writer, a leader, one follower
    #[arg(long)]
    pub(crate) stream: bool,
    /// With --stream: give the writer a CPU of its own; everything else uses the other CPUs
    #[arg(long, requires = "stream")]
    pub(crate) pin: bool,
    /// Make each flush take at least this many milliseconds
    #[arg(long, env = "QUORATE_DISK_FLUSH_MS", value_name = "F", default_value = "0",
          value_parser = flush)]
    pub(crate) disk_flush_ms: Duration,
    /// Measured time of each figure
    #[arg(long, env = "QUORATE_DURATION", value_name = "TIME", default_value = "2s", value_parser = time)]
    pub(crate) duration: Duration,
    /// Repetitions of each commit; the median is shown
    #[arg(long, env = "QUORATE_REPEAT", value_name = "N", default_value_t = 3,
          value_parser = Number::between(1, 1000, Unit::Count).argument::<u32>())]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Warm-up time until a bare program and its sockets perform steadily.
const PROBE_WARMUP: Duration = Duration::from_millis(300);

impl ProbeArgs {
    pub(crate) fn to_stream_probe(&self) -> bare_stream::StreamProbe {
        bare_stream::StreamProbe {
            pin: self.pin,
            disk_flush: self.disk_flush_ms,
            time: RunTime {
                duration: self.duration,
                warmup: PROBE_WARMUP.min(self.duration),
                repetition_count: self.repeat,
            },
        }
    }

    pub(crate) const fn to_probe_options(&self) -> probe::ProbeOptions {
        probe::ProbeOptions {
            disk_flush: self.disk_flush_ms,
            duration: self.duration,
            repetition_count: self.repeat,
        }
    }
}

/// `quorate bench paper`
#[derive(Args, Clone, Debug)]
pub(crate) struct MovedArgs {
    /// Arguments of the former command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) words: Vec<String>,
}

/// `quorate bench compare`
#[derive(Args, Clone, Debug)]
pub(crate) struct CompareArgs {
    /// Write the report as JSON to this file, or to standard output
    #[arg(long, id = "json", env = "QUORATE_JSON", value_name = "FILE", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) json: Option<String>,
    /// Flags of `cargo xtask compare`, such as --quick, --list, --only etcd,redis, --out PATH
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAG")]
    pub(crate) flags: Vec<String>,
}

/// Durability class of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    Durable,
    Volatile,
}

impl Durability {
    const fn to_class(self) -> Class {
        match self {
            Self::Durable => Class::Durable,
            Self::Volatile => Class::Volatile,
        }
    }
}

/// Profiles of emulated networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wan {
    /// 10 Mbit/s, 50 ms one way
    Jpaxos,
    /// 10 Mbit/s, 25 ms one way
    Half,
}

impl Wan {
    /// Returns the links of the network.
    #[must_use]
    pub const fn link_profile(self) -> LinkProfile {
        match self {
            Self::Jpaxos => LinkProfile::JPAXOS,
            Self::Half => LinkProfile::HALF_DELAY,
        }
    }
}

/// Stores of the key-value service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvStore {
    Lsm,
    Memory,
}

impl KvStore {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lsm => "lsm",
            Self::Memory => "memory",
        }
    }
}

/// Parses a duration such as `10s`, `500ms` or `2m`. It must be between a millisecond and a day.
pub fn time(text: &str) -> Result<Duration, String> {
    let what = "a time between 1ms and 24h, such as 10s, 500ms or 2m";
    duration(text, 0.001, 86_400.0).ok_or_else(|| must_be(what, text))
}

/// Parses the minimum duration of a flush, in milliseconds.
pub fn flush(text: &str) -> Result<Duration, String> {
    quorate_cli::parse_flush(text).ok_or_else(|| must_be(quorate_cli::FLUSH_VALUES, text))
}
