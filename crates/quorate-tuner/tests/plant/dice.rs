//! The only source of chance of a run.

/// Deterministic dice (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// In 0..1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.part()
    }

    /// Evenly in the logarithm.
    pub(crate) fn scale(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.part())
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.part() < probability
    }

    /// An exponentially distributed time.
    pub(crate) fn interval(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.part()).ln()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.word() % from.len() as u64) as usize]
    }
}
