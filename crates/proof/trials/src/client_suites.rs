//! Test suites of Redis client libraries, run against fresh clusters of three: `cargo xtask
//! client-suites`.
//!
//! The suites belong to their authors and are not part of this tree. They are fetched, in pinned
//! versions, from the package registries of their languages, and run unchanged.
//! `crates/proof/trials/clients/suites.toml` lists which of their files are run, and which of their
//! tests are out of scope or differ on purpose. The task fails if any other test fails.

mod go;
mod node;
mod python;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use quorate_testbed::interrupt;
use serde::Deserialize;

use crate::{
    nodes,
    shell::{self, Failed, report_skip, workspace_root},
    suite::{known::Expectations, outcome::UnitResults, table},
};

/// Path of the list of expected results.
pub(crate) const EXPECTATIONS_PATH: &str = "crates/proof/trials/clients/suites.toml";

/// A test suite.
struct Suite {
    /// First part of the suite's unit names.
    name: &'static str,
    /// Fetches the suite and returns its folder. An error gives the reason why it is unavailable.
    fetch: fn() -> Result<PathBuf, Failed>,
    /// Runs one file of the suite.
    run: fn(&TestFile<'_>) -> Result<Report, Failed>,
}

const SUITES: [Suite; 3] = [
    Suite { name: "redis-py", fetch: python::fetch, run: python::run },
    Suite { name: "go-redis", fetch: go::fetch, run: go::run },
    Suite { name: "ioredis", fetch: node::fetch, run: node::run },
];

/// A file of tests to run.
struct TestFile<'a> {
    /// Folder of the suite.
    folder: &'a Path,
    /// The file as listed, without the name of the suite.
    file: &'a str,
    /// Client port of a node.
    port: u16,
    /// Path for the suite's report on its tests. The file does not exist yet.
    report: &'a Path,
}

/// Results of the tests of a file.
#[derive(Default)]
struct Report {
    test_results: Vec<Test>,
    /// Set if the suite ran to completion.
    complete: bool,
    /// All output of the suite.
    text: String,
}

/// A test and its result.
#[derive(Debug, Deserialize)]
struct Test {
    name: String,
    outcome: Outcome,
    #[serde(default)]
    details: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

pub(crate) fn run(asked: &[&str]) -> Result<(), Failed> {
    let known = Expectations::read(EXPECTATIONS_PATH)?;
    let names = known.requested_units(asked)?;
    shell::build_programs()?;
    interrupt::clean_up_on_signals()?;
    let logs = work_folder("logs")?;
    let mut units = Vec::new();
    for suite in &SUITES {
        let of = |unit: &&&str| unit.split('/').next() == Some(suite.name);
        let names: Vec<&str> = names.iter().filter(of).copied().collect();
        if names.is_empty() {
            continue;
        }
        let folder = match (suite.fetch)() {
            Ok(folder) => folder,
            Err(Failed(why)) => {
                report_skip(suite.name, &why)?;
                continue;
            }
        };
        let mut nodes = nodes::start_serving(3, &[])?;
        let port = nodes.client_ports().first().copied().unwrap_or_default();
        for name in names {
            let log = logs.join(name.replace('/', "-"));
            let report = log.with_extension("report");
            if report.exists() {
                fs::remove_file(&report)?;
            }
            let file = name.split_once('/').map_or(name, |(_, file)| file);
            let task = TestFile { folder: &folder, file, port, report: &report };
            println!("{name}");
            let report = (suite.run)(&task)?;
            fs::write(log.with_extension("log"), &report.text)?;
            let unit = report.evaluate(name, &known);
            unit.print();
            units.push(unit);
            nodes.check_alive()?;
        }
    }
    println!("what the suites said is in {}", logs.display());
    table::print_verdict(&units, EXPECTATIONS_PATH, &known)
}

impl Report {
    fn evaluate(&self, name: &str, known: &Expectations) -> UnitResults {
        let mut unit = UnitResults::new(name);
        unit.is_complete = self.complete;
        for test in &self.test_results {
            match test.outcome {
                Outcome::Passed => unit.pass(&test.name, known),
                Outcome::Failed => unit.fail(&test.name, &test.details, known),
                Outcome::Skipped => unit.skip(&test.name),
            }
        }
        unit
    }

    /// Parses the output of the programs in `crates/proof/trials/clients/suites`: one line of JSON
    /// for each test, and an empty line at the end.
    fn parse_lines(task: &TestFile<'_>, text: String) -> Result<Self, Failed> {
        // A suite that failed to start wrote no report.
        let lines = fs::read_to_string(task.report).unwrap_or_default();
        let mut report = Self { text, ..Self::default() };
        for line in lines.lines() {
            if line.is_empty() {
                report.complete = true;
            } else {
                let test = serde_json::from_str(line);
                report
                    .test_results
                    .push(test.map_err(|error| Failed(format!("{}: {error}", task.file)))?);
            }
        }
        Ok(report)
    }
}

/// Returns a command that is killed after some minutes, even if its tests still wait.
fn with_time_limit(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("900").arg(program);
    command
}

/// Returns the output of a program and ignores its exit code, because failed tests are evaluated by
/// their names.
fn output_of(command: &mut Command) -> Result<String, Failed> {
    let output = command.output().map_err(|error| Failed(format!("{command:?}: {error}")))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// Returns a folder for fetched and built files. Creates it if it is missing.
fn work_folder(name: &str) -> Result<PathBuf, Failed> {
    let folder = shell::build_folder().join("client-suites").join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Returns the path of a file that this repository adds to the suites.
fn own_file(name: &str) -> PathBuf {
    workspace_root().join("crates/proof/trials/clients/suites").join(name)
}
