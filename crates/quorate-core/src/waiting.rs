//! Proposals whose bytes are not here yet ([value-3]): no bytes, no vote.

use alloc::collections::VecDeque;

use crate::{ballot::Ballot, message::Phase2a, time::Time, value::Value};

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

    /// Nothing of it matters any more.
    pub fn clear(&mut self) {
        self.proposals.clear();
    }
}
