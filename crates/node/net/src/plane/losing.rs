//! Losses on purpose: datagrams that arrived and are taken for lost, for experiments on networks
//! that lose none.

use quorate_core::dice::Dice;

/// Which of those that arrive are lost.
#[derive(Debug)]
pub(crate) struct Losing {
    of_10000: u64,
    dice: Dice,
}

impl Losing {
    /// Loses this many of 10 000 datagrams; none for 0.
    pub(crate) fn new(of_10000: u32, dice: Dice) -> Self {
        Self { of_10000: of_10000.into(), dice }
    }

    /// Returns whether the next one is lost.
    pub(crate) fn next(&mut self) -> bool {
        self.of_10000 > 0 && self.dice.chance(self.of_10000, 10_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_lost_as_was_said() {
        let lost = |of_10000| {
            let mut losing = Losing::new(of_10000, Dice::new(7));
            (0..100_000).filter(|_| losing.next()).count()
        };
        assert_eq!(lost(0), 0);
        assert!((900..1100).contains(&lost(100)), "{}", lost(100));
        assert_eq!(lost(10_000), 100_000);
    }
}
