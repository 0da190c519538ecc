//! Other systems beside ours: the source tree builds and runs them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::args::CompareArgs;
use crate::output::{Exit, Problem};

/// Hands over to `cargo xtask compare` where there is a source tree; otherwise says so.
pub(super) fn run(args: &CompareArgs) -> Result<Exit, Problem> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let command = format!("cargo xtask compare {}", args.flags.join(" "));
    let command = command.trim_end();
    let Some(root) = source_tree(&root) else {
        let what = "other systems are built from the source tree, and this program is not in its own any more";
        return Err(Problem::new(Exit::Failed, "not_ready", what)
            .hint(format!("in a checkout of Quorate: {command}")));
    };
    let status = Command::new("cargo")
        .args(["xtask", "compare"])
        .args(&args.flags)
        .current_dir(root)
        .status()
        .map_err(|error| Problem::io(format_args!("run {command}"), &error))?;
    Ok(if status.success() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

/// The folder, if the other systems' sources are in it.
fn source_tree(root: &Path) -> Option<PathBuf> {
    let is_there = root.join("bench-compare/README.md").is_file();
    is_there.then(|| root.canonicalize().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_the_other_systems_is_no_source_tree() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(source_tree(folder.path()), None);
        std::fs::create_dir(folder.path().join("bench-compare")).unwrap();
        assert_eq!(source_tree(folder.path()), None);
        std::fs::write(folder.path().join("bench-compare/README.md"), "").unwrap();
        assert!(source_tree(folder.path()).is_some());
    }
}
