//! Identity of the packaged release: version, commit, sources, and the time of all files. The same
//! commit yields the same bytes.

use std::{env, path::Path, process::Command};

use quorate_shell::Failed;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{parts::LinkedCrates, program::Machine};

/// Variable with which builders set the time:
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
const TIME_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Identity of a release.
#[derive(Clone, Debug)]
pub(crate) struct ReleaseIdentity {
    pub(crate) version: String,
    /// Commit; empty if the tree is not a repository.
    pub(crate) revision: String,
    /// Time in seconds since 1970.
    pub(crate) unix_time: u32,
    pub(crate) linked_crates: LinkedCrates,
}

impl ReleaseIdentity {
    /// Reads the commit of this source tree and its time. Without a repository, the builder must
    /// set the time.
    pub(crate) fn from_tree(root: &Path, machine: &Machine) -> Result<Self, Failed> {
        let revision = git_output(root, &["rev-parse", "HEAD"]);
        let time = env::var(TIME_VARIABLE).ok();
        let time = time.or_else(|| git_output(root, &["log", "-1", "--format=%ct"]));
        let time = time.ok_or_else(|| {
            Failed(format!(
                "this is no git repository: set {TIME_VARIABLE} to the seconds since 1970 that files get"
            ))
        })?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: revision.unwrap_or_default(),
            unix_time: time.parse().map_err(|_| {
                Failed(format!("{TIME_VARIABLE}={time} is not a number of seconds"))
            })?,
            linked_crates: LinkedCrates::linked_into(root, machine)?,
        })
    }

    /// Returns the version for dpkg and rpm, in which `0.3.0~dev` precedes `0.3.0`.
    pub(crate) fn package_version(&self) -> String {
        self.version.replace('-', "~")
    }

    /// Returns the time in RFC 3339 format, in UTC.
    pub(crate) fn rfc3339_date(&self) -> String {
        let time = OffsetDateTime::from_unix_timestamp(self.unix_time.into());
        time.ok().and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
    }
}

/// Returns git's output, or `None` on failure.
fn git_output(root: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).current_dir(root).output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: u32) -> ReleaseIdentity {
        let (version, revision) = ("0.3.0-dev".to_owned(), String::new());
        ReleaseIdentity {
            version,
            revision,
            unix_time: time,
            linked_crates: LinkedCrates::default(),
        }
    }

    #[test]
    fn development_version_sorts_before_the_next_release() {
        assert_eq!(at(0).package_version(), "0.3.0~dev");
    }
}
