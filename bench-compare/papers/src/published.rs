//! Published figures, and the named experiments that reproduce them.
//!
//! The data is in `data/*.toml`, one file per paper, with the table, figure or section of each
//! number. Numbers that the source calls approximate, or that were read off a plot, are marked.

mod bare;
mod metric;
mod table;
mod ways;

use std::{collections::BTreeSet, fmt};

use quorate_bench::{
    device::DeviceKind, lan::Lan, report::PublishedComparison, row::Row, wan::LinkProfile,
};
use serde::Deserialize;

pub use bare::Bare;
pub use metric::Metric;
pub use table::{Cell, Table};
pub use ways::{PlaneAndDevice, Ways};

const DATA_FILES: [(&str, &str); 5] = [
    ("kernel-paxos", include_str!("../data/kernel-paxos.toml")),
    ("caans", include_str!("../data/caans.toml")),
    ("jpaxos", include_str!("../data/jpaxos.toml")),
    ("zero-copy-paxos", include_str!("../data/zero-copy-paxos.toml")),
    ("ring-paxos", include_str!("../data/ring-paxos.toml")),
];

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedPaper {
    pub name: String,
    #[expect(dead_code, reason = "required in the data, for its readers")]
    pub title: String,
    /// Machines and network used in the paper.
    pub setup: String,
    pub scenario: Vec<Scenario>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    /// Number of the figure or table in the paper.
    pub source: String,
    pub about: String,
    /// Prerequisites that are missing in this version; empty if none.
    #[serde(default)]
    pub waits_for: String,
    /// Parameters with which we run the experiment; absent while prerequisites are missing.
    pub run: Option<Run>,
    /// Single numbers from the paper.
    #[serde(default)]
    pub figure: Vec<PublishedFigure>,
    /// Complete tables from the paper.
    #[serde(default)]
    pub table: Vec<Table>,
    /// Rows of a table that compares the paper's model with measurements.
    #[serde(default)]
    pub point: Vec<Point>,
}

/// Parameters with which we run an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub kind: Kind,
    pub service: Service,
    pub durability: String,
    /// Value sizes to measure, in bytes.
    pub value_bytes: Vec<usize>,
    #[serde(default)]
    pub reads_percent: u32,
    /// Numbers of clients to measure. A client waits for its reply before it sends again.
    pub clients: Vec<u32>,
    /// Emulated wide-area network between the nodes; empty for none.
    #[serde(default)]
    pub wan: String,
    /// Link speed of an emulated segment, such as `1gbit`; empty for none.
    #[serde(default)]
    pub lan: String,
    /// Numbers of voters to measure.
    #[serde(default)]
    pub voters: Vec<u32>,
    /// Numbers of additional learners to measure.
    #[serde(default)]
    pub learners: Vec<u32>,
    /// Receive buffer sizes to measure, in KiB per socket; empty for the nodes' default.
    #[serde(default)]
    pub buffers_kib: Vec<u32>,
    /// Batch sizes to measure, as maximum numbers of value bytes.
    #[serde(default)]
    pub batches: Vec<u64>,
    /// Maximum numbers of batches in flight to measure.
    #[serde(default)]
    pub windows: Vec<u32>,
    /// Target rates measured in the short form of the experiment, in MB/s.
    #[serde(default)]
    pub short_rates: Vec<u32>,
    /// Write sizes measured in the short form of the experiment, in bytes.
    #[serde(default)]
    pub short_bytes: Vec<usize>,
    /// Parameters of the bare programs that run instead of nodes.
    pub bare: Option<Bare>,
    /// Planes and devices of the nodes, measured in turn.
    pub ways: Option<Ways>,
    /// Device of all nodes in a failure experiment.
    pub device: Option<DeviceKind>,
}

/// Row of a table that compares the paper's model with measurements.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    pub value_bytes: usize,
    /// Number of value bytes in a batch.
    pub batch_bytes: u64,
    /// Number of parallel instances that saturate the processor, by the paper's model.
    pub w_cpu: f64,
    /// Number of parallel instances that saturate the link, by the paper's model.
    pub w_net: f64,
    /// Commands per second predicted by the paper's model.
    pub model: f64,
    /// Smallest window at which the paper reports its highest throughput.
    pub w_from: u32,
    /// Largest window at which the paper reports its highest throughput.
    pub w_to: u32,
    /// Commands per second measured in the paper; approximate.
    pub measured: f64,
}

impl Point {
    pub fn commands_per_batch(&self) -> u64 {
        (self.batch_bytes / (self.value_bytes as u64).max(1)).max(1)
    }

