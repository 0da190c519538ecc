//! Measurement noise: the spread of repeated measurements of one setting, and the gain that exceeds
//! it.

/// Bounds for the relative gain that counts: the minimum, however low the noise, and the maximum
/// that is required for long and for short epochs.
const GAIN_MIN: f64 = 0.02;
const GAIN_MAX: f64 = 0.08;
const QUICK_GAIN_MAX: f64 = 0.25;
/// Highest noise at which an epoch has its minimum length. Above it, the length grows with the
/// square of the noise, so that the remaining noise is constant.
const MIN_EPOCH_NOISE: f64 = 0.05;
const EPOCH_STRETCH_MAX: f64 = 8.0;
/// Ratio of gain to noise from which on no second measurement is needed.
const CLEAR_GAIN_RATIO: f64 = 4.0;
/// Throughput ratio below which a gain is measured twice if epochs are short.
const CONFIRM_BELOW_RATIO: f64 = 1.15;

/// Smoothed noise. In all methods, `quick` means that epochs are so short that they show the
/// machine's own fluctuations. They may then last longer, and more gain is required.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    relative_noise: f64,
}

impl Noise {
    /// Records that two consecutive measurements of one setting differ by the fraction `off`.
    /// Returns the length of an epoch, as a multiple of the minimum.
    pub(super) fn record_difference(&mut self, off: f64, quick: bool) -> f64 {
        self.relative_noise += 0.2 * (off.abs() - self.relative_noise);
        if quick {
            (self.relative_noise / MIN_EPOCH_NOISE).powi(2).clamp(1.0, EPOCH_STRETCH_MAX)
        } else {
            1.0
        }
    }

    /// Returns the minimum relative gain that counts.
    pub(super) fn required_gain(&self, quick: bool) -> f64 {
        let most = if quick { QUICK_GAIN_MAX } else { GAIN_MAX };
        (1.5 * self.relative_noise).clamp(GAIN_MIN, most)
    }

    /// Returns the throughput ratio above which one epoch is enough to decide.
    pub(super) fn clear(&self, quick: bool) -> f64 {
        if quick {
            CONFIRM_BELOW_RATIO.max(1.0 + CLEAR_GAIN_RATIO * self.relative_noise)
        } else {
            CONFIRM_BELOW_RATIO
        }
    }
}
