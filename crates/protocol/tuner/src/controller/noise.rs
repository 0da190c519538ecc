//! Measurement noise: the spread of one setting's measurements, and the gain that exceeds it.

/// Least gain that counts, in parts, however quiet it is; and most that is asked for.
const GAIN_LEAST: f64 = 0.02;
const GAIN_MOST: f64 = 0.08;
const GAIN_QUICK: f64 = 0.25;
/// Noise below which an epoch is as short as it may be. Above, it lasts longer, as the square: what
/// is left of the noise stays the same.
const QUIET: f64 = 0.05;
const STRETCH_MOST: f64 = 8.0;
/// A gain of this many times the noise needs no second look.
const CLEAR: f64 = 4.0;
/// A gain below this is measured twice, where epochs are short.
const CONFIRM: f64 = 1.15;

/// Smoothed. `quick` says of all its answers whether epochs are so short that the machine's own
/// moods show in them: then they may last longer, and more is asked of a gain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    level: f64,
}

impl Noise {
    /// Two measurements of one setting, one right after the other, differ by these parts. Returns
    /// how many times longer than the shortest an epoch should last.
    pub(super) fn hear(&mut self, off: f64, quick: bool) -> f64 {
        self.level += 0.2 * (off.abs() - self.level);
        if quick { (self.level / QUIET).powi(2).clamp(1.0, STRETCH_MOST) } else { 1.0 }
    }

    /// The gain that counts, in parts.
    pub(super) fn gain(&self, quick: bool) -> f64 {
        let most = if quick { GAIN_QUICK } else { GAIN_MOST };
        (1.5 * self.level).clamp(GAIN_LEAST, most)
    }

    /// The ratio of throughputs from which on one epoch is enough to tell.
    pub(super) fn clear(&self, quick: bool) -> f64 {
        if quick { CONFIRM.max(1.0 + CLEAR * self.level) } else { CONFIRM }
    }
}
