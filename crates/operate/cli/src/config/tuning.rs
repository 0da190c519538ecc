//! Resolves the settings of the batch size and the window.

use quorate_replica::{
    limits::OPEN_BATCHES_MAX,
    tuner::{Setting, Settings as Tuning},
};

use super::layers::Layers;
use crate::{
    output::Problem,
    values::{Number, Unit, duration, switch},
};

/// Bounds for `--batch-max` and `--batch`.
const BATCH_BOUNDS: Number = Number::between(64, 16 << 20, Unit::Bytes);
/// Bounds for `--window-max` and `--window`.
const WINDOW_BOUNDS: Number = Number::between(1, OPEN_BATCHES_MAX as u64, Unit::Count);
const LATENCY_GOAL_VALUES: &str = "a time between 1us and 1h, such as 5ms";

/// Resolves the tuning settings through all layers.
pub(super) fn resolve_tuning(layers: &Layers<'_>) -> Result<Tuning, Problem> {
    let mut tuning = Tuning::new(1);
    tuning.bounds.batch_bytes_max = layers.number_or_default("batch-max", BATCH_BOUNDS)?;
    tuning.bounds.window_max = layers.number_or_default("window-max", WINDOW_BOUNDS)?;
    let goal = layers
        .optional("latency-goal", LATENCY_GOAL_VALUES, |text| duration(text, 1e-6, 3600.0))?;
    tuning.latency_goal_ns = goal.map(|goal| u64::try_from(goal.as_nanos()).unwrap_or(u64::MAX));
    tuning.fixed = !layers.required("tune", "on or off", switch)?;
    let batch = layers.optional_number("batch", BATCH_BOUNDS)?;
    let window = layers.optional_number("window", WINDOW_BOUNDS)?;
    if !tuning.fixed {
        return match (batch, window) {
            (None, None) => Ok(tuning),
            (Some(_), _) => Err(conflicts_with_tuning("batch")),
            (None, Some(_)) => Err(conflicts_with_tuning("window")),
        };
    }
    if tuning.latency_goal_ns.is_some() {
        return Err(Problem::usage_error("--latency-goal has no effect with --tune off")
            .with_hint("leave out one of them"));
    }
    tuning.start = Setting {
        batch_bytes: batch.unwrap_or(tuning.start.batch_bytes),
        window: window.unwrap_or(tuning.start.window),
    };
    tuning.bounds.batch_bytes_max = tuning.bounds.batch_bytes_max.max(tuning.start.batch_bytes);
    tuning.bounds.window_max = tuning.bounds.window_max.max(tuning.start.window);
    Ok(tuning)
}

fn conflicts_with_tuning(name: &str) -> Problem {
    Problem::usage_error(format_args!("--{name} sets a fixed value, but tuning is on"))
        .with_hint(format!("add --tune off, or set an upper bound with --{name}-max"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{check_refused, resolve};

    fn tuning(flags: &[&str]) -> Tuning {
        resolve(&[&["--data", "d"], flags].concat(), &[]).unwrap().tuning
    }

    #[test]
    fn default_is_tuning_within_the_default_bounds() {
        assert_eq!(tuning(&[]), Tuning::new(1));
    }

    #[test]
    fn bounds_and_goal_are_passed_on() {
        let given =
            tuning(&["--batch-max", "65536", "--window-max", "8", "--latency-goal", "2.5ms"]);
        let bounds = given.bounds;
        assert_eq!((bounds.batch_bytes_max, bounds.window_max), (65536, 8));
        assert_eq!(given.latency_goal_ns, Some(2_500_000));
        assert!(!given.fixed);
    }

    #[test]
    fn without_tuning_batch_and_window_are_fixed() {
        let given = tuning(&["--tune", "off", "--batch", "2097152", "--window", "3"]);
        let setting = Setting { batch_bytes: 2 << 20, window: 3 };
        assert!(given.fixed);
        assert_eq!(given.bounds.clamp(given.start), setting);
    }

    #[test]
    fn contradictory_settings_are_refused() {
        let fixes = "--batch sets a fixed value, but tuning is on";
        check_refused(&["--batch", "4096"], &[], fixes);
        let fixes = "--window sets a fixed value, but tuning is on";
        check_refused(&["--window", "4"], &[], fixes);
        let goal = ["--tune", "off", "--latency-goal", "5ms"];
        check_refused(&goal, &[], "--latency-goal has no effect with --tune off");
        check_refused(
            &["--latency-goal", "5"],
            &[],
            "--latency-goal must be a time between 1us and 1h, such as 5ms (got 5)",
        );
        check_refused(
            &["--window-max", "65"],
            &[],
            "--window-max must be between 1 and 64 (got 65)",
        );
        check_refused(&["--tune", "yes"], &[], "--tune must be on or off (got yes)");
    }
}
