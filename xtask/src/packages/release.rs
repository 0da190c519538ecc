//! The packaged release: version, commit, sources, and the time of all files. The same commit
//! yields the same bytes.

use std::{env, path::Path, process::Command};

use quorate_shell::Failed;

use crate::{parts::Parts, program::Machine};

/// Variable with which builders set the time:
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
const TIME: &str = "SOURCE_DATE_EPOCH";

/// Identity of a release.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) version: String,
    /// Commit; empty if the tree is not a repository.
    pub(crate) revision: String,
    /// Time in seconds since 1970.
    pub(crate) time: u32,
    pub(crate) parts: Parts,
}

impl Release {
    /// Reads the commit of this source tree and its time. Without a repository, the builder must
    /// set the time.
    pub(crate) fn of(root: &Path, machine: &Machine) -> Result<Self, Failed> {
        let revision = git(root, &["rev-parse", "HEAD"]);
        let time = env::var(TIME).ok();
        let time = time.or_else(|| git(root, &["log", "-1", "--format=%ct"]));
        let time = time.ok_or_else(|| {
            Failed(format!(
                "this is no git repository: set {TIME} to the seconds since 1970 that files get"
            ))
        })?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: revision.unwrap_or_default(),
            time: time
                .parse()
                .map_err(|_| Failed(format!("{TIME}={time} is not a number of seconds")))?,
            parts: Parts::of(root, machine)?,
        })
    }

    /// Returns the time in RFC 3339 format, in UTC.
    pub(crate) fn date(&self) -> String {
        let (days, seconds) = (self.time / 86_400, self.time % 86_400);
        // Count years from March, so that the leap day is the last day of a year.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + u32::from(month <= 2);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
    }
}

/// Returns git's output, or `None` on failure.
fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).current_dir(root).output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let date = |time| {
            let (version, revision) = (String::new(), String::new());
            Release { version, revision, time, parts: Parts::default() }.date()
        };
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
