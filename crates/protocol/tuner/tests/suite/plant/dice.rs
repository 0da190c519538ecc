//! Random numbers of a run, from a single seed.

/// A generator of fractional quantities.
#[derive(Clone, Debug)]
pub(crate) struct Dice(quorate_core::dice::Dice);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(quorate_core::dice::Dice::new(seed))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.word()
    }

    /// Draws a number in `0..1`.
    pub(crate) fn part(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.part()
    }

    /// Draws a number whose logarithm is evenly distributed.
    pub(crate) fn scale(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.part())
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.part() < probability
    }

    /// Draws an exponentially distributed time.
    pub(crate) fn interval(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.part()).ln()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.0.pick(from)
    }
}
