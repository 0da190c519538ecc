//! Packages of the programs and the C library. `quorate-package` makes them from a release build
//! with debug information, or from the folder of a given binary.

use std::path::Path;

use crate::shell::{self, Failed, PACKAGED_PROGRAMS, build_folder, is_installed, run_cargo};

/// Cargo profile of a release with debug information. The debug information is archived separately
/// from the packages.
const SYMBOLS_PROFILE: &str = "symbols";

/// Runs `cargo xtask package`. Arguments select the kinds of package; flags are `--to DIR`,
/// `--binary PATH`, `--check`, `--fast`.
pub(crate) fn run(rest: &[&str]) -> Result<(), Failed> {
    if *rest == ["check"] {
        return check_packages();
    }
    let binary = build_folder().join(SYMBOLS_PROFILE).join("quorate");
    let binary = binary.display().to_string();
    let to = build_folder().join("packages").display().to_string();
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
        run_cargo(
            &[&["build", "--lib", "--profile", SYMBOLS_PROFILE], &PACKAGED_PROGRAMS[..]].concat(),
        )?;
        words.extend(["--binary", &binary]);
    }
    if !rest.contains(&"--to") {
        words.extend(["--to", &to]);
    }
    run_cargo(&words)
}

/// Makes all packages of the binary built by `cargo test`, checks them and discards them.
fn check_packages() -> Result<(), Failed> {
    // These tests need dependencies of their own, so `cargo test` leaves them out.
    let package = ["--package", "xtask", "--features", "package"];
    run_cargo(&[&["test", "--quiet", "--bin", "quorate-package"], &package[..]].concat())?;
    run_cargo(&[&["build", "--quiet", "--lib"], &PACKAGED_PROGRAMS[..]].concat())?;
    let folder = tempfile::tempdir()?;
    let debug = build_folder().join("debug");
    let mut binary = debug.join("quorate").display().to_string();
    // Otherwise the symbols would be packed and unpacked ten times.
    if is_installed("strip") {
        for name in ["quorate", "quorate-tools", "quorate-p4", "libquorate_capi.so"] {
            let (from, to) = (debug.join(name), folder.path().join(name));
            let (from, to) = (from.display().to_string(), to.display().to_string());
            shell::run(Path::new("strip"), &["-o", &to, &from])?;
        }
        binary = folder.path().join("quorate").display().to_string();
    }
    let to = folder.path().join("packages").display().to_string();
    run(&["all", "--check", "--fast", "--binary", &binary, "--to", &to])
}
