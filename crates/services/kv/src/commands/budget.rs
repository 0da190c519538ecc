//! Limits on the bytes that the commands of one batch may copy, and on the rows that they visit.
//!
//! A batch has a few megabytes, but a command of thirty bytes can copy a value of eight megabytes
//! (COPY, EXPIRE, SETRANGE far past the end). Every node holds all changes of a batch in memory
//! until they are committed, and again at each replay: without a limit, one batch could crash all
//! nodes permanently.

use crate::{encode::Fault, store::Entry};

/// Maximum number of bytes that one batch may copy. Part of the replicated format: never changes.
pub const COPIED_BYTES_MAX: usize = 256 << 20;

/// Maximum number of visits per command. Part of the replicated format: never changes.
pub const VISITS_MAX: u64 = 1 << 20;
/// Cost of changing a row, in visits.
pub(super) const CHANGED_ROW: u64 = 4;
/// Cost in visits of finding a key or an element by name.
pub(super) const VISITS_PER_FOUND: u64 = 2;

/// Maximum number of visits per batch. A heavy command gets a batch to itself, unless its data has
/// grown since it was admitted. Part of the replicated format: never changes.
const BATCH_VISITS_MAX: u64 = 2 * VISITS_MAX;

/// Remaining budget of a batch. It depends only on the batch and the state, so all nodes refuse the
/// same commands.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    slot: u64,
    left: usize,
    /// Visits left for bounded commands.
    visits: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Budget {
    const fn of(slot: u64) -> Self {
        Self { slot, left: COPIED_BYTES_MAX, visits: BATCH_VISITS_MAX }
    }

    /// Starts a command of the batch in slot `slot`; the first command of a batch resets the
    /// budget.
    pub const fn start_command(&mut self, slot: u64) {
        if self.slot != slot {
            *self = Self::of(slot);
        }
    }

    pub const fn visits_left(&self) -> u64 {
        self.visits
    }

    /// Charges for visits before they are made.
    pub fn charge_visits(&mut self, visits: u64) -> Result<(), Fault> {
        self.visits = self.visits.checked_sub(visits).ok_or(Fault::Visits)?;
        Ok(())
    }

    /// Charges for `bytes` bytes before they are copied.
    pub fn charge_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(bytes).ok_or(Fault::Budget)?;
        Ok(())
    }

    /// Charges for replacing a value with a longer one. A value already written by this batch is
    /// free, as it takes no more memory: APPEND makes many small additions to one value.
    pub fn rewrite(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let held = entry.version.slot == self.slot;
        self.charge_bytes(if held { 0 } else { entry.value.len() })
    }
}
