//! redis-rs: its crate has its tests, which start a server each. The program that they start passes everything on to a node.

use std::{env, fs, io::Write as _, path::PathBuf, process::Command};

use serde::Deserialize;

use super::{Failed, Outcome, Report, Task, Test, bounded, folder, ours, output};
use crate::shell::{has, read};

const VERSION: &str = "1.8.1";

pub(super) fn fetch() -> Result<PathBuf, Failed> {
    if !has("python3") {
        return Err(Failed("no python3; ./setup installs it".to_owned()));
    }
    let folder = folder("rust")?;
    let copy = folder.join(format!("redis-{VERSION}"));
    if copy.is_dir() {
        return Ok(copy);
    }
    // A package that needs it, so that cargo fetches it.
    let asker = folder.join("asker");
    fs::create_dir_all(asker.join("src"))?;
    fs::write(asker.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[package]\nname = \"asker\"\nedition = \"2024\"\n[dependencies]\nredis = \"={VERSION}\"\n[workspace]\n"
    );
    fs::write(asker.join("Cargo.toml"), manifest)?;
    let mut command = cargo();
    command.current_dir(&asker);
    let json = read(command.args(["metadata", "--format-version", "1"]))?;
    let source = source(&json)?;
    read(Command::new("cp").arg("-R").arg(&source).arg(&copy))?;
    // It is in this tree's folder, and no part of its workspace.
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(copy.join("Cargo.toml"))?;
    file.write_all(b"\n[workspace]\n")?;
    Ok(copy)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

fn source(json: &str) -> Result<PathBuf, Failed> {
    let metadata: Metadata =
        serde_json::from_str(json).map_err(|error| Failed(format!("cargo metadata: {error}")))?;
    let mut packages = metadata.packages.into_iter();
    let package = packages.find(|package| package.name == "redis");
    let folder = package.and_then(|package| Some(package.manifest_path.parent()?.to_owned()));
    folder.ok_or_else(|| Failed("cargo metadata names no redis".to_owned()))
}

fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

pub(super) fn run(task: &Task<'_>) -> Result<Report, Failed> {
    let servers = ours("").display().to_string();
    let path = env::var("PATH").unwrap_or_default();
    let mut build = cargo();
    let words = |command: &mut Command| {
        command
            .args(["test", "--locked", "--test", task.file])
            .args(["--features", "tokio-comp"])
            .current_dir(task.folder)
            .env("CARGO_TARGET_DIR", task.folder.with_file_name("target"));
    };
    words(&mut build);
    read(build.arg("--no-run"))?;
    let mut command = bounded(cargo().get_program());
    words(&mut command);
    command
        // All of them use one database.
        .args(["--no-fail-fast", "--", "--test-threads=1"])
        .env("PATH", format!("{servers}:{path}"))
        .env("QUORATE_PORT", task.port.to_string());
    Ok(read_tests(&output(&mut command)?))
}

/// What Rust's test program prints.
fn read_tests(text: &str) -> Report {
    let details = |name: &str| {
        let begin = format!("\n---- {name} stdout ----\n");
        let (_, rest) = text.split_once(&begin)?;
        Some(rest.split("\n---- ").next().unwrap_or(rest).to_owned())
    };
    let tests = text.lines().filter_map(|line| {
        let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        let outcome = match outcome {
            "ok" => Outcome::Passed,
            "FAILED" => Outcome::Failed,
            "ignored" => Outcome::Skipped,
            _ => return None,
        };
        let details = details(name).unwrap_or_default();
        Some(Test {
            name: name.to_owned(),
            outcome,
            details,
        })
    });
    Report {
        tests: tests.collect(),
        complete: text.contains("\ntest result: "),
        text: text.to_owned(),
    }
}
