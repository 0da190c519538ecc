//! Decided slots that a damaged log has lost, and the reconfigurations that it still holds between
//! them ([disk-8]).
//!
//! The node's decided prefix falls back to the first lost slot. The lost values must be learned
//! again, bytes included, and any of them may be a reconfiguration. Slots that the log holds after
//! a lost range are not requested; only their reconfigurations matter here.

use alloc::{collections::VecDeque, vec::Vec};

use crate::{
    slot::{Slot, SlotRange},
    value::Value,
};

/// Lost slots in slot order. Empty if the log is undamaged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LostSlots {
    ranges: VecDeque<SlotRange>,
    /// Reconfigurations that the log holds after the first lost slot.
    reconfigurations: VecDeque<(Slot, Value)>,
    /// Every slot below this one was once decided on this node.
    end: Slot,
}

impl LostSlots {
    /// Creates the set of lost slots below `end`. `ranges` must be sorted and disjoint. `changes`
    /// are the reconfigurations that the log holds below `end`.
    pub fn new(ranges: Vec<SlotRange>, changes: Vec<(Slot, Value)>, end: Slot) -> Self {
        let first = ranges.first().map_or(end, |range| range.from);
        let behind = |(slot, _): &(Slot, Value)| *slot >= first;
        Self {
            reconfigurations: changes.into_iter().filter(behind).collect(),
            ranges: ranges.into(),
            end,
        }
    }

    /// Adds lost slots.
    pub fn add(&mut self, range: SlotRange) {
        if range.is_empty() {
            return;
        }
        let mut whole = range;
        self.ranges.retain(|known| {
            let apart = known.to < whole.from || whole.to < known.from;
            if !apart {
                whole.from = whole.from.min(known.from);
                whole.to = whole.to.max(known.to);
            }
            apart
        });
        let at = self.ranges.partition_point(|known| known.to <= whole.from);
        self.ranges.insert(at, whole);
    }

    /// Returns whether no slot is lost.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of lost slots.
    pub fn slots(&self) -> u64 {
        self.ranges.iter().map(|range| range.len()).sum()
    }

    /// Returns the end of the first lost range; `None` if no slot is lost.
    pub fn first_to(&self) -> Option<Slot> {
        self.ranges.front().map(|range| range.to)
    }

    /// Records that the slots below `decided_to` have been learned. Returns the slot below which
    /// every slot is now known, which is higher than `decided_to` if this closed a gap. Passes each
    /// reconfiguration after the gap to `each`.
    pub fn record_learned(&mut self, decided_to: Slot, mut each: impl FnMut(Slot, &Value)) -> Slot {
        let mut known_to = decided_to;
        while self.ranges.pop_front_if(|range| range.to <= known_to).is_some() {
            let next = self.ranges.front().map_or(self.end, |range| range.from);
            while let Some((slot, value)) =
                self.reconfigurations.pop_front_if(|(slot, _)| *slot < next)
            {
                if slot >= known_to {
                    each(slot, &value);
                }
            }
            known_to = known_to.max(next);
        }
        if let Some(first) = self.ranges.front_mut() {
            first.from = first.from.max(known_to);
        }
        known_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ballot::Era, configuration::Change};

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    fn change(era: u32) -> Value {
        Value::Reconfigure { era: Era(era), change: Change::Multiply(2) }
    }

    fn learn(lost: &mut LostSlots, decided_to: u64) -> (u64, Vec<u32>) {
        let mut eras = Vec::new();
        let to = lost.record_learned(Slot(decided_to), |_, value| {
            if let Value::Reconfigure { era, .. } = value {
                eras.push(era.0);
            }
        });
        (to.0, eras)
    }

    #[test]
    fn slots_after_a_gap_are_skipped_with_their_reconfigurations() {
        let changes = [(3, 0), (7, 1), (12, 2), (25, 3)];
        let changes = changes.map(|(slot, era)| (Slot(slot), change(era)));
        let ranges = [slots(5, 7), slots(10, 12), slots(20, 21)];
        let mut lost = LostSlots::new(ranges.to_vec(), changes.to_vec(), Slot(30));
        assert_eq!(lost.first_to(), Some(Slot(7)));
        assert_eq!(learn(&mut lost, 6), (6, Vec::new()), "still in the gap");
        assert_eq!(lost.slots(), 1 + 2 + 1);
        assert_eq!(learn(&mut lost, 7), (10, alloc::vec![1]));
        // A value that spans several slots, learned whole, may also cover slots that the log holds.
        assert_eq!(learn(&mut lost, 14), (20, Vec::new()), "era 2 was learned, not skipped");
        assert_eq!(learn(&mut lost, 21), (30, alloc::vec![3]));
        assert!(lost.is_empty());
        assert_eq!(learn(&mut lost, 31), (31, Vec::new()));
    }

    /// Reconfigurations in slots lost later come from the peer that sends those slots, not from the
    /// log.
    #[test]
    fn slots_lost_later_are_learned_from_peers() {
        let changes = [(7, 1), (12, 2)].map(|(slot, era)| (Slot(slot), change(era)));
        let mut lost = LostSlots::new([slots(5, 7)].to_vec(), changes.to_vec(), Slot(30));
        lost.add(slots(12, 12));
        lost.add(slots(14, 15));
        lost.add(slots(12, 14));
        assert_eq!(learn(&mut lost, 7), (12, alloc::vec![1]));
        assert_eq!(lost.first_to(), Some(Slot(15)));
        assert_eq!(learn(&mut lost, 15), (30, Vec::new()));
    }
}
