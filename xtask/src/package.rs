//! Packages of the binary: `quorate-package` makes them, of a release build or of a binary that is named.

use std::path::Path;

use crate::shell::{self, Failed, cargo, has, release, target};

/// Words that choose what is made, and flags: `--to DIR`, `--binary PATH`, `--check`, `--fast`.
pub(crate) fn run(rest: &[&str]) -> Result<(), Failed> {
    let binary = release("quorate").display().to_string();
    let to = target().join("packages").display().to_string();
    let mut words = vec![
        "run",
        "--quiet",
        "--package",
        "xtask",
        "--features",
        "package",
        "--bin",
        "quorate-package",
        "--",
    ];
    words.extend(rest);
    if !rest.contains(&"--binary") {
        cargo(&["build", "--release", "--bin", "quorate"])?;
        words.extend(["--binary", &binary]);
    }
    if !rest.contains(&"--to") {
        words.extend(["--to", &to]);
    }
    cargo(&words)
}

/// All packages of the binary that `cargo test` has built, read back; they are thrown away.
pub(crate) fn check() -> Result<(), Failed> {
    cargo(&["build", "--quiet", "--bin", "quorate"])?;
    let folder = tempfile::tempdir()?;
    let mut binary = target().join("debug/quorate").display().to_string();
    // Most of a debug build is for debuggers, and would be packed and unpacked ten times.
    if has("strip") {
        let stripped = folder.path().join("quorate").display().to_string();
        shell::run(
            Path::new("strip"),
            &["--strip-debug", "-o", &stripped, &binary],
        )?;
        binary = stripped;
    }
    let to = folder.path().join("packages").display().to_string();
    run(&["all", "--check", "--fast", "--binary", &binary, "--to", &to])
}
