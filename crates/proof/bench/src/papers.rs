//! Published figures, and the experiments behind them, by name.
//!
//! The data lies in `papers/*.toml`, one file per paper, with the table, figure or section of each
//! number. A number that the source calls approximate, or that was read off a plot, is marked.

mod bare;
mod table;
mod ways;

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

pub use bare::Bare;
pub use table::{Cell, CellMetric, Table};
pub use ways::{Spoken, Ways};

use crate::{device::Device, figure::round, lan::Lan, row::Row, wan::Profile};

const FILES: [(&str, &str); 5] = [
    ("kernel-paxos", include_str!("../papers/kernel-paxos.toml")),
    ("caans", include_str!("../papers/caans.toml")),
    ("jpaxos", include_str!("../papers/jpaxos.toml")),
    ("zero-copy-paxos", include_str!("../papers/zero-copy-paxos.toml")),
    ("ring-paxos", include_str!("../papers/ring-paxos.toml")),
];

/// A paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Its system.
    pub name: String,
    /// Its full title.
    pub title: String,
    /// The machines that it was measured on.
    pub setup: String,
    /// Its experiments.
    pub scenario: Vec<Scenario>,
}

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// As on the command line.
    pub name: String,
    /// Which figure or table.
    pub source: String,
    /// Description of the experiment.
    pub about: String,
    /// Prerequisites missing here; empty if none.
    #[serde(default)]
    pub waits_for: String,
    /// Parameters here; absent while prerequisites are missing.
    pub run: Option<Run>,
    /// Numbers of the paper.
    #[serde(default)]
    pub figure: Vec<Figure>,
    /// Whole tables of the paper.
    #[serde(default)]
    pub table: Vec<Table>,
    /// Points of a model and its measurement.
    #[serde(default)]
    pub point: Vec<Point>,
}

/// Parameters of an experiment here.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Which kind of experiment.
    pub kind: Kind,
    /// The service that executes commands.
    pub service: Service,
    /// `durable` or `volatile`.
    pub durability: String,
    /// Each of these sizes.
    pub value_bytes: Vec<usize>,
    /// Share of commands that read.
    #[serde(default)]
    pub reads_percent: u32,
    /// Each of these numbers of clients: a client waits for its reply before it sends again.
    pub clients: Vec<u32>,
    /// The emulated network between the nodes; empty for none.
    #[serde(default)]
    pub wan: String,
    /// Links of an emulated segment, such as `1gbit`; empty for none.
    #[serde(default)]
    pub lan: String,
    /// Nodes that vote, each of these numbers.
    #[serde(default)]
    pub voters: Vec<u32>,
    /// Numbers of additional learners.
    #[serde(default)]
    pub learners: Vec<u32>,
    /// Receive buffers of each socket, in KiB; empty: as nodes choose.
    #[serde(default)]
    pub buffers_kib: Vec<u32>,
    /// Bytes of values in a batch at most, each of these.
    #[serde(default)]
    pub batches: Vec<u64>,
    /// Batches in flight at most, each of these.
    #[serde(default)]
    pub windows: Vec<u32>,
    /// Target rates of the short form, in MB/s.
    #[serde(default)]
    pub short_rates: Vec<u32>,
    /// Sizes of a write in the short form.
    #[serde(default)]
    pub short_bytes: Vec<usize>,
    /// Bare programs instead of nodes.
    pub bare: Option<Bare>,
    /// Planes and devices of the nodes, in turn.
    pub ways: Option<Ways>,
    /// Device of all nodes, where one of them is killed.
    pub device: Option<Device>,
}

/// A row of a table that compares a model with a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of values in a batch.
    pub batch_bytes: u64,
    /// Instances in parallel that keep the processor busy, by their model.
    pub w_cpu: f64,
    /// Instances that keep the link busy.
    pub w_net: f64,
    /// Commands per second, by their model.
    pub model: f64,
    /// The lower end of the range of windows at which their throughput was greatest.
    pub w_from: u32,
    /// The upper end of that range.
    pub w_to: u32,
    /// Commands per second, as they measured them; approximate.
    pub measured: f64,
}

impl Point {
    /// Commands in a batch.
    pub fn commands(&self) -> u64 {
        (self.batch_bytes / (self.value_bytes as u64).max(1)).max(1)
    }

