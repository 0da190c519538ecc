//! Statistics over time and over rounds: medians, and the time from which a series stays near its
//! end.

use quorate_bench::figure::median;

/// Returns bounds of the population's median at 95 % confidence, for any distribution.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of rounds"
)]
pub(super) fn median_confidence_bounds(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let below = (count / 2.0 - 0.98 * count.sqrt()).floor().max(0.0) as usize;
    match (values.get(below), values.iter().rev().nth(below)) {
        (Some(low), Some(high)) => (*low, *high),
        _ => (f64::NAN, f64::NAN),
    }
}

/// Returns the smallest value; infinite if there are none.
pub(super) fn smallest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// Returns the mean; 0 if there are no values.
#[expect(clippy::cast_precision_loss, reason = "a count of windows")]
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the final level of a series, that is, the mean of its last `windows` windows.
pub(super) fn final_level(series: &[f64], windows: usize) -> f64 {
    mean(&series[series.len().saturating_sub(windows)..])
}

/// Scales a series to a level; empty for a series that ends at zero.
pub(super) fn relative_to(series: &[f64], level: f64) -> Vec<f64> {
    if level > 0.0 { series.iter().map(|value| value / level).collect() } else { Vec::new() }
}

/// Returns the median of all rounds, window by window, up to the end of the shortest round.
pub(super) fn median_by_window(rounds: &[Vec<f64>]) -> Vec<f64> {
    let windows = rounds.iter().map(Vec::len).min().unwrap_or(0);
    let at = |window| median(rounds.iter().map(|series| series[window]));
    (0..windows).map(at).collect()
}

/// Returns the first window for which no mean of `span` windows, starting there or later, is below
/// `least`; `None` if there is none before the last span.
pub(super) fn settling_window(series: &[f64], least: f64, span: usize) -> Option<usize> {
    let means: Vec<f64> = series.windows(span.max(1)).map(mean).collect();
    let bad = means.iter().rposition(|mean| *mean < least);
    let first = bad.map_or(0, |bad| bad + 1);
    (first < means.len()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_is_found() {
        assert_eq!(smallest([2.0, 1.0]), 1.0);
    }

    #[test]
    fn interval_of_the_median_narrows_with_more_rounds() {
        let within = |count: u32| median_confidence_bounds((1..=count).map(f64::from));
        assert_eq!(within(5), (1.0, 5.0), "all of them: too few");
        assert_eq!(within(36), (13.0, 24.0));
        assert!(median_confidence_bounds([]).0.is_nan());
    }

    #[test]
    fn final_level_is_the_mean_of_the_last_windows() {
        assert_eq!(final_level(&[9.0, 1.0, 3.0], 2), 2.0);
        assert_eq!(final_level(&[4.0], 20), 4.0);
        assert_eq!(final_level(&[], 20), 0.0);
    }

    #[test]
    fn a_series_settles_where_it_stays() {
        let rising = [0.1, 0.5, 0.95, 0.5, 0.92, 1.0, 1.1, 1.0];
        assert_eq!(settling_window(&rising, 0.9, 1), Some(4), "0.95 did not stay");
        assert_eq!(settling_window(&[1.0, 1.0], 0.9, 1), Some(0));
        assert_eq!(settling_window(&[1.0, 1.0, 0.5], 0.9, 1), None, "it fell in the end");
        assert_eq!(settling_window(&[], 0.9, 3), None);
    }

    // A single slow window on a busy machine does not count as a change.
    #[test]
    fn span_tolerates_one_low_window() {
        let series = [0.2, 1.0, 1.0, 0.8, 1.0, 1.0];
        assert_eq!(settling_window(&series, 0.9, 1), Some(4));
        assert_eq!(settling_window(&series, 0.9, 3), Some(1));
    }

    #[test]
    fn rounds_are_joined_by_the_median_of_each_window() {
        let rounds = [vec![1.0, 9.0, 5.0], vec![2.0, 2.0], vec![3.0, 4.0]];
        assert_eq!(median_by_window(&rounds), [2.0, 4.0]);
        assert!(median_by_window(&[]).is_empty());
        assert_eq!(relative_to(&[1.0, 2.0], 2.0), [0.5, 1.0]);
        assert!(relative_to(&[0.0], 0.0).is_empty());
    }
}
