//! etcd's own tests, with Quorate nodes in place of members: `cargo xtask etcd tests`.
//!
//! The tests are the module `go.etcd.io/etcd/tests/v3`, which starts a program called `etcd` and
//! waits for a line of its log. That program is `tools/etcdtests/etcd`,
//! `tools/etcdtests/clusters.go` selects the clusters, and the awaited lines are replaced by those
//! with which our nodes report a leader. Otherwise the tests run unchanged. Each test has its own
//! process, since a failed test leaves state behind that makes later tests skip themselves.
//! `tools/etcdtests/tests.toml` lists the tests that are out of scope or differ on purpose. The
//! task fails if any other test fails.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    go::{GoToolchain, NO_GO_MESSAGE},
    shell::{self, Failed, read_output, report_skip, workspace_root},
    suite::{known::Expectations, outcome::UnitResults, table},
};

const TESTED_MODULE: &str = "go.etcd.io/etcd/tests/v3@v3.6.16";
const EXPECTATIONS_PATH: &str = "tools/etcdtests/tests.toml";
/// Log texts of a started etcd, and the texts of our nodes that replace them. Both imply that a
/// leader exists.
const READY_TEXTS: [&str; 2] =
    [r#""ready to serve client requests""#, r#""following leader", "elected leader", "no vote""#];
const READY_TEXTS_FILE: &str = "framework/e2e/etcd_process.go";
const TIMEOUT_SECONDS: &str = "300";

/// Runs the named units, or all of them.
pub(crate) fn run(asked: &[&str]) -> Result<(), Failed> {
    let known = Expectations::read(EXPECTATIONS_PATH)?;
    let units = known.requested_units(asked)?;
    let Some(go) = GoToolchain::find() else {
        return report_skip("etcd tests", NO_GO_MESSAGE);
    };
    let folder = shell::build_folder().join("etcd-tests");
    let source = match build_suite(&go, &folder) {
        Ok(source) => source,
        Err(Failed(why)) => {
            return report_skip("etcd tests", &format!("{TESTED_MODULE} cannot be built: {why}"));
        }
    };
    shell::build_programs()?;
    let bin = folder.join("bin");
    fs::copy(shell::program_path("quorate"), bin.join("quorate"))?;
    fs::copy(workspace_root().join("tools/etcdtests/etcd"), bin.join("etcd"))?;
    let mut judged = Vec::new();
    for name in units {
        println!("{name}");
        let (store, package) = name.split_once('/').unwrap_or((name, ""));
        fs::write(bin.join("store"), store)?;
        let log = folder.join(name.replace('/', "-")).with_extension("log");
        let log = fs::File::create(log)?;
        let unit = run_package(name, &source.join(package), &folder.join(package), &log, &known)?;
        unit.print();
        judged.push(unit);
    }
    println!("what the tests said is in {}", folder.display());
    table::print_verdict(&judged, EXPECTATIONS_PATH, &known)
}

/// Builds a copy of the module that uses our clusters, its tests and etcd's tools.
fn build_suite(go: &GoToolchain, folder: &Path) -> Result<PathBuf, Failed> {
    let source = super::copy_module(go, TESTED_MODULE, folder)?;
    let here = |words: &[&str]| {
        let mut command = go.go_command_in(&source);
        read_output(command.env("GOFLAGS", "-mod=mod").args(words)).map(drop)
    };
    // The module names its neighbours by their relative paths in etcd's tree.
    let list = fs::read_to_string(source.join("go.mod"))?;
    fs::write(source.join("go.mod"), without_local_modules(&list))?;
    let ready = source.join(READY_TEXTS_FILE);
    let text = fs::read_to_string(&ready)?;
    fs::write(ready, text.replace(READY_TEXTS[0], READY_TEXTS[1]))?;
    let clusters = workspace_root().join("tools/etcdtests/clusters.go");
    fs::copy(clusters, source.join("common/e2e_test.go"))?;
    for tool in ["etcdctl", "etcdutl"] {
        let to = folder.join("bin").join(tool).display().to_string();
        here(&["build", "-o", &to, &format!("go.etcd.io/etcd/{tool}/v3")])?;
    }
    for package in ["common", "e2e"] {
        let to = folder.join(package).display().to_string();
        let from = format!("./{package}");
        here(&["test", "-tags", "e2e", "-c", "-o", &to, &from])?;
    }
    Ok(source)
}

/// Removes the relative paths of other modules, and the Go version to fetch, from a `go.mod`.
fn without_local_modules(list: &str) -> String {
    let mut kept = Vec::new();
    let mut within = false;
    for line in list.lines() {
        within |= line.starts_with("replace (");
        if !within && !line.starts_with("toolchain ") {
            kept.push(line);
        }
        within &= line != ")";
    }
    kept.join("\n") + "\n"
}

/// Runs all tests of a package that are in scope.
fn run_package(
    name: &str,
    package: &Path,
    tests: &Path,
    mut log: &fs::File,
    known: &Expectations,
) -> Result<UnitResults, Failed> {
    let here = || {
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT_SECONDS).arg(tests).current_dir(package);
        command
    };
    let all = read_output(here().args(["-test.list", "."]))?;
    let mut unit = UnitResults::new(name);
    unit.is_complete = true;
    for test in all.lines().filter(|line| line.starts_with("Test")) {
        if known.is_outside(name, test) {
            unit.skip(test);
            continue;
        }
        let mut command = here();
        // Child processes inherit the output: a pipe would not close before all of them exit.
        let said = tempfile::tempfile()?;
        command
            .args(["-test.v", "-test.run", &format!("^{test}$")])
            .arg("-bin-dir")
            .arg(tests.with_file_name("bin"))
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said.try_clone()?);
        command.status()?;
        kill_leftover_nodes(&tests.with_file_name("bin").join("quorate"));
        let text = read_text(said)?;
        io::Write::write_all(&mut log, text.as_bytes())?;
        let outcomes = test_outcomes(&text);
        if outcomes.is_empty() {
            unit.fail(test, "it did not come to its end", known);
        }
        for (outcome, test) in outcomes {
            match outcome {
                "PASS" => unit.pass(test, known),
                "SKIP" => unit.skip(test),
                _ => unit.fail(test, "see what the tests said", known),
            }
        }
    }
    Ok(unit)
}

