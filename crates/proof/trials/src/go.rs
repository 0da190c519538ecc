//! Go toolchain, which builds the programs in `tools` and other projects' clients.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::read_output;

/// Message for tasks that are skipped without Go.
pub(crate) const NO_GO_MESSAGE: &str =
    "no Go 1.24 or newer (https://go.dev/dl, or in /usr/local/go)";
const MIN_VERSION: (u32, u32) = (1, 24);

/// A Go toolchain that is new enough.
pub(crate) struct GoToolchain(PathBuf);

impl GoToolchain {
    pub(crate) fn find() -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let usual = Path::new("/usr/local/go/bin").to_owned();
        let mut places = env::split_paths(&path).chain([usual]);
        places.find_map(|folder| {
            let go = folder.join("go");
            let found = go.is_file().then(|| go_version(&go)).flatten();
            found.filter(|version| *version >= MIN_VERSION).map(|_| Self(go))
        })
    }

    /// Returns a `go` command for this folder that does not download another toolchain.
    pub(crate) fn go_command_in(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.0);
        command.current_dir(folder).env("GOTOOLCHAIN", "local");
        command
    }
}

fn go_version(go: &Path) -> Option<(u32, u32)> {
    let text = read_output(Command::new(go).args(["env", "GOVERSION"])).ok()?;
    let mut numbers = text.trim().strip_prefix("go")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
