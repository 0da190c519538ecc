//! Runs other programs and waits until they end.

use std::{
    env, io,
    process::{Command, Stdio},
};

/// Returns a program's standard output. An error contains the command line, the status and all
/// output.
pub fn read_output(command: &mut Command) -> io::Result<String> {
    let line = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{line}: {error}")))?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    let why = format!("{line}: {}\n{out}{error}", output.status);
    Err(io::Error::other(why))
}

/// Returns whether `program` is installed.
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
