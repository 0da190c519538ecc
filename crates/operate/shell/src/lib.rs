//! Runs other programs, prints their command lines and checks their exit codes. Also finds cargo
//! and this workspace's folders.
//!
//! The crate has no dependencies, so that `cargo xtask` starts quickly in a fresh checkout.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "it shows what it runs")]

pub mod programs;

pub use programs::is_installed;

use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// Error message of a failed task.
#[derive(Debug)]
pub struct Failed(pub String);

impl Failed {
    /// Returns a conversion that prefixes an error with the file's path.
    pub fn at_path<E: fmt::Display>(path: &Path) -> impl Fn(E) -> Self {
        move |error| Self(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Returns the root folder of the workspace.
pub fn workspace_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(3).unwrap_or(own).to_owned()
}

/// Returns the folder of all build output.
pub fn build_folder() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), PathBuf::from)
}

/// Returns the path of a program of this workspace, built for release.
pub fn release_path(name: &str) -> PathBuf {
    build_folder().join("release").join(name)
}

/// Returns the path of a program in the requested profile: `release`, or with `QUORATE_PROFILE=dev`
/// the profile of `cargo test`, in which everything is built already.
pub fn program_path(name: &str) -> PathBuf {
    let folder = if is_dev_profile() { "debug" } else { "release" };
    build_folder().join(folder).join(name)
}

/// Returns cargo's profile arguments for [`program`].
pub fn profile_arguments() -> &'static [&'static str] {
    if is_dev_profile() { &[] } else { &["--release"] }
}

fn is_dev_profile() -> bool {
    env::var_os("QUORATE_PROFILE").is_some_and(|profile| profile == "dev")
}

/// Cargo's arguments that select the packaged programs.
pub const PACKAGED_PROGRAMS: [&str; 6] =
    ["--bin", "quorate", "--bin", "quorate-tools", "--bin", "quorate-p4"];

/// Builds the packaged programs for [`release_path`]. Prints nothing on standard output.
pub fn build_release() -> Result<(), Failed> {
    eprintln!("building quorate");
    let words = [&["build", "--release", "--quiet"], &PACKAGED_PROGRAMS[..]].concat();
    read_output(&mut cargo_command(&words)).map(drop)
}

/// Builds the packaged programs for [`program`].
pub fn build_programs() -> Result<(), Failed> {
    run_cargo(&[&["build", "--quiet"], &PACKAGED_PROGRAMS[..], profile_arguments()].concat())
}

/// Returns a cargo command that runs in the workspace.
pub fn cargo_command(words: &[&str]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(words).current_dir(workspace_root());
    command
}

/// Runs cargo in the workspace.
pub fn run_cargo(words: &[&str]) -> Result<(), Failed> {
    run_cargo_with(words, &[])
}

/// Runs cargo with additional environment variables.
pub fn run_cargo_with(words: &[&str], variables: &[(&str, &str)]) -> Result<(), Failed> {
    let mut command = cargo_command(words);
    command.envs(variables.iter().copied());
    run_checked(command, &format!("cargo {}", words.join(" ")))
}

/// Runs a program and shows its output.
pub fn run(program: &Path, words: &[&str]) -> Result<(), Failed> {
    let mut command = Command::new(program);
    command.args(words).current_dir(workspace_root());
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    run_checked(command, &format!("{name} {}", words.join(" ")))
}

/// Prints `line`, runs the command and fails unless it succeeds.
pub fn run_checked(mut command: Command, line: &str) -> Result<(), Failed> {
    println!("$ {line}");
    let begin = Instant::now();
    let status = command.status().map_err(|error| Failed(format!("{line}: {error}")))?;
    println!("  {:.1} s", begin.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(Failed(format!("{line}: {status}"))) }
}

/// Returns a program's standard output. An error contains all its output.
pub fn read_output(command: &mut Command) -> Result<String, Failed> {
    Ok(programs::read_output(command)?)
}

/// Copies a folder to a path that does not exist yet, so that the copy can be changed.
pub fn copy_folder(from: &Path, to: &Path) -> Result<(), Failed> {
    let mut command = Command::new("cp");
    read_output(command.args(["-R", "--no-preserve=mode"]).arg(from).arg(to))?;
    Ok(())
}

/// Reports a skipped step and the reason. Fails instead if `QUORATE_NO_SKIPS=true`.
pub fn report_skip(what: &str, why: &str) -> Result<(), Failed> {
    println!("SKIPPED {what}: {why}");
    if env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true") {
        return Err(Failed(format!("{what} was skipped, and nothing may be: {why}")));
    }
    Ok(())
}
