//! Repair of decided slots that the log has lost: they are fetched and recorded again ([disk-8]).
//!
//! The core has already decided these slots in this process and requests nothing below
//! `decided_to`, so this module requests them. Slots lost before the start are learned again by the
//! core.

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
};

/// Missing slots, and the schedule of requests for them.
#[derive(Debug)]
pub(crate) struct Repair {
    /// Missing ranges, ordered and disjoint.
    missing_ranges: Vec<SlotRange>,
    next_request_at: Time,
    request_count: usize,
    /// Number of requests since the last slot was received.
    unanswered_count: u32,
    retry_ms: u64,
}

impl Repair {
    pub(crate) fn new(retry_ms: u64) -> Self {
        Self {
            missing_ranges: Vec::new(),
            next_request_at: Time(0),
            request_count: 0,
            unanswered_count: 0,
            retry_ms: retry_ms.max(1),
        }
    }

    pub(crate) fn add_lost(&mut self, range: SlotRange) {
        let mut whole = range;
        self.missing_ranges.retain(|gap| {
            let apart = gap.to < whole.from || whole.to < gap.from;
            if !apart {
                whole = SlotRange::new(whole.from.min(gap.from), whole.to.max(gap.to));
            }
            apart
        });
        let at = self.missing_ranges.partition_point(|gap| gap.to <= whole.from);
        self.missing_ranges.insert(at, whole);
        self.next_request_at = Time(0);
    }

    pub(crate) fn is_fetching(&self, range: SlotRange) -> bool {
        !range.is_empty() && self.missing_ranges.iter().any(|gap| gap.intersect(range) == range)
    }

    pub(crate) fn misses_any(&self, range: SlotRange) -> bool {
        self.missing_ranges.iter().any(|gap| !gap.intersect(range).is_empty())
    }

    pub(crate) fn record_repaired(&mut self, range: SlotRange) {
        let cut = |gap: &SlotRange| {
            let before = SlotRange::new(gap.from, range.from.min(gap.to));
            let behind = SlotRange::new(range.to.max(gap.from), gap.to);
            [before, behind].into_iter().filter(|part| !part.is_empty())
        };
        self.missing_ranges = self.missing_ranges.iter().flat_map(cut).collect();
        self.next_request_at = Time(0);
        self.unanswered_count = 0;
    }

    pub(crate) fn next_request(
        &mut self,
        now: Time,
        peers: &[NodeId],
    ) -> Option<(NodeId, SlotRange)> {
        let gap = *self.missing_ranges.first()?;
        if now < self.next_request_at {
            return None;
        }
        if peers.is_empty() {
            // Without this delay the request would be due in every turn.
            self.next_request_at = now.plus_ms(self.retry_ms);
            return None;
        }
        let to = peers[self.request_count % peers.len()];
        self.request_count += 1;
        self.unanswered_count = self.unanswered_count.saturating_add(1);
        self.next_request_at = now.plus_ms(self.retry_ms);
        Some((to, gap))
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        (!self.missing_ranges.is_empty()).then_some(self.next_request_at)
    }

    /// Returns the number of consecutive unanswered requests.
    pub(crate) fn unanswered_count(&self) -> u32 {
        self.unanswered_count
    }

    pub(crate) fn missing_slots(&self) -> u64 {
        self.missing_ranges.iter().map(|gap| gap.len()).sum()
    }

    pub(crate) fn first_lost(&self) -> Option<Slot> {
        self.missing_ranges.first().map(|gap| gap.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    /// [disk-8] Missing slots are requested from one peer after another until they are back.
    #[test]
    fn missing_slots_are_requested_until_they_arrive() {
        let mut repair = Repair::new(10);
        repair.add_lost(slots(20, 21));
        repair.add_lost(slots(7, 9));
        repair.add_lost(slots(5, 7));
        assert_eq!(repair.missing_ranges, [slots(5, 9), slots(20, 21)]);
        assert_eq!(repair.next_request(Time(0), &[]), None);
        assert_eq!(repair.wake_at(), Some(Time(10_000)), "it is not due at once");
        let peers = [NodeId(2), NodeId(3)];
        assert_eq!(repair.next_request(Time(0), &peers), None);
        assert_eq!(repair.next_request(Time(10_000), &peers), Some((NodeId(2), slots(5, 9))));
        assert_eq!(repair.next_request(Time(10_000), &peers), None);
        assert_eq!(repair.next_request(Time(20_000), &peers), Some((NodeId(3), slots(5, 9))));
        assert_eq!(repair.unanswered_count(), 2);
        assert!(repair.is_fetching(slots(6, 8)));
        assert!(!repair.is_fetching(slots(8, 10)));
        repair.record_repaired(slots(6, 7));
        assert_eq!(repair.missing_ranges, [slots(5, 6), slots(7, 9), slots(20, 21)]);
        repair.record_repaired(slots(1, 10));
        assert_eq!((repair.first_lost(), repair.unanswered_count()), (Some(Slot(20)), 0));
        repair.record_repaired(slots(20, 21));
        assert_eq!((repair.first_lost(), repair.wake_at()), (None, None));
    }
}
