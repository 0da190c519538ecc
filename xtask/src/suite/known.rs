//! What `xtask/redis/suite.toml` says: units and tags, tests out of scope, tests that get another answer on purpose.

use std::fs;

use serde::Deserialize;

use crate::shell::{Failed, root};

const FILE: &str = "xtask/redis/suite.toml";

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// Units below `tests/unit` that are tried.
    units: Vec<String>,
    /// Tags of tests that ask for what is out of scope.
    denied: Vec<String>,
    /// Tests that ask for it without a tag.
    outside: Vec<Group>,
    /// Tests that fail, and why that is right.
    differs: Vec<Group>,
}

/// Tests of one unit that have one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    unit: String,
    why: String,
    /// Their names; a `*` at the end stands for any rest.
    tests: Vec<String>,
}

/// Why a test is not expected to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason<'a> {
    Outside(&'a str),
    Differs(&'a str),
}

impl Known {
    pub(super) fn read() -> Result<Self, Failed> {
        let text = fs::read_to_string(root().join(FILE))?;
        Self::parse(&text)
    }

    pub(super) fn parse(text: &str) -> Result<Self, Failed> {
        toml::from_str(text).map_err(|error| Failed(format!("{FILE}: {error}")))
    }

    /// The units to run, of those that were asked for, or all.
    pub(super) fn units_of<'a>(&'a self, asked: &[&str]) -> Result<Vec<&'a str>, Failed> {
        let known = |asked: &&str| self.units.iter().any(|unit| unit == asked);
        if let Some(unknown) = asked.iter().find(|asked| !known(asked)) {
            let all = self.units.join(", ");
            return Err(Failed(format!("{unknown} is not among the units: {all}")));
        }
        let wanted = |unit: &&str| asked.is_empty() || asked.contains(unit);
        Ok(self
            .units
            .iter()
            .map(String::as_str)
            .filter(wanted)
            .collect())
    }

    /// The tags, as the suite takes them.
    pub(super) fn denied(&self) -> String {
        let tags = self.denied.iter().map(|tag| format!("-{tag}"));
        tags.collect::<Vec<_>>().join(" ")
    }

    /// Why this test is not expected to pass, if it is not.
    pub(super) fn reason<'a>(&'a self, unit: &str, test: &str) -> Option<Reason<'a>> {
        let of = |groups: &'a [Group]| {
            let mut all = groups.iter();
            let group = all.find(|group| group.unit == unit && group.has(test));
            group.map(|group| group.why.as_str())
        };
        let outside = of(&self.outside).map(Reason::Outside);
        outside.or_else(|| of(&self.differs).map(Reason::Differs))
    }
}

impl Group {
    fn has(&self, test: &str) -> bool {
        self.tests.iter().any(|name| match name.strip_suffix('*') {
            Some(begin) => test.starts_with(begin),
            None => name == test,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Reason};

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
        let known = Known::parse(TEXT).unwrap();
        let reason = |unit, test| known.reason(unit, test);
        assert_eq!(
            reason("multi", "EXEC fails"),
            Some(Reason::Differs("words"))
        );
        assert_eq!(reason("multi", "EXEC fails on"), None);
        assert_eq!(reason("scan", "EXEC fails"), None);
        assert_eq!(
            reason("multi", "MULTI and script timeout"),
            Some(Reason::Outside("scripts"))
        );
    }

    #[test]
    fn units_that_are_not_there_are_refused() {
        let known = Known::parse(TEXT).unwrap();
        assert_eq!(known.units_of(&[]).unwrap(), ["scan", "multi"]);
        assert_eq!(known.units_of(&["multi"]).unwrap(), ["multi"]);
        assert!(known.units_of(&["stream"]).is_err());
        assert_eq!(known.denied(), "-needs:debug -needs:repl");
    }

    #[test]
    fn the_list_of_this_tree_can_be_read() {
        let known = Known::read().unwrap();
        assert!(known.units_of(&["type/list"]).is_ok());
    }
}