    /// Returns a description of the batch and value sizes, for rows.
    pub fn name(&self) -> String {
        format!("{} B, batches of {} B", self.value_bytes, self.batch_bytes)
    }

    /// Returns the valid rows that were measured for this point.
    pub fn matching_rows<'a>(&self, rows: &'a [Row]) -> impl Iterator<Item = &'a Row> {
        let (value_bytes, batch_bytes) = (self.value_bytes, self.batch_bytes);
        rows.iter().filter(move |row| {
            row.valid && row.value_bytes == value_bytes && row.batch_bytes == Some(batch_bytes)
        })
    }
}

/// Kind of experiment, which determines its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A row for each number of clients.
    Clients,
    /// A row for each number of clients, then open loops at 25, 50 and 75 % of the highest
    /// throughput.
    Shares,
    /// The rate over time while a node or its external device process is killed.
    Failure,
    /// A row for each combination of a fixed batch size and window.
    Grid,
    /// For each point, a row for each of several windows around the one that the model predicts to
    /// be best.
    BestWindow,
    /// A row for each target rate and write size, that is, for each cell of the paper's table.
    Rates,
    /// A row for each number of voters, learners and clients and each size, using multicast on a
    /// segment.
    Segment,
    /// A row for each combination of plane and device, segment speed, size and number of clients.
    Ways,
    /// A row for each bare echo, size and number of messages in flight.
    Echo,
    /// Bare programs on the segment: a row for each group of senders and receivers and each load.
    Bare,
}

impl Kind {
    /// Returns whether the experiment fixes batch size and window.
    pub const fn fixes_batches(self) -> bool {
        matches!(self, Self::Grid | Self::BestWindow)
    }
}

/// Service used in an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    Log,
    /// Key-value service with its store in memory.
    KvMemory,
    /// Key-value service with its store on disk.
    KvLsm,
    /// Byte streams, which need no service.
    Streams,
    /// No service: bare programs run instead of nodes.
    Bare,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    pub system: String,
    pub metric: Metric,
    pub value: f64,
    /// Set if the source says "about", or the number was read off a plot or derived.
    #[serde(default)]
    pub approximate: bool,
    /// Table, figure or section, if different from that of the scenario.
    #[serde(default)]
    pub place: String,
    pub value_bytes: usize,
    /// Absent if the number is an extreme over all numbers of clients.
    pub clients: Option<u32>,
    /// Load as a percentage of the highest throughput, if the number was measured at such a load.
    pub percent: Option<u32>,
    pub senders: Option<u32>,
    pub receivers: Option<u32>,
    /// Plane and device, or echo transport, of the row to compare with, if the experiment uses
    /// several.
    #[serde(rename = "beside")]
    pub plane: Option<String>,
    /// Link speed of the row to compare with, if the experiment uses several speeds.
    pub link: Option<String>,
}

/// Description of a contradiction in the data files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadData(String);

impl fmt::Display for BadData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadData {}

/// Loads all papers and checks their data.
pub fn load_all() -> Result<Vec<PublishedPaper>, BadData> {
    let read = |(name, text): (&str, &str)| {
        let paper: PublishedPaper =
            toml::from_str(text).map_err(|error| BadData(format!("{name}: {error}")))?;
        check_paper(&paper).map_err(|why| BadData(format!("{name}: {why}")))?;
        Ok(paper)
    };
    let papers: Vec<PublishedPaper> =
        DATA_FILES.into_iter().map(read).collect::<Result<_, BadData>>()?;
    let mut names = BTreeSet::new();
    for scenario in papers.iter().flat_map(|paper| &paper.scenario) {
        if !names.insert(&scenario.name) {
            return Err(BadData(format!("{} twice", scenario.name)));
        }
    }
    Ok(papers)
}

fn check_paper(paper: &PublishedPaper) -> Result<(), String> {
    for scenario in &paper.scenario {
        let name = &scenario.name;
        if scenario.run.is_some() != scenario.waits_for.is_empty() {
            return Err(format!("{name} either runs or waits"));
        }
        for table in &scenario.table {
            let sizes = scenario.run.as_ref().map(|run| &run.value_bytes[..]);
            if !table.is_complete(sizes) {
                return Err(format!("{name}: {} is not complete, or of other sizes", table.title));
            }
        }
        if let Some(run) = &scenario.run {
            let known = run.wan.is_empty() || LinkProfile::from_name(&run.wan).is_some();
            let grid = run.batches.is_empty() == run.windows.is_empty()
                && run.batches.is_empty() == (run.kind != Kind::Grid);
            let points = scenario.point.is_empty() == (run.kind != Kind::BestWindow);
            let compared = scenario.table.iter().any(|table| table.metric.is_some());
            let nodes = [!run.voters.is_empty(), !run.learners.is_empty()];
            let on_one = matches!(run.kind, Kind::Segment | Kind::Bare | Kind::Ways | Kind::Echo);
            let segment = Lan::parse_speed(&run.lan).is_some() == on_one
                && nodes == [run.kind == Kind::Segment; 2]
                && bare::is_consistent(run)
                && ways::is_consistent(run);
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
            let there = bare::includes_figure(run, figure) && ways::includes_figure(run, figure);
            if !known || !shared || !sized || !there {
                return Err(format!("{name}: nothing runs that compares with {figure:?}"));
            }
        }
    }
    Ok(())
}

