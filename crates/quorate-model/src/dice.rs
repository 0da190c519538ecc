//! Pseudo-random numbers from one seed: splitmix64.

/// A generator; equal seeds roll equal numbers, on every machine and version.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of this seed. `stream` keeps users of one seed apart.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        dice.next();
        dice
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number in `0..sides`.
    #[expect(clippy::cast_possible_truncation, reason = "sides is a usize")]
    pub fn below(&mut self, sides: usize) -> usize {
        (self.next() % (sides.max(1) as u64)) as usize
    }

    /// True this many times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
