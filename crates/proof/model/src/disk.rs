//! A node's log: ordered records, a prefix of which survives a crash, and its recovery.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    ballot::Ballot,
    configuration::Configuration,
    message::Extent,
    node::Recovered,
    reconfigure::Eras,
    record::{Class, HardState, Record},
    slot::{Slot, SlotRange},
    value::{StreamName, Value},
};

use crate::streams::content_bytes;

/// A record, and the hard state that its log write restates ([disk-1]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub record: Record,
    /// The node's hard state when the record was appended.
    pub hard_state: HardState,
    /// The record can no longer be read.
    pub is_lost: bool,
    /// First slot whose bytes are in the record. Content whose bytes are not needed is recorded
    /// without them, in a separate record ([stream-4]).
    pub bytes_from: Slot,
    /// [snap-5] The content was learned without its bytes. Bytes that are retained are fetched
    /// later.
    pub learned_without_bytes: bool,
}

impl Entry {
    /// Returns whether the record is readable and shows that `slot` decided `value`, or a vote for
    /// it there.
    fn is_about(&self, slot: Slot, value: &Value) -> bool {
        match self.record {
            Record::Vote { range, value: held, .. } | Record::Decided { range, value: held } => {
                range.contains(slot) && held == *value && !self.is_lost
            }
            Record::Round { .. } | Record::Promise { .. } => false,
        }
    }
}

/// The complete log of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Disk {
    entries: Vec<Entry>,
    /// Bytes of streams that were missing when their content was learned, and arrived later. They
    /// are stored outside the log, and never lost.
    late_bytes: BTreeSet<(StreamName, u64)>,
    /// Number of entries on stable storage.
    persisted_count: usize,
    /// Index of the first entry of the running process.
    process_start: usize,
    /// Index of the first entry whose loss has not been acknowledged by a new incarnation.
    acknowledged_to: usize,
    /// Start of the log, and the eras there. A durable snapshot covers the slots below. Entries for
    /// those slots remain, as in a segment that has not been recycled yet ([snap-3]).
    start_snapshot: Option<(Slot, Eras)>,
    /// Set if no snapshot covers the slots below the start of the log. `start_snapshot` then holds
    /// the eras that the auxiliary knew when it discarded those slots ([trim-1]).
    lacks_snapshot: bool,
}

/// State that a restarted node recovers from its log.
#[derive(Clone, Debug)]
pub struct RecoveredState {
    pub log_state: Recovered,
    /// Decided values in slot order, for the service and for peers.
    pub decided_values: Vec<(SlotRange, Value)>,
    /// First slot below `log_state.hard_state.decided_to` that has no record, and no loss that
    /// explains the absence.
    pub first_hole: Option<Slot>,
    /// Votes or promises may be lost ([disk-8]).
    pub may_have_forgotten: bool,
}

impl Disk {
    /// Returns the entries of all processes that have run on this disk.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// [trim-3], [snap-2] Moves the start of the log to a snapshot, durably and in one step.
    pub fn move_to_snapshot(&mut self, start: Slot, eras: Eras) {
        self.start_snapshot = Some((start, eras));
        self.lacks_snapshot = false;
    }

    /// [trim-1] Moves the start of an auxiliary's log, because the auxiliary forgets the slots
    /// below.
    pub fn forget_below(&mut self, start: Slot, known: Eras) {
        self.start_snapshot = Some((start, known));
        self.lacks_snapshot = true;
    }

    /// Returns the snapshot that covers the slots below the start of the log.
    pub fn start_snapshot(&self) -> Option<&(Slot, Eras)> {
        self.start_snapshot.as_ref().filter(|_| !self.lacks_snapshot)
    }

    pub fn log_start(&self) -> Slot {
        self.start_snapshot.as_ref().map_or(Slot::FIRST, |(start, _)| *start)
    }

    /// Returns the eras at the first slot of the log.
    pub fn eras_at_start(&self, founding: &Configuration) -> Eras {
        let founded = || Eras::founded(founding.clone());
        self.start_snapshot.as_ref().map_or_else(founded, |(_, eras)| eras.clone())
    }

