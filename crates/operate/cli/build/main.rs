//! Build script: records the version of the program and the commit from which it is built, as
//! determined by `stamp.rs`.
#![allow(clippy::print_stdout, reason = "so Cargo is told")]

mod stamp;

use std::{env, path::PathBuf};

fn main() {
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = own.ancestors().nth(3).and_then(|root| root.canonicalize().ok());
    let git = root.and_then(|root| Some((stamp::source_commit(&root)?, root)));
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-env-changed=QUORATE_COMMIT");
    let mut version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let mut date = None;
    if let Some((_, root)) = &git {
        date = stamp::commit_date(root);
        for path in stamp::watched_paths(root) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let commit = git.map(|(commit, _)| commit);
    let commit = commit.or_else(|| env::var("QUORATE_COMMIT").ok());
    if let Some(commit) = commit.or_else(|| stamp::packaged_commit(&own)) {
        println!("cargo::rustc-env=QUORATE_COMMIT={commit}");
        let date = date.map_or_else(String::new, |date| format!(" {date}"));
        version += &format!(" ({commit}{date})");
    }
    println!("cargo::rustc-env=QUORATE_VERSION={version}");
}
