//! Comparison with other systems, which are built and run from the source tree.

use std::{
    path::{self, Path, PathBuf},
    process::Command,
};

use super::args::CompareArgs;
use quorate_cli::output::{Exit, Problem, is_switched_off, is_switched_on};

/// Flags that take a file name.
const FILE_NAME_FLAGS: [&str; 2] = ["--json", "--out"];

/// Runs `cargo xtask compare` in the source tree. Returns an error if there is none.
pub(super) fn run(args: &CompareArgs) -> Result<Exit, Problem> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let flags = forwarded_flags(args);
    let command = format!("cargo xtask compare {}", flags.join(" "));
    let command = command.trim_end();
    let Some(root) = find_source_tree(&root) else {
        let what =
            "comparing with other systems needs the source tree, and this program is not inside it";
        return Err(Problem::new(Exit::Failed, "not_ready", what)
            .with_hint(format!("in a checkout of Quorate: {command}")));
    };
    let status = Command::new("cargo")
        .args(["xtask", "compare"])
        .args(&flags)
        .current_dir(root)
        .status()
        .map_err(|error| Problem::io_error(format_args!("run {command}"), &error))?;
    Ok(if status.success() { Exit::Done } else { Exit::Failed })
}

/// Returns the flags for `cargo xtask compare`. All paths are made absolute, because the process
/// runs in the source tree.
fn forwarded_flags(args: &CompareArgs) -> Vec<String> {
    let mut all = args.flags.clone();
    match args.json.as_deref() {
        None => {}
        Some(given) if is_switched_off(given) => {}
        Some(given) if is_switched_on(given) => all.push("--json".to_owned()),
        // Without a file name, the next word is another flag.
        Some(file) => drop(all.splice(..0, ["--json".to_owned(), file.to_owned()])),
    }
    for at in 1..all.len() {
        if FILE_NAME_FLAGS.contains(&&*all[at - 1])
            && !all[at].starts_with("--")
            && let Ok(file) = path::absolute(&all[at])
        {
            all[at] = file.display().to_string();
        }
    }
    all
}

/// Returns `root` if it contains the source tree of the comparison.
fn find_source_tree(root: &Path) -> Option<PathBuf> {
    let is_there = root.join("bench-compare/README.md").is_file();
    is_there.then(|| root.canonicalize().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command as Commands, bench::BenchCommand};

    #[test]
    fn flags_are_passed_on_with_absolute_paths() {
        let here = std::env::current_dir().unwrap();
        let file = here.join("r.json").display().to_string();
        let out = here.join("out/mine").display().to_string();
        for (given, wanted) in [
            (&["--json", "r.json", "--quick"][..], &["--json", &file, "--quick"][..]),
            (&["--json=r.json"], &["--json", &file]),
            (&["--quick", "--json", "r.json"], &["--quick", "--json", &file]),
            (&["--json", "--quick"], &["--json", "--quick"]),
            (&["--json", "--out", "out/mine"], &["--json", "--out", &out]),
            (&["--quick", "--json", "--list"], &["--quick", "--json", "--list"]),
            (&["--json"], &["--json"]),
            (&["--out", "/r"], &["--out", "/r"]),
            (&["--json", "false"], &[]),
            (&[], &[]),
        ] {
            let words = [&["quorate", "bench", "compare"], given].concat();
            let command = Cli::try_parse_from(words).unwrap().command;
            let Commands::Bench(BenchCommand::Compare(args)) = command else {
                panic!("{command:?}")
            };
            assert_eq!(forwarded_flags(&args), wanted, "{given:?}");
        }
    }

    #[test]
    fn a_folder_without_the_other_systems_is_no_source_tree() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find_source_tree(folder.path()), None);
        std::fs::create_dir(folder.path().join("bench-compare")).unwrap();
        assert_eq!(find_source_tree(folder.path()), None);
        std::fs::write(folder.path().join("bench-compare/README.md"), "").unwrap();
        assert!(find_source_tree(folder.path()).is_some());
    }
}