    /// Returns the value in the last record for `slot`, whether or not the record is on stable
    /// storage.
    pub fn last_value(&self, slot: Slot) -> Option<Value> {
        self.entries.iter().rev().find_map(|entry| match entry.record {
            Record::Vote { range, value, .. } | Record::Decided { range, value }
                if range.contains(slot) && !entry.is_lost =>
            {
                Some(value)
            }
            _ => None,
        })
    }

    /// Returns whether `value` is on stable storage for `slot`, in any kind of record, or a
    /// snapshot covers the slot. With `bytes`, the value's bytes must be on stable storage too.
    pub fn is_durable(&self, slot: Slot, value: &Value, bytes: bool) -> bool {
        if slot < self.log_start() {
            return !self.lacks_snapshot;
        }
        let has = |entry: &Entry| {
            slot >= entry.bytes_from
                || entry.learned_without_bytes && self.has_late_bytes(value, slot)
        };
        let same = |entry: &Entry| entry.is_about(slot, value) && (!bytes || has(entry));
        self.entries[..self.persisted_count].iter().any(same)
    }

    /// Returns whether, if a crash happened now, the last record for the slot would hold this value
    /// or a snapshot would cover the slot.
    pub fn survives_crash(&self, slot: Slot, value: &Value) -> bool {
        if slot < self.log_start() {
            return !self.lacks_snapshot;
        }
        let safe = self.entries[..self.persisted_count].iter().rev();
        let last = safe.filter(|entry| !entry.is_lost).find_map(|entry| match entry.record {
            Record::Vote { range, value, .. } | Record::Decided { range, value }
                if range.contains(slot) =>
            {
                Some(value)
            }
            _ => None,
        });
        last == Some(*value)
    }

    /// Returns whether, if a crash happened now, a record would show that `slot` is decided.
    pub fn is_known_decided(&self, slot: Slot) -> bool {
        let safe = self.entries[..self.persisted_count].last();
        slot < self.log_start() || safe.is_some_and(|entry| slot < entry.hard_state.decided_to)
    }

