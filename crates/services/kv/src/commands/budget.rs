//! Limit of the bytes that the commands of one batch may copy: a batch must not cost more than
//! nodes have.
//!
//! A batch is at most some megabytes, but a command of thirty bytes can copy a value of eight
//! megabytes: COPY, EXPIRE, SETRANGE far past the end. All changes of a batch are held in memory
//! until it is committed, on every node, and again at each replay; without a bound, one batch could
//! end them all, for good.

use crate::{encode::Fault, store::Entry};

/// Most bytes that the commands of one batch may copy. Replicated: the same on every node, forever.
pub const COPIED_BYTES_MAX: usize = 256 << 20;

/// Most visits of a command. Replicated: the same on every node, forever.
pub const VISITS_MAX: u64 = 1 << 20;
/// Cost of changing a row, in visits.
pub(super) const CHANGED_ROW: u64 = 4;

/// Most visits of the commands of one batch: a heavy one has a batch of its own, unless what it
/// visits has grown. Replicated.
const BATCH_VISITS_MAX: u64 = 2 * VISITS_MAX;

/// Remaining budget for the commands of a batch. Follows from the batch and the state alone, so all
/// nodes refuse the same commands.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    slot: u64,
    left: usize,
    /// Visits of commands that are bounded.
    visits: u64,
}

impl Default for Budget {
    /// Before every batch.
    fn default() -> Self {
        Self::of(0)
    }
}

impl Budget {
    const fn of(slot: u64) -> Self {
        Self { slot, left: COPIED_BYTES_MAX, visits: BATCH_VISITS_MAX }
    }

    /// Enters the next command, of the batch in this slot.
    pub const fn enter(&mut self, slot: u64) {
        if self.slot != slot {
            *self = Self::of(slot);
        }
    }

    /// Returns how many visits are left.
    pub const fn visits_left(&self) -> u64 {
        self.visits
    }

    /// Charges for visits that are about to be made.
    pub fn spend(&mut self, visits: u64) -> Result<(), Fault> {
        self.visits = self.visits.checked_sub(visits).ok_or(Fault::Visits)?;
        Ok(())
    }

    /// Charges for `bytes` that are about to be copied.
    pub fn take(&mut self, bytes: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(bytes).ok_or(Fault::Budget)?;
        Ok(())
    }

    /// Charges for a value that is about to be replaced by one that grew from it. No more memory is
    /// held if this batch has written it before: many small additions to one value are the use of
    /// APPEND.
    pub fn rewrite(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let held = entry.version.slot == self.slot;
        self.take(if held { 0 } else { entry.value.len() })
    }
}
