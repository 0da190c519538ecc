//! Sequence of steps, each a command that a user could type. Prints a table of their durations.

use std::{
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::shell::{self, Failed, run_cargo};

/// Arguments of `cargo`.
pub(crate) type CargoStep = &'static [&'static str];

/// Behaviour after a failed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The first failure ends the sequence.
    Stop,
    /// All steps run.
    Continue,
}

/// Runs the steps and prints the table.
pub(crate) fn run(steps: &[CargoStep], ends: AfterFailure) -> Result<(), Failed> {
    // Determine the path now: a step that rebuilds this program replaces the file.
    let own = std::env::current_exe()?;
    let began = Instant::now();
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for step in steps {
        println!("== {}", utc_time_of_day());
        let started = Instant::now();
        let outcome = run_step(step, &own);
        rows.push((step.join(" "), started.elapsed(), outcome.is_ok()));
        if let Err(Failed(why)) = outcome {
            println!("== failed: {why}");
            failures.push(why);
            if ends == AfterFailure::Stop {
                break;
            }
        }
    }
    println!("== {}", utc_time_of_day());
    for line in format_table(&rows, began.elapsed()) {
        println!("{line}");
    }
    if failures.is_empty() { Ok(()) } else { Err(Failed(failures.join("\n"))) }
}

/// Runs a step as a process of its own, as if typed by a user.
fn run_step(step: CargoStep, own: &Path) -> Result<(), Failed> {
    match step {
        ["xtask", words @ ..] => shell::run(own, words),
        words => run_cargo(words),
    }
}

fn format_table(rows: &[(String, Duration, bool)], all: Duration) -> Vec<String> {
    let mut lines = vec!["  seconds  step".to_owned()];
    lines.extend(rows.iter().map(|(step, time, done)| {
        let mark = if *done { "" } else { "   FAILED" };
        format!("{:>9.1}  {step}{mark}", time.as_secs_f64())
    }));
    lines.push(format!("{:>9.1}  in all", all.as_secs_f64()));
    lines
}

/// Returns the time of day, in UTC.
fn utc_time_of_day() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format_time_of_day(now.unwrap_or(Duration::ZERO))
}

fn format_time_of_day(since_1970: Duration) -> String {
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
        assert_eq!(format_time_of_day(time), "23:59:59");
        assert_eq!(format_time_of_day(time + Duration::from_secs(1)), "00:00:00");
    }

    #[test]
    fn table_has_durations_and_failures() {
        let rows = [
            ("fmt".to_owned(), Duration::from_millis(1250), true),
            ("test".to_owned(), Duration::from_secs(600), false),
        ];
        assert_eq!(
            format_table(&rows, Duration::from_millis(601_300)),
            ["  seconds  step", "      1.2  fmt", "    600.0  test   FAILED", "    601.3  in all"]
        );
    }
}
