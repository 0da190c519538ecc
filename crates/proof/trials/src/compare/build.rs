//! Builds the programs under comparison.

use std::path::{Path, PathBuf};

use super::{
    figures::Results,
    systems::{Build, FOLDER, System},
};
use crate::{
    go::{Go, NO_GO},
    shell::{self, Failed},
};

/// Program that drives the load: an example of quorate-bench, so that it is compiled with it.
pub(super) const LOAD: &str = "compare-load";

/// Folder of the built programs.
#[derive(Clone, Debug)]
pub(super) struct Built {
    programs: PathBuf,
    rust: PathBuf,
}

impl Built {
    fn new() -> Self {
        let folder = shell::target().join("compare");
        Self { programs: folder.join("bin"), rust: folder }
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        match name {
            "quorate" => shell::release("quorate"),
            LOAD => shell::release(&format!("examples/{LOAD}")),
            "redis-server" => PathBuf::from(name),
            name if name.starts_with("compare-") => self.rust.join("release").join(name),
            name => self.programs.join(name),
        }
    }
}

/// Builds all programs. Fails if Quorate or the load generator cannot be built.
pub(super) fn build_all(chosen: &[&System]) -> Result<(Built, Results), Failed> {
    let built = Built::new();
    let mut results = Results::default();
    let mut done: Vec<(Build, Result<(), String>)> = Vec::new();
    shell::build_release()?;
    eprintln!("building {LOAD}");
    let words = ["build", "--release", "--quiet", "--package", "quorate-bench", "--example", LOAD];
    shell::read(&mut shell::cargo_command(&words))?;
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
            results.fail(&system.id(), &format!("cannot be built: {}", last_lines(&why)));
        }
    }
    Ok((built, results))
}

fn build_one(built: &Built, build: Build) -> Result<(), Failed> {
    match build {
        Build::Own => Ok(()),
        Build::Rust(package) => rust(built, package),
        Build::Go { folder, programs } => go(built, folder, programs),
        Build::Installed(program) if shell::has(program) => Ok(()),
        Build::Installed(program) => Err(Failed(format!("{program} is not installed"))),
    }
}

fn rust(built: &Built, package: &str) -> Result<(), Failed> {
    eprintln!("building {package}");
    let manifest = shell::root().join(FOLDER).join("Cargo.toml");
    let words = ["build", "--release", "--quiet", "--package", package, "--manifest-path"];
    let mut command = shell::cargo_command(&words);
    command
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&built.rust)
        .current_dir(shell::root().join(FOLDER));
    shell::read(&mut command).map(drop)
}

fn go(built: &Built, folder: &str, programs: &[(&str, &str)]) -> Result<(), Failed> {
    eprintln!("building {folder} (Go)");
    let go = Go::find().ok_or_else(|| Failed(NO_GO.to_owned()))?;
    let place = shell::root().join(FOLDER).join(folder);
    for (package, program) in programs {
        let output = absolute(&built.programs.join(program))?;
        let mut command = go.go_command_in(&place);
        command.args(["build", "-trimpath", "-mod=readonly", "-o"]).arg(output).arg(package);
        shell::read(&mut command)?;
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf, Failed> {
    Ok(std::path::absolute(path)?)
}

/// Returns the end of a compiler's error output, as one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(4);
    lines[from..].join(" | ")
}
