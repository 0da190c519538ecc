//! Table of a node's settings. The flags of `quorate start` are generated from it.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use quorate_replica::defaults;

use super::DEFAULT_CLIENT;
use crate::addresses::DEFAULT_ADMIN;

/// A setting: the flag `--name`, the environment variable `QUORATE_NAME`, and the key `name` in the
/// configuration file.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) value: &'static str,
    help_text: &'static str,
    pub(super) default: DefaultValue,
}

impl Setting {
    fn is_hidden(&self) -> bool {
        [DISK_FLUSH_MS, HOPS, LOG_SEGMENT, PLANE_LOSS, PLANE_BUFFER].contains(&self.name)
    }
}

/// Default value of a setting, in the type that the code uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum DefaultValue {
    /// No default, or one that only the help text describes.
    Unset,
    Text(&'static str),
    Number(u64),
    /// Default range, written `MIN-MAX`.
    Range((u64, u64)),
}

impl DefaultValue {
    /// Formats the default as a user would write it for the flag.
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
    default: DefaultValue,
) -> Setting {
    Setting { name, value, help_text: help, default }
}

pub(super) const CONFIG: &str = "config";
/// Hidden setting, used only by `quorate bench`.
pub(super) const DISK_FLUSH_MS: &str = "disk-flush-ms";
/// Hidden setting that records trace points for the benchmark.
pub(super) const HOPS: &str = "hops";
/// Hidden setting that drops datagrams deliberately.
pub(super) const PLANE_LOSS: &str = "plane-loss";
pub(super) const PLANE_BUFFER: &str = "plane-buffer";
/// Setting for the host from which all four addresses of the node are derived.
pub(super) const LISTEN: &str = "listen";
/// Setting for a switch that may be given without a value.
const THRIFTY: &str = "thrifty";
/// Setting for a switch that may be given without a value.
const INSECURE: &str = "insecure";
const PLANE_TRUSTED: &str = "plane-trusted";
/// Hidden setting for tests that need many small segments.
pub(super) const LOG_SEGMENT: &str = "log-segment";

/// Headings of the help, each with the setting that it precedes. `-h` shows the first group only.
const HEADINGS: [(&str, &str); 10] = [
    ("data", "Common"),
    ("as", "Membership and votes"),
    ("client", "Addresses"),
    ("tls", "TLS"),
    ("plane", "Planes and devices"),
    ("heartbeat-ms", "Time and reads"),
    ("command-max", "Limits"),
    ("etcd-quota", "etcd"),
    ("log-ready", "Log and snapshots"),
    ("batch-max", "Tuning"),
];

