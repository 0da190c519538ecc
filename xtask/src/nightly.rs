//! Checks that take too long for every change: long random runs, all mutants, all faults on real
//! processes. Runs all of them, reports the duration of each, and fails if any failed.

use crate::{
    shell::Failed,
    steps::{self, AfterFailure, CargoStep},
};

const STEPS: &[CargoStep] = &[
    &["doc", "--workspace", "--no-deps", "--quiet"],
    &["test", "--release", "--", "--ignored"],
    &["xtask", "cluster", "10"],
    &["xtask", "cluster", "planes"],
    &["xtask", "cluster", "devices"],
    &["xtask", "cluster", "streams"],
    &["xtask", "cluster", "queues"],
    &["xtask", "cluster", "pressure"],
    &["xtask", "disks", "3"],
    // Upgrades from the last revision before levels and from 0.2.0, which cover all supported
    // levels.
    &["xtask", "upgrade", "--from", "4cfca773"],
    &["xtask", "upgrade", "--from", "v0.2.0"],
    &["xtask", "etcd"],
    &["xtask", "etcd", "kubernetes"],
    &["xtask", "etcd", "tests"],
    &["xtask", "redis-suite"],
    &["xtask", "client-suites"],
    &["xtask", "clients", "queues"],
    &["xtask", "page"],
    &["xtask", "papers", "check"],
    &["xtask", "model", "--deep"],
    &["xtask", "hunt", "20000"],
    &["xtask", "tla"],
    &["xtask", "tla", "--large"],
    &["xtask", "tla", "--seeds", "1000"],
    &["xtask", "mutants"],
    &["xtask", "fuzz", "--seconds", "120"],
    // Another million frames through each core, and through the kernel if the machine allows it.
    &[
        "xtask",
        "offload",
        "conformance",
        "--only",
        "rtl-64,rtl-512",
        "--require",
        "rtl-64,rtl-512",
        "--seed",
        "2",
        "--count",
        "1000000",
    ],
    &["xtask", "offload", "groups", "2000"],
];

/// Runs all steps.
pub(crate) fn run() -> Result<(), Failed> {
    steps::run(STEPS, AfterFailure::Continue)
}
