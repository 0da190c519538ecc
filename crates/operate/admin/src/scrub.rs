//! JSON forms of a scrub's progress and findings, for `POST /scrub` and the status.

use std::{collections::BTreeMap, fmt};

use quorate_replica::{
    ScrubStatus,
    scrubbing::report::{DamagedPlace, Fate, Kind},
};
use serde::{Deserialize, Serialize};

use crate::units::{format_bytes, format_date};

/// Body of `POST /scrub`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubRequest {
    /// Read rate in bytes per second. Defaults to the node's setting.
    #[serde(default)]
    pub bytes_per_second: Option<u64>,
}

/// The scrub in progress, or else the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubView {
    /// Kind of data being read: `log`, `streams`, `snapshot`, `store` or `files`; else null.
    pub reading: Option<String>,
    /// Start of the scrub, in Unix milliseconds. Null if this process has not started one.
    pub begun_unix_ms: Option<u64>,
    /// End of the last scrub, in Unix milliseconds.
    pub ended_unix_ms: Option<u64>,
    /// Time in milliseconds from the end of a scrub to the next. Null without automatic scrubs.
    pub every_ms: Option<u64>,
    /// Limit on the read rate.
    pub bytes_per_second: u64,
    /// Number of bytes read by the scrub.
    pub bytes: u64,
    /// Estimated number of bytes in total. 0 if no scrub is in progress.
    pub bytes_all: u64,
    /// Number of bytes read by the scrub, by kind of data.
    pub kinds: BTreeMap<String, u64>,
    /// The first damaged places that were found.
    pub found: Vec<FoundView>,
    /// Number of damaged places not listed in `found`.
    pub more: u64,
}

/// Place where damage was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundView {
    /// Kind of the damaged data: `log`, `streams`, `snapshot`, `store` or `files`.
    pub kind: String,
    /// State of the repair: `repairing`, `repaired`, `superseded` or `stays`.
    pub fate: String,
    /// Description of the damage: file, position and kind.
    pub what: String,
}

impl ScrubView {
    /// Creates the JSON form of a node's scrub status.
    pub fn new(status: &ScrubStatus) -> Self {
        let kinds = Kind::ALL.into_iter();
        let found = |found: &DamagedPlace| FoundView {
            kind: found.kind.name().to_owned(),
            fate: found.fate.name().to_owned(),
            what: found.description.clone(),
        };
        Self {
            reading: status.now.map(|kind| kind.name().to_owned()),
            begun_unix_ms: status.begun_ms,
            ended_unix_ms: status.ended_ms,
            every_ms: status.interval_ms,
            bytes_per_second: status.bytes_per_second,
            bytes: status.bytes_read(),
            bytes_all: status.bytes_to_read,
            kinds: kinds
                .map(|kind| (kind.name().to_owned(), status.bytes[kind as usize]))
                .collect(),
            found: status.found.iter().map(found).collect(),
            more: status.unlisted_count,
        }
    }

    /// Returns the number of listed places whose repair is in a state.
    pub fn count_with_fate(&self, fate: Fate) -> usize {
        let found = self.found.iter();
        found.filter(|found| found.fate == fate.name()).count()
    }

    /// Returns whether any damage is still unrepaired.
    pub fn is_damaged(&self) -> bool {
        self.count_with_fate(Fate::Stays) + self.count_with_fate(Fate::Repairing) > 0
    }

    /// Returns a notice if there is damage that the node cannot repair on its own.
    pub fn damage_notice(&self) -> Option<String> {
        let stays = self.count_with_fate(Fate::Stays);
        (stays > 0).then(|| {
            format!("the last scrub found {stays} damaged places that the node cannot repair by itself: 'quorate scrub --show'")
        })
    }
}

/// Formats a short summary for a table, such as `12 %` or `2026-11-27`.
/// Empty if no scrub has ended.
impl fmt::Display for ScrubView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (u128::from(self.bytes) * 100).checked_div(u128::from(self.bytes_all));
        match (&self.reading, self.ended_unix_ms) {
            (Some(_), _) => write!(f, "{} %", percent.unwrap_or(0).min(100)),
            (None, Some(ended)) => f.write_str(&format_date(ended / 1000)),
            (None, None) => Ok(()),
        }
    }
}

impl FoundView {
    /// Formats the finding in one line.
    pub fn format_finding(&self) -> String {
        format!("{} {}: {}", self.fate, self.kind, self.what)
    }
}

/// Describes the number of bytes read by kind, such as `1.2 GiB of log, 300 MiB of streams`.
pub fn format_kinds(view: &ScrubView) -> String {
    let read = view.kinds.iter().filter(|(_, count)| **count > 0);
    let read: Vec<String> =
        read.map(|(kind, count)| format!("{} of {kind}", format_bytes(*count))).collect();
    match read.is_empty() {
        true => "nothing".to_owned(),
        false => read.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrub_state_is_shown_in_a_few_characters() {
        let mut view = ScrubView::default();
        assert_eq!(view.to_string(), "");
        (view.reading, view.bytes, view.bytes_all) = (Some("log".to_owned()), 1, 8);
        assert_eq!(view.to_string(), "12 %");
        (view.reading, view.ended_unix_ms) = (None, Some(1_795_000_000_000));
        assert_eq!(view.to_string(), "2026-11-18");
        view.found.push(FoundView {
            kind: "store".to_owned(),
            fate: "stays".to_owned(),
            what: "table 7".to_owned(),
        });
        assert!(view.is_damaged() && view.damage_notice().is_some());
        view.found[0].fate = "repaired".to_owned();
        assert!(!view.is_damaged() && view.damage_notice().is_none());
    }
}