    /// In words.
    pub fn name(&self) -> String {
        format!("{} B, batches of {} B", self.value_bytes, self.batch_bytes)
    }

    /// Rows of this point that are results.
    pub fn rows<'a>(&self, rows: &'a [Row]) -> impl Iterator<Item = &'a Row> {
        let (value_bytes, batch_bytes) = (self.value_bytes, self.batch_bytes);
        rows.iter().filter(move |row| {
            row.valid && row.value_bytes == value_bytes && row.batch_bytes == Some(batch_bytes)
        })
    }
}

/// Kinds of experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A row for each number of clients.
    Clients,
    /// The same, then 25, 50 and 75 % of the greatest throughput at a fixed rate.
    Shares,
    /// The rate over time while a node is killed, or its box.
    Failure,
    /// A row for each fixed batch and window.
    Grid,
    /// The windows around the one that a model calls best, for each point.
    BestWindow,
    /// A row for each target rate and size of a write: the cells of a table.
    Rates,
    /// A row for each number of voters, of learners, of clients and each size, by multicast on a
    /// segment.
    Segment,
    /// A row for each way to speak and vote, each speed of a segment, each size and each number of
    /// clients.
    Ways,
    /// A row for each bare echo, each size and each number of messages on their way.
    Echo,
    /// The segment alone: a row for each group of bare senders and receivers, and each load.
    Bare,
}

impl Kind {
    /// Returns whether batch and window are fixed.
    pub const fn fixes_batches(self) -> bool {
        matches!(self, Self::Grid | Self::BestWindow)
    }
}

/// Services that an experiment can ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// Without state.
    Log,
    /// Key-value, in memory.
    KvMemory,
    /// Key-value, on disk.
    KvLsm,
    /// None: byte streams.
    Streams,
    /// None: bare programs.
    Bare,
}

/// A number of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Whose.
    pub system: String,
    /// The measured quantity.
    pub metric: Metric,
    pub value: f64,
    /// The source says "about", or the number was read off a plot, or derived.
    #[serde(default)]
    pub approximate: bool,
    /// Place in the paper, if it differs from the scenario's.
    #[serde(default)]
    pub place: String,
    /// At this size.
    pub value_bytes: usize,
    /// With this many clients; absent if it is the greatest (or least) of all.
    pub clients: Option<u32>,
    /// At this share of the greatest throughput.
    pub percent: Option<u32>,
    /// Number of bare senders.
    pub senders: Option<u32>,
    /// Number of bare receivers.
    pub receivers: Option<u32>,
    /// Plane of the row to compare with, where nodes use several.
    #[serde(rename = "beside")]
    pub plane: Option<String>,
    /// Speed of the link, where there are several.
    pub link: Option<String>,
}

/// Quantity of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Commands per second.
    Throughput,
    /// The greatest of all rows.
    ThroughputMax,
    /// Median latency.
    P50Us,
    /// Latency.
    P95Us,
    /// Latency.
    P999Us,
    /// Mean latency.
    MeanUs,
    /// The least mean latency of all rows.
    MeanUsMin,
    /// The greatest mean latency of all rows.
    MeanUsMax,
    /// Standard deviation of the latency.
    DeviationUs,
    /// Context switches per second of the leader.
    SwitchesPerS,
    /// The greatest throughput with one batch in flight, as a share of the greatest of all.
    WindowOneShare,
    /// The smallest batch at which a window of two gives 95 % of the greatest throughput.
    WindowTwoBatch,
    /// Throughput with the greatest window and batch, as a share of the greatest of all.
    LargestShare,
    /// Multicast rate of each receiver, in multiples of its unicast rate.
    TimesUnicast,
    /// The greatest loss of all loads.
    LossMax,
}

/// A published number with ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Paper, and place in it.
    pub source: String,
    /// Whose, what, and under which conditions.
    pub what: String,
    /// Theirs.
    pub published: f64,
    pub unit: String,
    /// As [`Figure::approximate`].
    pub approximate: bool,
    /// Ours; `None` if that row was not run, or is no result.
    pub ours: Option<f64>,
}

/// Something in the data that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadData(String);

