//! Recently applied values, without payloads, for slightly lagging peers.

use std::collections::VecDeque;

use quorate_core::{
    slot::{Slot, SlotRange},
    value::Value,
};

/// Maximum number of decided entries in the history. Older entries are in the log.
const HISTORY_ENTRIES: usize = 8 << 10;

/// Values of the latest decided slots, without gaps.
#[derive(Debug, Default)]
pub(crate) struct History {
    entries: VecDeque<(SlotRange, Value)>,
}

impl History {
    /// Appends decided slots. Drops the earlier history if they do not follow the latest slots.
    pub(crate) fn push(&mut self, range: SlotRange, value: Value) {
        if self.entries.back().is_some_and(|(last, _)| last.to != range.from) {
            self.entries.clear();
        }
        if self.entries.len() == HISTORY_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back((range, value));
    }

    /// Returns the number of values retained from `slot` on; `None` if the value of `slot` itself
    /// is not.
    pub(crate) fn values_since(&self, slot: Slot) -> Option<usize> {
        let known = self.entries.front().is_none_or(|(first, _)| first.from <= slot);
        let at = self.entries.partition_point(|(range, _)| range.to <= slot);
        known.then_some(self.entries.len() - at)
    }

    pub(crate) fn find(&self, slot: Slot) -> Option<(SlotRange, Value)> {
        let at = self.entries.partition_point(|(range, _)| range.to <= slot);
        self.entries.get(at).copied().filter(|(range, _)| range.contains(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    #[test]
    fn history_finds_recent_slots() {
        let mut history = History::default();
        history.push(slots(3, 4), Value::ExpireSession { session: 1 });
        history.push(slots(4, 9), Value::NoOp);
        assert_eq!(history.find(Slot(2)), None);
        assert_eq!(history.find(Slot(3)), Some((slots(3, 4), Value::ExpireSession { session: 1 })));
        assert_eq!(history.find(Slot(8)), Some((slots(4, 9), Value::NoOp)));
        assert_eq!(history.find(Slot(9)), None);
        assert_eq!(history.values_since(Slot(2)), None);
        for (slot, values) in [(3, 2), (4, 1), (8, 1), (9, 0), (99, 0)] {
            assert_eq!(history.values_since(Slot(slot)), Some(values), "{slot}");
        }
        history.push(slots(20, 21), Value::NoOp);
        assert_eq!(history.find(Slot(8)), None, "no holes");
        for slot in 21..50_000 {
            history.push(slots(slot, slot + 1), Value::NoOp);
        }
        assert_eq!(history.entries.len(), HISTORY_ENTRIES);
    }
}
