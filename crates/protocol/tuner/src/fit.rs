//! Linear laws fitted to samples, with exponential forgetting.
//!
//! The fits store sums instead of samples: a new sample costs a few multiplications, and old ones
//! decay by a constant factor per sample. Outliers count no more than samples at the edge of the
//! usual range.

/// Number of samples before a fitted line is trusted.
pub(crate) const LINE_SAMPLES_MIN: f64 = 5.0;

/// An estimated quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// Standard error of the estimate.
    pub error: f64,
    /// Number of samples behind the estimate, weighted by their decay.
    pub sample_weight: f64,
}

impl Estimate {
    /// Returns the confidence from 0 to 1, which grows as the error shrinks relative to the value.
    pub fn confidence(&self) -> f64 {
        if self.value == 0.0 {
            return 0.0;
        }
        (1.0 / (1.0 + (self.error / self.value).abs())).clamp(0.0, 1.0)
    }
}

/// Number of standard deviations within which a deviation counts in full.
const OUTLIER_DEVIATIONS: f64 = 4.0;
/// Minimum standard deviation of x, as a fraction of its mean.
const X_SPREAD_MIN: f64 = 0.02;
/// Number of samples before outliers are clipped.
const CLIPPING_SAMPLES_MIN: f64 = 8.0;

/// A decaying mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecayingMean {
    decay: f64,
    sample_weight: f64,
    mean: f64,
    variance: f64,
}

impl DecayingMean {
    /// Creates a mean. `keep` is the factor by which old samples decay with each new one.
    pub(crate) const fn new(keep: f64) -> Self {
        Self { decay: keep, sample_weight: 0.0, mean: 0.0, variance: 0.0 }
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.sample_weight = self.sample_weight * self.decay + 1.0;
        let edge = OUTLIER_DEVIATIONS * self.variance.sqrt().max(self.mean.abs() * 0.05);
        let usual = self.sample_weight >= CLIPPING_SAMPLES_MIN;
        let off = value - self.mean;
        let off = if usual { off.clamp(-edge, edge) } else { off };
        let part = 1.0 / self.sample_weight;
        self.mean += off * part;
        self.variance = (1.0 - part) * (self.variance + part * off * off);
    }

    pub(crate) fn estimate(&self) -> Option<Estimate> {
        (self.sample_weight > 1.5).then(|| Estimate {
            value: self.mean,
            error: (self.variance / self.sample_weight).sqrt(),
            sample_weight: self.sample_weight,
        })
    }
}

/// A line fitted to samples: `y = fixed + slope · x`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineFit {
    keep: f64,
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

/// The parameters of a [`LineFit`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LineCoefficients {
    pub(crate) intercept: Estimate,
    pub(crate) slope: Estimate,
    /// Fraction of the variation of y that the line explains, from 0 to 1.
    pub(crate) explained_fraction: f64,
}

impl LineFit {
    pub(crate) const fn new(keep: f64) -> Self {
        Self { keep, weight: 0.0, x: 0.0, y: 0.0, xx: 0.0, xy: 0.0, yy: 0.0 }
    }

    pub(crate) fn add(&mut self, x: f64, y: f64) {
        let y = self.clip_outlier(x, y);
        // Means and central moments, because sums of squares of large numbers would cancel.
        let before = self.weight * self.keep;
        self.weight = before + 1.0;
        let (dx, dy) = (x - self.x, y - self.y);
        let part = 1.0 / self.weight;
        self.x += dx * part;
        self.y += dy * part;
        let share = before * part;
        self.xx = self.xx * self.keep + dx * dx * share;
        self.xy = self.xy * self.keep + dx * dy * share;
        self.yy = self.yy * self.keep + dy * dy * share;
    }

    pub(crate) const fn x_mean(&self) -> f64 {
        self.x
    }

    fn clip_outlier(&self, x: f64, y: f64) -> f64 {
        if self.weight < CLIPPING_SAMPLES_MIN {
            return y;
        }
        let (slope, residue) = self.slope();
        let expected = self.y + slope * (x - self.x);
        let edge = OUTLIER_DEVIATIONS * (residue / self.weight).sqrt().max(self.y.abs() * 0.05);
        y.clamp(expected - edge, expected + edge)
    }

    /// Returns whether x varied enough to distinguish a slope from rounding.
    fn has_spread(&self) -> bool {
        let usual = self.x * X_SPREAD_MIN;
        self.xx > self.weight * usual * usual && self.xx > 0.0
    }

