//! Promises and votes that wait until their records are on disk. Only this module can release them.

pub mod statement;

use alloc::collections::VecDeque;

use self::statement::{Durable, Statement};
use crate::{
    acceptor::Run,
    class::Class,
    effect::{Effect, Effects},
    message::{Phase1b, Phase2b},
    node_id::NodeId,
    record::{Record, RecordSeq},
    slot::Slot,
};

/// A vote whose record is being written. Holds the run as it was when the vote was cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ParkedVote {
    record: RecordSeq,
    run: Run,
}

/// Numbers records, and stores the statements that wait for them to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingStatements {
    /// Durability class of this group's votes ([class-1]).
    class: Class,
    last_appended: RecordSeq,
    last_persisted: RecordSeq,
    promises: VecDeque<(RecordSeq, NodeId, Phase1b)>,
    votes: VecDeque<ParkedVote>,
    decided: VecDeque<(RecordSeq, Slot)>,
    /// For each step, its last record and the end of the decided slots that the record restates.
    restated_decided: VecDeque<(RecordSeq, Slot)>,
    /// A restart would find every slot below this one decided.
    durable_decided_to: Slot,
    /// The last record before the current step.
    appended_before_step: RecordSeq,
    /// The lowest slot covered by any record of the current step.
    lowest_slot_in_step: Slot,
    /// End of the decided slots when the current step began.
    decided_before_step: Slot,
    /// Records that replace earlier ones, each with the first slot that it replaces.
    replacing_records: VecDeque<(RecordSeq, Slot)>,
    /// [disk-9] The log has failed, so nothing is released.
    has_failed: bool,
}

impl PendingStatements {
    /// Creates an empty queue with capacity for `capacity` waiting votes.
    pub fn new(class: Class, capacity: usize) -> Self {
        Self {
            class,
            last_appended: RecordSeq(0),
            last_persisted: RecordSeq(0),
            promises: VecDeque::new(),
            votes: VecDeque::with_capacity(capacity),
            decided: VecDeque::with_capacity(capacity),
            restated_decided: VecDeque::with_capacity(capacity),
            durable_decided_to: Slot(0),
            appended_before_step: RecordSeq(0),
            lowest_slot_in_step: Slot(u64::MAX),
            decided_before_step: Slot(0),
            replacing_records: VecDeque::new(),
            has_failed: false,
        }
    }

    /// Appends a record to the log and returns its number.
    pub fn append(&mut self, record: Record, effects: &mut Effects) -> RecordSeq {
        self.last_appended = RecordSeq(self.last_appended.0 + 1);
        if let Record::Vote { range, .. } | Record::Decided { range, .. } = record {
            self.lowest_slot_in_step = self.lowest_slot_in_step.min(range.from);
        }
        effects.push(Effect::Persist { seq: self.last_appended, record });
        self.last_appended
    }

    /// Starts a step, with everything below `decided_to` decided. A crash may leave only some of
    /// the step's records.
    pub fn begin_step(&mut self, decided_to: Slot) {
        self.lowest_slot_in_step = Slot(u64::MAX);
        self.decided_before_step = decided_to;
        self.appended_before_step = self.last_appended;
    }

    /// Ends the step. Its last record restates everything below `decided_to` as decided
    /// ([decide-3]).
    pub fn end_step(&mut self, decided_to: Slot) {
        if self.last_appended > self.appended_before_step {
            let restated = self.restatable_to(decided_to);
            self.restated_decided.push_back((self.last_appended, restated));
        }
    }

    /// Records that everything below `to` is decided by records on stable storage, regardless of
    /// what the log restates.
    pub fn record_durable_decided(&mut self, to: Slot) {
        self.durable_decided_to = self.durable_decided_to.max(to);
    }

    /// [decide-3] Returns the slot below which a restart would find everything decided.
    pub fn durable_decided_to(&self) -> Slot {
        self.durable_decided_to
    }

    /// Returns the end of the slots that the hard state may restate as decided. Slots that only a
    /// later record of the same step covers are excluded, because a crash may leave only the
    /// earlier record ([decide-3]).
    ///
    /// The result never falls below its value before the step, even if the step's records are about
    /// lost slots ([disk-8]), because votes below the end that was once restated have been dropped.
    pub fn restatable_to(&self, decided_to: Slot) -> Slot {
        decided_to.min(self.lowest_slot_in_step.max(self.decided_before_step))
    }

    /// Returns the number of the last record on stable storage.
    pub fn persisted_to(&self) -> RecordSeq {
        self.last_persisted
    }

    /// Returns whether the log has failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// [disk-9] Marks the log as failed.
    pub fn fail(&mut self) {
        self.has_failed = true;
        self.promises.clear();
        self.votes.clear();
        self.decided.clear();
    }

