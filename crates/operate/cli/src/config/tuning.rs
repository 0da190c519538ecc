//! How batch and window are chosen, as far as the operator says.

use std::time::Duration;

use quorate_replica::{
    limits::OPEN_BATCHES_MAX,
    tuner::{Setting, Settings as Tuning},
};

use super::layers::Layers;
use crate::output::Problem;

/// Smallest and largest `--batch-max` and `--batch`.
const BATCH_LIMITS: (usize, usize) = (64, 16 << 20);

/// Looks through the layers.
pub(super) fn resolve(layers: &Layers<'_>) -> Result<Tuning, Problem> {
    let bytes = "64 … 16777216 bytes";
    let batches = "1 … 64 batches";
    let mut tuning = Tuning::new(1);
    tuning.bounds.batch_bytes_max = layers.required("batch-max", bytes, parse_batch)?;
    tuning.bounds.window_max = layers.required("window-max", batches, parse_window)?;
    let goal = layers.optional("latency-goal", "a time such as 5ms", parse_goal)?;
    tuning.latency_goal_ns = goal.map(|goal| u64::try_from(goal.as_nanos()).unwrap_or(u64::MAX));
    tuning.fixed = !layers.required("tune", "on or off", parse_switch)?;
    let batch = layers.optional("batch", bytes, parse_batch)?;
    let window = layers.optional("window", batches, parse_window)?;
    if !tuning.fixed {
        return match (batch, window) {
            (None, None) => Ok(tuning),
            (Some(_), _) => Err(only_without_tuning("batch")),
            (None, Some(_)) => Err(only_without_tuning("window")),
        };
    }
    if tuning.latency_goal_ns.is_some() {
        return Err(
            Problem::usage("--latency-goal has no meaning with --tune off")
                .hint("leave one of them out"),
        );
    }
    tuning.start = Setting {
        batch_bytes: batch.unwrap_or(tuning.start.batch_bytes),
        window: window.unwrap_or(tuning.start.window),
    };
    tuning.bounds.batch_bytes_max = tuning.bounds.batch_bytes_max.max(tuning.start.batch_bytes);
    tuning.bounds.window_max = tuning.bounds.window_max.max(tuning.start.window);
    Ok(tuning)
}

fn only_without_tuning(name: &str) -> Problem {
    Problem::usage(format_args!("--{name} fixes what tuning would choose"))
        .hint(format!("add --tune off, or give --{name}-max as a bound"))
}

fn parse_batch(text: &str) -> Option<usize> {
    let (least, most) = BATCH_LIMITS;
    text.parse()
        .ok()
        .filter(|bytes| (least..=most).contains(bytes))
}

fn parse_window(text: &str) -> Option<usize> {
    text.parse()
        .ok()
        .filter(|window| (1..=OPEN_BATCHES_MAX).contains(window))
}

fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// `500us`, `5ms`, `0.1s`; up to an hour.
fn parse_goal(text: &str) -> Option<Duration> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let seconds = number.parse::<f64>().ok()? * unit;
    (1e-6..=3600.0)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{check_refused, resolve};

    fn tuning(flags: &[&str]) -> Tuning {
        resolve(&[&["--data", "d"], flags].concat(), &[])
            .unwrap()
            .tuning
    }

    #[test]
    fn without_a_word_it_is_tuned_within_the_defaults() {
        assert_eq!(tuning(&[]), Tuning::new(1));
    }

    #[test]
    fn bounds_and_goal_are_passed_on() {
        let given = tuning(&[
            "--batch-max",
            "65536",
            "--window-max",
            "8",
            "--latency-goal",
            "2.5ms",
        ]);
        let bounds = given.bounds;
        assert_eq!((bounds.batch_bytes_max, bounds.window_max), (65536, 8));
        assert_eq!(given.latency_goal_ns, Some(2_500_000));
        assert!(!given.fixed);
    }

    #[test]
    fn without_tuning_batch_and_window_are_what_was_given() {
        let given = tuning(&["--tune", "off", "--batch", "2097152", "--window", "3"]);
        let setting = Setting {
            batch_bytes: 2 << 20,
            window: 3,
        };
        assert!(given.fixed);
        assert_eq!(given.bounds.clamp(given.start), setting);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let fixes = "--batch fixes what tuning would choose";
        check_refused(&["--batch", "4096"], &[], fixes);
        let fixes = "--window fixes what tuning would choose";
        check_refused(&["--window", "4"], &[], fixes);
        let goal = ["--tune", "off", "--latency-goal", "5ms"];
        check_refused(&goal, &[], "--latency-goal has no meaning with --tune off");
        check_refused(
            &["--latency-goal", "5"],
            &[],
            "--latency-goal 5: not a time such as 5ms",
        );
        check_refused(
            &["--window-max", "65"],
            &[],
            "--window-max 65: not 1 … 64 batches",
        );
        check_refused(&["--tune", "yes"], &[], "--tune yes: not on or off");
    }
}
