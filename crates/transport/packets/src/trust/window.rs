//! Window of packet numbers seen on a channel, which distinguishes repeated datagrams from new ones
//! ([pkt-2]).

/// The latest numbers of a channel, as a bitmap.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// One bit per number. The index is the number modulo the window's size.
    seen_bits: Vec<u64>,
    /// Number from the handshake. Lower numbers are refused.
    lowest_accepted: u64,
    /// One above the highest number seen. The window ends there.
    seen_end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNew {
    /// The number is below that of the handshake.
    BeforeHandshake,
    /// The number is too old for the window to tell whether it was seen.
    TooOld,
    Seen,
}

impl ReplayWindow {
    /// Creates a window of `numbers` numbers, a multiple of 64. `floor` is the number from the
    /// handshake.
    pub fn new(numbers: u64, floor: u64) -> Self {
        let words = usize::try_from(numbers / 64).expect("a window fits memory");
        Self { seen_bits: vec![0; words.max(1)], lowest_accepted: floor, seen_end: floor }
    }

    fn number_count(&self) -> u64 {
        self.seen_bits.len() as u64 * 64
    }

    fn bit_of(&self, number: u64) -> (usize, u64) {
        let bit = number % self.number_count();
        let word = usize::try_from(bit / 64).expect("below the count of words");
        (word, 1 << (bit % 64))
    }

    /// Checks whether a number is new. Changes nothing, because the tag has yet to be verified.
    pub fn check(&self, number: u64) -> Result<(), NotNew> {
        if number < self.lowest_accepted {
            return Err(NotNew::BeforeHandshake);
        }
        if number >= self.seen_end {
            return Ok(());
        }
        if self.seen_end - number > self.number_count() {
            return Err(NotNew::TooOld);
        }
        let (word, bit) = self.bit_of(number);
        let seen = self.seen_bits[word] & bit != 0;
        if seen { Err(NotNew::Seen) } else { Ok(()) }
    }

    /// Marks a number as seen. The datagram's tag must have been verified.
    pub fn mark_seen(&mut self, number: u64) {
        if number < self.lowest_accepted
            || self.seen_end.saturating_sub(number) > self.number_count()
        {
            return;
        }
        if number >= self.seen_end {
            // Numbers that enter the window have not been seen.
            if number - self.seen_end >= self.number_count() {
                self.seen_bits.fill(0);
            } else {
                for skipped in self.seen_end..number {
                    let (word, bit) = self.bit_of(skipped);
                    self.seen_bits[word] &= !bit;
                }
            }
            self.seen_end = number + 1;
        }
        let (word, bit) = self.bit_of(number);
        self.seen_bits[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quorate_core::dice::Dice;

    use super::*;

    /// [pkt-2] The window agrees with a plain set: it accepts no number twice, none below the
    /// handshake, none from beyond the window, and every other one once.
    #[test]
    fn a_window_takes_each_number_once() {
        for seed in 0..100 {
            let mut dice = Dice::new(seed);
            let floor = dice.between(1, 200);
            let mut window = ReplayWindow::new(128, floor);
            let (mut seen, mut highest, mut base) = (BTreeSet::new(), 0, floor);
            for _ in 0..2000 {
                base += dice.below(3) * dice.below(2);
                if dice.chance(1, 100) {
                    base += dice.below(300);
                }
                let number = base.saturating_sub(dice.below(180)).max(1);
                let expected = if number < floor {
                    Err(NotNew::BeforeHandshake)
                } else if highest >= number + 128 {
                    Err(NotNew::TooOld)
                } else if seen.contains(&number) {
                    Err(NotNew::Seen)
                } else {
                    Ok(())
                };
                assert_eq!(window.check(number), expected, "seed {seed}, number {number}");
                if expected.is_ok() {
                    window.mark_seen(number);
                    seen.insert(number);
                    highest = highest.max(number);
                }
            }
        }
    }

    #[test]
    fn last_possible_number_is_accepted() {
        let mut window = ReplayWindow::new(64, 1);
        window.mark_seen(u64::MAX - 1);
        assert_eq!(window.check(u64::MAX - 1), Err(NotNew::Seen));
        assert_eq!(window.check(1), Err(NotNew::TooOld));
        assert_eq!(window.check(u64::MAX - 2), Ok(()));
    }
}
