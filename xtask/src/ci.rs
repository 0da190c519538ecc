//! Checks that every change must pass within 30 minutes on two cores, in an order that fails early:
//! `.ci/run` runs them.
//!
//! Programs are built once, with the profile of `cargo test`; `QUORATE_PROFILE=dev` selects it for
//! the other tasks. Slow checks that rarely find anything are in [`nightly`](crate::nightly).

use crate::{
    shell::Failed,
    steps::{self, After, Step},
};

/// Each is a command of README.md or CONTRIBUTING.md.
const STEPS: &[Step] = &[
    &["fmt", "--all", "--check"],
    // All failures are reported at once, not one crate at a time.
    &["test", "--no-fail-fast"],
    &["xtask", "users"],
    &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"],
    &["run", "--bin", "quorate", "--", "demo", "--seconds", "6"],
    &["xtask", "clients"],
    &["xtask", "cluster", "short"],
    &["xtask", "page"],
    &["xtask", "package", "check"],
    &["xtask", "offload", "conformance", "--require", "reference,p4,rtl-64,rtl-512"],
    &["xtask", "spec"],
    &["xtask", "gate"],
    &["xtask", "deny"],
    // A few prove that the machinery finds them; all of them are for the night.
    &[
        "xtask",
        "mutants",
        "ballot-2-round-reused",
        "p2-1-vote-below-promise",
        "window_never_shrunk",
    ],
];

/// Runs all steps; the first that fails ends it. Edits nothing.
pub(crate) fn run() -> Result<(), Failed> {
    steps::run(STEPS, After::Failure)
}
