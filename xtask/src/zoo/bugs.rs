//! Records in the zoo: bugs of other systems, and the results of looking for them here.

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, Serialize};

use crate::shell::{Failed, workspace_root};

/// List of bugs, written by hand.
pub(super) const BUGS_FILE: &str = "docs/zoo.toml";
/// List of findings, written by `cargo xtask zoo run --record`.
const FINDINGS_FILE: &str = "docs/zoo.found.toml";

/// Area of a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BugArea {
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

impl BugArea {
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

    /// Returns the title shown to readers.
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
    pub(super) area: BugArea,
    /// Name of the system.
    pub(super) system: String,
    /// Link to the report.
    pub(super) link: String,
    /// Title of the link: `issue 741`, `report`.
    pub(super) place: String,
    /// Description of the bug, in one sentence.
    pub(super) what: String,
    /// The same fault in terms of this protocol. If nothing plants or reproduces it, the reason why
    /// it cannot occur.
    pub(super) here: String,
    /// Rules that prevent the bug.
    #[serde(default)]
    pub(super) rules: Vec<String>,
    /// Mutants that plant the bug.
    #[serde(default)]
    pub(super) mutants: Vec<String>,
    /// Tests, given as `crate::name`, that plant the bug themselves and require that it is found.
    #[serde(default)]
    pub(super) planted: Vec<String>,
    /// Tests that reproduce the situation on unmodified code.
    #[serde(default)]
    pub(super) tests: Vec<String>,
}

impl Bug {
    /// Returns whether a mutant or test covers the bug.
    pub(super) fn is_covered(&self) -> bool {
        self.mutants_and_tests().next().is_some()
    }

    /// Returns whether a mutant or test plants the bug.
    pub(super) fn is_planted(&self) -> bool {
        !self.mutants.is_empty() || !self.planted.is_empty()
    }

    /// Returns the names of all mutants and tests of the bug.
    pub(super) fn mutants_and_tests(&self) -> impl Iterator<Item = &str> {
        let lists = [&self.mutants, &self.planted, &self.tests];
        lists.into_iter().flatten().map(String::as_str)
    }
}

/// Result of running a mutant or a test.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedFinding {
    /// Test or run that found the mutant; `None` if it was not found, and for a test.
    pub(super) by: Option<String>,
    pub(super) seconds: f64,
    /// Set if the bug was found when the mutant was written, and not by `cargo xtask zoo run`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) earlier: bool,
}

/// Findings by the name of the mutant or of the test.
pub(super) type FindingRecord = BTreeMap<String, RecordedFinding>;

#[derive(Deserialize)]
struct BugFile {
    bug: Vec<Bug>,
}

/// Reads all bugs, by area, in the order of the file.
pub(super) fn read_bugs() -> Result<Vec<Bug>, Failed> {
    let text = fs::read_to_string(workspace_root().join(BUGS_FILE))?;
    parse_bugs(&text)
}

pub(super) fn parse_bugs(text: &str) -> Result<Vec<Bug>, Failed> {
    let pages: BugFile =
        toml::from_str(text).map_err(|error| Failed(format!("{BUGS_FILE}: {error}")))?;
    let mut bugs = pages.bug;
    bugs.sort_by_key(|bug| bug.area);
    Ok(bugs)
}

/// Reads the recorded findings.
pub(super) fn read_record() -> Result<FindingRecord, Failed> {
    let text = fs::read_to_string(workspace_root().join(FINDINGS_FILE)).unwrap_or_default();
    toml::from_str(&text).map_err(|error| Failed(format!("{FINDINGS_FILE}: {error}")))
}

/// Writes the findings to the file.
pub(super) fn write_record(record: &FindingRecord) -> Result<(), Failed> {
    let text = toml::to_string(record).map_err(|error| Failed(error.to_string()))?;
    let head = "# Who found what, and after how many seconds: written by `cargo xtask zoo run --record`.\n\n";
    fs::write(workspace_root().join(FINDINGS_FILE), format!("{head}{text}"))?;
    Ok(())
}
