//! A node's log: records in order, a prefix of which survives a crash; what recovery makes of it.

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

use crate::streams::bytes_of;

/// A record with the hard state that its batch restates ([disk-1]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The record.
    pub record: Record,
    /// The node's hard state when the record was appended.
    pub hard: HardState,
    /// The record cannot be read any more.
    pub lost: bool,
    /// The bytes of its value for slots from here on are in it: content that is not needed is
    /// recorded without bytes, as a record of its own ([stream-4]).
    pub bytes_from: Slot,
    /// [snap-5] Content that was learned without its bytes: as far as they are kept, they are
    /// looked for.
    pub bare: bool,
}

impl Entry {
    /// Returns whether the record can be read, and is a vote for this value in this slot, or its
    /// decision.
    fn is_about(&self, slot: Slot, value: &Value) -> bool {
        match self.record {
            Record::Vote { range, value: held, .. } | Record::Decided { range, value: held } => {
                range.contains(slot) && held == *value && !self.lost
            }
            Record::Round { .. } | Record::Promise { .. } => false,
        }
    }
}

/// The whole log of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Disk {
    entries: Vec<Entry>,
    /// Bytes of streams that were learned without, and arrived later: outside the log, and safe.
    stored: BTreeSet<(StreamName, u64)>,
    /// Entries below are on stable storage.
    persisted: usize,
    /// The first entry of the process that is running.
    base: usize,
    /// Losses among entries before this were owned up to, by a new incarnation.
    owned_to: usize,
    /// Start of the log, and the eras there: a durable snapshot stands for what is below. Entries
    /// about slots below stay, as they do in a segment that is not recycled yet ([snap-3]).
    rebased: Option<(Slot, Eras)>,
    /// [trim-1] Nothing stands for what is below: the eras are those that an auxiliary knew when it
    /// forgot.
    hollow: bool,
}

/// State that a restarted node finds.
#[derive(Clone, Debug)]
pub struct Found {
    /// State for the core.
    pub recovered: Recovered,
    /// The decided values, in slot order, for the service and for peers.
    pub decided: Vec<(SlotRange, Value)>,
    /// The first slot below `hard.decided_to` that no record speaks of, and that no loss explains.
    pub hole: Option<Slot>,
    /// Votes or promises may be gone ([disk-8]).
    pub forgotten: bool,
}

impl Disk {
    /// Returns the entries of all processes.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// [trim-3], [snap-2] Performs the one durable switch.
    pub fn rebase(&mut self, start: Slot, eras: Eras) {
        self.rebased = Some((start, eras));
        self.hollow = false;
    }

    /// [trim-1] Performs the switch of an auxiliary that forgets.
    pub fn forget(&mut self, start: Slot, known: Eras) {
        self.rebased = Some((start, known));
        self.hollow = true;
    }

    /// Returns the snapshot that stands for what is below the log.
    pub fn snapshot(&self) -> Option<&(Slot, Eras)> {
        self.rebased.as_ref().filter(|_| !self.hollow)
    }

    /// Returns the first slot of the log.
    pub fn log_start(&self) -> Slot {
        self.rebased.as_ref().map_or(Slot::FIRST, |(start, _)| *start)
    }

    /// Returns the eras at the first slot of the log.
    pub fn base(&self, founding: &Configuration) -> Eras {
        let founded = || Eras::founded(founding.clone());
        self.rebased.as_ref().map_or_else(founded, |(_, eras)| eras.clone())
    }

    /// Returns the value in the last record about this slot, on stable storage or not.
    pub fn last_word(&self, slot: Slot) -> Option<Value> {
        self.entries.iter().rev().find_map(|entry| match entry.record {
            Record::Vote { range, value, .. } | Record::Decided { range, value }
                if range.contains(slot) && !entry.lost =>
            {
                Some(value)
            }
            _ => None,
        })
    }

    /// Returns whether this value is on stable storage for this slot, `bytes` included or not, in
    /// any kind of record; or a snapshot stands for the slot.
    pub fn holds(&self, slot: Slot, value: &Value, bytes: bool) -> bool {
        if slot < self.log_start() {
            return !self.hollow;
        }
        let has =
            |entry: &Entry| slot >= entry.bytes_from || entry.bare && self.has_stored(value, slot);
        let same = |entry: &Entry| entry.is_about(slot, value) && (!bytes || has(entry));
        self.entries[..self.persisted].iter().any(same)
    }

