//! Figures as shown in every report: median and spread of the repetitions, with four digits.

use std::fmt;

use serde::Serialize;

/// Minimum and maximum over the repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread(pub f64, pub f64);

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}–{}", self.0, self.1)
    }
}

/// Returns the median; `NaN` if there are no figures. For an even number of figures, it is the mean
/// of the two middle ones.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => figures[middle],
        _ => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}

/// Returns the minimum and maximum over the repetitions, rounded to four digits.
pub fn spread(figures: impl Iterator<Item = f64>) -> Spread {
    let figures: Vec<f64> = figures.map(round_to_four_digits).collect();
    let least = figures.iter().copied().reduce(f64::min);
    let greatest = figures.iter().copied().reduce(f64::max);
    Spread(least.unwrap_or(0.0), greatest.unwrap_or(0.0))
}

/// Rounds to four significant digits, the precision of every measurement here.
pub fn round_to_four_digits(figure: f64) -> f64 {
    if figure == 0.0 || !figure.is_finite() {
        return 0.0;
    }
    let digits = 3 - figure.abs().log10().floor() as i32;
    if digits <= 0 {
        return figure.round();
    }
    let scale = 10_f64.powi(digits);
    (figure * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_to_four_digits() {
        for (figure, wanted) in [
            (0.0, 0.0),
            (f64::NAN, 0.0),
            (123_456.7, 123_457.0),
            (12.345_6, 12.35),
            (0.000_123_456, 0.000_123_5),
        ] {
            assert!((round_to_four_digits(figure) - wanted).abs() < 1e-9, "{figure}");
        }
        assert!(median([]).is_nan());
        assert!((median([3.0, 1.0, 2.0, 10.0]) - 2.5).abs() < 1e-9);
    }
}
