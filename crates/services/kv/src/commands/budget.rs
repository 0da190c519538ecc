//! Limit on the bytes that the commands of one batch may copy, which bounds the memory of a batch
//! on every node.
//!
//! A batch has at most a few megabytes, but a command of thirty bytes can copy a value of eight
//! megabytes: COPY, EXPIRE, SETRANGE far past the end. Every node keeps all changes of a batch in
//! memory until they are committed, and does so again at each replay. Without a limit, one batch
//! could crash all nodes permanently.

use crate::{encode::Fault, store::Entry};

/// Maximum number of bytes that the commands of one batch may copy. Part of the replicated format:
/// all nodes must agree on it, so it never changes.
pub const COPIED_BYTES_MAX: usize = 256 << 20;

/// Maximum number of visits per command. Part of the replicated format: all nodes must agree on it,
/// so it never changes.
pub const VISITS_MAX: u64 = 1 << 20;
/// Cost of changing a row, in visits.
pub(super) const CHANGED_ROW: u64 = 4;

/// Maximum number of visits per batch, over all of its commands. A heavy command gets a batch to
/// itself, unless its data has grown since it was admitted. Part of the replicated format.
const BATCH_VISITS_MAX: u64 = 2 * VISITS_MAX;

/// Remaining budget of a batch. The budget depends only on the batch and the state, so all nodes
/// refuse the same commands.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    slot: u64,
    left: usize,
    /// Number of visits left for bounded commands.
    visits: u64,
}

impl Default for Budget {
    /// Creates the budget to use before the first batch.
    fn default() -> Self {
        Self::of(0)
    }
}

impl Budget {
    const fn of(slot: u64) -> Self {
        Self { slot, left: COPIED_BYTES_MAX, visits: BATCH_VISITS_MAX }
    }

    /// Prepares for the next command, which belongs to the batch in slot `slot`. A new batch gets a
    /// new budget.
    pub const fn enter(&mut self, slot: u64) {
        if self.slot != slot {
            *self = Self::of(slot);
        }
    }

    pub const fn visits_left(&self) -> u64 {
        self.visits
    }

    /// Charges for visits before they are made. Fails if the budget does not suffice.
    pub fn spend(&mut self, visits: u64) -> Result<(), Fault> {
        self.visits = self.visits.checked_sub(visits).ok_or(Fault::Visits)?;
        Ok(())
    }

    /// Charges for copying `bytes` bytes before they are copied. Fails if the budget does not
    /// suffice.
    pub fn take(&mut self, bytes: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(bytes).ok_or(Fault::Budget)?;
        Ok(())
    }

    /// Charges for replacing a value by a longer one, before it is replaced. A value that this
    /// batch has already written is free because it takes no more memory: APPEND makes many small
    /// additions to one value.
    pub fn rewrite(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let held = entry.version.slot == self.slot;
        self.take(if held { 0 } else { entry.value.len() })
    }
}
