//! Executables that a measurement starts: nodes, and the parts of bare programs.

use std::{env, path::PathBuf};

use crate::{probe::part::Launcher, problem::Problem};

/// Returns the path of the executable that runs nodes. It is in the same folder as this executable.
pub(super) fn program() -> Result<PathBuf, Problem> {
    let own = env::current_exe().map_err(|error| Problem::io("find this program", &error))?;
    Ok(own.with_file_name("quorate"))
}

/// Returns the launcher for parts of a probe. The parts run this executable, if it has the
/// subcommand `bench part`.
pub fn launcher() -> Result<Launcher, Problem> {
    Ok(Launcher { program: program()?, arguments: vec!["bench".to_owned(), "part".to_owned()] })
}
