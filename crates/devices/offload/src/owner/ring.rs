//! Set of the slots seen within a window the size of a device's ring, with one word per cell.

use alloc::{vec, vec::Vec};

/// Last slot seen in each cell, plus one.
#[derive(Debug)]
pub(crate) struct SeenSlots(Vec<u64>);

impl SeenSlots {
    /// Creates an empty ring. `cells` must be a power of two.
    pub(crate) fn new(cells: u64) -> Self {
        let cells = usize::try_from(cells).expect("cells are memory of a device");
        Self(vec![0; cells])
    }

    pub(crate) fn cell_count(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    fn cell_index(&self, slot: u64) -> usize {
        let mask = self.0.len() as u64 - 1;
        usize::try_from(slot & mask).expect("below the number of cells")
    }

    pub(crate) fn is_seen(&self, slot: u64) -> bool {
        slot != u64::MAX && self.0[self.cell_index(slot)] == slot + 1
    }

    /// Marks a slot as seen. Returns whether it was unseen.
    pub(crate) fn mark_seen(&mut self, slot: u64) -> bool {
        let at = self.cell_index(slot);
        let before = core::mem::replace(&mut self.0[at], slot.wrapping_add(1));
        before != slot.wrapping_add(1)
    }

    /// Returns the first unseen slot at or after `from`.
    pub(crate) fn first_unseen(&self, from: u64) -> u64 {
        let mut slot = from;
        while self.is_seen(slot) {
            slot += 1;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_new_once_and_forgotten_when_its_cell_is_reused() {
        let mut ring = SeenSlots::new(4);
        assert!(!ring.is_seen(0));
        assert!(ring.mark_seen(0) && !ring.mark_seen(0) && ring.mark_seen(1) && ring.mark_seen(3));
        assert_eq!((ring.first_unseen(0), ring.first_unseen(3)), (2, 4));
        assert!(ring.mark_seen(4) && !ring.is_seen(0));
        assert!(ring.mark_seen(u64::MAX));
        assert_eq!(ring.first_unseen(u64::MAX), u64::MAX);
        ring.clear();
        assert!(!ring.is_seen(1));
    }
}
