//! Acceptor: promises and votes, and the votes in the newest ballot as one cumulative run ([p2-6]).
//! Safety lives here; nothing in this file knows what time it is.

use alloc::vec::Vec;

use crate::{
    ballot::Ballot,
    class::Class,
    extents::{Extents, Vote},
    message::{Extent, Phase2a},
    record::RecordSeq,
    slot::{Slot, SlotRange},
    value::{Value, range_check},
};

/// Reason for refusing to vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The acceptor has promised this higher ballot.
    Preempted(Ballot),
    /// Every slot of the proposal is already decided on this node.
    Decided,
    /// The acceptor's vote buffer is full ([p2-3]).
    Busy,
    /// The acceptor voted for another value in the given slot in the same ballot ([count-1]).
    Conflict(Slot),
}

/// State of one acceptor: its promise and its votes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acceptor {
    /// Highest promised ballot. One promise covers all slots ([ballot-4]).
    promised: Ballot,
    /// Number of the record that last raised `promised`.
    promised_by: RecordSeq,
    /// Every slot below this one is decided on this node, and its vote has been dropped.
    floor: Slot,
    /// One past the highest slot ever voted for.
    voted_to: Slot,
    votes: Extents,
    window_slots: u64,
    runs_max: usize,
}

impl Acceptor {
    /// Creates an acceptor with its recovered promise and votes.
    pub fn new(
        promised: Ballot,
        floor: Slot,
        voted_to: Slot,
        votes: impl IntoIterator<Item = Extent>,
        window_slots: u64,
        runs_max: usize,
    ) -> Self {
        let mut held = Extents::with_capacity(runs_max + 2);
        for Extent { range, ballot, value, .. } in votes {
            assert!(ballot <= promised, "recovered a vote in {ballot} above promise {promised}");
            held.set(Vote { range, ballot, value, record: RecordSeq(0) });
        }
        held.drop_below(floor);
        let promised_by = RecordSeq(0);
        Self { promised, promised_by, floor, voted_to, votes: held, window_slots, runs_max }
    }

    /// Returns the highest promised ballot.
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// Returns the number of the record that must be persisted before the promise is sent.
    pub fn promised_by(&self) -> RecordSeq {
        self.promised_by
    }

    /// Returns one past the highest slot voted for.
    pub fn voted_to(&self) -> Slot {
        self.voted_to
    }

    /// Returns the slot below which everything is decided on this node.
    pub fn floor(&self) -> Slot {
        self.floor
    }

    /// Returns the stored vote for a slot; `None` if there is none, as for all slots below the
    /// floor.
    pub fn vote(&self, slot: Slot) -> Option<&Vote> {
        self.votes.get(slot)
    }

    /// Returns the number of runs of votes in memory.
    pub fn runs(&self) -> usize {
        self.votes.len()
    }

    /// Returns all stored votes, in slot order.
    pub fn votes(&self) -> impl Iterator<Item = Vote> + '_ {
        self.votes.iter_from(self.floor)
    }

    /// [p1-2] Checks whether `ballot` may be promised. `Ok(true)` means that the promise rises and
    /// must be recorded. Fails with the promised ballot if that is higher.
    pub fn may_promise(&self, ballot: Ballot) -> Result<bool, Ballot> {
        if ballot < self.promised { Err(self.promised) } else { Ok(ballot > self.promised) }
    }

    /// Raises the promise to `ballot`, as recorded by `record`.
    pub fn promise(&mut self, ballot: Ballot, record: RecordSeq) {
        assert!(ballot > self.promised, "promise {ballot} does not raise {}", self.promised);
        self.promised = ballot;
        self.promised_by = record;
    }

    /// [p2-1], [p2-3] Returns the part of `range` to vote for, or the reason for refusing. Slots
    /// below `announced` are decided on some node. The caller checks that the value's bytes are
    /// present ([value-3]).
    pub fn may_vote(
        &self,
        ballot: Ballot,
        range: SlotRange,
        value: &Value,
        announced: Slot,
    ) -> Result<SlotRange, Refused> {
        if ballot < self.promised {
            return Err(Refused::Preempted(self.promised));
        }
        let range = SlotRange::new(range.from.max(self.floor), range.to);
        if range.is_empty() {
            return Err(Refused::Decided);
        }
        let decided_to = self.floor.max(announced);
        // A vote that replaces older ones needs no additional room, so a full buffer never makes
        // the acceptor refuse a new leader.
        let full = self.votes.len() >= self.runs_max && range.from >= self.votes.end();
        if full || range.to > decided_to.plus(self.window_slots) {
            return Err(Refused::Busy);
        }
        // [ballot-2] A leader binds a slot to one value in a ballot. An older vote to compare with
        // can exist only below `voted_to`.
        if range.from < self.voted_to {
            let clash = |vote: &Vote| {
                vote.ballot == ballot && vote.value != *value && vote.range.from < range.to
            };
            if let Some(vote) = self.votes.iter_from(range.from).find(clash) {
                return Err(Refused::Conflict(vote.range.from));
            }
        }
        Ok(range)
    }

    /// Casts a vote. A vote is also a promise, so a lower ballot never replaces a higher one
    /// ([p2-2]). Returns whether the vote did more than append to the last run.
    pub fn cast_vote(
        &mut self,
        ballot: Ballot,
        range: SlotRange,
        value: Value,
        record: RecordSeq,
    ) -> bool {
        assert!(ballot >= self.promised, "vote in {ballot} below promise {}", self.promised);
        assert!(range.from >= self.floor, "vote below floor {}", self.floor);
        if ballot > self.promised {
            // A vote is also a promise, so from now on a proposal of an older leader must be
            // refused.
            self.promise(ballot, record);
        }
        self.voted_to = self.voted_to.max(range.to);
        self.votes.set(Vote { range, ballot, value, record })
    }

    /// Drops the votes below `decided_to`, because those slots are decided and stored on this node.
    ///
    /// A candidate that needs such a vote receives the floor instead, and must learn the decisions
    /// first ([p1-5]).
    pub fn advance_floor(&mut self, decided_to: Slot) {
        if decided_to > self.floor {
            self.floor = decided_to;
            self.votes.drop_below(decided_to);
        }
    }

    /// [p1-3] Returns every vote from slot `from` onwards. A vote whose record is not persisted yet
    /// is included, marked as volatile.
    pub fn votes_from(&self, from: Slot, persisted: RecordSeq) -> Vec<Extent> {
        let extent = |vote: Vote| {
            let class = if vote.record <= persisted { Class::Durable } else { Class::Volatile };
            Extent { range: vote.range, ballot: vote.ballot, value: vote.value, class }
        };
        self.votes.iter_from(from.max(self.floor)).map(extent).collect()
    }
}

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
