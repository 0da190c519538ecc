//! Catch-up: detects missing decided slots and requests them from peers ([catch-1]).
//!
//! Liveness only: this module requests decided values; the learner decides which replies to accept.

use alloc::collections::BTreeMap;

use crate::{
    ballot::{Ballot, Era},
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
};

/// Maximum number of values in one request, estimated from the recent number of slots per value.
const CHUNK_VALUES_MAX: u64 = 4096;
/// Maximum number of slots in one request, regardless of how many slots a value spans.
const CHUNK_SLOTS_MAX: u64 = 16 << 20;

/// Tracks slots that are decided on other nodes and missing on this one, and requests them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Catchup {
    /// Every slot below this one is decided at `source`.
    target_slot: Slot,
    source: NodeId,
    /// Highest era seen in a ballot of another node before this node knew that era.
    era: Era,
    /// The outstanding request; `None` if there is none.
    outstanding_query: Option<CatchupQuery>,
    /// Number of slots in the next request. It doubles after a complete reply. After a partial
    /// reply it falls to the number of slots that arrived. Requesting more than the plane and its
    /// queues can carry would waste the excess every time.
    chunk_slots: u64,
    /// Upper bound for `chunk_slots`. A run of stream content can span very many slots.
    chunk_slots_max: u64,
    /// Number of consecutive requests for the same slot without a reply.
    unanswered_count: u32,
    /// First slot of a peer's log, which is above the missing slots, and the time of the peer's
    /// last report.
    start: Option<(Slot, Time)>,
    /// Peers that cannot supply slots below the given one, because their log starts there or they
    /// did not reply.
    cannot_supply_below: BTreeMap<NodeId, Slot>,
    /// Lowest start of a log reported by a peer.
    earliest_log_start: Option<Slot>,
    /// Time of the last snapshot request.
    last_snapshot_request_at: Option<Time>,
    /// Deferred promise: its ballot, and the slot below which all must be decided here
    /// ([ballot-5]).
    deferred_promise: Option<(Ballot, Slot)>,
}

