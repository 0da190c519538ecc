//! Slots for which devices counted a quorum, reported in any order ([offload-10], [offload-11]).

use alloc::vec::Vec;

use crate::slot::{Slot, SlotRange};

/// Maximum number of stored ranges. Slots outside them are decided without the devices' counts.
const RANGES_MAX: usize = 64;

/// Disjoint ranges of counted slots, in slot order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CountedSlots {
    ranges: Vec<SlotRange>,
}

impl CountedSlots {
    /// Adds counted slots.
    pub fn add(&mut self, range: SlotRange) {
        if range.is_empty() {
            return;
        }
        let from = self.ranges.partition_point(|known| known.to < range.from);
        let to = self.ranges.partition_point(|known| known.from <= range.to);
        let mut joined = range;
        for known in &self.ranges[from..to] {
            joined.from = joined.from.min(known.from);
            joined.to = joined.to.max(known.to);
        }
        self.ranges.splice(from..to, [joined]);
        self.ranges.truncate(RANGES_MAX);
    }

    /// Returns the end of the contiguous counted slots that start at `slot`; `slot` itself if it is
    /// not counted.
    pub fn contiguous_end(&self, slot: Slot) -> Slot {
        let at = self.ranges.partition_point(|known| known.to <= slot);
        let known = self.ranges.get(at).filter(|known| known.contains(slot));
        known.map_or(slot, |known| known.to)
    }

    /// Drops the counted slots below `slot`.
    pub fn drop_below(&mut self, slot: Slot) {
        if self.ranges.first().is_some_and(|known| known.to <= slot) {
            self.ranges.retain(|known| known.to > slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_in_any_order() {
        let mut counted = CountedSlots::default();
        for slot in [7, 5, 9, 6, 2] {
            counted.add(SlotRange::one(Slot(slot)));
        }
        counted.add(SlotRange::new(Slot(4), Slot(4)));
        assert_eq!(counted.contiguous_end(Slot(5)), Slot(8));
        assert_eq!(counted.contiguous_end(Slot(4)), Slot(4), "an empty range is none");
        assert_eq!(counted.contiguous_end(Slot(8)), Slot(8));
        counted.add(SlotRange::new(Slot(3), Slot(9)));
        assert_eq!(counted.contiguous_end(Slot(2)), Slot(10));
        counted.drop_below(Slot(10));
        assert_eq!(counted, CountedSlots::default());
        for slot in (0..300).step_by(2) {
            counted.add(SlotRange::one(Slot(slot)));
        }
        assert_eq!(counted.ranges.len(), RANGES_MAX);
    }
}
