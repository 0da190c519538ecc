//! The settings of a node: flag, then environment, then file, then default.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use quorate_bench::log_service::STORE as STORE_NONE;
use quorate_core::{configuration::MEMBERS_MAX, node_id::NodeId, record::Class};
use quorate_kv::front::input_bytes_max;
use quorate_replica::{defaults, tuner::Settings as Tuning};

use crate::{output::Problem, status::DEFAULT_ADMIN};

mod tuning;

/// One setting: `--name`, `QUORATE_NAME`, and the key `name` of the file.
struct Setting {
    name: &'static str,
    value: &'static str,
    help: &'static str,
    default: Preset,
}

/// What holds if nobody says anything.
#[derive(Clone, Copy, Debug)]
enum Preset {
    /// Nothing, or what its help says.
    Unset,
    Text(&'static str),
    Number(u64),
    /// As `MIN-MAX`.
    Range((u64, u64)),
}

impl Preset {
    /// As it could have been given.
    fn text(self) -> Option<String> {
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

const CONFIG: &str = "config";
/// Not shown in the help: nobody wants it but `quorate bench`.
const DISK_FLUSH_MS: &str = "disk-flush-ms";
/// Not shown either: small segments are for tests, which want many of them.
const LOG_SEGMENT: &str = "log-segment";

/// All settings of `quorate start`, in the order of its help.
const SETTINGS: [Setting; 24] = [
    setting(
        "data",
        "DIR",
        "Data folder of this node; created at its first start",
        Preset::Unset,
    ),
    setting(
        "node",
        "N",
        "Id of this node; needed at the first start of a cluster",
        Preset::Unset,
    ),
    setting(
        "cluster",
        "1=HOST:PORT,…",
        "Peer addresses of all nodes; needed at the first start",
        Preset::Unset,
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

/// Largest `--command-max`: what one batch can carry, with room to spare.
const COMMAND_MAX_LIMIT: usize = 64 << 20;

/// The flags of `quorate start` as they were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartArgs(BTreeMap<&'static str, String>);

impl Args for StartArgs {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().fold(command, |command, setting| {
            let default = setting
                .default
                .text()
                .map(|value| format!(" [default: {value}]"));
            let variable = format!(" [env: {}]", variable(setting.name));
            command.arg(
                Arg::new(setting.name)
                    .long(setting.name)
                    .value_name(setting.value)
                    .hide(matches!(setting.name, DISK_FLUSH_MS | LOG_SEGMENT))
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

fn variable(name: &str) -> String {
    format!("QUORATE_{}", name.to_uppercase().replace('-', "_"))
}

/// What a node is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartConfig {
    pub(crate) data: PathBuf,
    pub(crate) node: Option<NodeId>,
    /// Empty if not given.
    pub(crate) cluster: BTreeMap<NodeId, String>,
    pub(crate) client: String,
    pub(crate) peer: Option<String>,
    pub(crate) admin: String,
    pub(crate) client_socket: Option<PathBuf>,
    pub(crate) durability: Option<Class>,
    pub(crate) store: Option<Store>,
    pub(crate) heartbeat_ms: u64,
    pub(crate) election_ms: (u64, u64),
    pub(crate) client_timeout_ms: u64,
    pub(crate) command_max: usize,
    pub(crate) client_memory: usize,
    pub(crate) log_ready: u64,
    pub(crate) log_segment: u64,
    pub(crate) tuning: Tuning,
    pub(crate) disk_flush: Duration,
}

impl StartConfig {
    /// What the node itself needs of it.
    pub(crate) fn settings(&self) -> quorate::Settings {
        quorate::Settings {
            node: self.node,
            cluster: self.cluster.clone(),
            class: self.durability,
            store: self.store.map(|store| store.name().to_owned()),
            store_default: Store::Lsm.name().to_owned(),
            heartbeat_ms: self.heartbeat_ms,
            election_ms: self.election_ms,
            client_timeout_ms: self.client_timeout_ms,
            command_bytes_max: self.command_max,
            log_ready_bytes: self.log_ready,
            log_segment_bytes: self.log_segment,
            client_input_bytes_max: input_bytes_max(self.command_max),
            client_memory_bytes: self.client_memory,
            tuning: self.tuning,
            disk_flush: self.disk_flush,
            ..quorate::Settings::new(&self.data)
        }
    }
}

/// Where the service keeps its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// On disk.
    Lsm,
    /// In memory, rebuilt from the log.
    Memory,
    /// Nowhere: a service without state instead of the key-value one, for measurements.
    None,
}

impl Store {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lsm => "lsm",
            Self::Memory => "memory",
            Self::None => STORE_NONE,
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Lsm, Self::Memory, Self::None]
            .into_iter()
            .find(|store| store.name() == name)
    }
}

/// Where a value came from, for its error.
#[derive(Clone, Debug)]
enum Source {
    Flag,
    Variable,
    File(PathBuf),
    Default,
}

/// A value with the name under which it was given.
struct Given {
    name: &'static str,
    text: String,
    source: Source,
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, text, source } = self;
        match source {
            Source::Flag | Source::Default => write!(f, "--{name} {text}"),
            Source::Variable => write!(f, "{}={text}", variable(name)),
            Source::File(file) => write!(f, "{}: {name} = {text}", file.display()),
        }
    }
}

impl Given {
    fn parse<T>(self, what: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Problem> {
        parse(&self.text).ok_or_else(|| Problem::usage(format_args!("{self}: not {what}")))
    }
}

/// The layers above the defaults.
struct Layers<'a> {
    flags: &'a StartArgs,
    environment: &'a dyn Fn(&str) -> Option<String>,
    file: BTreeMap<String, String>,
    path: PathBuf,
}

impl Layers<'_> {
    fn find(&self, name: &'static str) -> Option<Given> {
        let given = |text: String, source| Given { name, text, source };
        if let Some(text) = self.flags.0.get(name) {
            return Some(given(text.clone(), Source::Flag));
        }
        if let Some(text) = (self.environment)(&variable(name)).filter(|text| !text.is_empty()) {
            return Some(given(text, Source::Variable));
        }
        if let Some(text) = self.file.get(name) {
            return Some(given(text.clone(), Source::File(self.path.clone())));
        }
        let setting = SETTINGS.iter().find(|setting| setting.name == name)?;
        Some(given(setting.default.text()?, Source::Default))
    }

    fn optional<T>(
        &self,
        name: &'static str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        self.find(name)
            .map(|given| given.parse(what, parse))
            .transpose()
    }

    fn required<T>(
        &self,
        name: &'static str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Problem> {
        let missing = || {
            Problem::usage(format_args!("--{name} is missing"))
                .hint(format!("give --{name}, or set {}", variable(name)))
        };
        self.find(name).ok_or_else(missing)?.parse(what, parse)
    }
}

impl StartConfig {
    /// Looks through the layers.
    pub(crate) fn resolve(
        flags: &StartArgs,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Problem> {
        let mut layers = Layers {
            flags,
            environment,
            file: BTreeMap::new(),
            path: PathBuf::new(),
        };
        if let Some(given) = layers.find(CONFIG) {
            layers.path = PathBuf::from(given.text);
            layers.file = read_file(&layers.path)?;
        }
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let address = "HOST:PORT";
        let ms = "a number of milliseconds, at least 1";
        let config = Self {
            data: layers.required("data", "a folder", path)?,
            node: layers.optional("node", "a node id (1, 2, …)", parse_node)?,
            cluster: layers
                .optional(
                    "cluster",
                    "a list of different nodes such as 1=HOST:PORT,2=HOST:PORT",
                    parse_cluster,
                )?
                .unwrap_or_default(),
            client: layers.required("client", address, parse_address)?,
            peer: layers.optional("peer", address, parse_address)?,
            admin: layers.required("admin", address, parse_address)?,
            client_socket: layers.optional("client-socket", "a path", path)?,
            durability: layers.optional("durability", "durable or volatile", parse_class)?,
            store: layers.optional("store", "lsm or memory", Store::named)?,
            heartbeat_ms: layers.required("heartbeat-ms", ms, parse_ms)?,
            election_ms: layers.required("election-ms", "MIN-MAX in milliseconds", parse_range)?,
            client_timeout_ms: layers.required("client-timeout-ms", ms, parse_ms)?,
            command_max: layers.required("command-max", "1024 … 67108864 bytes", parse_bytes)?,
            client_memory: layers.required(
                "client-memory",
                "16777216 … 1099511627776 bytes",
                parse_client_memory,
            )?,
            log_ready: layers.required("log-ready", "0 … 1099511627776 bytes", parse_log_ready)?,
            log_segment: layers.required(LOG_SEGMENT, SEGMENT, parse_segment)?,
            tuning: tuning::resolve(&layers)?,
            disk_flush: layers.required(DISK_FLUSH_MS, "0 … 1000 milliseconds", parse_flush)?,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), Problem> {
        // With less, one client with a few commands of that size would be the one that holds most.
        let least = self.command_max.saturating_mul(8);
        if self.client_memory < least {
            let message = format_args!(
                "--client-memory {} is too little for --command-max {}",
                self.client_memory, self.command_max
            );
            return Err(Problem::usage(message).hint(format!(
                "give at least eight times as much, {least}, or take smaller commands"
            )));
        }
        if self.heartbeat_ms * 2 > self.election_ms.0 {
            let message = format_args!(
                "--heartbeat-ms {} is too slow for --election-ms {}-{}",
                self.heartbeat_ms, self.election_ms.0, self.election_ms.1
            );
            return Err(Problem::usage(message)
                .hint("an election must not begin before two heartbeats could have come"));
        }
        if self.cluster.len() > MEMBERS_MAX {
            return Err(Problem::usage(format_args!(
                "--cluster: more than {MEMBERS_MAX} nodes"
            )));
        }
        if let Some(node) = self.node
            && !self.cluster.is_empty()
            && !self.cluster.contains_key(&node)
        {
            return Err(
                Problem::usage(format_args!("--cluster does not list node {node}"))
                    .hint("the list has all nodes, this one included"),
            );
        }
        Ok(())
    }
}

fn read_file(path: &Path) -> Result<BTreeMap<String, String>, Problem> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Problem::usage(format_args!("--config {shown}: {error}")))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        Problem::usage(format_args!("{shown}: {}", error.to_string().trim_end()))
    })?;
    let entry = |(key, value): (String, toml::Value)| {
        let known = SETTINGS.iter().any(|setting| setting.name == key) && key != CONFIG;
        if !known {
            let hint = match value {
                toml::Value::Table(_) => "keys stand alone, without sections",
                _ => "keys are the long flags of `quorate start`",
            };
            return Err(Problem::usage(format_args!("{shown}: unknown key {key}")).hint(hint));
        }
        match value {
            toml::Value::String(text) => Ok((key, text)),
            toml::Value::Integer(number) => Ok((key, number.to_string())),
            toml::Value::Float(number) => Ok((key, number.to_string())),
            other => {
                let what = format_args!("{shown}: {key} is {}, not text", kind(&other));
                Err(Problem::usage(what).hint(format!("write {key} = {:?}", as_text(&key, &other))))
            }
        }
    };
    table.into_iter().map(entry).collect()
}

