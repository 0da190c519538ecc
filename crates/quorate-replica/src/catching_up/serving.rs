//! Peers that are behind, and what they are still to be sent: one range each, within a budget.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    value::{BatchName, Value},
};

/// Most decided entries remembered; older ones are in the log.
const HISTORY_ENTRIES: usize = 8 << 10;

/// What the latest slots decided, without bytes.
#[derive(Debug, Default)]
pub(crate) struct History {
    entries: VecDeque<(SlotRange, Value)>,
}

impl History {
    /// These slots follow the ones before; if they do not, those are forgotten.
    pub(crate) fn push(&mut self, range: SlotRange, value: Value) {
        if self
            .entries
            .back()
            .is_some_and(|(last, _)| last.to != range.from)
        {
            self.entries.clear();
        }
        if self.entries.len() == HISTORY_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back((range, value));
    }

    /// What `slot` decided, and in which slots around it.
    pub(crate) fn find(&self, slot: Slot) -> Option<(SlotRange, Value)> {
        let at = self.entries.partition_point(|(range, _)| range.to <= slot);
        self.entries
            .get(at)
            .copied()
            .filter(|(range, _)| range.contains(slot))
    }
}

/// Who waits for what.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    /// Slots that each peer is still to be sent. The newest request of a peer replaces its older
    /// one: it knows best where it stands.
    ranges: BTreeMap<NodeId, SlotRange>,
    /// Payloads that peers look for and that are not in memory.
    payloads: VecDeque<(NodeId, BatchName, Slot)>,
    /// Who was served last; the next in order is next.
    last: NodeId,
}

impl Serving {
    /// A peer needs these slots, all of them decided here.
    pub(crate) fn start(&mut self, to: NodeId, range: SlotRange) {
        if !range.is_empty() {
            self.ranges.insert(to, range);
        }
    }

    /// A peer looks for a payload that was proposed in this slot; `false` if there is no room.
    pub(crate) fn want_payload(
        &mut self,
        to: NodeId,
        name: BatchName,
        slot: Slot,
        max: usize,
    ) -> bool {
        if self.payloads.contains(&(to, name, slot)) {
            return true;
        }
        let room = self.payloads.len() < max;
        if room {
            self.payloads.push_back((to, name, slot));
        }
        room
    }

    /// Takes the next payload request.
    pub(crate) fn next_payload(&mut self) -> Option<(NodeId, BatchName, Slot)> {
        self.payloads.pop_front()
    }

    /// Whose turn it is, and from where.
    pub(crate) fn next_range(&mut self) -> Option<(NodeId, SlotRange)> {
        let behind = self
            .ranges
            .range(NodeId(self.last.0.saturating_add(1))..)
            .next();
        let (to, range) = behind.or_else(|| self.ranges.iter().next())?;
        self.last = *to;
        Some((*to, *range))
    }

    /// What a peer is still to be sent.
    pub(crate) fn range(&self, to: NodeId) -> Option<SlotRange> {
        self.ranges.get(&to).copied()
    }

    /// A peer was sent the slots below.
    pub(crate) fn sent(&mut self, node: NodeId, to: Slot) {
        if let Some(range) = self.ranges.get_mut(&node) {
            range.from = range.from.max(to);
            if range.is_empty() {
                self.ranges.remove(&node);
            }
        }
    }

    /// A peer is gone, or cannot be helped; it will ask again.
    pub(crate) fn stop(&mut self, node: NodeId) {
        self.ranges.remove(&node);
        self.payloads.retain(|(to, ..)| *to != node);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ranges.is_empty() && self.payloads.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    #[test]
    fn history_finds_what_it_remembers() {
        let mut history = History::default();
        history.push(slots(3, 4), Value::ExpireSession { session: 1 });
        history.push(slots(4, 9), Value::NoOp);
        assert_eq!(history.find(Slot(2)), None);
        assert_eq!(
            history.find(Slot(3)),
            Some((slots(3, 4), Value::ExpireSession { session: 1 }))
        );
        assert_eq!(history.find(Slot(8)), Some((slots(4, 9), Value::NoOp)));
        assert_eq!(history.find(Slot(9)), None);
        history.push(slots(20, 21), Value::NoOp);
        assert_eq!(history.find(Slot(8)), None, "no holes");
        for slot in 21..50_000 {
            history.push(slots(slot, slot + 1), Value::NoOp);
        }
        assert_eq!(history.entries.len(), HISTORY_ENTRIES);
    }

    #[test]
    fn peers_take_turns() {
        let mut serving = Serving::default();
        serving.start(NodeId(3), slots(1, 9));
        serving.start(NodeId(1), slots(2, 9));
        assert_eq!(serving.next_range(), Some((NodeId(1), slots(2, 9))));
        serving.sent(NodeId(1), Slot(5));
        assert_eq!(serving.next_range(), Some((NodeId(3), slots(1, 9))));
        assert_eq!(serving.next_range(), Some((NodeId(1), slots(5, 9))));
        serving.sent(NodeId(1), Slot(9));
        serving.stop(NodeId(3));
        assert!(serving.is_idle());
    }
}
