//! Builds the programs under comparison.

use std::path::{Path, PathBuf};

use super::{
    figures::ComparisonResults,
    systems::{ProgramSource, SOURCES_FOLDER, System},
};
use crate::{
    go::{GoToolchain, NO_GO_MESSAGE},
    shell::{self, Failed},
};

/// Program that drives the load: an example of quorate-bench, so that it is compiled with it.
pub(super) const LOAD_PROGRAM: &str = "compare-load";

/// Folder of the built programs.
#[derive(Clone, Debug)]
pub(super) struct BuiltPrograms {
    program_folder: PathBuf,
    target_folder: PathBuf,
}

impl BuiltPrograms {
    fn new() -> Self {
        let folder = shell::build_folder().join("compare");
        Self { program_folder: folder.join("bin"), target_folder: folder }
    }

    pub(super) fn program_path(&self, name: &str) -> PathBuf {
        match name {
            "quorate" => shell::release_path("quorate"),
            LOAD_PROGRAM => shell::release_path(&format!("examples/{LOAD_PROGRAM}")),
            "redis-server" => PathBuf::from(name),
            name if name.starts_with("compare-") => self.target_folder.join("release").join(name),
            name => self.program_folder.join(name),
        }
    }
}

/// Builds all programs. Fails if Quorate or the load generator cannot be built.
pub(super) fn build_all(chosen: &[&System]) -> Result<(BuiltPrograms, ComparisonResults), Failed> {
    let built = BuiltPrograms::new();
    let mut results = ComparisonResults::default();
    let mut done: Vec<(ProgramSource, Result<(), String>)> = Vec::new();
    shell::build_release()?;
    eprintln!("building {LOAD_PROGRAM}");
    let words =
        ["build", "--release", "--quiet", "--package", "quorate-bench", "--example", LOAD_PROGRAM];
    shell::read_output(&mut shell::cargo_command(&words))?;
    for system in chosen {
        let known = done.iter().find(|(build, _)| *build == system.build);
        let outcome = match known {
            Some((_, outcome)) => outcome.clone(),
            None => {
                let outcome = build_one(&built, system.build).map_err(|Failed(why)| why);
                done.push((system.build, outcome.clone()));
                outcome
            }
        };
        if let Err(why) = outcome {
            eprintln!("  {} cannot be built: {}", system.id(), last_lines(&why));
            results.record_failure(&system.id(), &format!("cannot be built: {}", last_lines(&why)));
        }
    }
    Ok((built, results))
}

fn build_one(built: &BuiltPrograms, build: ProgramSource) -> Result<(), Failed> {
    match build {
        ProgramSource::Own => Ok(()),
        ProgramSource::Rust(package) => build_rust(built, package),
        ProgramSource::Go { folder, programs } => build_go(built, folder, programs),
        ProgramSource::Installed(program) if shell::is_installed(program) => Ok(()),
        ProgramSource::Installed(program) => Err(Failed(format!("{program} is not installed"))),
    }
}

fn build_rust(built: &BuiltPrograms, package: &str) -> Result<(), Failed> {
    eprintln!("building {package}");
    let manifest = shell::workspace_root().join(SOURCES_FOLDER).join("Cargo.toml");
    let words = ["build", "--release", "--quiet", "--package", package, "--manifest-path"];
    let mut command = shell::cargo_command(&words);
    command
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&built.target_folder)
        .current_dir(shell::workspace_root().join(SOURCES_FOLDER));
    shell::read_output(&mut command).map(drop)
}

fn build_go(built: &BuiltPrograms, folder: &str, programs: &[(&str, &str)]) -> Result<(), Failed> {
    eprintln!("building {folder} (Go)");
    let go = GoToolchain::find().ok_or_else(|| Failed(NO_GO_MESSAGE.to_owned()))?;
    let place = shell::workspace_root().join(SOURCES_FOLDER).join(folder);
    for (package, program) in programs {
        let output = absolute_path(&built.program_folder.join(program))?;
        let mut command = go.go_command_in(&place);
        command.args(["build", "-trimpath", "-mod=readonly", "-o"]).arg(output).arg(package);
        shell::read_output(&mut command)?;
    }
    Ok(())
}

fn absolute_path(path: &Path) -> Result<PathBuf, Failed> {
    Ok(std::path::absolute(path)?)
}

/// Returns the end of a compiler's error output, as one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(4);
    lines[from..].join(" | ")
}
