//! Hands tasks over to the program `quorate-trials`.

use std::{env, os::unix::process::CommandExt as _, process::Command};

use crate::shell::{Failed, root};

/// Becomes that program, which cargo builds first; returns only if this fails.
///
/// It prints nothing, since some tasks write a document. Like xtask it is built with the profile of
/// `cargo test`; `QUORATE_PROFILE` selects that of the programs under test.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    // By the name of the program, as the alias of xtask has it: `.cargo/config.toml` says why.
    command.args(["run", "--quiet", "--bin", "quorate-trials", "--manifest-path"]);
    let error = command.arg(root().join("Cargo.toml")).arg("--").args(words).exec();
    Err(Failed(format!("cargo run --bin quorate-trials: {error}")))
}
