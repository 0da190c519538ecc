//! Deterministic pseudo-random numbers: all draws follow from one seed.
//!
//! Used by simulations, tests and measurements, and to spread actions such as reconnects in time.
//! Not suitable for secrets, because an observer of a few draws can predict the rest.

/// A deterministic generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator. The same seed yields the same draws.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates an independent generator, so that draws in one part of a simulation do not affect
    /// another.
    pub fn fork(&mut self) -> Self {
        Self(self.word())
    }

    /// Draws the next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STATE_INCREMENT);
        mix(self.0)
    }

    /// Draws a number in `0..bound`. `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// Draws a number in `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// Draws an index in `0..bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below an index")
    }

    /// Returns `true` with a probability of `times` in `of`.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    /// Draws one of the elements.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Draws the time until the next event, given the mean interval between events. Most draws are
    /// short, a few long.
    pub fn interval(&mut self, mean_us: u64) -> u64 {
        let scale = self.pick(&[1, 1, 2, 4]);
        self.between(1, (mean_us * scale / 2).max(1) * 2) / 2 + 1
    }

    /// Shuffles the list.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.index(last + 1));
        }
    }
}

/// Increment of the state per draw.
const STATE_INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns draw `number`, counted from 0, of a generator with seed 0. Allows draws in any order.
pub const fn nth_u64(number: u64) -> u64 {
    mix(number.wrapping_add(1).wrapping_mul(STATE_INCREMENT))
}

/// Scrambles a word so that every input bit affects every output bit.
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_words_equal_words_by_number() {
        let mut dice = Dice::new(0);
        assert_eq!(nth_u64(0), 0xe220_a839_7b1d_cdaf);
        for number in 0..100 {
            assert_eq!(dice.word(), nth_u64(number));
        }
    }
}
