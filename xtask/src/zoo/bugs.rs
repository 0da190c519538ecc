//! The zoo as it is written down: bugs that other systems had, and what was found of them here.

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, Serialize};

use crate::shell::{Failed, root};

/// Written by hand.
pub(super) const BUGS: &str = "docs/zoo.toml";
/// Written by `cargo xtask zoo run --record`.
const FOUND: &str = "docs/zoo.found.toml";

/// Area of a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Area {
    Elections,
    Votes,
    Members,
    Snapshots,
    Disks,
    Reads,
    Clocks,
    Once,
    Streams,
    State,
}

impl Area {
    pub(super) const ALL: [Self; 10] = [
        Self::Elections,
        Self::Votes,
        Self::Members,
        Self::Snapshots,
        Self::Disks,
        Self::Reads,
        Self::Clocks,
        Self::Once,
        Self::Streams,
        Self::State,
    ];

    /// Returns the title for readers.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Elections => "Elections",
            Self::Votes => "Votes, logs and what is committed",
            Self::Members => "Changes of members",
            Self::Snapshots => "Snapshots and trims",
            Self::Disks => "Disks",
            Self::Reads => "Reads",
            Self::Clocks => "Clocks and leases",
            Self::Once => "Exactly once",
            Self::Streams => "Streams and watches",
            Self::State => "Applying what is decided",
        }
    }
}

/// A bug of another system.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bug {
    pub(super) name: String,
    pub(super) area: Area,
    /// The system that had it.
    pub(super) system: String,
    /// Link to the report.
    pub(super) link: String,
    /// Name of that page: `issue 741`, `report`.
    pub(super) place: String,
    /// Description of the bug, in a sentence.
    pub(super) what: String,
    /// The same fault in terms of this protocol; if nothing plants or plays it, why it cannot
    /// occur.
    pub(super) here: String,
    /// Rules that prevent it.
    #[serde(default)]
    pub(super) rules: Vec<String>,
    /// Mutants that plant it.
    #[serde(default)]
    pub(super) mutants: Vec<String>,
    /// Tests that plant it themselves, and demand that it is found: `log::name`.
    #[serde(default)]
    pub(super) planted: Vec<String>,
    /// Tests in which the same happens to the code as it is.
    #[serde(default)]
    pub(super) tests: Vec<String>,
}

impl Bug {
    /// Returns whether anything that runs stands for it.
    pub(super) fn runs(&self) -> bool {
        self.all().next().is_some()
    }

    /// Returns whether it is planted again.
    pub(super) fn is_planted(&self) -> bool {
        !self.mutants.is_empty() || !self.planted.is_empty()
    }

    /// Names of all that runs for it.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        let lists = [&self.mutants, &self.planted, &self.tests];
        lists.into_iter().flatten().map(String::as_str)
    }
}

/// Result of a mutant, or of a test.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Found {
    /// The finder of the mutant; missing if it was not found. A test stands for itself.
    pub(super) by: Option<String>,
    pub(super) seconds: f64,
    /// Found when the mutant was written, and not by `cargo xtask zoo run`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) earlier: bool,
}

/// Findings by the name of the mutant or of the test.
pub(super) type Record = BTreeMap<String, Found>;

#[derive(Deserialize)]
struct Pages {
    bug: Vec<Bug>,
}

/// All bugs, by area, in the order in which they are written down.
pub(super) fn bugs() -> Result<Vec<Bug>, Failed> {
    let text = fs::read_to_string(root().join(BUGS))?;
    parse(&text)
}

pub(super) fn parse(text: &str) -> Result<Vec<Bug>, Failed> {
    let pages: Pages = toml::from_str(text).map_err(|error| Failed(format!("{BUGS}: {error}")))?;
    let mut bugs = pages.bug;
    bugs.sort_by_key(|bug| bug.area);
    Ok(bugs)
}

/// Reads the findings recorded until now.
pub(super) fn record() -> Result<Record, Failed> {
    let text = fs::read_to_string(root().join(FOUND)).unwrap_or_default();
    toml::from_str(&text).map_err(|error| Failed(format!("{FOUND}: {error}")))
}

/// Writes it down.
pub(super) fn keep(record: &Record) -> Result<(), Failed> {
    let text = toml::to_string(record).map_err(|error| Failed(error.to_string()))?;
    let head = "# Who found what, and after how many seconds: written by `cargo xtask zoo run --record`.\n\n";
    fs::write(root().join(FOUND), format!("{head}{text}"))?;
    Ok(())
}