    /// Marks all records up to `seq` as being on stable storage.
    pub fn persisted(&mut self, seq: RecordSeq) {
        assert!(seq <= self.last_appended, "record {} was never appended", seq.0);
        self.last_persisted = self.last_persisted.max(seq);
        while self.replacing_records.pop_front_if(|(last, _)| *last <= seq).is_some() {}
        while let Some((_, to)) = self.restated_decided.pop_front_if(|(last, _)| *last <= seq) {
            self.durable_decided_to = self.durable_decided_to.max(to);
        }
    }

    /// Records that `record` replaces earlier records of slot `from` and the slots above it.
    pub fn record_replacement(&mut self, record: RecordSeq, from: Slot) {
        self.replacing_records.push_back((record, from));
    }

    /// Returns the lowest slot for which stable storage may hold an outdated record.
    pub fn replaced_from(&self) -> Slot {
        let from = self.replacing_records.iter().map(|(_, from)| *from);
        from.min().unwrap_or(Slot(u64::MAX))
    }

    /// Returns whether record `seq` is on stable storage, regardless of the class ([class-3]).
    pub fn is_durable(&self, seq: RecordSeq) -> bool {
        !self.has_failed && seq <= self.last_persisted
    }

    /// Parks a promise until `record` has reached the group's class.
    pub fn park_promise(&mut self, record: RecordSeq, to: NodeId, promise: Phase1b) {
        // A repeated request gets only one reply, because the newest promise replaces older ones to
        // the same node.
        self.promises.retain(|(_, node, older)| *node != to || older.ballot != promise.ballot);
        self.promises.push_back((record, to, promise));
    }

    /// Parks a vote whose record is being written. Votes of one step and one record are parked
    /// consecutively.
    pub fn park_vote(&mut self, record: RecordSeq, run: Run) {
        self.votes.push_back(ParkedVote { record, run });
    }

    /// Parks the end of a decided range whose record is being written.
    pub fn park_decided(&mut self, record: RecordSeq, to: Slot) {
        self.decided.push_back((record, to));
    }

    /// Removes and returns the next promise that may be sent.
    pub fn next_promise(&mut self) -> Option<(NodeId, Durable<Statement>)> {
        let (record, _, _) = self.promises.front()?;
        if self.has_failed || (self.class == Class::Durable && *record > self.last_persisted) {
            return None;
        }
        let (_, to, promise) = self.promises.pop_front()?;
        Some((to, Durable::released(Statement::Promise(promise))))
    }

    /// Removes the durable votes of the oldest parked run. Returns the run as it was when the last
    /// of them was cast; `None` if none is durable.
    pub fn next_durable_vote(&mut self) -> Option<Run> {
        let mut last: Option<Run> = None;
        while let Some(parked) = self.votes.front() {
            let same = last.is_none_or(|run| run.is_same_run(&parked.run));
            if parked.record > self.last_persisted || !same {
                break;
            }
            last = Some(parked.run);
            self.votes.pop_front();
        }
        last
    }

    /// Removes the learned decisions that have become durable, and returns their end.
    pub fn next_durable_decision(&mut self) -> Option<Slot> {
        let mut last = None;
        while let Some((record, to)) = self.decided.front() {
            if *record > self.last_persisted {
                break;
            }
            last = Some(*to);
            self.decided.pop_front();
        }
        last
    }

    /// Returns the statement that may be sent about the votes of `run`, given that they are on
    /// stable storage up to `durable_to`; `None` if none may be sent.
    pub fn releasable_vote(&self, run: &Run, durable_to: Slot) -> Option<Durable<Statement>> {
        if self.has_failed || (self.class == Class::Durable && durable_to <= run.from) {
            return None;
        }
        assert!(durable_to <= run.to, "durable to {durable_to}, voted to {}", run.to);
        Some(Durable::released(Statement::Vote(Phase2b {
            ballot: run.ballot,
            from: run.from,
            volatile_to: run.to,
            durable_to,
            check: run.check,
        })))
    }

    /// Returns the durability class that votes need in this group.
    pub fn class(&self) -> Class {
        self.class
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{slot::SlotRange, value::Value};

    /// [disk-8] Recording a lost slot again does not lower the restated decisions, even though the
    /// slot is far below them. Otherwise the next start would consider the votes in between
    /// dropped.
    #[test]
    fn restated_decisions_never_fall() {
        let (mut pending, mut effects) =
            (PendingStatements::new(Class::Durable, 4), Effects::default());
        let mut append = |pending: &mut PendingStatements, from: u64| {
            let range = SlotRange::one(Slot(from));
            let value = Value::NoOp;
            pending.append(Record::Decided { range, value }, &mut effects);
        };
        pending.begin_step(Slot(100));
        append(&mut pending, 98);
        assert_eq!(pending.restatable_to(Slot(100)), Slot(100));
        // [decide-3] The next step restates what this step decides.
        pending.begin_step(Slot(100));
        append(&mut pending, 100);
        assert_eq!(pending.restatable_to(Slot(101)), Slot(100));
        pending.begin_step(Slot(101));
        assert_eq!(pending.restatable_to(Slot(101)), Slot(101));
    }
}