impl Scenario {
    /// Returns whether `name` refers to this experiment. The word `paxos` may be omitted.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.replacen("-paxos-", "-", 1) == name
    }

    /// Returns the scenario name of rows measured at a percentage of the highest throughput.
    pub fn scenario_at_share(&self, percent: u32) -> String {
        format!("{} at {percent} %", self.name)
    }

    /// Pairs every published number of this scenario with the number in `rows`.
    pub fn compare_with(&self, paper: &PublishedPaper, rows: &[Row]) -> Vec<PublishedComparison> {
        let of = |figure: &PublishedFigure| {
            let place = if figure.place.is_empty() { &self.source } else { &figure.place };
            PublishedComparison {
                source: format!("{}, {place}", paper.name),
                what: figure.describe(),
                published: figure.value,
                unit: figure.metric.unit().to_owned(),
                approximate: figure.approximate,
                ours: figure.measured_here(self, rows),
            }
        };
        let figures = self.figure.iter().map(of);
        let points = self.point.iter().map(|point| PublishedComparison {
            source: format!("{}, {}", paper.name, self.source),
            what: format!("{}: {}, greatest throughput", paper.name, point.name()),
            published: point.measured,
            unit: Metric::Throughput.unit().to_owned(),
            approximate: true,
            ours: point.matching_rows(rows).map(|row| row.achieved_per_s).reduce(f64::max),
        });
        let sizes = self.run.as_ref().map_or(&[][..], |run| &run.value_bytes);
        let source = format!("{}, {}", paper.name, self.source);
        let tables = self.table.iter();
        let cells = tables.flat_map(|table| table.compare_with(&source, &self.name, sizes, rows));
        figures.chain(points).chain(cells).collect()
    }
}

impl PublishedFigure {
    fn describe(&self) -> String {
        if self.metric.is_bare_only() {
            return bare::describe_conditions(self);
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

    fn measured_here(&self, scenario: &Scenario, rows: &[Row]) -> Option<f64> {
        let name = self
            .percent
            .map_or_else(|| scenario.name.clone(), |percent| scenario.scenario_at_share(percent));
        let fits = |row: &&Row| {
            row.valid
                && row.scenario == name
                && row.value_bytes == self.value_bytes
                && self.clients.is_none_or(|clients| row.outstanding == Some(clients))
                && (self.plane.is_none() || row.plane == self.plane)
                && (self.link.is_none() || row.wan == self.link)
        };
        let figures = rows.iter().filter(fits).filter_map(|row| self.metric.of_row(row));
        match self.metric {
            Metric::WindowOneShare | Metric::WindowTwoBatch | Metric::LargestShare => {
                let rows: Vec<&Row> = rows.iter().filter(fits).collect();
                self.metric.of_grid(&rows)
            }
            Metric::TimesUnicast | Metric::LossMax => {
                bare::measured_here(self, rows.iter().filter(fits))
            }
            Metric::MeanUsMin => figures.reduce(f64::min),
            _ => figures.reduce(f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_complete_and_every_number_has_something_to_stand_beside() {
        let papers = load_all().unwrap();
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
            let good = DATA_FILES[file].1;
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from} is there");
            match toml::from_str::<PublishedPaper>(&text) {
                Ok(paper) => check_paper(&paper).is_err(),
                Err(_) => true,
            }
        };
        let broken = |from, to| broken_of(0, from, to);
        assert!(broken("value = 8000", "value = -8000"));
        assert!(broken("clients = 1, beside", "clients = 12345, beside"));
        assert!(broken("metric = \"throughput\"", "metric = \"speed\""));
        assert!(broken("kind = \"ways\"", "kind = \"dance\""));
        // Errors in combinations, links and echoes.
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
        // Errors in the bare experiments of Ring Paxos.
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