    fn slope(&self) -> (f64, f64) {
        if !self.has_spread() {
            return (0.0, self.yy);
        }
        let slope = self.xy / self.xx;
        (slope, (self.yy - slope * self.xy).max(0.0))
    }

    /// Returns the fitted law; `None` if there are fewer than `samples` samples.
    pub(crate) fn coefficients(&self, samples: f64) -> Option<LineCoefficients> {
        if self.weight < samples.max(3.0) {
            return None;
        }
        let (slope, residue) = self.slope();
        let variance = residue / (self.weight - 2.0);
        let of = |value, variance: f64| Estimate {
            value,
            error: variance.max(0.0).sqrt(),
            sample_weight: self.weight,
        };
        let (slope_variance, fixed_variance) = if self.has_spread() {
            let spread = self.x * self.x / self.xx;
            (variance / self.xx, variance * (1.0 / self.weight + spread))
        } else {
            (f64::INFINITY, variance / self.weight)
        };
        Some(LineCoefficients {
            intercept: of(self.y - slope * self.x, fixed_variance),
            slope: of(slope, slope_variance),
            explained_fraction: if self.yy > 0.0 { 1.0 - residue / self.yy } else { 0.0 },
        })
    }
}

/// A sum fitted to samples: `y = a·x₁ + b·x₂ + c·x₃`, without a constant part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumFit {
    keep: f64,
    weight: f64,
    moments: [[f64; 3]; 3],
    products: [f64; 3],
    squares: f64,
}

impl SumFit {
    pub(crate) const fn new(keep: f64) -> Self {
        Self { keep, weight: 0.0, moments: [[0.0; 3]; 3], products: [0.0; 3], squares: 0.0 }
    }

    pub(crate) fn add(&mut self, x: [f64; 3], y: f64) {
        self.weight = self.weight * self.keep + 1.0;
        for (row, &a) in x.iter().enumerate() {
            for (column, &b) in x.iter().enumerate() {
                let cell = &mut self.moments[row][column];
                *cell = *cell * self.keep + a * b;
            }
            self.products[row] = self.products[row] * self.keep + a * y;
        }
        self.squares = self.squares * self.keep + y * y;
    }

    /// Returns the three coefficients, none of them negative. Coefficients that cannot be
    /// distinguished have large errors, but their sum is still right for the observed samples.
    pub(crate) fn coefficients(&self, samples: f64) -> Option<[Estimate; 3]> {
        if self.weight < samples.max(4.0) {
            return None;
        }
        let mut used = [0, 1, 2].map(|part| self.moments[part][part] > 0.0);
        loop {
            let (values, variances) = self.solve(used)?;
            // Noise must not become a negative cost, so drop the most negative part and fit the
            // rest again.
            let worst = (0..3)
                .filter(|&part| used[part] && values[part] < 0.0)
                .min_by(|&a, &b| values[a].total_cmp(&values[b]));
            if let Some(part) = worst {
                used[part] = false;
                continue;
            }
            return Some([0, 1, 2].map(|part| Estimate {
                value: values[part],
                error: variances[part].max(0.0).sqrt(),
                sample_weight: self.weight,
            }));
        }
    }

    /// Solves for least squares with a slight pull towards zero, so that parts that always occur
    /// together share their cost.
    fn solve(&self, used: [bool; 3]) -> Option<([f64; 3], [f64; 3])> {
        if used == [false; 3] {
            return None;
        }
        // Scaled to a unit diagonal; unused parts have a row of their own.
        let scale = [0, 1, 2].map(|part| match used[part] {
            true => self.moments[part][part].sqrt(),
            false => 1.0,
        });
        let mut matrix = [[0.0; 3]; 3];
        for (row, line) in matrix.iter_mut().enumerate() {
            for (column, cell) in line.iter_mut().enumerate() {
                if row == column {
                    *cell = 1.0 + 1e-4;
                } else if used[row] && used[column] {
                    *cell = self.moments[row][column] / (scale[row] * scale[column]);
                }
            }
        }
        let inverse = invert_matrix(matrix)?;
        let right = [0, 1, 2].map(|part| match used[part] {
            true => self.products[part] / scale[part],
            false => 0.0,
        });
        let dot = |row: [f64; 3]| row[0] * right[0] + row[1] * right[1] + row[2] * right[2];
        let scaled = inverse.map(dot);
        let explained = scaled[0] * right[0] + scaled[1] * right[1] + scaled[2] * right[2];
        let variance = (self.squares - explained).max(0.0) / (self.weight - 3.0);
        let values = [0, 1, 2].map(|part| scaled[part] / scale[part]);
        let variances =
            [0, 1, 2].map(|part| variance * inverse[part][part] / (scale[part] * scale[part]));
        Some((values, variances))
    }
}

