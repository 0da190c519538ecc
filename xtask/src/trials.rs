//! Passes tasks on to the program `quorate-trials`.

use std::{env, os::unix::process::CommandExt as _, process::Command};

use crate::shell::{Failed, workspace_root};

/// Replaces this process with `quorate-trials`, which cargo builds first. Returns only on failure.
///
/// Prints nothing, since some tasks write a document to standard output. Like `xtask`, the program
/// is built with the profile of `cargo test`; `QUORATE_PROFILE` selects the profile of the programs
/// under test.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    // Name the program, as the alias of xtask does; `.cargo/config.toml` gives the reason.
    command.args(["run", "--quiet", "--bin", "quorate-trials", "--manifest-path"]);
    let error = command.arg(workspace_root().join("Cargo.toml")).arg("--").args(words).exec();
    Err(Failed(format!("cargo run --bin quorate-trials: {error}")))
}
