//! Packages of the binary: `quorate-package` makes them, of a release build with debug information
//! or of a binary that is named.

use std::path::Path;

use crate::shell::{self, Failed, cargo, has, target};

/// Profile of a release, with debug information, which is archived separately from the packages.
const PROFILE: &str = "symbols";

/// Words that choose what is made, and flags: `--to DIR`, `--binary PATH`, `--check`, `--fast`.
pub(crate) fn run(rest: &[&str]) -> Result<(), Failed> {
    if *rest == ["check"] {
        return check();
    }
    let binary = target().join(PROFILE).join("quorate");
    let binary = binary.display().to_string();
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
        cargo(&["build", "--profile", PROFILE, "--bin", "quorate", "--bin", "quorate-tools"])?;
        words.extend(["--binary", &binary]);
    }
    if !rest.contains(&"--to") {
        words.extend(["--to", &to]);
    }
    cargo(&words)
}

/// All packages of the binary that `cargo test` has built, read back; they are thrown away.
fn check() -> Result<(), Failed> {
    // Its tests are built with what it alone needs, so `cargo test` leaves them out.
    let package = ["--package", "xtask", "--features", "package"];
    cargo(&[&["test", "--quiet", "--bin", "quorate-package"], &package[..]].concat())?;
    cargo(&["build", "--quiet", "--bin", "quorate", "--bin", "quorate-tools"])?;
    let folder = tempfile::tempdir()?;
    let debug = target().join("debug");
    let mut binary = debug.join("quorate").display().to_string();
    // Symbols would be packed and unpacked ten times.
    if has("strip") {
        for name in ["quorate", "quorate-tools"] {
            let (from, to) = (debug.join(name), folder.path().join(name));
            let (from, to) = (from.display().to_string(), to.display().to_string());
            shell::run(Path::new("strip"), &["-o", &to, &from])?;
        }
        binary = folder.path().join("quorate").display().to_string();
    }
    let to = folder.path().join("packages").display().to_string();
    run(&["all", "--check", "--fast", "--binary", &binary, "--to", &to])
}
