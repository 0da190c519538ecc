//! What a change must pass, on a machine with two cores, in an order that fails early: what `.ci/run` runs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::shell::{self, Failed, cargo};

/// Each step is a command of README.md or CONTRIBUTING.md, as the words after `cargo`.
const STEPS: &[&[&str]] = &[
    &["fmt", "--all", "--check"],
    &[
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ],
    // Everything that fails is told at once, not one crate at a time.
    &["test", "--workspace", "--no-fail-fast"],
    &["doc", "--workspace", "--no-deps", "--quiet"],
    &["demo", "--seconds", "6"],
    &["xtask", "clients"],
    &["xtask", "cluster", "1"],
    &["xtask", "page"],
    &["xtask", "package", "check"],
    &[
        "xtask",
        "offload",
        "conformance",
        "--require",
        "reference,p4,rtl-64,rtl-512",
    ],
    // A million other frames through each core, and none through the kernel, which is slower by hand.
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
    &["xtask", "spec"],
    &["xtask", "gate"],
    &["xtask", "deny"],
    // All mutants take longer than a change should wait: a few prove that the machinery finds them.
    &[
        "xtask",
        "mutants",
        "ballot-2-round-reused",
        "p2-1-vote-below-promise",
        "reply_before_quorum",
        "latency_from_the_actual_sending",
        "estimator_fed_by_a_pause",
        "window_never_shrunk",
    ],
];

/// Runs all steps; the first that fails ends it. Edits nothing.
pub(crate) fn run() -> Result<(), Failed> {
    // Asked for now: it may be built anew meanwhile.
    let own = std::env::current_exe()?;
    for step in STEPS {
        println!("== {}", clock());
        // Each is a process of its own, as if somebody had typed it.
        match step {
            ["xtask", words @ ..] => shell::run(&own, words)?,
            words => cargo(words)?,
        }
    }
    println!("== {} done", clock());
    Ok(())
}

/// The time of day, in UTC.
fn clock() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    time_of_day(now.unwrap_or(Duration::ZERO))
}

fn time_of_day(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_shows_the_time_of_day() {
        let time = Duration::from_secs(1_767_225_599);
        assert_eq!(time_of_day(time), "23:59:59");
        assert_eq!(time_of_day(time + Duration::from_secs(1)), "00:00:00");
    }
}