impl fmt::Display for BadData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadData {}

/// All papers, checked.
pub fn all() -> Result<Vec<Paper>, BadData> {
    let read = |(name, text): (&str, &str)| {
        let paper: Paper =
            toml::from_str(text).map_err(|error| BadData(format!("{name}: {error}")))?;
        check(&paper).map_err(|why| BadData(format!("{name}: {why}")))?;
        Ok(paper)
    };
    let papers: Vec<Paper> = FILES.into_iter().map(read).collect::<Result<_, BadData>>()?;
    let mut names = BTreeSet::new();
    for scenario in papers.iter().flat_map(|paper| &paper.scenario) {
        if !names.insert(&scenario.name) {
            return Err(BadData(format!("{} twice", scenario.name)));
        }
    }
    Ok(papers)
}

fn check(paper: &Paper) -> Result<(), String> {
    for scenario in &paper.scenario {
        let name = &scenario.name;
        if scenario.run.is_some() != scenario.waits_for.is_empty() {
            return Err(format!("{name} either runs or waits"));
        }
        for table in &scenario.table {
            let sizes = scenario.run.as_ref().map(|run| &run.value_bytes[..]);
            if !table.fits(sizes) {
                return Err(format!("{name}: {} is not complete, or of other sizes", table.title));
            }
        }
        if let Some(run) = &scenario.run {
            let known = run.wan.is_empty() || Profile::named(&run.wan).is_some();
            let grid = run.batches.is_empty() == run.windows.is_empty()
                && run.batches.is_empty() == (run.kind != Kind::Grid);
            let points = scenario.point.is_empty() == (run.kind != Kind::BestWindow);
            let compared = scenario.table.iter().any(|table| table.metric.is_some());
            let nodes = [!run.voters.is_empty(), !run.learners.is_empty()];
            let on_one = matches!(run.kind, Kind::Segment | Kind::Bare | Kind::Ways | Kind::Echo);
            let segment = Lan::named(&run.lan).is_some() == on_one
                && nodes == [run.kind == Kind::Segment; 2]
                && bare::fits(run)
                && ways::fits(run);
            let streams = run.service == Service::Streams;
            let rates = [compared, streams, !run.short_rates.is_empty()];
            let rates = rates == [run.kind == Kind::Rates; 3];
            let failing = run.device.is_none() || run.kind == Kind::Failure;
            if !known || !grid || !points || !rates || !segment || !failing {
                return Err(format!(
                    "{name}: network, batches, windows, points, rates or device are wrong"
                ));
            }
        }
        for figure in &scenario.figure {
            if !figure.value.is_finite() || figure.value <= 0.0 {
                return Err(format!("{name}: {figure:?} is no measurement"));
            }
            let Some(run) = &scenario.run else { continue };
            let known = figure.clients.is_none_or(|n| run.clients.contains(&n));
            let shared = figure.percent.is_none() || run.kind == Kind::Shares;
            let sized = run.value_bytes.contains(&figure.value_bytes);
            let there = bare::has(run, figure) && ways::has(run, figure);
            if !known || !shared || !sized || !there {
                return Err(format!("{name}: nothing runs that compares with {figure:?}"));
            }
        }
    }
    Ok(())
}

impl Scenario {
    /// Returns whether it has this name, or this one without `paxos`.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.replacen("-paxos-", "-", 1) == name
    }

    /// Returns the name of rows at a share of the greatest throughput.
    pub fn at_share(&self, percent: u32) -> String {
        format!("{} at {percent} %", self.name)
    }

    /// Every published number, with ours out of these rows.
    pub fn compared(&self, paper: &Paper, rows: &[Row]) -> Vec<Comparison> {
        let of = |figure: &Figure| {
            let place = if figure.place.is_empty() { &self.source } else { &figure.place };
            Comparison {
                source: format!("{}, {place}", paper.name),
                what: figure.what(),
                published: figure.value,
                unit: figure.metric.unit().to_owned(),
                approximate: figure.approximate,
                ours: figure.ours(self, rows),
            }
        };
        let figures = self.figure.iter().map(of);
        let points = self.point.iter().map(|point| Comparison {
            source: format!("{}, {}", paper.name, self.source),
            what: format!("{}: {}, greatest throughput", paper.name, point.name()),
            published: point.measured,
            unit: Metric::Throughput.unit().to_owned(),
            approximate: true,
            ours: point.rows(rows).map(|row| row.achieved_per_s).reduce(f64::max),
        });
        let sizes = self.run.as_ref().map_or(&[][..], |run| &run.value_bytes);
        let source = format!("{}, {}", paper.name, self.source);
        let tables = self.table.iter();
        let cells = tables.flat_map(|table| table.compared(&source, &self.name, sizes, rows));
        figures.chain(points).chain(cells).collect()
    }
}

