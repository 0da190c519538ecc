//! Records of all clients, which are checked together.

use crate::{check::exactly_once::ExactlyOnce, dice::Dice, history::History};

/// Number of operations after which shared keys get new names, so that histories remain short
/// enough to check.
const OPERATIONS_PER_KEY: u64 = 60;

#[derive(Debug, Default)]
pub struct Books {
    pub history: History,
    pub exactly_once: ExactlyOnce,
    /// Number of requests answered with a result.
    pub answered: u64,
    /// Number of requests that were certainly not executed.
    pub refused: u64,
    /// Number of requests that may have been executed.
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
