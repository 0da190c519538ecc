//! Pseudo-random numbers from one seed.

/// A generator of pseudo-random numbers. Equal seeds yield equal numbers, on every machine and in
/// every version.
#[derive(Clone, Debug)]
pub struct Dice(quorate_core::dice::Dice);

impl Dice {
    /// Creates the generator for a seed. `stream` distinguishes users of the same seed, so that
    /// they draw different numbers.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut dice =
            quorate_core::dice::Dice::new(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        dice.word();
        Self(dice)
    }

    #[expect(clippy::should_implement_trait, reason = "not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0.word()
    }

    /// Draws a number in `0..sides`.
    pub fn below(&mut self, sides: usize) -> usize {
        self.0.index(sides.max(1))
    }

    /// Returns `true` with a probability of `percent`.
    pub fn chance_percent(&mut self, percent: u64) -> bool {
        self.0.chance(percent, 100)
    }

    pub fn pick_from<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
