//! Proposals that cannot be voted for yet, because their bytes are missing ([value-3]) or slots
//! before them are ([gap-1]).
//!
//! A waiting proposal is like a message that arrives later: it is retried after every vote, and has
//! no effect until then.

use alloc::collections::VecDeque;

use crate::{
    ballot::Ballot,
    message::Phase2a,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};

/// A waiting proposal, and the end of the slots that can be voted for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QueuedProposal {
    proposal: Phase2a,
    /// The bytes of the proposal are present for the slots below this one.
    held_to: Slot,
    /// The slots below this one have already been returned for voting.
    returned_to: Slot,
}

impl QueuedProposal {
    fn new(proposal: Phase2a, held: bool) -> Self {
        let SlotRange { from, to } = proposal.range;
        Self { held_to: if held { to } else { from }, returned_to: from, proposal }
    }

    /// Records that the value's bytes are present for these slots. A value that fits into one slot
    /// has the same bytes in any slot. The bytes of a spanning value count contiguously from its
    /// first slot onwards.
    fn mark_present(&mut self, range: SlotRange) {
        let all = self.proposal.range.to;
        if !self.proposal.value.may_span() {
            self.held_to = all;
        } else if range.from <= self.held_to {
            self.held_to = self.held_to.max(range.to.min(all));
        }
    }
}

/// Waiting proposals of one ballot, in slot order. The first one lacks its bytes or the slots
/// before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitingProposals {
    proposals: VecDeque<QueuedProposal>,
    first_since: Time,
}

impl WaitingProposals {
    /// Returns whether no proposal waits.
    pub fn is_empty(&self) -> bool {
        self.proposals.is_empty()
    }

    /// Returns the ballot of the waiting proposals.
    pub fn ballot(&self) -> Option<Ballot> {
        self.proposals.front().map(|first| first.proposal.ballot)
    }

    /// Returns the time at which the current first proposal became first.
    pub fn first_since(&self) -> Option<Time> {
        self.proposals.front().map(|_| self.first_since)
    }

    /// Queues a proposal, at most one per range. If the queue is full, the proposal with the
    /// highest slots is dropped, and the leader repeats it.
    pub fn push(&mut self, now: Time, proposal: Phase2a, held: bool, max: usize) {
        // A value without bytes lacks none, so it waits only for the proposals before it.
        let held = held || !proposal.value.has_bytes();
        if self.proposals.is_empty() {
            self.first_since = now;
        }
        let repeat = self.proposals.iter_mut().find(|known| known.proposal.range == proposal.range);
        if let Some(known) = repeat {
            // More slots may have been decided since, so that the proposal can be voted for.
            let decided_to = &mut known.proposal.decided_to;
            *decided_to = proposal.decided_to.max(*decided_to);
            if held {
                known.held_to = known.proposal.range.to;
            }
        } else {
            let after = |waits: &QueuedProposal| waits.proposal.range.from <= proposal.range.from;
            let at = self.proposals.partition_point(after);
            self.proposals.insert(at, QueuedProposal::new(proposal, held));
            self.proposals.truncate(max);
        }
    }

    /// Records that the bytes of `value` are present for these slots.
    pub fn mark_present(&mut self, value: &Value, range: SlotRange) {
        for waits in &mut self.proposals {
            if waits.proposal.value == *value {
                waits.mark_present(range);
            }
        }
    }

    /// Returns the first proposal, up to the end of its present bytes, if `may` allows it. The rest
    /// of the proposal is returned when more bytes are present.
    pub fn next_proposal(&mut self, now: Time, may: impl Fn(&Phase2a) -> bool) -> Option<Phase2a> {
        let first = self.proposals.front_mut()?;
        if first.held_to <= first.returned_to || !may(&first.proposal) {
            return None;
        }
        self.first_since = now;
        first.returned_to = first.held_to;
        let mut proposal = first.proposal;
        if first.held_to < proposal.range.to {
            proposal.range.to = first.held_to;
        } else {
            self.proposals.pop_front();
        }
        Some(proposal)
    }

    /// Drops proposals whose slots are all decided on this node. Their bytes arrived by another
    /// path, or a snapshot made them unnecessary ([snap-5]).
    pub fn drop_below(&mut self, now: Time, decided_to: Slot) {
        let served = |first: &mut QueuedProposal| first.proposal.range.to <= decided_to;
        while self.proposals.pop_front_if(served).is_some() {
            self.first_since = now;
        }
        if let Some(first) = self.proposals.front_mut() {
            first.held_to = first.held_to.max(decided_to);
            first.returned_to = first.returned_to.max(decided_to);
        }
    }