/// What a value of a TOML file is, for people.
const fn kind(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a section",
        toml::Value::Datetime(_) => "a date",
        toml::Value::String(_) | toml::Value::Integer(_) | toml::Value::Float(_) => "a value",
    }
}

/// The text that was probably meant, else what the text looks like.
fn as_text(key: &str, value: &toml::Value) -> String {
    let meant = match value {
        toml::Value::Boolean(true) => Some("on".to_owned()),
        toml::Value::Boolean(false) => Some("off".to_owned()),
        toml::Value::Array(entries) => {
            let entries = entries.iter().map(|entry| entry.as_str());
            entries.collect::<Option<Vec<_>>>().map(|all| all.join(","))
        }
        toml::Value::Table(table) => {
            let entry = |(node, address): (&String, &toml::Value)| {
                Some(format!("{node}={}", address.as_str()?))
            };
            let entries: Option<Vec<String>> = table.iter().map(entry).collect();
            entries.map(|all| all.join(","))
        }
        _ => None,
    };
    let setting = SETTINGS.iter().find(|setting| setting.name == key);
    let fits = |text: &String| match key {
        "tune" => ["on", "off"].contains(&text.as_str()),
        "cluster" => parse_cluster(text).is_some(),
        _ => false,
    };
    let example = setting.map_or("", |setting| setting.value);
    meant.filter(fits).unwrap_or_else(|| example.to_owned())
}

