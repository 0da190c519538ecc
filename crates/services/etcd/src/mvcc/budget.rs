//! Budgets for the data that one request reads and returns, so that no request exhausts the memory
//! of all replicas or keeps them busy. The cost of a command is counted rather than measured,
//! because every node must reach the limit at the same point.

use crate::refusal::Refusal;

/// Maximum size of the response to a command.
pub const COMMAND_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of keys that a command may visit without changing them.
pub const COMMAND_VISITS_MAX: u64 = 10_000_000;
/// Maximum size of the response to a query.
pub const QUERY_BYTES_MAX: u64 = 512 << 20;
/// Approximate overhead of a key-value pair in a response, in bytes.
pub(super) const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// Approximate memory of the undo entries for a deleted key, in bytes, without the key itself.
const UNDO_BYTES: u64 = 512;

/// Remaining amounts that a request may read and return.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    bytes: u64,
    visits_left: u64,
}

impl Budget {
    pub const COMMAND: Self = Self { bytes: COMMAND_BYTES_MAX, visits_left: COMMAND_VISITS_MAX };
    pub const QUERY: Self = Self { bytes: QUERY_BYTES_MAX, visits_left: u64::MAX };

    /// Returns a budget for tests.
    pub const fn of(bytes: u64, visits: u64) -> Self {
        Self { bytes, visits_left: visits }
    }

    pub(super) fn charge_visit(&mut self) -> Result<(), Refusal> {
        self.visits_left = self.visits_left.checked_sub(1).ok_or(Refusal::BudgetExceeded)?;
        Ok(())
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges the undo data of a deleted key, which is needed if the transaction fails later.
    pub(super) fn charge_undo(&mut self, key: usize) -> Result<(), Refusal> {
        let bytes = UNDO_BYTES + (key as u64).saturating_mul(4);
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Refusal::BudgetExceeded)?;
        Ok(())
    }

    /// Charges a key and its value in the response.
    pub(super) fn charge_answer(&mut self, key: usize, value: usize) -> Result<(), Refusal> {
        let bytes = ENTRY_OVERHEAD_BYTES + (key as u64).saturating_add(value as u64);
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Refusal::BudgetExceeded)?;
        Ok(())
    }
}
