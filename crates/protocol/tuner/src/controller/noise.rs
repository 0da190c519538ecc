//! Measurement noise: the spread of repeated measurements of one setting, and the gain that exceeds
//! it.

/// Bounds for the relative gain that counts: the minimum, however low the noise, and the maximum
/// that is required for long and for short epochs.
const GAIN_LEAST: f64 = 0.02;
const GAIN_MOST: f64 = 0.08;
const GAIN_QUICK: f64 = 0.25;
/// Highest noise at which an epoch has its minimum length. Above it, the length grows with the
/// square of the noise, so that the remaining noise is constant.
const QUIET: f64 = 0.05;
const STRETCH_MOST: f64 = 8.0;
/// Ratio of gain to noise from which on no second measurement is needed.
const CLEAR: f64 = 4.0;
/// Throughput ratio below which a gain is measured twice if epochs are short.
const CONFIRM: f64 = 1.15;

/// Smoothed noise. In all methods, `quick` means that epochs are so short that they show the
/// machine's own fluctuations. They may then last longer, and more gain is required.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    level: f64,
}

impl Noise {
    /// Records that two consecutive measurements of one setting differ by the fraction `off`.
    /// Returns the length of an epoch, as a multiple of the minimum.
    pub(super) fn record_difference(&mut self, off: f64, quick: bool) -> f64 {
        self.level += 0.2 * (off.abs() - self.level);
        if quick { (self.level / QUIET).powi(2).clamp(1.0, STRETCH_MOST) } else { 1.0 }
    }

    /// Returns the minimum relative gain that counts.
    pub(super) fn gain(&self, quick: bool) -> f64 {
        let most = if quick { GAIN_QUICK } else { GAIN_MOST };
        (1.5 * self.level).clamp(GAIN_LEAST, most)
    }

    /// Returns the throughput ratio above which one epoch is enough to decide.
    pub(super) fn clear(&self, quick: bool) -> f64 {
        if quick { CONFIRM.max(1.0 + CLEAR * self.level) } else { CONFIRM }
    }
}
