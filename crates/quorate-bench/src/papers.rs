//! What others published: their figures, and the experiments that led to them, by name.
//!
//! The data lies in `papers/*.toml`, one file per paper, with the table, figure or section of each
//! number. A number that the source calls approximate, or that was read off a plot, is marked.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::row::Row;

const FILES: [(&str, &str); 5] = [
    ("kernel-paxos", include_str!("../papers/kernel-paxos.toml")),
    ("caans", include_str!("../papers/caans.toml")),
    ("jpaxos", include_str!("../papers/jpaxos.toml")),
    (
        "zero-copy-paxos",
        include_str!("../papers/zero-copy-paxos.toml"),
    ),
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
    /// What it shows.
    pub about: String,
    /// What has to exist before it can run here; empty if it can.
    #[serde(default)]
    pub waits_for: String,
    /// How it runs; absent while it waits.
    pub run: Option<Run>,
    /// Numbers of the paper.
    #[serde(default)]
    pub figure: Vec<Figure>,
    /// Whole tables of the paper.
    #[serde(default)]
    pub table: Vec<Table>,
}

/// How an experiment runs here.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Which kind of experiment.
    pub kind: Kind,
    /// Whose commands.
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
}

/// Kinds of experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A row for each number of clients.
    Clients,
    /// The same, then 25, 50 and 75 % of the greatest throughput at a fixed rate.
    Shares,
    /// The rate over time while a node is killed.
    Failure,
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
}

/// A number of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Whose.
    pub system: String,
    /// What was measured.
    pub metric: Metric,
    /// How much.
    pub value: f64,
    /// Whether the source says "about", or it was read off a plot, or derived.
    #[serde(default)]
    pub approximate: bool,
    /// Where it stands, if not where the scenario says.
    #[serde(default)]
    pub place: String,
    /// At this size.
    pub value_bytes: usize,
    /// With so many clients; absent if it is the greatest (or least) of all.
    pub clients: Option<u32>,
    /// At this share of the greatest throughput.
    pub percent: Option<u32>,
}

/// What a number says.
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
}

/// A table of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Which, and of what.
    pub title: String,
    /// Names of the columns, the first included.
    pub columns: Vec<String>,
    /// Rows; `nan` where the paper has nothing.
    pub rows: Vec<Vec<f64>>,
}

/// A published number with ours beside it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// Paper, and place in it.
    pub source: String,
    /// Whose, what, and under which conditions.
    pub what: String,
    /// Theirs.
    pub published: f64,
    /// Of what.
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
    let papers: Vec<Paper> = FILES
        .into_iter()
        .map(read)
        .collect::<Result<_, BadData>>()?;
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
            if table
                .rows
                .iter()
                .any(|row| row.len() != table.columns.len())
            {
                return Err(format!("{name}: a row of {} is not complete", table.title));
            }
        }
        for figure in &scenario.figure {
            if !figure.value.is_finite() || figure.value <= 0.0 {
                return Err(format!("{name}: {figure:?} is no measurement"));
            }
            let Some(run) = &scenario.run else { continue };
            let known = figure.clients.is_none_or(|n| run.clients.contains(&n));
            let shared = figure.percent.is_none() || run.kind == Kind::Shares;
            if !known || !shared || !run.value_bytes.contains(&figure.value_bytes) {
                return Err(format!(
                    "{name}: nothing runs that compares with {figure:?}"
                ));
            }
        }
    }
    Ok(())
}

impl Scenario {
    /// How rows at a share of the greatest throughput are called.
    pub fn at_share(&self, percent: u32) -> String {
        format!("{} at {percent} %", self.name)
    }

    /// Every published number, with ours out of these rows.
    pub fn beside(&self, paper: &Paper, rows: &[Row]) -> Vec<Beside> {
        let of = |figure: &Figure| {
            let place = if figure.place.is_empty() {
                &self.source
            } else {
                &figure.place
            };
            Beside {
                source: format!("{}, {place}", paper.name),
                what: figure.what(),
                published: figure.value,
                unit: figure.metric.unit().to_owned(),
                approximate: figure.approximate,
                ours: figure.ours(self, rows),
            }
        };
        self.figure.iter().map(of).collect()
    }
}

impl Figure {
    fn what(&self) -> String {
        let mut what = format!(
            "{}: {}, {} B",
            self.system,
            self.metric.name(),
            self.value_bytes
        );
        if let Some(clients) = self.clients {
            let s = if clients == 1 { "" } else { "s" };
            what.push_str(&format!(", {clients} client{s}"));
        }
        if let Some(percent) = self.percent {
            what.push_str(&format!(", at {percent} % of the greatest throughput"));
        }
        what
    }

    fn ours(&self, scenario: &Scenario, rows: &[Row]) -> Option<f64> {
        let name = self.percent.map_or_else(
            || scenario.name.clone(),
            |percent| scenario.at_share(percent),
        );
        let fits = |row: &&Row| {
            row.valid
                && row.scenario == name
                && row.value_bytes == self.value_bytes
                && self
                    .clients
                    .is_none_or(|clients| row.outstanding == Some(clients))
        };
        let figures = rows
            .iter()
            .filter(fits)
            .filter_map(|row| self.metric.of(row));
        match self.metric {
            Metric::MeanUsMin => figures.reduce(f64::min),
            _ => figures.reduce(f64::max),
        }
    }
}

impl Metric {
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
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Throughput | Self::ThroughputMax | Self::SwitchesPerS => "/s",
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
        })
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
            let numbers = scenario.figure.len() + scenario.table.len();
            assert!(
                numbers > 0 || !scenario.about.is_empty(),
                "{}",
                scenario.name
            );
        }
    }

    #[test]
    fn data_that_contradicts_itself_is_refused() {
        let good = FILES[0].1;
        let broken = |from: &str, to: &str| {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "{from} is there");
            match toml::from_str::<Paper>(&text) {
                Ok(paper) => check(&paper).is_err(),
                Err(_) => true,
            }
        };
        assert!(broken("value = 8000", "value = -8000"));
        assert!(broken("clients = 1 }", "clients = 12345 }"));
        assert!(broken("metric = \"throughput\"", "metric = \"speed\""));
        assert!(broken("kind = \"clients\"", "kind = \"dance\""));
    }
}