fn parse_node(text: &str) -> Option<NodeId> {
    text.parse().ok().filter(|id| *id > 0).map(NodeId)
}

/// Milliseconds, with fractions.
pub(crate) fn parse_flush(text: &str) -> Option<Duration> {
    let ms: f64 = text.parse().ok()?;
    (0.0..=1000.0)
        .contains(&ms)
        .then(|| Duration::from_secs_f64(ms / 1000.0))
}

/// An address as the value of a flag.
pub(crate) fn address_argument(text: &str) -> Result<String, String> {
    parse_address(text.trim()).ok_or_else(|| "not HOST:PORT".to_owned())
}

/// `HOST:PORT`, with a host.
fn parse_address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    (!host.is_empty() && !text.chars().any(char::is_whitespace)).then(|| text.to_owned())
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
    [Class::Durable, Class::Volatile]
        .into_iter()
        .find(|class| class.name() == text)
}

/// Up to an hour: anything longer is a slip of the keyboard.
fn parse_ms(text: &str) -> Option<u64> {
    text.parse().ok().filter(|ms| (1..=3_600_000).contains(ms))
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (min, max) = text.split_once('-')?;
    let (min, max) = (parse_ms(min)?, parse_ms(max)?);
    (min < max).then_some((min, max))
}

fn parse_bytes(text: &str) -> Option<usize> {
    text.parse()
        .ok()
        .filter(|bytes| (1024..=COMMAND_MAX_LIMIT).contains(bytes))
}

