//! Tests devices against the reference programs, and groups of devices under faults: `cargo xtask
//! offload`.

use std::path;

use crate::{
    area,
    shell::{Failed, profile_arguments, run_cargo},
    trials,
};

/// Runs `quorate-conformance` with the arguments `words`.
fn run_conformance(words: &[&str]) -> Result<(), Failed> {
    let run = ["run", "--quiet", "--bin", "conformance"];
    run_cargo(&[&run, profile_arguments(), &["--"], words].concat())
}

/// Runs every target with every set of vectors, or mixed groups. Also builds committed artifacts
/// from their sources.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    match words {
        ["conformance", rest @ ..] => run_conformance(&[&["run"], rest].concat()),
        // The object file is committed for machines without clang.
        ["object"] => run_conformance(&["object"]),
        ["area", rest @ ..] => area::run_area(rest),
        ["kernels", ..] => trials::run(words),
        ["rtl", folder, rest @ ..] if !folder.starts_with('-') => {
            // Cargo runs in another folder.
            let folder = path::absolute(folder)?;
            let folder = folder.to_string_lossy();
            run_conformance(&[&["cores", &folder], rest].concat())
        }
        ["groups", rest @ ..] => run_conformance(&[&["groups"], rest].concat()),
        _ => Err(Failed(
            "offload conformance …, offload groups [N], offload kernels [N], \
             offload rtl FOLDER [--room N] [--cells N] [--bus 64|512], offload area [--clock] [CORE…], \
             or offload object"
                .to_owned(),
        )),
    }
}

/// Plants all faults, or the named ones, one at a time.
pub(crate) fn run_mutants(check: bool, names: &[&str]) -> Result<(), Failed> {
    let flag: &[&str] = if check { &["--check"] } else { &[] };
    run_conformance(&[&["mutants"], flag, names].concat())
}