impl Default for Catchup {
    fn default() -> Self {
        Self {
            target_slot: Slot::default(),
            source: NodeId::default(),
            era: Era(0),
            outstanding_query: None,
            chunk_slots: CHUNK_VALUES_MAX,
            chunk_slots_max: CHUNK_VALUES_MAX,
            unanswered_count: 0,
            start: None,
            cannot_supply_below: BTreeMap::new(),
            earliest_log_start: None,
            last_snapshot_request_at: None,
            deferred_promise: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CatchupQuery {
    peer: NodeId,
    /// Requested slots that are still missing.
    range: SlotRange,
    /// Number of requested slots received.
    arrived: u64,
    /// Time of the request, or of its last partial reply.
    last_activity_at: Time,
}

impl Catchup {
    /// Creates the state of a node that knows everything below `target` to be decided on some node.
    pub fn starting_at(target: Slot) -> Self {
        Self { target_slot: target, ..Self::default() }
    }

    /// Records that `source` decided everything below `target`.
    pub fn record_source(&mut self, target: Slot, source: NodeId) {
        if target > self.target_slot {
            self.target_slot = target;
            self.source = source;
        }
    }

    /// Defers the promise of a ballot until the slots below `from`, which the candidate has
    /// decided, are decided here. Only the promise with the highest ballot is kept.
    pub fn defer_promise(&mut self, ballot: Ballot, from: Slot, candidate: NodeId) {
        self.record_source(from, candidate);
        if self.deferred_promise.is_none_or(|(waiting, _)| waiting < ballot) {
            self.deferred_promise = Some((ballot, from));
        }
    }

    /// Returns the deferred promise: its ballot, and the end of the slots that it waits for.
    pub fn deferred_promise(&self) -> Option<(Ballot, Slot)> {
        self.deferred_promise
    }

    /// Clears the deferred promise, which is now being made.
    pub fn clear_deferred_promise(&mut self) {
        self.deferred_promise = None;
    }

    /// Records a ballot of an era that is unknown on this node. The node `source` has decided the
    /// reconfiguration that began the era, in slot `next` or later.
    pub fn note_era(&mut self, era: Era, next: Slot, source: NodeId) {
        self.era = self.era.max(era);
        self.record_source(next.next(), source);
    }

    /// Returns the highest era seen in a ballot of another node before this node knew that era.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Returns the slot below which everything is known to be decided on some node.
    pub fn target_slot(&self) -> Slot {
        self.target_slot
    }

    /// Returns whether decided slots are missing on this node.
    pub fn is_behind(&self, decided_to: Slot) -> bool {
        decided_to < self.target_slot
    }

    /// Returns whether a node other than `me` has decided slots that are missing on this one
    /// ([lie-6]).
    pub fn is_behind_another(&self, decided_to: Slot, me: NodeId) -> bool {
        self.is_behind(decided_to) && ![me, NodeId::default()].contains(&self.source)
    }

    /// Returns the next request, if one is due. It is due at once after a complete reply, and
    /// otherwise after `retry_us` without progress. In the latter case it goes to the next peer in
    /// turn. A peer whose log starts above the missing slots is used only if no other is left.
    /// Nothing past `gap_to` is requested.
    pub fn next_request(
        &mut self,
        now: Time,
        decided_to: Slot,
        gap_to: Option<Slot>,
        retry_us: u64,
        peers: &[NodeId],
    ) -> Option<(NodeId, SlotRange)> {
        if !self.is_behind(decided_to) || peers.is_empty() {
            self.outstanding_query = None;
            self.unanswered_count = 0;
            return None;
        }
        if let Some(asked) = &mut self.outstanding_query
            && decided_to < asked.range.to
        {
            if decided_to > asked.range.from {
                // A partial reply arrived.
                asked.arrived += decided_to.0 - asked.range.from.0;
                asked.range.from = decided_to;
                asked.last_activity_at = now;
                self.unanswered_count = 0;
                return None;
            }
            if now.since_us(asked.last_activity_at) < retry_us {
                return None;
            }
            self.chunk_slots = asked.arrived.max(1);
            self.unanswered_count = self.unanswered_count.saturating_add(1);
            self.cannot_supply_below.insert(asked.peer, decided_to.next());
            let behind = peers.iter().find(|peer| **peer > self.source);
            self.source = *behind.unwrap_or(&peers[0]);
        } else if self.outstanding_query.is_some() {
            self.chunk_slots = (self.chunk_slots * 2).min(self.chunk_slots_max);
            self.unanswered_count = 0;
        }
        if !peers.contains(&self.source) {
            self.source = peers[0];
        }
        if !self.may_supply(self.source, decided_to)
            && let Some(other) = self.next_candidate(decided_to, peers)
        {
            self.source = other;
        }
        let to = self.target_slot.min(decided_to.plus(self.chunk_slots));
        let range = SlotRange::new(decided_to, gap_to.map_or(to, |gap| gap.min(to)));
        self.outstanding_query =
            Some(CatchupQuery { peer: self.source, range, arrived: 0, last_activity_at: now });
        Some((self.source, range))
    }

    /// Records that a value covering `slots` slots was learned, to bound later requests.
    pub fn record_learned(&mut self, slots: u64) {
        let wide = CHUNK_VALUES_MAX.saturating_mul(slots).min(CHUNK_SLOTS_MAX);
        // One short value among long ones is weak evidence, so the bound falls slowly.
        let less = self.chunk_slots_max - self.chunk_slots_max / 16;
        self.chunk_slots_max = wide.max(less).max(CHUNK_VALUES_MAX);
    }

    fn may_supply(&self, node: NodeId, decided_to: Slot) -> bool {
        self.cannot_supply_below.get(&node).is_none_or(|to| *to <= decided_to)
    }

    /// Returns the peer to query next, which is the first one after the current source, in turn,
    /// that may have the missing slots.
    fn next_candidate(&self, decided_to: Slot, peers: &[NodeId]) -> Option<NodeId> {
        let behind = peers.iter().filter(|peer| **peer > self.source);
        let mut turns = behind.chain(peers);
        turns.find(|peer| self.may_supply(**peer, decided_to)).copied()
    }

    /// [catch-2] Records that the log of `from` starts at `log_start`, above the missing slots.
    /// Returns the lowest log start once no remaining peer may have those slots. Returns `None` as
    /// long as another peer can be queried.
    pub fn on_below_start(
        &mut self,
        from: NodeId,
        log_start: Slot,
        decided_to: Slot,
        peers: &[NodeId],
    ) -> Option<Slot> {
        self.cannot_supply_below.insert(from, log_start);
        let earliest = self.earliest_log_start.filter(|earliest| *earliest > decided_to);
        let earliest = earliest.map_or(log_start, |earliest| earliest.min(log_start));
        self.earliest_log_start = Some(earliest);
        if self.next_candidate(decided_to, peers).is_some() {
            self.outstanding_query.take_if(|asked| asked.peer == from);
            return None;
        }
        // The next round of requests asks every peer again.
        self.cannot_supply_below.clear();
        self.earliest_log_start.take()
    }

    /// Records that a peer's log starts at `log_start`, above the missing slots. Returns whether a
    /// snapshot request is due. One is due at most once every `retry_us`.
    pub fn record_log_start(&mut self, now: Time, log_start: Slot, retry_us: u64) -> bool {
        self.start = Some((log_start, now));
        let asked = self.last_snapshot_request_at;
        let due = asked.is_none_or(|at| now.since_us(at) >= retry_us);
        if due {
            self.last_snapshot_request_at = Some(now);
        }
        due
    }

    /// [p1-5] Returns whether a peer reported within the last `within_us` that the missing slots,
    /// which start at `decided_to`, are available only as a snapshot.
    pub fn needs_snapshot(&self, now: Time, decided_to: Slot, within_us: u64) -> bool {
        let lately = |at: Time| now.since_us(at) <= within_us;
        self.start.is_some_and(|(start, at)| start > decided_to && lately(at))
    }

    /// Resets the requests after a snapshot has been installed in place of the missing slots.
    pub fn reset_after_install(&mut self) {
        self.outstanding_query = None;
        self.start = None;
        self.cannot_supply_below.clear();
        self.earliest_log_start = None;
        self.last_snapshot_request_at = None;
        self.unanswered_count = 0;
    }

    /// Returns the number of consecutive unanswered requests for the same slot.
    pub fn unanswered_count(&self) -> u32 {
        self.unanswered_count
    }

    /// Resets the count of unanswered requests, because another peer may reply.
    pub fn reset_unanswered(&mut self) {
        self.unanswered_count = 0;
    }

    /// Returns the time at which the outstanding request becomes overdue.
    pub fn wake_at(&self, retry_us: u64) -> Option<Time> {
        self.outstanding_query.map(|asked| asked.last_activity_at.plus_us(retry_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY_US: u64 = 100;
    const PEERS: [NodeId; 2] = [NodeId(2), NodeId(3)];

    fn ask(catchup: &mut Catchup, now: u64, decided_to: u64) -> Option<(u32, u64)> {
        let question = catchup.next_request(Time(now), Slot(decided_to), None, RETRY_US, &PEERS);
        question.map(|(to, range)| {
            assert_eq!(range.from, Slot(decided_to));
            (to.0, range.len())
        })
    }

    /// A receiver with room for three values at a time is not repeatedly sent thousands.
    #[test]
    fn request_is_no_larger_than_what_arrives() {
        let mut catchup = Catchup::default();
        catchup.record_source(Slot(10_001), NodeId(2));
        assert_eq!(ask(&mut catchup, 0, 1), Some((2, CHUNK_VALUES_MAX)));
        assert_eq!(ask(&mut catchup, 10, 3), None, "answers are coming in");
        assert_eq!(ask(&mut catchup, 20, 4), None);
        assert_eq!(ask(&mut catchup, 119, 4), None, "the rest may be late");
        assert_eq!(ask(&mut catchup, 120, 4), Some((3, 3)), "it is lost");
        assert_eq!(ask(&mut catchup, 130, 7), Some((3, 6)), "at once, and more");
        assert_eq!(ask(&mut catchup, 300, 7), Some((2, 1)), "nothing came");
        for (at, slots) in [(8, 2), (10, 4), (14, 8)] {
            assert_eq!(ask(&mut catchup, 301, at), Some((2, slots)));
        }
        assert_eq!(ask(&mut catchup, 302, 10_001), None, "level");
    }

    /// Thousands of runs of content are requested at once rather than byte by byte, but not
    /// millions of commands.
    #[test]
    fn request_covers_as_many_slots_as_the_values_are_small() {
        let mut catchup = Catchup::default();
        catchup.record_source(Slot(1 << 40), NodeId(2));
        let mut at = 1;
        let mut slots = 0;
        for _ in 0..20 {
            slots = ask(&mut catchup, 0, at).expect("answered in full").1;
            for _ in 0..slots.div_ceil(65_536) {
                catchup.record_learned(65_536);
            }
            at += slots;
        }
        assert_eq!(slots, CHUNK_SLOTS_MAX);
        for _ in 0..200 {
            catchup.record_learned(1);
        }
        assert_eq!(ask(&mut catchup, 0, at).expect("answered in full").1, CHUNK_VALUES_MAX);
    }

    /// [catch-2] A peer whose log starts too late says nothing about the logs of other peers.
    #[test]
    fn snapshot_is_needed_if_no_log_has_the_missing_slots() {
        let mut catchup = Catchup::default();
        catchup.record_source(Slot(1001), NodeId(3));
        let below = |catchup: &mut Catchup, from, start, decided_to| {
            catchup.on_below_start(NodeId(from), Slot(start), Slot(decided_to), &PEERS)
        };
        assert_eq!(ask(&mut catchup, 0, 1), Some((3, 1000)));
        assert_eq!(below(&mut catchup, 3, 50, 1), None);
        assert_eq!(ask(&mut catchup, 1, 1), Some((2, 1000)), "at once");
        assert_eq!(below(&mut catchup, 2, 40, 1), Some(Slot(40)));
        catchup.reset_after_install();

        // The slots after the snapshot are requested from its source, not from other peers again
        // and again.
        catchup.record_source(Slot(1002), NodeId(3));
        assert_eq!(ask(&mut catchup, 2, 40), Some((3, 962)));
        assert_eq!(below(&mut catchup, 3, 50, 40), None);
        assert_eq!(ask(&mut catchup, 3, 40), Some((2, 962)));
        catchup.record_source(Slot(2001), NodeId(3));
        assert_eq!(ask(&mut catchup, 4, 45), None, "answers are coming in");
        assert_eq!(ask(&mut catchup, 104, 45), Some((2, 5)), "3 has less");
        assert_eq!(below(&mut catchup, 2, 46, 45), Some(Slot(46)));
        assert_eq!(ask(&mut catchup, 105, 1002), Some((2, 10)), "it has the rest");

        // A peer that does not reply counts as having nothing.
        assert_eq!(below(&mut catchup, 2, 1200, 1002), None);
        assert_eq!(ask(&mut catchup, 106, 1002), Some((3, 10)));
        assert_eq!(ask(&mut catchup, 206, 1002), Some((2, 1)), "no node is left");
        assert_eq!(below(&mut catchup, 2, 1300, 1002), Some(Slot(1200)));
    }
}