fn invert_matrix(m: [[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
    let minor = |a: usize, b: usize, c: usize, d: usize| m[a][b] * m[c][d] - m[a][d] * m[c][b];
    let first = [minor(1, 1, 2, 2), -minor(1, 0, 2, 2), minor(1, 0, 2, 1)];
    let determinant = m[0][0] * first[0] + m[0][1] * first[1] + m[0][2] * first[2];
    if determinant.abs() < 1e-12 || !determinant.is_finite() {
        return None;
    }
    let adjugate = [
        [first[0], -minor(0, 1, 2, 2), minor(0, 1, 1, 2)],
        [first[1], minor(0, 0, 2, 2), -minor(0, 0, 1, 2)],
        [first[2], -minor(0, 0, 2, 1), minor(0, 0, 1, 1)],
    ];
    Some(adjugate.map(|row| row.map(|cell| cell / determinant)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fit_finds_the_line_in_noise_and_follows_a_change() {
        let mut line = LineFit::new(0.95);
        for number in 0..400_u32 {
            let x = f64::from(number % 37) * 100.0;
            let noise = f64::from(number * 7919 % 11) - 5.0;
            line.add(x, 50.0 + 0.3 * x + noise);
        }
        let law = line.coefficients(8.0).unwrap();
        assert!((law.slope.value - 0.3).abs() < 0.005, "{law:?}");
        assert!((law.intercept.value - 50.0).abs() < 5.0, "{law:?}");
        assert!(law.explained_fraction > 0.95);
        for number in 0..400_u32 {
            let x = f64::from(number % 37) * 100.0;
            line.add(x, 500.0 + 0.1 * x);
        }
        let law = line.coefficients(8.0).unwrap();
        assert!((law.slope.value - 0.1).abs() < 0.01, "{law:?}");
    }

    #[test]
    fn single_outlier_moves_the_fit_by_less_than_5_percent() {
        let mut line = LineFit::new(0.98);
        for number in 0..100_u32 {
            let x = f64::from(number % 10);
            line.add(x, 100.0 + x + f64::from(number % 3));
        }
        let before = line.coefficients(8.0).unwrap();
        line.add(5.0, 1e9);
        let after = line.coefficients(8.0).unwrap();
        let at = |law: &LineCoefficients| law.intercept.value + law.slope.value * 5.0;
        assert!((at(&after) / at(&before) - 1.0).abs() < 0.05, "{after:?}");
    }

    #[test]
    fn samples_without_spread_yield_no_reliable_slope() {
        let mut line = LineFit::new(0.98);
        for _ in 0..50 {
            line.add(7.0, 3.0);
        }
        let law = line.coefficients(8.0).unwrap();
        assert_eq!(law.slope.error, f64::INFINITY);
        assert_eq!(law.slope.confidence(), 0.0);
        assert!(line.coefficients(1e3).is_none());
    }

    #[test]
    fn three_cost_factors_are_separated_if_they_vary() {
        let mut sum = SumFit::new(0.98);
        for number in 1..300_u32 {
            let x = [number % 50, number % 7, (number * 31) % 4000].map(f64::from);
            sum.add(x, 0.25 * x[0] + 9.0 * x[1] + 0.001 * x[2]);
        }
        let [command, batch, byte] = sum.coefficients(8.0).unwrap();
        assert!((command.value - 0.25).abs() < 0.01, "{command:?}");
        assert!((batch.value - 9.0).abs() < 0.1, "{batch:?}");
        assert!((byte.value - 0.001).abs() < 0.0005, "{byte:?}");
    }

    /// With commands of one size, bytes and commands always occur together; their summed cost is
    /// right.
    #[test]
    fn correlated_factors_share_their_cost() {
        let mut sum = SumFit::new(0.98);
        for number in 1..300_u32 {
            let (commands, batches) = (f64::from(number % 50), f64::from(number % 7));
            sum.add([commands, batches, commands * 64.0], commands + 9.0 * batches);
        }
        let parts = sum.coefficients(8.0).unwrap();
        let cost = parts[0].value * 10.0 + parts[1].value + parts[2].value * 640.0;
        assert!((cost - 19.0).abs() < 0.5, "{parts:?}");
        assert!(parts.iter().all(|part| part.value >= 0.0));
    }
}
