//! Records of all clients, checked together.

use crate::{check::exactly_once::ExactlyOnce, dice::Dice, history::History};

/// Operations after which a family of shared keys switches to new names, so that histories stay
/// short enough to check.
const OPERATIONS_PER_KEY: u64 = 60;

/// Records of all clients.
#[derive(Debug, Default)]
pub struct Books {
    /// Operations on single keys.
    pub history: History,
    /// Increments and their checks.
    pub exactly_once: ExactlyOnce,
    /// Requests answered with a result.
    pub answered: u64,
    /// Requests certainly not executed.
    pub refused: u64,
    /// Requests that may or may not have been executed.
    pub unknown: u64,
    last_value: i64,
    touched: [u64; 4],
}

impl Books {
    pub(super) fn value(&mut self) -> i64 {
        self.last_value += 1;
        1_000_000 + self.last_value
    }

    pub(super) fn key(&mut self, family: usize, dice: &mut Dice) -> String {
        self.touched[family] += 1;
        let letter = ["r", "c", "e", "w"][family];
        let epoch = self.touched[family] / OPERATIONS_PER_KEY;
        format!("{letter}{}.{epoch}", dice.below(2))
    }
}
