//! What can be said about a node: the settings, and the flags of `quorate start`.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use quorate_replica::defaults;

use crate::status::DEFAULT_ADMIN;

/// One setting: `--name`, `QUORATE_NAME`, and the key `name` of the file.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) value: &'static str,
    help: &'static str,
    pub(super) default: Preset,
}

/// What holds if nobody says anything.
#[derive(Clone, Copy, Debug)]
pub(super) enum Preset {
    /// Nothing, or what its help says.
    Unset,
    Text(&'static str),
    Number(u64),
    /// As `MIN-MAX`.
    Range((u64, u64)),
}

impl Preset {
    /// As it could have been given.
    pub(super) fn text(self) -> Option<String> {
        match self {
            Self::Unset => None,
            Self::Text(text) => Some(text.to_owned()),
            Self::Number(number) => Some(number.to_string()),
            Self::Range((min, max)) => Some(format!("{min}-{max}")),
        }
    }
}

const fn setting(
    name: &'static str,
    value: &'static str,
    help: &'static str,
    default: Preset,
) -> Setting {
    Setting {
        name,
        value,
        help,
        default,
    }
}

pub(super) const CONFIG: &str = "config";
/// Not shown in the help: nobody wants it but `quorate bench`.
pub(super) const DISK_FLUSH_MS: &str = "disk-flush-ms";
/// Nor this one: losses on purpose.
pub(super) const PLANE_LOSS: &str = "plane-loss";
pub(super) const PLANE_BUFFER: &str = "plane-buffer";
/// May be given without a value.
const THRIFTY: &str = "thrifty";
/// So may these.
const INSECURE: &str = "insecure";
const PLANE_TRUSTED: &str = "plane-trusted";
/// Not shown either: small segments are for tests, which want many of them.
pub(super) const LOG_SEGMENT: &str = "log-segment";

/// All settings of `quorate start`, in the order of its help.
pub(super) const SETTINGS: [Setting; 56] = [
    setting(
        "data",
        "DIR",
        "Data folder of this node; created at its first start",
        Preset::Unset,
    ),
    setting(
        "node",
        "N|from-hostname",
        "Id of this node; needed at the first start of a cluster. from-hostname: the number that the name of this machine ends with, plus one: quorate-0 is node 1",
        Preset::Unset,
    ),
    setting(
        "cluster",
        "1=HOST:PORT,…",
        "Peer addresses of all nodes; needed at the first start",
        Preset::Unset,
    ),
    setting(
        "join",
        "ADMIN[,…]",
        "Join the cluster of the node with this --admin address; an empty folder gets an id there",
        Preset::Unset,
    ),
    setting(
        "as",
        "ROLE",
        "With --join: voter, learner or auxiliary [default: voter]",
        Preset::Unset,
    ),
    setting(
        "auxiliary",
        "N,…",
        "Nodes of --cluster that get no values while the others are enough; for the first start, and the \
         same on all nodes",
        Preset::Unset,
    ),
    setting(
        "quorum",
        "RULE",
        "majority or flexible:Q1,Q2; for the first start, and the same on all nodes [default: majority]",
        Preset::Unset,
    ),
    setting(
        THRIFTY,
        "on|off",
        "Send proposals to just a quorum, and to everybody when an answer is late [default: off]",
        Preset::Unset,
    ),
    setting(
        "votes",
        "ROUTE",
        "How votes come to this node when it leads: star (each straight), ring (handed on by a quorum), or auto (by the load)",
        Preset::Text("star"),
    ),
    setting(
        "client",
        "ADDR",
        "Where clients connect",
        Preset::Text("127.0.0.1:7450"),
    ),
    setting(
        "peer",
        "ADDR",
        "Where peers connect [default: this node's in --cluster, or 127.0.0.1:7451]",
        Preset::Unset,
    ),
    setting(
        "admin",
        "ADDR",
        "Where operators connect",
        Preset::Text(DEFAULT_ADMIN),
    ),
    setting(
        "stream",
        "ADDR",
        "Where clients of byte streams connect [default: 127.0.0.1:7453, unless that is in use]",
        Preset::Unset,
    ),
    setting(
        "stream-raw",
        "ADDR",
        "Where each connection is a stream: bytes in, counts of durable bytes out [default: nowhere]",
        Preset::Unset,
    ),
    setting(
        "stream-engine",
        "ENGINE",
        "What moves bytes to the disk, of streams and of the log: uring, portable, or auto, which tries uring and says why not",
        Preset::Text("auto"),
    ),
    setting(
        "plane",
        "PLANE",
        "How nodes speak: tcp; udp, the protocol by datagrams; chain, from node to node; multicast, one datagram for all; ethernet, without IP; kernel: tcp, and --device kernel; or auto, by load and by who is reached. The same on all nodes",
        Preset::Text("tcp"),
    ),
    setting(
        "device",
        "DEVICE",
        "Who votes and counts for this node while it can: off, the node itself; kernel, programs in the kernel at --plane-interface; tc, the same behind the driver; packet, a thread by raw frames there; udp, a thread by datagrams at the port of --peer; p4, our programs for switches on an interpreter; rtl:FOLDER, our simulated cores; process:COMMAND, whatever maps frames to frames. What is not possible here is said, and the next is taken. The same on all nodes. Without it: off; beside --plane kernel: kernel",
        Preset::Unset,
    ),
    setting(
        "plane-interface",
        "NAME",
        "Where datagrams leave and groups are joined [default: that of --peer]",
        Preset::Unset,
    ),
    setting(
        "plane-ethernet",
        "HOW",
        "How raw frames get from the interface: packet; xdp, by AF_XDP; or auto, which takes xdp where the device itself writes them",
        Preset::Text("packet"),
    ),
    setting(
        "plane-speed",
        "MBIT/s",
        "What that interface carries, in megabits per second [default: what it says, or 10000]",
        Preset::Unset,
    ),
    setting(
        PLANE_LOSS,
        "PCT",
        "Datagrams that arrive and are taken for lost, in percent: for experiments",
        Preset::Text("0"),
    ),
    setting(
        PLANE_BUFFER,
        "KIB",
        "What the kernel keeps of datagrams that were not read yet, for each socket: for experiments [default: 16384]",
        Preset::Unset,
    ),
    setting(
        "plane-group",
        "ADDR",
        "The multicast group of the cluster [default: 239.81.84.69:7455, or [ff15::5152:5445]:7455]",
        Preset::Unset,
    ),
    setting(
        "plane-key",
        "FILE",
        "Keys of datagrams: lines with a number and 64 hexadecimal digits; read again when it changes",
        Preset::Unset,
    ),
    setting(
        PLANE_TRUSTED,
        "on|off",
        "Datagrams without a key although others reach this address: whoever can send them is trusted [default: off]",
        Preset::Unset,
    ),
    setting(
        "tls",
        "DIR",
        "A folder of certificates, as 'quorate cert node' makes it: who connects has to have one; read again when it changes",
        Preset::Unset,
    ),
    setting(
        "tls-cert",
        "FILE",
        "This node's certificate [default: node.crt in --tls]",
        Preset::Unset,
    ),
    setting(
        "tls-key",
        "FILE",
        "Its key [default: node.key in --tls]",
        Preset::Unset,
    ),
    setting(
        "tls-ca",
        "FILE",
        "The authorities of nodes [default: ca.crt in --tls]",
        Preset::Unset,
    ),
    setting(
        "tls-server-cert",
        "FILE",
        "What clients and operators are shown [default: server.crt in --tls, or --tls-cert]",
        Preset::Unset,
    ),
    setting(
        "tls-server-key",
        "FILE",
        "Its key [default: server.key in --tls, or --tls-key]",
        Preset::Unset,
    ),
    setting(
        "tls-client-ca",
        "FILE",
        "The authorities of clients [default: clients-ca.crt in --tls, or --tls-ca]",
        Preset::Unset,
    ),
    setting(
        INSECURE,
        "on|off",
        "Without certificates although others reach this node: whoever can is trusted [default: off]",
        Preset::Unset,
    ),
    setting(
        "client-socket",
        "PATH",
        "A Unix socket for clients",
        Preset::Unset,
    ),
    setting(
        "durability",
        "CLASS",
        "durable or volatile; fixed at the first start [default: durable]",
        Preset::Unset,
    ),
    setting(
        "store",
        "STORE",
        "lsm or memory; fixed at the first start [default: lsm]",
        Preset::Unset,
    ),
    setting(
        "heartbeat-ms",
        "MS",
        "How often the leader speaks",
        Preset::Number(defaults::HEARTBEAT_MS),
    ),
    setting(
        "election-ms",
        "MIN-MAX",
        "Silence after which others take over",
        Preset::Range(defaults::ELECTION_MS),
    ),
    setting(
        "reads",
        "index|lease",
        "How a leader knows that it still leads when it reads; the same on all nodes",
        Preset::Text("index"),
    ),
    setting(
        "clock-drift-max",
        "PERCENT",
        "By how much a node's clock may be fast or slow, for leases and bounded reads",
        Preset::Text("1%"),
    ),
    setting(
        "client-timeout-ms",
        "MS",
        "How long a command may take",
        Preset::Number(defaults::CLIENT_TIMEOUT_MS),
    ),
    setting(
        "command-max",
        "BYTES",
        "Largest command",
        Preset::Number(defaults::COMMAND_BYTES_MAX as u64),
    ),
    setting(
        "client-memory",
        "BYTES",
        "Memory for the replies and requests of all clients",
        Preset::Number(defaults::CLIENT_MEMORY_BYTES as u64),
    ),
    setting(
        "log-ready",
        "BYTES",
        "Log space made ahead of need, in quiet times, for bursts",
        Preset::Number(defaults::LOG_READY_BYTES),
    ),
    setting(
        "snapshot-ratio",
        "N",
        "A snapshot is taken when the log has grown by so many times the last one's size",
        Preset::Number(defaults::SNAPSHOT_RATIO as u64),
    ),
    setting(
        "log-max",
        "BYTES",
        "A log above this size is not kept for nodes that are behind",
        Preset::Number(defaults::LOG_BYTES_MAX),
    ),
    setting(
        "transfer-limit",
        "BYTES",
        "Most bytes of snapshots in a second, written and sent [default: no limit]",
        Preset::Unset,
    ),
    setting(
        "batch-max",
        "BYTES",
        "Largest batch that tuning may choose",
        Preset::Text("1048576"),
    ),
    setting(
        "window-max",
        "N",
        "Most batches in flight that tuning may choose",
        Preset::Text("64"),
    ),
    setting(
        "latency-goal",
        "TIME",
        "The largest batch that keeps the 99th percentile below this, such as 5ms",
        Preset::Unset,
    ),
    setting(
        "tune",
        "on|off",
        "Choose batch and window all the time, by measuring",
        Preset::Text("on"),
    ),
    setting(
        "batch",
        "BYTES",
        "Batches of this size, with --tune off [default: 262144]",
        Preset::Unset,
    ),
    setting(
        "window",
        "N",
        "Batches in flight, with --tune off [default: 4]",
        Preset::Unset,
    ),
    setting(
        DISK_FLUSH_MS,
        "MS",
        "A flush of the log takes at least this long: for measurements",
        Preset::Text("0"),
    ),
    setting(
        LOG_SEGMENT,
        "BYTES",
        "Size of new segments of the log: for tests",
        Preset::Number(defaults::LOG_SEGMENT_BYTES),
    ),
    setting(
        CONFIG,
        "FILE",
        "A TOML file; its keys are the long flags",
        Preset::Unset,
    ),
];

/// The flags of `quorate start` as they were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartArgs(pub(super) BTreeMap<&'static str, String>);

impl Args for StartArgs {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().fold(command, |command, setting| {
            let default = setting
                .default
                .text()
                .map(|value| format!(" [default: {value}]"));
            let variable = format!(" [env: {}]", variable(setting.name));
            let bare = [THRIFTY, PLANE_TRUSTED, INSECURE].contains(&setting.name);
            command.arg(
                Arg::new(setting.name)
                    .long(setting.name)
                    .value_name(setting.value)
                    .num_args(usize::from(!bare)..=1)
                    .require_equals(bare)
                    .default_missing_value(if bare { "on" } else { "" })
                    .hide(matches!(
                        setting.name,
                        DISK_FLUSH_MS | LOG_SEGMENT | PLANE_LOSS | PLANE_BUFFER
                    ))
                    .help(format!(
                        "{}{}{variable}",
                        setting.help,
                        default.unwrap_or_default()
                    )),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StartArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &Setting| {
            let value = matches.get_one::<String>(setting.name)?;
            Some((setting.name, value.clone()))
        };
        Ok(Self(SETTINGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The environment's name of a setting.
pub(super) fn variable(name: &str) -> String {
    format!("QUORATE_{}", name.to_uppercase().replace('-', "_"))
}
