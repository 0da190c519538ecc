//! Proposals whose bytes are not here yet ([value-3]): no bytes, no vote.

use alloc::collections::VecDeque;

use crate::{ballot::Ballot, message::Phase2a, slot::Slot, time::Time, value::Value};

/// Proposals of one ballot, in order; the first one lacks its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Waiting {
    proposals: VecDeque<(Phase2a, bool)>,
    since: Time,
}

impl Waiting {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.proposals.is_empty()
    }

    /// The ballot of what waits.
    pub fn ballot(&self) -> Option<Ballot> {
        self.proposals.front().map(|(proposal, _)| proposal.ballot)
    }

    /// Since when the first one waits.
    pub fn since(&self) -> Option<Time> {
        self.proposals.front().map(|_| self.since)
    }

    /// Queues a proposal behind what waits. Without room it is dropped; the leader repeats it.
    pub fn push(&mut self, now: Time, proposal: Phase2a, held: bool, max: usize) {
        // What has no bytes lacks none; it waits only for what is in front of it.
        let held = held || !proposal.value.has_bytes();
        if self.proposals.is_empty() {
            self.since = now;
        }
        let repeat = self
            .proposals
            .iter_mut()
            .find(|(known, _)| known.range == proposal.range);
        if let Some((_, known)) = repeat {
            *known |= held;
        } else if self.proposals.len() < max {
            self.proposals.push_back((proposal, held));
        }
    }

    /// The bytes of `value` are here.
    pub fn hold(&mut self, value: &Value) {
        for (proposal, held) in &mut self.proposals {
            *held |= proposal.value == *value;
        }
    }

    /// The first proposal, if its bytes are here.
    pub fn next(&mut self, now: Time) -> Option<Phase2a> {
        let (_, held) = self.proposals.front()?;
        if !held {
            return None;
        }
        self.since = now;
        self.proposals.pop_front().map(|(proposal, _)| proposal)
    }

    /// Slots below are decided, perhaps by bytes that came another way: nobody waits for them.
    pub fn drop_below(&mut self, now: Time, slot: Slot) {
        while self
            .proposals
            .pop_front_if(|(proposal, _)| proposal.range.to <= slot)
            .is_some()
        {
            self.since = now;
        }
    }

    /// Nothing of it matters any more.
    pub fn clear(&mut self) {
        self.proposals.clear();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{slot::SlotRange, value::BatchName};

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
        Value::Batch(BatchName {
            counter,
            ..BatchName::default()
        })
    }

    fn slots(waiting: &mut Waiting) -> Vec<u64> {
        core::iter::from_fn(|| waiting.next(Time(0)))
            .map(|m| m.range.from.0)
            .collect()
    }

    /// A value without bytes waits only for its turn. It once waited for ever.
    #[test]
    fn value_without_bytes_goes_when_those_before_it_have_gone() {
        let mut waiting = Waiting::default();
        waiting.push(Time(0), proposal(1, batch(1)), false, 8);
        waiting.push(Time(0), proposal(2, Value::NoOp), false, 8);
        waiting.push(Time(0), proposal(3, batch(3)), false, 8);
        assert_eq!(slots(&mut waiting), []);
        waiting.hold(&batch(1));
        assert_eq!(slots(&mut waiting), [1, 2]);
        // The leader repeats it, with its bytes this time.
        waiting.push(Time(0), proposal(3, batch(3)), true, 8);
        assert_eq!(slots(&mut waiting), [3]);
    }

    #[test]
    fn decided_slots_are_not_waited_for() {
        let mut waiting = Waiting::default();
        waiting.push(Time(0), proposal(1, batch(1)), false, 8);
        waiting.push(Time(0), proposal(2, batch(2)), true, 8);
        waiting.drop_below(Time(5), Slot(2));
        assert_eq!(waiting.since(), Some(Time(5)));
        assert_eq!(slots(&mut waiting), [2]);
    }
}