/// Least and largest `--client-memory`.
const CLIENT_MEMORY_LIMITS: std::ops::RangeInclusive<usize> = 16 << 20..=1 << 40;

fn parse_client_memory(text: &str) -> Option<usize> {
    let bytes = text.parse().ok();
    bytes.filter(|bytes| CLIENT_MEMORY_LIMITS.contains(bytes))
}

/// Largest `--log-ready`: a typing error rather than a wish beyond it.
const LOG_READY_LIMIT: u64 = 1 << 40;

/// What `parse_segment` takes.
const SEGMENT: &str = "65536 … 1073741824 bytes, a multiple of 4096";

fn parse_segment(text: &str) -> Option<u64> {
    let bytes: u64 = text.parse().ok()?;
    let fits = (64 << 10..=1 << 30).contains(&bytes) && bytes.is_multiple_of(4096);
    fits.then_some(bytes)
}

fn parse_log_ready(text: &str) -> Option<u64> {
    text.parse().ok().filter(|bytes| *bytes <= LOG_READY_LIMIT)
}

#[cfg(test)]
mod tests {
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
    fn a_folder_is_all_that_is_needed() {
        let config = resolve(&["--data", "d"], &[]).unwrap();
        assert_eq!(config.data, PathBuf::from("d"));
        assert_eq!(config.client, "127.0.0.1:7450");
        assert_eq!(config.admin, "127.0.0.1:7452");
        assert_eq!(
            (config.peer, config.node, config.durability),
            (None, None, None)
        );
        assert_eq!((config.heartbeat_ms, config.election_ms), (20, (100, 200)));
        assert_eq!(
            (config.client_timeout_ms, config.command_max),
            (5000, 8 << 20)
        );
        assert_eq!(config.log_ready, 64 << 20);
    }

    /// A node that a program embeds and one of the command line are alike.
    #[test]
    fn the_defaults_are_those_of_an_embedded_node() {
        let settings = resolve(&["--data", "d"], &[]).unwrap().settings();
        let embedded = quorate::Settings {
            store_default: settings.store_default.clone(),
            client_input_bytes_max: settings.client_input_bytes_max,
            ..quorate::Settings::new("d")
        };
        assert_eq!(settings, embedded);
    }

