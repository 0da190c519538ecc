//! Records of all clients, which are checked together.

use crate::{check::exactly_once::ExactlyOnce, dice::Dice, history::ClientHistory};

/// Number of operations after which shared keys get new names, so that histories remain short
/// enough to check.
const OPERATIONS_PER_KEY: u64 = 60;

#[derive(Debug, Default)]
pub struct ClientRecords {
    pub history: ClientHistory,
    pub exactly_once: ExactlyOnce,
    /// Number of requests answered with a result.
    pub answered_requests: u64,
    /// Number of requests that were certainly not executed.
    pub refused_requests: u64,
    /// Number of requests that may have been executed.
    pub unknown_requests: u64,
    last_written_value: i64,
    operations_by_family: [u64; 4],
}

impl ClientRecords {
    pub(super) fn value(&mut self) -> i64 {
        self.last_written_value += 1;
        1_000_000 + self.last_written_value
    }

    pub(super) fn key(&mut self, family: usize, dice: &mut Dice) -> String {
        self.operations_by_family[family] += 1;
        let letter = ["r", "c", "e", "w"][family];
        let epoch = self.operations_by_family[family] / OPERATIONS_PER_KEY;
        format!("{letter}{}.{epoch}", dice.below(2))
    }
}
