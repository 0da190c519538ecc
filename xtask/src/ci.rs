//! Checks that every change must pass within 30 minutes on two cores, ordered to fail early.
//! `.ci/run` runs them.
//!
//! Programs are built once, with the profile of `cargo test`; `QUORATE_PROFILE=dev` selects it for
//! the other tasks. Slow checks that rarely find a fault are in [`nightly`](crate::nightly).

use crate::{
    shell::Failed,
    steps::{self, AfterFailure, CargoStep},
};

/// Steps, each of which is a command of README.md or CONTRIBUTING.md.
const STEPS: &[CargoStep] = &[
    &["fmt", "--all", "--check"],
    // Report all failures, not only those of the first crate.
    &["test", "--no-fail-fast"],
    &["xtask", "users"],
    &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"],
    // The program without etcd, which is another half of its code.
    &["check", "--package", "quorate-cli", "--no-default-features", "--quiet"],
    &["run", "--bin", "quorate", "--", "demo", "--seconds", "6"],
    &["xtask", "clients"],
    &["xtask", "cluster", "short"],
    &["xtask", "page"],
    &["xtask", "package", "check"],
    &["xtask", "offload", "conformance", "--require", "reference,p4,rtl-64,rtl-512"],
    &["xtask", "spec"],
    &["xtask", "gate"],
    &["xtask", "deny"],
    // A few mutants prove that the machinery works; the nightly run covers all of them.
    &[
        "xtask",
        "mutants",
        "ballot-2-round-reused",
        "p2-1-vote-below-promise",
        "window_never_shrunk",
    ],
];

/// Runs all steps until one fails. Changes no files.
pub(crate) fn run() -> Result<(), Failed> {
    steps::run(STEPS, AfterFailure::Stop)
}