/// Kills the nodes left over by an aborted test, which would reply to the next one. Only this task
/// runs this copy of the program.
fn kill_leftover_nodes(program: &Path) {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let is_node = fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe == program);
        let name = process.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.filter(|_| is_node).and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn read_text(mut file: fs::File) -> io::Result<String> {
    let mut bytes = Vec::new();
    io::Seek::rewind(&mut file)?;
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the result of each test without subtests: `PASS`, `FAIL` or `SKIP`, and its name.
fn test_outcomes(text: &str) -> Vec<(&str, &str)> {
    let told = text.lines().filter_map(|line| {
        let (outcome, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
        Some((outcome, rest.split_once(" (").map_or(rest, |(name, _)| name)))
    });
    let told: Vec<(&str, &str)> = told.collect();
    let has_parts = |name: &str| {
        let part = |other: &str| other.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        told.iter().any(|(_, other)| part(other))
    };
    let mut single = told.clone();
    single.retain(|(_, name)| !has_parts(name));
    single
}

#[cfg(test)]
mod tests {
    use super::{test_outcomes, without_local_modules};

    #[test]
    fn module_file_has_no_replacements_or_toolchain() {
        let list = "module a\n\ngo 1.26.0\n\ntoolchain go1.26.1\n\nreplace (\n\tb => ../b\n)\n\nrequire (\n\tb v1\n)\n";
        let expected = "module a\n\ngo 1.26.0\n\n\n\nrequire (\n\tb v1\n)\n";
        assert_eq!(without_local_modules(list), expected);
    }

    #[test]
    fn test_with_subtests_counts_as_its_subtests() {
        let text = "=== RUN   TestA\n    --- PASS: TestA/x_y (0.5s)\n    --- FAIL: TestA/z (1s)\n--- FAIL: TestA (2s)\n--- SKIP: TestAB (0s)\n";
        let expected = [("PASS", "TestA/x_y"), ("FAIL", "TestA/z"), ("SKIP", "TestAB")];
        assert_eq!(test_outcomes(text), expected);
    }
}