    /// Returns whether a crash at this moment leaves this as the last record about the slot, or a
    /// snapshot in its place.
    pub fn lasts(&self, slot: Slot, value: &Value) -> bool {
        if slot < self.log_start() {
            return !self.hollow;
        }
        let safe = self.entries[..self.persisted].iter().rev();
        let last = safe.filter(|entry| !entry.lost).find_map(|entry| match entry.record {
            Record::Vote { range, value, .. } | Record::Decided { range, value }
                if range.contains(slot) =>
            {
                Some(value)
            }
            _ => None,
        });
        last == Some(*value)
    }

    /// Returns whether a crash at this moment leaves a record that this slot is decided.
    pub fn says_decided(&self, slot: Slot) -> bool {
        let safe = self.entries[..self.persisted].last();
        slot < self.log_start() || safe.is_some_and(|entry| slot < entry.hard.decided_to)
    }

    /// Returns whether the log has a record of this value in this slot, safe or not, with its
    /// bytes.
    pub fn has_bytes(&self, slot: Slot, value: &Value) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| {
            let has = slot >= entry.bytes_from || entry.bare && self.has_stored(value, slot);
            has && entry.is_about(slot, value)
        })
    }

    fn has_stored(&self, value: &Value, slot: Slot) -> bool {
        let mut bytes = bytes_of(value, SlotRange::one(slot));
        bytes.any(|byte| self.stored.contains(&byte))
    }

    /// Returns whether the log has a record of this value in this slot that was learned without
    /// bytes.
    pub fn is_bare(&self, slot: Slot, value: &Value) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.bare && entry.is_about(slot, value))
    }

    /// Returns the end of what was learned without bytes.
    pub fn bare_to(&self) -> Slot {
        let bare = self.entries.iter().filter(|entry| entry.bare && !entry.lost);
        let ends = bare.map(|entry| match entry.record {
            Record::Decided { range, .. } => range.to,
            _ => Slot::FIRST,
        });
        ends.max().unwrap_or(Slot::FIRST)
    }

    /// Stores a byte that was looked for.
    pub fn store(&mut self, byte: (StreamName, u64)) {
        self.stored.insert(byte);
    }

    /// Returns whether the log has a record of it without bytes: they were not needed then, and
    /// never will be.
    pub fn needed_no_bytes(&self, slot: Slot, value: &Value) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| slot < entry.bytes_from && !entry.bare && entry.is_about(slot, value))
    }

    /// Returns whether the log has any record of it.
    pub fn speaks_of(&self, slot: Slot, value: &Value) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.is_about(slot, value))
    }

    /// Returns whether this byte of a stream is in the log, safe or not.
    pub fn has_byte(&self, byte: (StreamName, u64)) -> bool {
        let has = |entry: &Entry| match entry.record {
            Record::Vote { range, value, .. } | Record::Decided { range, value } => {
                let range = SlotRange::new(range.from.max(entry.bytes_from), range.to);
                !entry.lost && bytes_of(&value, range).any(|other| other == byte)
            }
            Record::Round { .. } | Record::Promise { .. } => false,
        };
        self.stored.contains(&byte) || self.entries.iter().any(has)
    }

    /// Returns whether any record on stable storage cannot be read any more.
    pub fn is_damaged(&self) -> bool {
        self.entries.iter().any(|entry| entry.lost)
    }

    /// Returns the number of entries on stable storage.
    pub fn persisted(&self) -> usize {
        self.persisted
    }

    /// Returns the number of waiting entries.
    pub fn waiting(&self) -> usize {
        self.entries.len() - self.persisted
    }

    /// Returns the number of the last persisted record of the running process; 0 for none.
    pub fn persisted_seq(&self) -> u64 {
        self.persisted.saturating_sub(self.base) as u64
    }

    /// Returns the number of the last record of the running process; 0 for none.
    pub fn appended_seq(&self) -> u64 {
        (self.entries.len() - self.base) as u64
    }

    /// Appends a record.
    pub fn append(&mut self, record: Record, bytes_from: Slot, bare: bool) {
        let hard = HardState::default();
        self.entries.push(Entry { record, hard, lost: false, bytes_from, bare });
    }

    /// Makes `count` entries from here on unreadable; but never the last on stable storage
    /// ([model-3]).
    pub fn rot(&mut self, from: usize, count: usize) {
        let end = self.persisted.saturating_sub(1);
        for entry in self.entries.iter_mut().take(end).skip(from).take(count) {
            entry.lost = true;
        }
    }

    /// Acknowledges all losses by now, as votes and promises of an earlier incarnation.
    pub fn own_up(&mut self) {
        self.owned_to = self.entries.len();
    }

    /// Restates the hard state in the records from `from` on, which were appended by a step that
    /// led to it.
    pub fn restate(&mut self, from: usize, hard: HardState) {
        for entry in &mut self.entries[from..] {
            entry.hard = hard;
        }
    }

    /// Persists more records. Returns them.
    pub fn persist(&mut self, count: usize) -> Vec<Record> {
        let to = (self.persisted + count).min(self.entries.len());
        let news = self.entries[self.persisted..to].iter();
        let news = news.map(|entry| entry.record).collect();
        self.persisted = to;
        news
    }

    /// Crashes: of the waiting records, this many are there all the same. Returns them.
    pub fn crash(&mut self, kept: usize) -> Vec<Record> {
        let news = self.persist(kept);
        self.entries.truncate(self.persisted);
        self.base = self.entries.len();
        news
    }

    /// Loses the end of what was on stable storage, without a trace that it was there.
    pub fn lose_from(&mut self, from: usize) {
        self.entries.truncate(from);
        self.persisted = self.persisted.min(from);
        self.base = self.entries.len();
        self.owned_to = self.owned_to.min(from);
    }

    /// Returns whether a record for this holds; among all entries, or those on stable storage only.
    pub fn has_vote(&self, ballot: Ballot, slot: Slot, durable: bool) -> bool {
        let to = if durable { self.persisted } else { self.entries.len() };
        self.entries[..to].iter().rev().any(|entry| {
            matches!(entry.record, Record::Vote { ballot: b, range, .. }
                if b == ballot && range.contains(slot))
        })
    }

    /// Returns whether the round of this ballot is on stable storage.
    pub fn has_round(&self, ballot: Ballot) -> bool {
        let round = Record::Round { ballot };
        self.entries[..self.persisted].iter().rev().any(|entry| entry.record == round)
    }

    /// Returns whether a promise of this ballot or a higher one is on stable storage: every entry
    /// restates the promise of its step ([disk-1]), also one that a crash parted from the vote
    /// after it.
    pub fn has_promise(&self, ballot: Ballot) -> bool {
        let mut entries = self.entries[..self.persisted].iter().rev();
        entries.any(|entry| entry.hard.promised >= ballot)
    }

    /// Returns the recovered state, computed the way quorate-log does: the last batch restates the
    /// hard state, and the last record of a slot is final. Around a loss the headers say which
    /// slots it may have been about ([disk-8]).
    pub fn recover(&self, founding: &Configuration) -> Found {
        let mut hard = self.entries.last().map(|entry| entry.hard);
        let hard = hard.get_or_insert_default();
        let mut last: BTreeMap<Slot, (Option<Ballot>, Value)> = BTreeMap::new();
        let mut excused: BTreeSet<Slot> = BTreeSet::new();
        let mut forgotten = false;
        let log_start = self.log_start();
        let (mut decided_before, mut gap) = (Slot::FIRST, None);
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.lost {
                gap.get_or_insert(decided_before);
                continue;
            }
            if let Some(from) = gap.take() {
                let to = entry.hard.decided_to.max(entry.hard.voted_to);
                for slot in (from.0..to.0).map(Slot) {
                    last.remove(&slot);
                    excused.insert(slot);
                }
                forgotten |= entry.hard.voted_to > hard.decided_to && at >= self.owned_to;
            }
            decided_before = entry.hard.decided_to.max(Slot::FIRST);
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
        // [snap-3] All that the log holds: what is below its start is for the core to ignore.
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
            self.base(founding),
            changes.collect(),
            ranges(&lost),
            last.range(hard.decided_to..).filter_map(vote).collect(),
        );
        let recovered = if self.hollow { recovered.hollow(self.base(founding)) } else { recovered };
        let one = |(slot, value)| (SlotRange::one(slot), value);
        Found {
            recovered,
            decided: decided.into_iter().map(one).collect(),
            hole: lost.into_iter().find(|slot| !excused.contains(slot)),
            forgotten,
        }
    }
}

/// Returns these slots, in order, as ranges.
fn ranges(slots: &[Slot]) -> Vec<SlotRange> {
    let mut ranges: Vec<SlotRange> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some(last) if last.to == *slot => last.to = slot.next(),
            _ => ranges.push(SlotRange::one(*slot)),
        }
    }
    ranges
}
