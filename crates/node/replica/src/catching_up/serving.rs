//! Slots to send to lagging peers, one range per peer, and payloads that peers requested.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    value::Value,
};

/// Slots and payloads to send to each peer.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    /// Slots to send to each peer. A peer's newest request replaces its older one, since the peer
    /// knows its own position best.
    queued_ranges: BTreeMap<NodeId, SlotRange>,
    /// Peers' requests for payloads that are not in memory.
    queued_payloads: VecDeque<(NodeId, Value, Slot)>,
    /// Peer served last; the next turn starts after it.
    last_served: NodeId,
}

impl Serving {
    /// Queues slots that are decided here to be sent to a peer.
    pub(crate) fn queue_slots(&mut self, to: NodeId, range: SlotRange) {
        if !range.is_empty() {
            self.queued_ranges.insert(to, range);
        }
    }

    /// Queues a peer's request for the payload of a value that was proposed in `slot`. Returns
    /// `false` if the queue is full.
    pub(crate) fn queue_payload(
        &mut self,
        to: NodeId,
        value: Value,
        slot: Slot,
        max: usize,
    ) -> bool {
        if self.queued_payloads.contains(&(to, value, slot)) {
            return true;
        }
        let room = self.queued_payloads.len() < max;
        if room {
            self.queued_payloads.push_back((to, value, slot));
        }
        room
    }

    pub(crate) fn next_payload(&mut self) -> Option<(NodeId, Value, Slot)> {
        self.queued_payloads.pop_front()
    }

    pub(crate) fn next_range(&mut self) -> Option<(NodeId, SlotRange)> {
        let behind =
            self.queued_ranges.range(NodeId(self.last_served.0.saturating_add(1))..).next();
        let (to, range) = behind.or_else(|| self.queued_ranges.iter().next())?;
        self.last_served = *to;
        Some((*to, *range))
    }

    /// Returns the slots that are still to be sent to a peer.
    pub(crate) fn queued_range(&self, to: NodeId) -> Option<SlotRange> {
        self.queued_ranges.get(&to).copied()
    }

    pub(crate) fn record_sent(&mut self, node: NodeId, to: Slot) {
        if let Some(range) = self.queued_ranges.get_mut(&node) {
            range.from = range.from.max(to);
            if range.is_empty() {
                self.queued_ranges.remove(&node);
            }
        }
    }

    /// Drops the slots queued for a peer that disconnected or cannot be served. It will ask again.
    pub(crate) fn drop_peer(&mut self, node: NodeId) {
        self.queued_ranges.remove(&node);
        self.queued_payloads.retain(|(to, ..)| *to != node);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queued_ranges.is_empty() && self.queued_payloads.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    #[test]
    fn peers_take_turns() {
        let mut serving = Serving::default();
        serving.queue_slots(NodeId(3), slots(1, 9));
        serving.queue_slots(NodeId(1), slots(2, 9));
        assert_eq!(serving.next_range(), Some((NodeId(1), slots(2, 9))));
        serving.record_sent(NodeId(1), Slot(5));
        assert_eq!(serving.next_range(), Some((NodeId(3), slots(1, 9))));
        assert_eq!(serving.next_range(), Some((NodeId(1), slots(5, 9))));
        serving.record_sent(NodeId(1), Slot(9));
        serving.drop_peer(NodeId(3));
        assert!(serving.is_idle());
    }
}
