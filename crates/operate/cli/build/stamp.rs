//! Determines the commit from which the program is built. It is shown in the version and in
//! published figures.
//!
//! The commit is recorded at build time, because the source tree may change later. Without git, or
//! outside of the project's own repository (e.g. in a tarball, even within another repository), it
//! is the one that the builder sets as `QUORATE_COMMIT`, or that Cargo recorded in a packaged
//! crate. A commit without changed files yields the same program everywhere.
//!
//! The build script runs again when the commit or a source file changes, but not when the index
//! does: reading the repository may change the index without affecting the build. The script
//! belongs to the crate that is built last, so no other crate is rebuilt with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Git path specifications of everything that the program is built from, relative to the root of
/// the source tree.
const SOURCE_PATHS: [&str; 8] = [
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    ".cargo",
    ":(glob)crates/*/*/Cargo.toml",
    ":(glob)crates/*/*/build.rs",
    ":(glob)crates/*/*/build/**",
    ":(glob)crates/*/*/src/**",
];
/// Git option that fixes the number of digits, so that it is the same in all clones.
const ABBREV_OPTION: &str = "--short=10";

/// Returns the commit as `0123456789` or `0123456789+changes`; `None` if this is not a repository
/// with a commit.
pub(crate) fn source_commit(root: &Path) -> Option<String> {
    let top = run_git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    let commit = run_git(root, &["rev-parse", ABBREV_OPTION, "HEAD"])?;
    let asked = |arguments: &[&str]| run_git(root, &[arguments, &["--"], &SOURCE_PATHS].concat());
    let changed = asked(&["diff", "--name-only", "HEAD"]);
    let new = asked(&["ls-files", "--others", "--exclude-standard"]);
    // If git fails, assume that files have changed.
    let same = [changed, new].iter().all(|files| files.as_deref() == Some(""));
    Some(if same { commit } else { format!("{commit}+changes") })
}

/// Returns the date of the commit, as `2026-11-28`.
pub(crate) fn commit_date(root: &Path) -> Option<String> {
    run_git(root, &["show", "--no-patch", "--format=%cs", "HEAD"])
}

/// Returns the commit in the file that `cargo package` adds to a crate, which has no repository.
pub(crate) fn packaged_commit(of_crate: &Path) -> Option<String> {
    let text = fs::read_to_string(of_crate.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    let commit: String = rest.split('"').nth(1)?.chars().take(10).collect();
    Some(if text.contains("\"dirty\": true") { commit + "+changes" } else { commit })
}

/// Returns the files and folders that change with a commit, a checkout, or a change of the sources.
/// All of them exist, because Cargo treats a missing file as changed.
pub(crate) fn watched_paths(root: &Path) -> Vec<PathBuf> {
    let mut names = vec!["HEAD".to_owned()];
    if let Some(branch) = run_git(root, &["symbolic-ref", "--quiet", "HEAD"]) {
        names.extend([branch, "packed-refs".to_owned()]);
    }
    let mut all = Vec::new();
    for name in names {
        let Some(path) = run_git(root, &["rev-parse", "--git-path", &name]) else {
            continue;
        };
        let path = root.join(path);
        if name == "packed-refs" && !path.exists() {
            continue;
        }
        // The next commit creates a file for a packed branch, which changes the folder.
        all.extend(path.ancestors().find(|path| path.exists()).map(Path::to_owned));
    }
    let folders = |of: PathBuf| fs::read_dir(of).into_iter().flatten().flatten();
    let crates = folders(root.join("crates")).flat_map(|group| folders(group.path()));
    let parts = crates.flat_map(|one| {
        ["Cargo.toml", "build.rs", "build", "src"].map(|part| one.path().join(part))
    });
    all.extend(parts);
    let others = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo"];
    all.extend(others.map(|path| root.join(path)));
    all.retain(|path| path.exists());
    all
}

/// Runs a read-only git command. Returns its output, or `None` if it fails. Ignores a repository
/// that a git hook set in the environment.
fn run_git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("--no-optional-locks")
        .args(arguments)
        .current_dir(root)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
