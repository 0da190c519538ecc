//! The commit that the program is made of: every figure names it, wherever and whenever the program
//! runs.
//!
//! It is noted when the program is built, since the source tree moves on. Without git, or outside
//! of a repository of its own (a tarball, also one that lies within another repository), nothing is
//! noted, unless the builder sets `QUORATE_COMMIT`. A commit whose files have not been changed
//! gives the same program everywhere.
//!
//! The build script that asks runs again when the commit or a source file changes, not with the
//! index: that changes by looking at it, and says nothing of what is built. It is that of the crate
//! that is built last, and no other is built again with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What the program is made of, seen from the root of the source tree, as Git takes it.
const MADE_OF: [&str; 8] = [
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    ".cargo",
    ":(glob)crates/*/*/Cargo.toml",
    ":(glob)crates/*/*/build.rs",
    ":(glob)crates/*/*/build/**",
    ":(glob)crates/*/*/src/**",
];
/// The same of data that is compiled into it.
const DATA: &str = "crates/proof/bench/papers";
/// Digits of a commit, in every clone as many.
const DIGITS: &str = "--short=10";

/// `0123456789`, or `0123456789+changes`; `None` if this is no repository with a commit.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    let commit = git(root, &["rev-parse", DIGITS, "HEAD"])?;
    let asked = |arguments: &[&str]| git(root, &[arguments, &["--"], &MADE_OF, &[DATA]].concat());
    let changed = asked(&["diff", "--name-only", "HEAD"]);
    let new = asked(&["ls-files", "--others", "--exclude-standard"]);
    // What cannot be told may be changed.
    let same = [changed, new].iter().all(|files| files.as_deref() == Some(""));
    Some(if same { commit } else { format!("{commit}+changes") })
}

/// Files and folders that are not the same after a commit, a checkout, or a change of what the
/// program is made of. All of them exist: Cargo takes one that does not for changed.
pub(crate) fn watched(root: &Path) -> Vec<PathBuf> {
    let mut names = vec!["HEAD".to_owned()];
    if let Some(branch) = git(root, &["symbolic-ref", "--quiet", "HEAD"]) {
        names.extend([branch, "packed-refs".to_owned()]);
    }
    let mut all = Vec::new();
    for name in names {
        let Some(path) = git(root, &["rev-parse", "--git-path", &name]) else {
            continue;
        };
        let path = root.join(path);
        if name == "packed-refs" && !path.exists() {
            continue;
        }
        // A branch that is packed gets a file with its next commit: then its folder has changed.
        all.extend(path.ancestors().find(|path| path.exists()).map(Path::to_owned));
    }
    let folders = |of: PathBuf| fs::read_dir(of).into_iter().flatten().flatten();
    let crates = folders(root.join("crates")).flat_map(|group| folders(group.path()));
    let parts = crates.flat_map(|one| {
        ["Cargo.toml", "build.rs", "build", "src"].map(|part| one.path().join(part))
    });
    all.extend(parts);
    let others = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo", DATA];
    all.extend(others.map(|path| root.join(path)));
    all.retain(|path| path.exists());
    all
}

/// What Git says, if it is there and does not fail. It changes nothing, and looks at no other
/// repository because it was told so by a hook.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
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