/// All settings of `quorate start`, in the order of its help.
pub(super) const SETTINGS: [Setting; 70] = [
    setting(
        "data",
        "DIR",
        "Data folder of this node, required; created at the first start",
        DefaultValue::Unset,
    ),
    setting(
        "node",
        "N|from-hostname",
        "Id of this node; required at the first start of a cluster. from-hostname: the number at the end of the host name plus one, so quorate-0 is node 1 [default: 1 for a cluster of one]",
        DefaultValue::Unset,
    ),
    setting(
        "cluster",
        "1=HOST:PORT,…",
        "Peer addresses of all nodes; required at the first start of a cluster of several [default: this node alone]",
        DefaultValue::Unset,
    ),
    setting(
        "join",
        "ADMIN[,…]",
        "Join the cluster of the node with this --admin address; ignored once the folder has an id",
        DefaultValue::Unset,
    ),
    setting(
        LISTEN,
        "HOST",
        "Address of this machine for clients, peers, operators and byte streams, at the usual ports 7450 to 7453 [default: 127.0.0.1]",
        DefaultValue::Unset,
    ),
    setting(
        "durability",
        "CLASS",
        "durable or volatile; fixed permanently at the first start [default: durable]",
        DefaultValue::Unset,
    ),
    setting(
        "service",
        "SERVICE",
        "What clients at --client speak: kv, the Redis protocol; or etcd, the protocol of etcd v3; fixed permanently at the first start [default: kv]",
        DefaultValue::Unset,
    ),
    setting(
        "store",
        "STORE",
        "lsm (on disk) or memory (rebuilt from a snapshot and the log at each start); fixed permanently at the first start [default: lsm; memory with --service etcd]",
        DefaultValue::Unset,
    ),
    setting(
        "log-format",
        "text|json",
        "Format of log lines: text, with priorities if systemd's journal reads them; or json",
        DefaultValue::Text("text"),
    ),
    setting(
        CONFIG,
        "FILE",
        "TOML file with settings; its keys are the long flags",
        DefaultValue::Unset,
    ),
    setting(
        "as",
        "ROLE",
        "With --join: voter, learner or auxiliary [default: voter]",
        DefaultValue::Unset,
    ),
    setting(
        "auxiliary",
        "N,…",
        "Nodes of --cluster that receive no values while the others are up; for the first start, and the same on all nodes",
        DefaultValue::Unset,
    ),
    setting(
        "quorum",
        "RULE",
        "majority; or flexible:Q1,Q2, where an election needs Q1 nodes, a write needs Q2, and Q1 + Q2 exceeds the number of nodes. For the first start, and the same on all nodes [default: majority]",
        DefaultValue::Unset,
    ),
    setting(
        THRIFTY,
        "on|off",
        "Send proposals to just a quorum, and to all nodes for two seconds when an answer is late [default: off]",
        DefaultValue::Unset,
    ),
    setting(
        "votes",
        "ROUTE",
        "How votes reach this node when it leads: star, straight from each member; ring, handed on from member to member of a quorum; or auto, depending on the load",
        DefaultValue::Text("star"),
    ),
    setting(
        "feature-level",
        "auto|hold",
        "When the cluster uses what a newer release brought, once all nodes run it: auto, 24 h after the last was upgraded, or at once in a new cluster; hold, when 'quorate member feature --raise' says so. The leader's setting counts",
        DefaultValue::Text("auto"),
    ),
    setting(
        "client",
        "ADDR",
        "Address for clients; port 0 picks a free one",
        DefaultValue::Text(DEFAULT_CLIENT),
    ),
    setting(
        "peer",
        "ADDR",
        "Address for other nodes [default: this node's entry in --cluster, or 127.0.0.1:7451]",
        DefaultValue::Unset,
    ),
    setting("admin", "ADDR", "Address for operators", DefaultValue::Text(DEFAULT_ADMIN)),
    setting(
        "stream",
        "ADDR",
        "Address for clients of byte streams [default: 127.0.0.1:7453, unless that is in use]",
        DefaultValue::Unset,
    ),
    setting(
        "stream-raw",
        "ADDR",
        "Address where each connection is a stream of its own: bytes in, counts of durable bytes out [default: none]",
        DefaultValue::Unset,
    ),
    setting("client-socket", "PATH", "Unix socket for clients", DefaultValue::Unset),
    setting(
        "tls",
        "DIR",
        "Folder of certificates, as created by 'quorate cert node'; everyone who connects must present one. Read again when a file changes",
        DefaultValue::Unset,
    ),
    setting(
        "tls-cert",
        "FILE",
        "This node's certificate [default: node.crt in --tls]",
        DefaultValue::Unset,
    ),
    setting(
        "tls-key",
        "FILE",
        "Key of --tls-cert [default: node.key in --tls]",
        DefaultValue::Unset,
    ),
    setting(
        "tls-ca",
        "FILE",
        "Authorities that sign the certificates of nodes [default: ca.crt in --tls]",
        DefaultValue::Unset,
    ),
    setting(
        "tls-server-cert",
        "FILE",
        "Certificate shown to clients and operators [default: server.crt in --tls, or --tls-cert]",
        DefaultValue::Unset,
    ),
    setting(
        "tls-server-key",
        "FILE",
        "Key of --tls-server-cert [default: server.key in --tls, or --tls-key]",
        DefaultValue::Unset,
    ),
    setting(
        "tls-client-ca",
        "FILE",
        "Authorities that sign the certificates of clients [default: clients-ca.crt in --tls, or --tls-ca]",
        DefaultValue::Unset,
    ),
    setting(
        INSECURE,
        "on|off",
        "Allow unencrypted connections from other machines; anyone who can connect is trusted [default: off]",
        DefaultValue::Unset,
    ),
    setting(
        "plane",
        "PLANE",
        "How nodes talk: tcp; udp, datagrams; chain, each message passed along a chain; multicast, one datagram for all; ethernet, raw frames without IP; kernel, which means tcp with --device kernel; or auto, by load and by which nodes are reachable. The same on all nodes",
        DefaultValue::Text("tcp"),
    ),
    setting(
        "device",
        "DEVICE",
        "Who votes and counts for this node when possible: off, the node itself; kernel, programs in the kernel at --plane-interface; tc, the same behind the driver; packet, a thread over raw frames there; udp, a thread over datagrams at the port of --peer; p4, our programs for switches on an interpreter; rtl:FOLDER, our simulated cores; process:COMMAND, a program that answers frames with frames. If a device is not available here, the node says so and uses the next one. The same on all nodes [default: off; kernel with --plane kernel]",
        DefaultValue::Unset,
    ),
    setting(
        "plane-interface",
        "NAME",
        "Interface that sends datagrams and joins multicast groups [default: that of --peer]",
        DefaultValue::Unset,
    ),
    setting(
        "plane-ethernet",
        "HOW",
        "How raw frames are read from the interface: packet; xdp, by AF_XDP; or auto, which uses xdp where the driver supports zero copy",
        DefaultValue::Text("packet"),
    ),
    setting(
        "plane-speed",
        "MBIT/s",
        "Link speed in Mbit/s; senders pace themselves below it [default: what the interface reports, or 10000]",
        DefaultValue::Unset,
    ),
    setting(
        PLANE_LOSS,
        "PCT",
        "Share of arriving datagrams to drop, in percent: for experiments",
        DefaultValue::Text("0"),
    ),
    setting(
        PLANE_BUFFER,
        "KIB",
        "Receive buffer of each datagram socket, in KiB: for experiments [default: 16384]",
        DefaultValue::Unset,
    ),
    setting(
        "plane-group",
        "ADDR",
        "Multicast group of the cluster, of the same address family as --peer; the same on all nodes [default: 239.81.84.69:7455, or [ff15::5152:5445]:7455]",
        DefaultValue::Unset,
    ),
    setting(
        "plane-key",
        "FILE",
        "File of keys that authenticate datagrams: lines with a number and 64 hexadecimal digits; read again when it changes",
        DefaultValue::Unset,
    ),
    setting(
        PLANE_TRUSTED,
        "on|off",
        "Allow datagrams without a key beyond loopback; anyone who can send them is trusted [default: off]",
        DefaultValue::Unset,
    ),
    setting(
        "heartbeat-ms",
        "MS",
        "Time between the leader's heartbeats",
        DefaultValue::Number(defaults::HEARTBEAT_MS),
    ),
    setting(
        "election-ms",
        "MIN-MAX",
        "Silence of the leader after which another node starts an election: at least two heartbeats, and lengthened, up to 1 s, on nodes that are scheduled late",
        DefaultValue::Range(defaults::ELECTION_MS),
    ),
    setting(
        "reads",
        "index|lease",
        "How a leader makes sure that it still leads before it answers a read: by asking the others, or by a lease; the same on all nodes",
        DefaultValue::Text("index"),
    ),
    setting(
        "clock-drift-max",
        "PERCENT",
        "How much faster or slower than real time a node's clock may run, for leases and bounded reads; the same on all nodes",
        DefaultValue::Text("1%"),
    ),
    setting(
        "client-timeout-ms",
        "MS",
        "How long a command may take before it is answered with -NOQUORUM or -UNKNOWN",
        DefaultValue::Number(defaults::CLIENT_TIMEOUT_MS),
    ),
    setting(
        "command-max",
        "BYTES",
        "Largest command; the same on all nodes",
        DefaultValue::Number(defaults::COMMAND_BYTES_MAX as u64),
    ),
    setting(
        "client-memory",
        "BYTES",
        "Memory for the unread replies and unfinished requests of all clients together; at least eight times --command-max",
        DefaultValue::Number(defaults::CLIENT_MEMORY_BYTES as u64),
    ),
    setting(
        "transfer-limit",
        "BYTES",
        "Snapshot bytes per second, written and sent together [default: no limit]",
        DefaultValue::Unset,
    ),
    setting(
        "etcd-quota",
        "BYTES",
        "Largest size of all data with their history, with --service etcd; beyond it the alarm NOSPACE refuses what grows (0: no limit)",
        DefaultValue::Number(0),
    ),
    setting(
        "etcd-auto-compaction",
        "HISTORY",
        "History to keep, with --service etcd: off keeps all until a client compacts; otherwise a time such as 1h or 7d, or a number of revisions such as 10000rev; the same on all nodes",
        DefaultValue::Text("off"),
    ),
    setting(
        "etcd-auth-token",
        "KIND",
        "Tokens for clients that log in with --service etcd, as in etcd's --auth-token: simple, or jwt,sign-method=NAME,pub-key=FILE,priv-key=FILE,ttl=TIME; the same on all nodes",
        DefaultValue::Text("simple"),
    ),
    setting(
        "log-ready",
        "BYTES",
        "Log space to prepare in advance while the node is idle, so that bursts run faster, in segments of 64 MiB; at most half of what is free",
        DefaultValue::Number(defaults::PREPARED_LOG_BYTES),
    ),
    setting(
        "log-max",
        "BYTES",
        "Above this size, at least 256 MiB, the log is no longer kept for nodes that are behind; they get a snapshot",
        DefaultValue::Number(defaults::LOG_BYTES_MAX),
    ),
    setting(
        "snapshot-ratio",
        "N",
        "Take a snapshot when the log has grown by N times the size of the last one, and by at least 64 MiB",
        DefaultValue::Number(defaults::SNAPSHOT_RATIO as u64),
    ),
    setting(
        "stream-engine",
        "ENGINE",
        "How streams and the log are written to disk, in the same format: uring (O_DIRECT and DSYNC); portable (threads); or auto, which tries uring first and logs which one it uses and why",
        DefaultValue::Text("auto"),
    ),
    setting(
        "scrub-every",
        "TIME|off",
        "Read everything that the node keeps this long after the last time, check it, and repair what is damaged",
        DefaultValue::Text("7d"),
    ),
    setting(
        "scrub-pace",
        "BYTES",
        "How much a scrub reads in a second, such as 50MB",
        DefaultValue::Text("32MiB"),
    ),
    setting(
        "batch-max",
        "BYTES",
        "Largest batch that tuning may choose",
        DefaultValue::Text("1048576"),
    ),
    setting(
        "window-max",
        "N",
        "Most batches in flight that tuning may choose",
        DefaultValue::Text("64"),
    ),
    setting(
        "latency-goal",
        "TIME",
        "Choose the largest batch that keeps the 99th percentile of latency below this, such as 5ms",
        DefaultValue::Unset,
    ),
    setting(
        "tune",
        "on|off",
        "Choose batch size and window while the node runs, by measuring",
        DefaultValue::Text("on"),
    ),
    setting(
        "batch",
        "BYTES",
        "Fixed batch size, with --tune off [default: 262144]",
        DefaultValue::Unset,
    ),
    setting(
        "window",
        "N",
        "Fixed number of batches in flight, with --tune off [default: 4]",
        DefaultValue::Unset,
    ),
    setting(
        "spin",
        "WHEN",
        "How long a node polls for the next event before it sleeps: off, 1 to 1000 microseconds, or auto, which polls for 50 while events come in quick succession and no other program needs the CPU",
        DefaultValue::Text("auto"),
    ),
    setting(
        "cluster-mode",
        "off|emulated|leader",
        "Answer Redis clients in cluster mode: emulated spreads their connections over the voters, leader sends them all to the leader. Every node takes every command either way",
        DefaultValue::Text("off"),
    ),
    setting(
        "io-threads",
        "N",
        "Threads that own the connections of Redis clients while the node is busy: 0 to 64, or auto, a quarter of the CPUs and none on one or two",
        DefaultValue::Text("0"),
    ),
    setting(
        "io-spread",
        "load|always",
        "When connections go to the threads of --io-threads: always is for tests",
        DefaultValue::Text("load"),
    ),
    setting(
        DISK_FLUSH_MS,
        "MS",
        "Make each flush of the log take at least this long: for measurements",
        DefaultValue::Text("0"),
    ),
    setting(
        HOPS,
        "on|off",
        "Stamp what happens to commands, and leave the stamps in the data folder at the end: for measurements",
        DefaultValue::Text("off"),
    ),
    setting(
        LOG_SEGMENT,
        "BYTES",
        "Size of new log segments: for tests",
        DefaultValue::Number(defaults::LOG_SEGMENT_BYTES),
    ),
];

