//! Simulated loss of received datagrams, for experiments on networks that lose none.

use quorate_core::dice::Dice;

/// Random generator that selects the datagrams to drop.
#[derive(Debug)]
pub(crate) struct SimulatedLoss {
    drops_per_10000: u64,
    dice: Dice,
}

impl SimulatedLoss {
    /// Drops `of_10000` of every 10 000 datagrams on average; 0 drops none.
    pub(crate) fn new(of_10000: u32, dice: Dice) -> Self {
        Self { drops_per_10000: of_10000.into(), dice }
    }

    /// Returns whether to drop the next datagram.
    pub(crate) fn drops_next(&mut self) -> bool {
        self.drops_per_10000 > 0 && self.dice.chance(self.drops_per_10000, 10_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_rate_matches_the_setting() {
        let lost = |of_10000| {
            let mut losing = SimulatedLoss::new(of_10000, Dice::new(7));
            (0..100_000).filter(|_| losing.drops_next()).count()
        };
        assert_eq!(lost(0), 0);
        assert!((900..1100).contains(&lost(100)), "{}", lost(100));
        assert_eq!(lost(10_000), 100_000);
    }
}