    /// Returns whether the log has a record of `value` in `slot` with its bytes, persisted or not.
    pub fn has_bytes(&self, slot: Slot, value: &Value) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| {
            let has = slot >= entry.bytes_from
                || entry.learned_without_bytes && self.has_late_bytes(value, slot);
            has && entry.is_about(slot, value)
        })
    }

    fn has_late_bytes(&self, value: &Value, slot: Slot) -> bool {
        let mut bytes = content_bytes(value, SlotRange::one(slot));
        bytes.any(|byte| self.late_bytes.contains(&byte))
    }

    /// Returns whether the log has a record of `value` in `slot` that was learned without bytes.
    pub fn is_learned_without_bytes(&self, slot: Slot, value: &Value) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.learned_without_bytes && entry.is_about(slot, value))
    }

    /// Returns the end of the slots that were learned without bytes.
    pub fn learned_without_bytes_to(&self) -> Slot {
        let bare =
            self.entries.iter().filter(|entry| entry.learned_without_bytes && !entry.is_lost);
        let ends = bare.map(|entry| match entry.record {
            Record::Decided { range, .. } => range.to,
            _ => Slot::FIRST,
        });
        ends.max().unwrap_or(Slot::FIRST)
    }

    /// Stores a byte of a stream that was fetched later.
    pub fn store_late_byte(&mut self, byte: (StreamName, u64)) {
        self.late_bytes.insert(byte);
    }

    /// Returns whether the log has a record of the value that was written without its bytes because
    /// they were not needed. Such bytes never become needed later.
    pub fn is_recorded_without_bytes(&self, slot: Slot, value: &Value) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| {
            slot < entry.bytes_from && !entry.learned_without_bytes && entry.is_about(slot, value)
        })
    }

    /// Returns whether the log has any record of the value.
    pub fn has_record(&self, slot: Slot, value: &Value) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.is_about(slot, value))
    }

    /// Returns whether this byte of a stream is stored: in the log, persisted or not, or
    /// separately.
    pub fn has_byte(&self, byte: (StreamName, u64)) -> bool {
        let has = |entry: &Entry| match entry.record {
            Record::Vote { range, value, .. } | Record::Decided { range, value } => {
                let range = SlotRange::new(range.from.max(entry.bytes_from), range.to);
                !entry.is_lost && content_bytes(&value, range).any(|other| other == byte)
            }
            Record::Round { .. } | Record::Promise { .. } => false,
        };
        self.late_bytes.contains(&byte) || self.entries.iter().any(has)
    }

    /// Returns whether any record is unreadable.
    pub fn is_damaged(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_lost)
    }

    pub fn persisted_count(&self) -> usize {
        self.persisted_count
    }

    /// Returns the number of entries that are not persisted yet.
    pub fn unpersisted_count(&self) -> usize {
        self.entries.len() - self.persisted_count
    }

    /// Returns the number of the running process's last persisted record; 0 if it has none.
    pub fn last_persisted_seq(&self) -> u64 {
        self.persisted_count.saturating_sub(self.process_start) as u64
    }

    /// Returns the number of the running process's last record; 0 if it has none.
    pub fn last_appended_seq(&self) -> u64 {
        (self.entries.len() - self.process_start) as u64
    }

    pub fn append(&mut self, record: Record, bytes_from: Slot, bare: bool) {
        let hard = HardState::default();
        self.entries.push(Entry {
            record,
            hard_state: hard,
            is_lost: false,
            bytes_from,
            learned_without_bytes: bare,
        });
    }

    /// Makes `count` entries unreadable, starting at `from`, but never the last one on stable
    /// storage ([model-3]).
    pub fn damage_entries(&mut self, from: usize, count: usize) {
        let end = self.persisted_count.saturating_sub(1);
        for entry in self.entries.iter_mut().take(end).skip(from).take(count) {
            entry.is_lost = true;
        }
    }

    /// Acknowledges all earlier losses. Votes and promises that they affected belong to an earlier
    /// incarnation.
    pub fn acknowledge_losses(&mut self) {
        self.acknowledged_to = self.entries.len();
    }

    /// Sets the hard state of the records starting at `from`, which were appended by the step that
    /// led to this state.
    pub fn restate_hard_state(&mut self, from: usize, hard: HardState) {
        for entry in &mut self.entries[from..] {
            entry.hard_state = hard;
        }
    }

    /// Persists `count` more records and returns them.
    pub fn persist(&mut self, count: usize) -> Vec<Record> {
        let to = (self.persisted_count + count).min(self.entries.len());
        let news = self.entries[self.persisted_count..to].iter();
        let news = news.map(|entry| entry.record).collect();
        self.persisted_count = to;
        news
    }

    /// Simulates a crash in which only `kept` of the unpersisted records survive. Returns the
    /// survivors.
    pub fn crash(&mut self, kept: usize) -> Vec<Record> {
        let news = self.persist(kept);
        self.entries.truncate(self.persisted_count);
        self.process_start = self.entries.len();
        news
    }

    /// Silently loses the entries starting at `from`, even though they were on stable storage.
    pub fn lose_entries_from(&mut self, from: usize) {
        self.entries.truncate(from);
        self.persisted_count = self.persisted_count.min(from);
        self.process_start = self.entries.len();
        self.acknowledged_to = self.acknowledged_to.min(from);
    }

    /// Returns whether the log has a vote for `slot` in `ballot`. With `durable`, the vote must be
    /// on stable storage.
    pub fn has_vote(&self, ballot: Ballot, slot: Slot, durable: bool) -> bool {
        let to = if durable { self.persisted_count } else { self.entries.len() };
        self.entries[..to].iter().rev().any(|entry| {
            matches!(entry.record, Record::Vote { ballot: b, range, .. }
                if b == ballot && range.contains(slot))
        })
    }

    /// Returns whether the round record of this ballot is on stable storage.
    pub fn has_round(&self, ballot: Ballot) -> bool {
        let round = Record::Round { ballot };
        self.entries[..self.persisted_count].iter().rev().any(|entry| entry.record == round)
    }

    /// Returns whether a promise of this ballot or a higher one is on stable storage. Every entry
    /// restates the promise of its step ([disk-1]), even one that a crash separated from the vote
    /// after it.
    pub fn has_promise(&self, ballot: Ballot) -> bool {
        let mut entries = self.entries[..self.persisted_count].iter().rev();
        entries.any(|entry| entry.hard_state.promised >= ballot)
    }

    /// Recovers the state in the same way as quorate-log. The last log write restates the hard
    /// state, and the last record of a slot is final. Around a loss, the headers show which slots
    /// the loss may have affected ([disk-8]).
    pub fn recover(&self, founding: &Configuration) -> RecoveredState {
        let mut hard = self.entries.last().map(|entry| entry.hard_state);
        let hard = hard.get_or_insert_default();
        let mut last: BTreeMap<Slot, (Option<Ballot>, Value)> = BTreeMap::new();
        let mut excused: BTreeSet<Slot> = BTreeSet::new();
        let mut forgotten = false;
        let log_start = self.log_start();
        let (mut decided_before, mut gap) = (Slot::FIRST, None);
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.is_lost {
                gap.get_or_insert(decided_before);
                continue;
            }
            if let Some(from) = gap.take() {
                let to = entry.hard_state.decided_to.max(entry.hard_state.voted_to);
                for slot in (from.0..to.0).map(Slot) {
                    last.remove(&slot);
                    excused.insert(slot);
                }
                forgotten |=
                    entry.hard_state.voted_to > hard.decided_to && at >= self.acknowledged_to;
            }
            decided_before = entry.hard_state.decided_to.max(Slot::FIRST);
            let (ballot, range, value) = match entry.record {
                Record::Vote { ballot, range, value } => (Some(ballot), range, value),
                Record::Decided { range, value } => (None, range, value),
                Record::Round { .. } | Record::Promise { .. } => continue,
            };
            for slot in range.from.0..range.to.0 {
                last.insert(Slot(slot), (ballot, value));
            }
        }
        hard.decided_to = hard.decided_to.max(log_start);
        hard.voted_to = hard.voted_to.max(Slot::FIRST);
        while let Some((None, _)) = last.get(&hard.decided_to) {
            hard.decided_to = hard.decided_to.next();
        }
        let below = (log_start.0..hard.decided_to.0).map(Slot);
        let (held, lost): (Vec<Slot>, Vec<Slot>) = below.partition(|slot| last.contains_key(slot));
        let decided: Vec<(Slot, Value)> = held.iter().map(|slot| (*slot, last[slot].1)).collect();
        // [snap-3] Everything in the log is included. The core must ignore slots below the start of
        // the log.
        let all = last.range(..hard.decided_to);
        let changes = all.map(|(slot, (_, value))| (*slot, *value));
        let changes = changes.filter(|(_, value)| matches!(value, Value::Reconfigure { .. }));
        let vote = |(slot, (ballot, value)): (&Slot, &(Option<Ballot>, Value))| {
            ballot.map(|ballot| Extent {
                range: SlotRange::one(*slot),
                ballot,
                value: *value,
                class: Class::Durable,
            })
        };
        let recovered = Recovered::replayed(
            *hard,
            log_start,
            self.eras_at_start(founding),
            changes.collect(),
            ranges_of(&lost),
            last.range(hard.decided_to..).filter_map(vote).collect(),
        );
        let recovered = if self.lacks_snapshot {
            recovered.hollow(self.eras_at_start(founding))
        } else {
            recovered
        };
        let one = |(slot, value)| (SlotRange::one(slot), value);
        RecoveredState {
            log_state: recovered,
            decided_values: decided.into_iter().map(one).collect(),
            first_hole: lost.into_iter().find(|slot| !excused.contains(slot)),
            may_have_forgotten: forgotten,
        }
    }
}

/// Converts sorted slots into ranges.
fn ranges_of(slots: &[Slot]) -> Vec<SlotRange> {
    let mut ranges: Vec<SlotRange> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some(last) if last.to == *slot => last.to = slot.next(),
            _ => ranges.push(SlotRange::one(*slot)),
        }
    }
    ranges
}
