//! Experiments from papers: a program of the workspace `bench-compare`, which `cargo test` does not
//! build.

use std::{os::unix::process::CommandExt as _, process::Command};

use crate::shell::{self, Failed};

const MANIFEST: &str = "bench-compare/Cargo.toml";
const PACKAGE: &str = "compare-papers";

/// Builds `quorate` and the experiments into one folder, and replaces this process with the program
/// of the experiments. With `check`, lints and tests the program in place of running it.
///
/// Prints nothing, since a report may go to standard output.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    if words == ["check"] {
        return check_papers();
    }
    eprintln!("building quorate and the papers' experiments");
    let programs =
        [&["build", "--quiet"], &shell::PACKAGED_PROGRAMS[..], shell::profile_arguments()].concat();
    shell::read_output(&mut shell::cargo_command(&programs))?;
    let experiments = [&["build", "--quiet"], shell::profile_arguments()].concat();
    shell::read_output(&mut cargo_command(&experiments))?;
    let error = Command::new(shell::program_path(PACKAGE)).args(words).exec();
    Err(Failed(format!("{PACKAGE}: {error}")))
}

/// Lints the program and runs all its tests, with nodes of the profile of `cargo test`.
fn check_papers() -> Result<(), Failed> {
    shell::run_cargo(&[&["build", "--quiet"], &shell::PACKAGED_PROGRAMS[..]].concat())?;
    for (before, after) in [
        (&["clippy", "--quiet", "--all-targets"][..], &["--", "-D", "warnings"][..]),
        (&["test", "--quiet"], &["--", "--include-ignored"]),
    ] {
        let mut command = cargo_command(before);
        command.args(after);
        shell::run_checked(command, &format!("cargo {} --package {PACKAGE}", before.join(" ")))?;
    }
    Ok(())
}

/// Returns a cargo command for the program. It shares the target folder of the main workspace, so
/// that libraries are built once, and because the program starts the `quorate` next to it.
fn cargo_command(words: &[&str]) -> Command {
    let mut command = shell::cargo_command(words);
    command.args(["--locked", "--package", PACKAGE, "--manifest-path", MANIFEST]);
    command.arg("--target-dir").arg(shell::build_folder());
    command
}
