//! This acceptor's votes as one cumulative run in the newest ballot ([p2-6]), and the part of it on
//! stable storage.

use crate::{
    ballot::Ballot,
    message::Phase2a,
    slot::{Slot, SlotRange},
    value::range_check,
};

/// A contiguous run of votes in one ballot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Run {
    /// Ballot in which every slot of the run was voted for.
    pub ballot: Ballot,
    /// First slot of the run.
    pub from: Slot,
    /// One past the last slot of the run.
    pub to: Slot,
    /// Prefix sum of the ballot at `to`, by this acceptor's votes.
    pub check: u64,
}

/// This acceptor's votes in the newest ballot, and the end of the slots that are on stable storage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnVotes {
    run: Run,
    /// Votes of the run below this slot are on stable storage.
    run_durable_to: Slot,
    /// Every slot below this one is decided or voted for, by records on stable storage.
    durable_to: Slot,
}

impl OwnVotes {
    /// Creates the state of a process that has not voted yet. The log holds everything below
    /// `durable_to`.
    pub fn new(durable_to: Slot) -> Self {
        Self { run: Run::default(), run_durable_to: Slot(0), durable_to }
    }

    /// Returns the votes in the newest ballot.
    pub fn newest_run(&self) -> &Run {
        &self.run
    }

    /// Returns the end of the votes in the newest ballot that are on stable storage.
    pub fn run_durable_to(&self) -> Slot {
        self.run_durable_to
    }

    /// Returns the ends of the volatile and the durable votes in `ballot`; slot 0 for both if there
    /// are none.
    pub fn voted_to_in(&self, ballot: Ballot) -> (Slot, Slot) {
        if self.run.ballot == ballot {
            (self.run.to, self.run_durable_to)
        } else {
            (Slot(0), Slot(0))
        }
    }

    /// Returns the slot below which everything is decided or voted for, by records on stable
    /// storage.
    pub fn durable_to(&self) -> Slot {
        self.durable_to
    }

    /// Replaces the run after a vote. The vote's record is not on stable storage yet.
    pub fn replace_run(&mut self, run: Run) {
        if !run.is_same_run(&self.run) {
            self.run_durable_to = run.from;
        }
        self.run = run;
    }

    /// Records that `run` is on stable storage. Returns whether it belongs to the newest run.
    pub fn record_persisted(&mut self, run: &Run) -> bool {
        if run.from <= self.durable_to {
            self.durable_to = self.durable_to.max(run.to);
        }
        let newest = run.is_same_run(&self.run);
        if newest {
            self.run_durable_to = run.to;
        }
        newest
    }

    /// Records that decisions below `to` are on stable storage.
    pub fn record_decisions_persisted(&mut self, to: Slot) {
        self.durable_to = self.durable_to.max(to);
    }

    /// Extends `durable_to` over the run, once the slots known to be durable reach its start.
    pub fn join_run(&mut self) {
        if self.run.from <= self.durable_to {
            self.durable_to = self.durable_to.max(self.run_durable_to);
        }
    }
}

/// Effect of a proposal on the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalEffect {
    /// Every slot of the proposal has already been voted for, so only the report is repeated.
    Repeat,
    /// Vote for this range. The run shows the votes afterwards.
    Vote(SlotRange, Run),
    /// Slots before the proposal are missing. The leader resumes there ([`crate::flow`]).
    Gap,
    /// [count-1] The leader's prefix sum and this acceptor's differ below this slot.
    Conflict(Slot),
}

impl Run {
    /// Returns whether this and `other` are states of the same run: same ballot, same first slot.
    pub fn is_same_run(&self, other: &Self) -> bool {
        self.ballot == other.ballot && self.from == other.from
    }

    /// Returns the end of the votes in `ballot`; slot 0 if there are none.
    pub fn voted_to(&self, ballot: Ballot) -> Slot {
        if self.ballot == ballot { self.to } else { Slot(0) }
    }

    /// Returns the effect of a proposal on the run. A run has no holes, so that one message can
    /// report all of it. Therefore a proposal is accepted only if it continues the run, or if every
    /// earlier slot is decided on this node or another.
    pub fn effect_of(&self, m: &Phase2a, decided_here: Slot) -> ProposalEffect {
        let continues = self.ballot == m.ballot && m.range.from <= self.to && self.from < self.to;
        if continues {
            if m.range.to <= self.to {
                return ProposalEffect::Repeat;
            }
            let overlap = SlotRange::new(m.range.from, self.to);
            let at_end = m.prefix.wrapping_add(range_check(overlap, &m.value));
            if m.range.from >= self.from && at_end != self.check {
                return ProposalEffect::Conflict(self.to);
            }
            let range = SlotRange::new(self.to, m.range.to);
            let check = self.check.wrapping_add(range_check(range, &m.value));
            return ProposalEffect::Vote(range, Self { to: m.range.to, check, ..*self });
        }
        if m.range.from > decided_here.max(m.decided_to) {
            return ProposalEffect::Gap;
        }
        let check = m.prefix.wrapping_add(range_check(m.range, &m.value));
        let run = Self { ballot: m.ballot, from: m.range.from, to: m.range.to, check };
        ProposalEffect::Vote(m.range, run)
    }
}