/// Values of the flags given to `quorate start`, by setting name.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartArgs(pub(super) BTreeMap<&'static str, String>);

impl Args for StartArgs {
    fn augment_args(command: Command) -> Command {
        let mut heading = "";
        SETTINGS.iter().fold(command, |command, setting| {
            let next = HEADINGS.iter().find(|(first, _)| *first == setting.name);
            heading = next.map_or(heading, |(_, heading)| heading);
            let default = setting.default.text().map(|value| format!(" [default: {value}]"));
            let variable = format!(" [env: {}]", variable_name(setting.name));
            let bare = [THRIFTY, PLANE_TRUSTED, INSECURE].contains(&setting.name);
            command.arg(
                Arg::new(setting.name)
                    .long(setting.name)
                    .value_name(setting.value)
                    .num_args(usize::from(!bare)..=1)
                    .default_missing_value(if bare { "on" } else { "" })
                    .hide(setting.is_hidden())
                    .help_heading(heading)
                    .hide_short_help(heading != HEADINGS[0].1)
                    .help(format!(
                        "{}{}{variable}",
                        setting.help_text,
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

/// Returns the name of a setting's environment variable.
pub(super) fn variable_name(name: &str) -> String {
    format!("QUORATE_{}", name.to_uppercase().replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operate/flags.md");
    const HEAD: &str = "\n## All flags\n";

    /// Breaks an item of a list into lines of at most 140 characters.
    fn wrap_item(item: &str) -> String {
        let mut text = "-".to_owned();
        let mut width = 1;
        for word in item.split(' ') {
            let length = word.chars().count();
            let breaks = width + 1 + length > 140;
            text += if breaks { "\n  " } else { " " };
            text += word;
            width = length + if breaks { 2 } else { width + 1 };
        }
        text + "\n"
    }

    /// Compares the list at the end of the page with the settings, or writes it.
    #[test]
    fn page_of_flags_is_generated() {
        let item = |setting: &Setting| {
            let Setting { name, value, help_text: help, default } = setting;
            let (help, described) = match help.rsplit_once(" [default: ") {
                Some((help, default)) => (help, default.strip_suffix(']')),
                None => (*help, None),
            };
            let default = default.text().or(described.map(str::to_owned));
            let default = default.map_or(String::new(), |default| format!(" ({default})"));
            let heading = HEADINGS.iter().find(|(first, _)| first == name);
            let heading = heading.map_or_else(String::new, |(_, text)| format!("\n**{text}**\n\n"));
            heading + &wrap_item(&format!("`--{name} {value}`{default}: {help}"))
        };
        let list: String = SETTINGS.iter().filter(|one| !one.is_hidden()).map(item).collect();
        let page = fs::read_to_string(PAGE).unwrap();
        let (before, now) = page.split_once(HEAD).expect("the page has the list");
        if env::var_os("REWRITE").is_some() {
            fs::write(PAGE, [before, HEAD, &list].concat()).unwrap();
        } else {
            assert!(now == list, "REWRITE=1 cargo test -p quorate-cli --lib flags writes {PAGE}");
        }
    }
}
