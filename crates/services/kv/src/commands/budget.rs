//! Limit of the bytes that the commands of one batch may copy, so that a batch never costs more
//! than nodes can afford.
//!
//! A batch has at most a few megabytes, but a command of thirty bytes can copy a value of eight
//! megabytes: COPY, EXPIRE, SETRANGE far past the end. All changes of a batch are in memory until
//! it is committed, on every node, and again at each replay; without a limit, one batch could crash
//! all nodes permanently.

use crate::{encode::Fault, store::Entry};

/// Maximum number of bytes that the commands of one batch may copy. Replicated: the same on every
/// node, permanently.
pub const COPIED_BYTES_MAX: usize = 256 << 20;

/// Maximum number of visits of a command. Replicated: the same on every node, permanently.
pub const VISITS_MAX: u64 = 1 << 20;
/// Cost of changing a row, in visits.
pub(super) const CHANGED_ROW: u64 = 4;

/// Maximum number of visits of the commands of one batch. A heavy command has a batch of its own,
/// unless its data has grown since. Replicated.
const BATCH_VISITS_MAX: u64 = 2 * VISITS_MAX;

/// Remaining budget of a batch. It follows from the batch and the state alone, so all nodes refuse
/// the same commands.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    slot: u64,
    left: usize,
    /// Remaining visits of bounded commands.
    visits: u64,
}

impl Default for Budget {
    /// Returns the budget before the first batch.
    fn default() -> Self {
        Self::of(0)
    }
}

impl Budget {
    const fn of(slot: u64) -> Self {
        Self { slot, left: COPIED_BYTES_MAX, visits: BATCH_VISITS_MAX }
    }

    /// Begins the next command, which is in the batch of this slot.
    pub const fn enter(&mut self, slot: u64) {
        if self.slot != slot {
            *self = Self::of(slot);
        }
    }

    /// Returns the number of visits left.
    pub const fn visits_left(&self) -> u64 {
        self.visits
    }

    /// Charges for visits in advance.
    pub fn spend(&mut self, visits: u64) -> Result<(), Fault> {
        self.visits = self.visits.checked_sub(visits).ok_or(Fault::Visits)?;
        Ok(())
    }

    /// Charges for `bytes` to be copied, in advance.
    pub fn take(&mut self, bytes: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(bytes).ok_or(Fault::Budget)?;
        Ok(())
    }

    /// Charges for a value to be replaced by a grown one, in advance. A value already written by
    /// this batch is free, as it takes no more memory: APPEND makes many small additions to one
    /// value.
    pub fn rewrite(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let held = entry.version.slot == self.slot;
        self.take(if held { 0 } else { entry.value.len() })
    }
}