impl Figure {
    fn what(&self) -> String {
        if self.metric.is_of_bare() {
            return bare::what(self);
        }
        let mut what = format!("{}: {}, {} B", self.system, self.metric.name(), self.value_bytes);
        if let Some(clients) = self.clients {
            let s = if clients == 1 { "" } else { "s" };
            what.push_str(&format!(", {clients} client{s}"));
        }
        if let Some(plane) = &self.plane {
            what.push_str(&format!("; ours: {plane}"));
        }
        if let Some(percent) = self.percent {
            what.push_str(&format!(", at {percent} % of the greatest throughput"));
        }
        what
    }

    fn ours(&self, scenario: &Scenario, rows: &[Row]) -> Option<f64> {
        let name = self
            .percent
            .map_or_else(|| scenario.name.clone(), |percent| scenario.at_share(percent));
        let fits = |row: &&Row| {
            row.valid
                && row.scenario == name
                && row.value_bytes == self.value_bytes
                && self.clients.is_none_or(|clients| row.outstanding == Some(clients))
                && (self.plane.is_none() || row.plane == self.plane)
                && (self.link.is_none() || row.wan == self.link)
        };
        let figures = rows.iter().filter(fits).filter_map(|row| self.metric.of(row));
        match self.metric {
            Metric::WindowOneShare | Metric::WindowTwoBatch | Metric::LargestShare => {
                let rows: Vec<&Row> = rows.iter().filter(fits).collect();
                self.metric.of_grid(&rows)
            }
            Metric::TimesUnicast | Metric::LossMax => bare::ours(self, rows.iter().filter(fits)),
            Metric::MeanUsMin => figures.reduce(f64::min),
            _ => figures.reduce(f64::max),
        }
    }
}

