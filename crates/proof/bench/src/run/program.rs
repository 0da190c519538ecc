//! Executables that a measurement starts: nodes, and the parts of bare programs.

use std::{env, path::PathBuf};

use crate::{probe::part::PartLauncher, problem::Problem};

/// Returns the path of the executable that runs nodes. It is in the same folder as this executable.
pub(super) fn node_program() -> Result<PathBuf, Problem> {
    let own = env::current_exe().map_err(|error| Problem::io_error("find this program", &error))?;
    Ok(own.with_file_name("quorate"))
}

/// Returns the launcher for parts of a probe. The parts run this executable, if it has the
/// subcommand `bench part`.
pub fn part_launcher() -> Result<PartLauncher, Problem> {
    Ok(PartLauncher {
        program: node_program()?,
        arguments: vec!["bench".to_owned(), "part".to_owned()],
    })
}