    /// Stops the first proposal from waiting for bytes of slots below `announced`, because those
    /// are decided on another node. Returns whether that changed the queue.
    pub fn stop_waiting_below(&mut self, now: Time, announced: Slot) -> bool {
        let served = |first: &mut QueuedProposal| first.proposal.range.to <= announced;
        if self.proposals.pop_front_if(served).is_some() {
            self.first_since = now;
            return true;
        }
        let lacking = |first: &&mut QueuedProposal| first.held_to < announced;
        let Some(first) = self.proposals.front_mut().filter(lacking) else {
            return false;
        };
        first.held_to = announced;
        first.returned_to = announced;
        true
    }

    /// Drops all waiting proposals.
    pub fn clear(&mut self) {
        self.proposals.clear();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::value::{BatchName, StreamName};

    fn proposal(slot: u64, value: Value) -> Phase2a {
        Phase2a {
            ballot: Ballot::ZERO,
            range: SlotRange::one(Slot(slot)),
            value,
            prefix: 0,
            decided_to: Slot(1),
            own_volatile_to: Slot(0),
            own_durable_to: Slot(0),
            with_bytes: false,
        }
    }

    fn batch(counter: u64) -> Value {
        Value::Batch(BatchName { counter, ..BatchName::default() })
    }

    fn slots(waiting: &mut WaitingProposals) -> Vec<u64> {
        core::iter::from_fn(|| waiting.next_proposal(Time(0), |_| true))
            .map(|m| m.range.from.0)
            .collect()
    }

    /// A value without bytes waits only for its turn; it once waited forever.
    #[test]
    fn value_without_bytes_waits_only_for_its_turn() {
        let mut waiting = WaitingProposals::default();
        waiting.push(Time(0), proposal(1, batch(1)), false, 8);
        waiting.push(Time(0), proposal(2, Value::NoOp), false, 8);
        waiting.push(Time(0), proposal(3, batch(3)), false, 8);
        assert_eq!(slots(&mut waiting), []);
        waiting.mark_present(&batch(1), SlotRange::one(Slot(1)));
        assert_eq!(slots(&mut waiting), [1, 2]);
        // The leader repeats it, this time with its bytes.
        waiting.push(Time(0), proposal(3, batch(3)), true, 8);
        assert_eq!(slots(&mut waiting), [3]);
    }

    /// [value-3] A run of content is voted for as far as its bytes are present.
    #[test]
    fn run_is_voted_for_as_far_as_its_bytes_are_present() {
        let content = Value::Content { stream: StreamName::default(), offset: 0 };
        let slots = |from, to| SlotRange::new(Slot(from), Slot(to));
        let run = |range| Phase2a { range, ..proposal(0, content) };
        let mut waiting = WaitingProposals::default();
        waiting.push(Time(0), run(slots(5, 9)), false, 8);
        waiting.push(Time(0), run(slots(9, 12)), false, 8);
        let next = |waiting: &mut WaitingProposals| {
            waiting.next_proposal(Time(0), |_| true).map(|m| m.range)
        };
        waiting.mark_present(&content, slots(6, 8));
        assert_eq!(next(&mut waiting), None, "the first byte is missing");
        waiting.mark_present(&content, slots(3, 7));
        assert_eq!(next(&mut waiting), Some(slots(5, 7)));
        assert_eq!(next(&mut waiting), None);
        waiting.push(Time(0), run(slots(5, 9)), false, 8);
        waiting.mark_present(&content, slots(7, 10));
        assert_eq!(next(&mut waiting), Some(slots(5, 9)));
        assert_eq!(next(&mut waiting), Some(slots(9, 10)));
        waiting.mark_present(&content, slots(5, 12));
        assert_eq!(next(&mut waiting), Some(slots(9, 12)));
        assert!(waiting.is_empty());
    }

    /// [gap-1] Early proposals are voted for in slot order once the missing ones have arrived; a
    /// repeated one counts once.
    #[test]
    fn early_proposals_are_voted_for_in_slot_order() {
        let mut waiting = WaitingProposals::default();
        for slot in [4, 2, 3, 4, 2] {
            waiting.push(Time(0), proposal(slot, Value::NoOp), true, 8);
        }
        let next = |waiting: &mut WaitingProposals, voted_to: u64| {
            let next = waiting.next_proposal(Time(0), |m| m.range.from.0 <= voted_to);
            next.map(|m| m.range.from.0)
        };
        assert_eq!(next(&mut waiting, 1), None);
        waiting.push(Time(0), proposal(1, Value::NoOp), true, 8);
        let order: Vec<u64> = (1..=4).filter_map(|voted_to| next(&mut waiting, voted_to)).collect();
        assert_eq!(order, [1, 2, 3, 4]);
        assert!(waiting.is_empty());
        // The queue is bounded, so the proposals with the highest slots are dropped and repeated
        // later. A proposal that all others wait for always fits.
        for slot in [2, 3, 4, 1] {
            waiting.push(Time(0), proposal(slot, Value::NoOp), true, 2);
        }
        assert_eq!(slots(&mut waiting), [1, 2]);
    }

    /// The bytes of a batch are the same in every slot.
    #[test]
    fn bytes_of_a_batch_count_for_all_its_slots() {
        let mut waiting = WaitingProposals::default();
        waiting.push(Time(0), proposal(1, batch(1)), false, 8);
        waiting.push(Time(0), proposal(2, batch(1)), false, 8);
        waiting.mark_present(&batch(1), SlotRange::one(Slot(7)));
        assert_eq!(slots(&mut waiting), [1, 2]);
    }

    #[test]
    fn decided_slots_are_not_waited_for() {
        let mut waiting = WaitingProposals::default();
        waiting.push(Time(0), proposal(1, batch(1)), false, 8);
        waiting.push(Time(0), proposal(2, batch(2)), true, 8);
        waiting.drop_below(Time(5), Slot(2));
        assert_eq!(waiting.first_since(), Some(Time(5)));
        assert_eq!(slots(&mut waiting), [2]);
    }

    /// [gap-1], [p2-3] A node does not wait for slots that the leader reports as decided, even if
    /// it has not decided them itself; it votes for the proposals after them.
    #[test]
    fn slots_decided_by_the_leader_are_not_waited_for() {
        let mut waiting = WaitingProposals::default();
        waiting.push(Time(0), proposal(3, batch(3)), false, 8);
        waiting.push(Time(0), proposal(4, batch(4)), true, 8);
        waiting.push(Time(0), proposal(9, batch(9)), false, 8);
        assert_eq!(slots(&mut waiting), []);
        assert!(waiting.stop_waiting_below(Time(1), Slot(9)));
        assert_eq!(slots(&mut waiting), [4]);
        assert!(!waiting.stop_waiting_below(Time(1), Slot(9)));
        waiting.mark_present(&batch(9), SlotRange::one(Slot(9)));
        assert_eq!(slots(&mut waiting), [9]);
    }

    /// [gap-1] The leader repeats its proposal, now with the report that the missing slots are
    /// decided.
    #[test]
    fn repeated_proposal_updates_the_decided_slot() {
        let mut waiting = WaitingProposals::default();
        let early = proposal(4, Value::NoOp);
        waiting.push(Time(0), early, true, 8);
        let decided_to = Slot(4);
        let again = Phase2a { decided_to, ..early };
        waiting.push(Time(0), again, true, 8);
        assert_eq!(waiting.next_proposal(Time(0), |_| true), Some(again));
        assert!(waiting.is_empty());
    }

    /// [snap-5] If the first part of a run was learned without its bytes, the rest is voted for
    /// once its own bytes are present. It once waited for the first part forever.
    #[test]
    fn decided_part_of_a_run_is_not_waited_for() {
        let content = Value::Content { stream: StreamName::default(), offset: 0 };
        let slots = |from, to| SlotRange::new(Slot(from), Slot(to));
        let run = Phase2a { range: slots(5, 12), ..proposal(0, content) };
        let mut waiting = WaitingProposals::default();
        waiting.push(Time(0), run, false, 8);
        waiting.drop_below(Time(1), Slot(8));
        let next = |waiting: &mut WaitingProposals| {
            waiting.next_proposal(Time(1), |_| true).map(|m| m.range)
        };
        assert_eq!(next(&mut waiting), None);
        waiting.mark_present(&content, slots(8, 10));
        assert_eq!(next(&mut waiting), Some(slots(5, 10)));
        waiting.mark_present(&content, slots(10, 12));
        assert_eq!(next(&mut waiting), Some(slots(5, 12)));
        assert!(waiting.is_empty());
    }
}