    /// [docs/operate.md](../../../docs/operate.md) has a row of each, with its default.
    #[test]
    fn the_page_for_operators_says_the_defaults() {
        let page = include_str!("../../../docs/operate.md");
        let hidden = [DISK_FLUSH_MS, LOG_SEGMENT];
        for setting in SETTINGS.iter().filter(|one| !hidden.contains(&one.name)) {
            let flag = format!("`--{} {}`", setting.name, setting.value.replace('|', "\\|"));
            let mut rows = page.lines().filter(|line| line.starts_with('|'));
            let row = rows.find(|row| row.contains(&flag));
            let row = row.unwrap_or_else(|| panic!("no row of {flag}"));
            if let Some(default) = setting.default.text() {
                assert!(row.contains(&format!("| {default} |")), "{row}");
            }
        }
    }

    #[test]
    fn a_flag_beats_a_variable_beats_the_file_beats_the_default() {
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
        assert_eq!(config.command_max, 4096);
        assert_eq!(config.node, Some(NodeId(3)));
        assert_eq!(config.election_ms, (100, 200));
    }

    pub(super) fn check_refused(flags: &[&str], variables: &[(&str, &str)], message: &str) {
        let problem = resolve(&[&["--data", "d"], flags].concat(), variables).unwrap_err();
        assert_eq!(problem.message, message);
        assert_eq!(problem.exit, crate::output::Exit::Usage);
    }

    #[test]
    fn an_error_names_where_the_value_came_from() {
        check_refused(&["--node", "0"], &[], "--node 0: not a node id (1, 2, …)");
        let limits = "--log-ready 2TB: not 0 … 1099511627776 bytes";
        check_refused(&["--log-ready", "2TB"], &[], limits);
        let variables = [("QUORATE_STORE", "tape")];
        check_refused(&[], &variables, "QUORATE_STORE=tape: not lsm or memory");
        let file = file("durability = 'none'\n");
        let path = file.path().to_str().unwrap();
        let message = format!("{path}: durability = none: not durable or volatile");
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

    /// What the file should say instead is in the hint.
    #[test]
    fn a_value_of_another_type_is_refused_with_what_to_write() {
        for (text, complaint, hint) in [
            (
                "tune = false\n",
                "tune is true or false, not text",
                r#"write tune = "off""#,
            ),
            (
                "node = true\n",
                "node is true or false, not text",
                r#"write node = "N""#,
            ),
            (
                "[cluster]\n1 = 'a:1'\n2 = 'b:2'\n",
                "cluster is a section, not text",
                r#"write cluster = "1=a:1,2=b:2""#,
            ),
            (
                "cluster = ['1=a:1', '2=b:2']\n",
                "cluster is a list, not text",
                r#"write cluster = "1=a:1,2=b:2""#,
            ),
            (
                "[cluster]\nfirst = 1\n",
                "cluster is a section, not text",
                r#"write cluster = "1=HOST:PORT,…""#,
            ),
            (
                "[start]\nnode = 1\n",
                "unknown key start",
                "keys stand alone, without sections",
            ),
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
    }

    #[test]
    fn a_cluster_lists_different_nodes_at_different_places() {
        assert_eq!(
            parse_cluster("2=b:2, 1=a:1").map(|nodes| nodes.len()),
            Some(2)
        );
        for bad in [
            "",
            "1",
            "1=a",
            "0=a:1",
            "1=a:1,1=b:1",
            "1=a:1,2=a:1",
            "1=a:0",
            "1=:5",
            "1=a b:5",
        ] {
            assert_eq!(parse_cluster(bad), None, "{bad}");
        }
    }

    #[test]
    fn without_a_folder_there_is_one_clear_error() {
        let problem = resolve(&[], &[]).unwrap_err();
        assert_eq!(problem.message, "--data is missing");
        assert_eq!(problem.hint, "give --data, or set QUORATE_DATA");
    }
}
