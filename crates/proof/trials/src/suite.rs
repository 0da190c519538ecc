//! Redis' own test suite against a fresh cluster of three: `cargo xtask redis-suite`.
//!
//! The suite belongs to Redis and is not part of this tree. It is fetched as a source package, and
//! run unchanged except for one line that loads `crates/proof/trials/redis/quorate.tcl`.
//! `crates/proof/trials/redis/suite.toml` lists the units and tags to run, the tests that require
//! something out of scope, and those that differ on purpose, each with the reason. The task fails
//! if any other test fails. A listed test that passes is reported.

pub(crate) mod known;
pub(crate) mod outcome;
mod source;
pub(crate) mod table;

use std::{
    fs,
    path::Path,
    process::{self, Command},
};

use known::Expectations;
use outcome::UnitResults;
use quorate_testbed::interrupt;

use crate::{
    nodes,
    shell::{self, Failed, is_installed, report_skip, workspace_root},
};

/// Path of the list of expected results.
pub(crate) const EXPECTATIONS_PATH: &str = "crates/proof/trials/redis/suite.toml";

const USAGE: &str = "redis-suite [--source FOLDER] [--store lsm|memory] [UNIT…]";

/// Tests to run.
#[derive(Debug, Default)]
struct RequestedTests<'a> {
    source: Option<&'a str>,
    store: Option<&'a str>,
    units: Vec<&'a str>,
}

impl<'a> RequestedTests<'a> {
    fn parse(words: &[&'a str]) -> Result<Self, Failed> {
        let mut asked = Self::default();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| Failed(USAGE.to_owned()));
            match word {
                "--source" => asked.source = Some(value()?),
                "--store" => asked.store = Some(value()?),
                flag if flag.starts_with('-') => return Err(Failed(USAGE.to_owned())),
                unit => asked.units.push(unit),
            }
        }
        Ok(asked)
    }
}

pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let asked = RequestedTests::parse(words)?;
    let known = Expectations::read(EXPECTATIONS_PATH)?;
    if !is_installed("tclsh") {
        return report_skip("redis-suite", "no tclsh; ./setup installs it (Debian: tcl)");
    }
    let source = match source::suite_folder(asked.source.map(Path::new)) {
        Ok(source) => source,
        Err(Failed(why)) => return report_skip("redis-suite", &why),
    };
    shell::build_programs()?;
    interrupt::clean_up_on_signals()?;
    let flags = asked.store.map_or_else(Vec::new, |store| vec!["--store", store]);
    let mut nodes = nodes::start_serving(3, &flags)?;
    let port = nodes.client_ports().first().copied().unwrap_or_default();
    println!("Redis {} against 127.0.0.1:{port}", source::source_version(&source)?);
    let logs = shell::build_folder().join("redis-suite/logs");
    fs::create_dir_all(&logs)?;
    let mut units = Vec::new();
    for name in known.requested_units(&asked.units)? {
        let text = run_unit(&source, name, port, &known)?;
        fs::write(logs.join(format!("{}.log", name.replace('/', "-"))), &text)?;
        let unit = UnitResults::parse_output(name, &text, &known);
        unit.print();
        units.push(unit);
        nodes.check_alive()?;
    }
    println!("what the suite said is in {}", logs.display());
    table::print_verdict(&units, EXPECTATIONS_PATH, &known)
}

/// Runs one unit and returns the suite's output. Each unit has its own process, so that an abort
/// does not affect the others.
fn run_unit(source: &Path, unit: &str, port: u16, known: &Expectations) -> Result<String, Failed> {
    let output = Command::new("tclsh")
        .arg("tests/test_helper.tcl")
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--single", &format!("unit/{unit}")])
        .args(["--singledb", "--durable", "--ignore-encoding", "--ignore-digest"])
        .args(["--tags", &known.denied_tags()])
        // Concurrent runs must not share ports.
        .args(["--baseport", &(20_032 + process::id() % 128 * 64).to_string()])
        .args(["--timeout", "300"])
        .current_dir(source)
        .env("TERM", "dumb")
        .env("QUORATE_SUITE", workspace_root().join("crates/proof/trials/redis/quorate.tcl"))
        .output()
        .map_err(|error| Failed(format!("tclsh: {error}")))?;
    // Ignore the exit code, which reports failed tests: they are evaluated here.
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::RequestedTests;

    #[test]
    fn arguments_select_store_and_units() {
        let asked = RequestedTests::parse(&["--store", "memory", "scan", "type/hash"]).unwrap();
        assert_eq!(asked.store, Some("memory"));
        assert_eq!(asked.units, ["scan", "type/hash"]);
        assert!(RequestedTests::parse(&["--store"]).is_err());
        assert!(RequestedTests::parse(&["--stores", "lsm"]).is_err());
    }
}
