//! Expected results of a test suite: units and tags, tests out of scope, and tests whose result
//! differs on purpose.

use std::fs;

use serde::Deserialize;

use crate::shell::{Failed, workspace_root};

/// Content of the file of expectations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expectations {
    /// Units to run, as the suite names their files.
    units: Vec<String>,
    /// Minimum percentage of tests in scope that must pass.
    #[serde(default = "percent_min")]
    pub(super) percent_min: usize,
    /// Tags of tests that require something out of scope.
    #[serde(default)]
    denied: Vec<String>,
    /// Untagged tests that require something out of scope.
    outside: Vec<Group>,
    /// Tests that fail, with the reason why the failure is right.
    differs: Vec<Group>,
}

const fn percent_min() -> usize {
    95
}

/// Tests with a common reason. A `*` in a name matches any text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    unit: String,
    why: String,
    tests: Vec<String>,
}

/// Reason why a test is not expected to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason<'a> {
    Outside(&'a str),
    Differs(&'a str),
}

impl Expectations {
    /// Reads a file of this tree.
    pub(crate) fn read(file: &str) -> Result<Self, Failed> {
        let text = fs::read_to_string(workspace_root().join(file))?;
        Self::parse(&text).map_err(|Failed(why)| Failed(format!("{file}: {why}")))
    }

    pub(super) fn parse(text: &str) -> Result<Self, Failed> {
        toml::from_str(text).map_err(|error| Failed(error.to_string()))
    }

    /// Returns the units to run: those requested by name or by folder, or all.
    pub(crate) fn requested_units<'a>(&'a self, asked: &[&str]) -> Result<Vec<&'a str>, Failed> {
        let is = |asked: &str, unit: &str| {
            let rest = unit.strip_prefix(asked);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let known = |asked: &&str| self.units.iter().any(|unit| is(asked, unit));
        if let Some(unknown) = asked.iter().find(|asked| !known(asked)) {
            let all = self.units.join(", ");
            return Err(Failed(format!("{unknown} is not among the units: {all}")));
        }
        let wanted = |unit: &&str| asked.is_empty() || asked.iter().any(|asked| is(asked, unit));
        Ok(self.units.iter().map(String::as_str).filter(wanted).collect())
    }

    /// Returns the excluded tags in the suite's syntax.
    pub(super) fn denied_tags(&self) -> String {
        let tags = self.denied.iter().map(|tag| format!("-{tag}"));
        tags.collect::<Vec<_>>().join(" ")
    }

    /// Returns why this test is not expected to pass; `None` if it is expected to pass.
    pub(super) fn failure_reason<'a>(&'a self, unit: &str, test: &str) -> Option<Reason<'a>> {
        let of = |groups: &'a [Group]| {
            let mut all = groups.iter();
            let group =
                all.find(|group| matches_pattern(unit, &group.unit) && group.includes(test));
            group.map(|group| group.why.as_str())
        };
        let outside = of(&self.outside).map(Reason::Outside);
        outside.or_else(|| of(&self.differs).map(Reason::Differs))
    }
}

impl Expectations {
    /// Returns whether this test requires something out of scope.
    pub(crate) fn is_outside(&self, unit: &str, test: &str) -> bool {
        matches!(self.failure_reason(unit, test), Some(Reason::Outside(_)))
    }
}

impl Group {
    fn includes(&self, test: &str) -> bool {
        self.tests.iter().any(|name| matches_pattern(test, name))
    }
}

/// Returns whether the name matches the pattern. Each `*` matches any text.
fn matches_pattern(name: &str, pattern: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return name == pattern;
    };
    let Some(name) = name.strip_prefix(begin) else {
        return false;
    };
    let mut places = name.char_indices().map(|(at, _)| at).chain([name.len()]);
    places.any(|at| name.get(at..).is_some_and(|end| matches_pattern(end, rest)))
}

#[cfg(test)]
mod tests {
    use super::{Expectations, Reason, matches_pattern};

    const TEXT: &str = r#"
        units = ["scan", "multi"]
        denied = ["needs:debug", "needs:repl"]
        [[outside]]
        unit = "multi"
        why = "scripts"
        tests = ["MULTI and script *"]
        [[differs]]
        unit = "multi"
        why = "words"
        tests = ["EXEC fails"]
    "#;

    #[test]
    fn tests_are_found_by_unit_and_name() {
        let known = Expectations::parse(TEXT).unwrap();
        let reason = |unit, test| known.failure_reason(unit, test);
        assert_eq!(reason("multi", "EXEC fails"), Some(Reason::Differs("words")));
        assert_eq!(reason("multi", "EXEC fails on"), None);
        assert_eq!(reason("scan", "EXEC fails"), None);
        assert_eq!(reason("multi", "MULTI and script timeout"), Some(Reason::Outside("scripts")));
    }

    #[test]
    fn units_that_are_not_there_are_refused() {
        let known = Expectations::parse(TEXT).unwrap();
        assert_eq!(known.requested_units(&[]).unwrap(), ["scan", "multi"]);
        assert_eq!(known.requested_units(&["multi"]).unwrap(), ["multi"]);
        assert!(known.requested_units(&["stream"]).is_err());
        assert!(known.requested_units(&["mul"]).is_err());
        assert_eq!(known.denied_tags(), "-needs:debug -needs:repl");
    }

    #[test]
    fn star_matches_any_text() {
        assert!(matches_pattern("tests ping", "tests ping"));
        assert!(matches_pattern("tests ping", "*ping"));
        assert!(matches_pattern("tests ping", "t*s*g"));
        assert!(matches_pattern("tests", "tests*"));
        assert!(!matches_pattern("tests ping", "tests"));
        assert!(!matches_pattern("tests ping", "*pong*"));
    }

    #[test]
    fn the_lists_of_this_tree_can_be_read() {
        let redis = Expectations::read(crate::suite::EXPECTATIONS_PATH).unwrap();
        assert!(redis.requested_units(&["type/list", "type"]).is_ok());
        let clients = Expectations::read(crate::client_suites::EXPECTATIONS_PATH).unwrap();
        assert!(clients.requested_units(&["redis-py"]).is_ok());
    }
}