impl Metric {
    /// Returns whether it applies to bare senders and receivers only.
    const fn is_of_bare(self) -> bool {
        matches!(self, Self::TimesUnicast | Self::LossMax)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::ThroughputMax => "greatest throughput",
            Self::P50Us => "median latency",
            Self::P95Us => "95th percentile",
            Self::P999Us => "99.9th percentile",
            Self::MeanUs => "mean latency",
            Self::MeanUsMin => "least mean latency",
            Self::MeanUsMax => "greatest mean latency",
            Self::DeviationUs => "standard deviation",
            Self::SwitchesPerS => "context switches of the leader",
            Self::WindowOneShare => "window 1, of the greatest throughput",
            Self::WindowTwoBatch => "smallest batch with which window 2 is at the greatest",
            Self::LargestShare => "largest window and batch, of the greatest throughput",
            Self::TimesUnicast => "throughput of multicast by that of unicast",
            Self::LossMax => "greatest loss of all loads",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Throughput | Self::ThroughputMax | Self::SwitchesPerS => "/s",
            Self::WindowOneShare | Self::LargestShare => "of it",
            Self::WindowTwoBatch => "bytes",
            Self::TimesUnicast => "times",
            Self::LossMax => "of what is sent",
            Self::P50Us
            | Self::P95Us
            | Self::P999Us
            | Self::MeanUs
            | Self::MeanUsMin
            | Self::MeanUsMax
            | Self::DeviationUs => "µs",
        }
    }

    fn of(self, row: &Row) -> Option<f64> {
        Some(match self {
            Self::Throughput | Self::ThroughputMax => row.achieved_per_s,
            Self::P50Us => row.p50_us,
            Self::P95Us => row.p95_us,
            Self::P999Us => row.p999_us,
            Self::MeanUs | Self::MeanUsMin | Self::MeanUsMax => row.mean_us,
            Self::DeviationUs => row.deviation_us,
            Self::SwitchesPerS => {
                let mut roles = row.roles.iter();
                roles.find(|role| role.role == "leader")?.switches_per_s
            }
            Self::WindowOneShare
            | Self::WindowTwoBatch
            | Self::LargestShare
            | Self::TimesUnicast
            | Self::LossMax => return None,
        })
    }

    /// Returns a figure that takes all rows of a grid.
    #[expect(clippy::cast_precision_loss, reason = "a size")]
    fn of_grid(self, rows: &[&Row]) -> Option<f64> {
        let greatest_of = |rows: &mut dyn Iterator<Item = &&Row>| {
            rows.map(|row| row.achieved_per_s).reduce(f64::max)
        };
        let greatest = greatest_of(&mut rows.iter())?;
        let with = |window| rows.iter().filter(move |row| row.window == Some(window));
        match self {
            Self::WindowOneShare => Some(round(greatest_of(&mut with(1))? / greatest)),
            Self::WindowTwoBatch => {
                let full = with(2).filter(|row| row.achieved_per_s >= greatest * 0.95);
                let batch = full.filter_map(|row| row.batch_bytes).min()?;
                Some(batch as f64)
            }
            Self::LargestShare => {
                let last = rows.iter().max_by_key(|row| (row.window, row.batch_bytes))?;
                Some(round(last.achieved_per_s / greatest))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_complete_and_every_number_has_something_to_stand_beside() {
        let papers = all().unwrap();
        let scenarios = || papers.iter().flat_map(|paper| &paper.scenario);
        assert!(scenarios().any(|scenario| scenario.run.is_some()));
        assert!(scenarios().any(|scenario| !scenario.waits_for.is_empty()));
        for scenario in scenarios() {
            let numbers = scenario.figure.len() + scenario.table.len() + scenario.point.len();
            assert!(numbers > 0 || !scenario.about.is_empty(), "{}", scenario.name);
        }
    }

    #[test]
    fn data_that_contradicts_itself_is_refused() {
        let broken_of = |file: usize, from: &str, to: &str| {
            let good = FILES[file].1;
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from} is there");
            match toml::from_str::<Paper>(&text) {
                Ok(paper) => check(&paper).is_err(),
                Err(_) => true,
            }
        };
        let broken = |from, to| broken_of(0, from, to);
        assert!(broken("value = 8000", "value = -8000"));
        assert!(broken("clients = 1, beside", "clients = 12345, beside"));
        assert!(broken("metric = \"throughput\"", "metric = \"speed\""));
        assert!(broken("kind = \"ways\"", "kind = \"dance\""));
        // Of its ways, links and echoes.
        for (from, to) in [
            ("{ plane = \"udp\" }", "{ plane = \"pigeon\" }"),
            ("device = \"kernel\"", "device = \"magic\""),
            ("beside = \"tcp + kernel,", "beside = \"tcp + tc,"),
            (", beside = \"tcp + kernel, clients by frames\"", ""),
            ("\"kernel\", frames = true", "\"udp\", frames = true"),
            ("links = [\"1gbit\"]", "links = [\"10gbit\"]"),
            ("links = [\"1gbit\"]", "links = []"),
            ("link = \"10gbit\"", "link = \"2gbit\""),
            ("beside = \"udp-process\"", "beside = \"udp-pigeon\""),
            ("kind = \"echo\"", "kind = \"clients\""),
        ] {
            assert!(broken(from, to), "{from}: {to}");
        }
        // Of the bare experiments of Ring Paxos.
        for (from, to) in [
            ("receivers = 10", "receivers = 11"),
            ("senders = [1]", "senders = []"),
            ("senders = [1]", "senders = [1000]"),
            ("senders = 5", "senders = 6"),
            ("ways = [\"multicast\", \"unicast\"]", "ways = []"),
            ("ways = [\"multicast\", \"unicast\"]", "ways = [\"pigeon\"]"),
            ("value_bytes = [1472]", "value_bytes = [8192]"),
            ("service = \"bare\"", "service = \"log\""),
            ("[scenario.run.bare]", "[scenario.run.nodes]"),
        ] {
            assert!(broken_of(4, from, to), "{from}: {to}");
        }
    }
}
