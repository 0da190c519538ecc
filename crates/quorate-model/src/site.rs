//! A node's machine: its process, its disk, its memory of bytes, what it was asked to do.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    ballot::Ballot,
    input::ReadToken,
    node::Node,
    node_id::{Member, NodeId},
    reconfigure::Eras,
    record::Record,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};

use crate::disk::Disk;

/// A node's machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Who it is.
    pub member: Member,
    /// The process; `None` while it is down.
    pub node: Option<Node>,
    /// Its log.
    pub disk: Disk,
    /// Which process this is, counted over all nodes.
    pub process: u64,
    /// Entries of the log before this were forgotten ([volatile-1]).
    pub memory_from: usize,
    /// Bytes at hand: of a batch (slot 0), or of a content value at a slot.
    held: BTreeSet<(Value, Slot)>,
    /// Decided values, in slot order.
    decided: Vec<(SlotRange, Value)>,
    decided_to: Slot,
    /// Bytes looked for.
    pub fetches: Vec<(Value, SlotRange)>,
    /// Decided values that a peer asked for.
    pub serves: Vec<(NodeId, SlotRange)>,
    /// Where it wants its log to begin, as an auxiliary ([trim-1]).
    pub forgets: Option<Slot>,
    /// Who said that only a snapshot tells what it lacks.
    pub needs: Option<NodeId>,
    /// Whether its log has failed.
    pub failed: bool,
    /// The sites that it can talk to, as it was told.
    pub connected: BTreeSet<usize>,
    /// When it wants to be woken.
    pub wake: Time,
    reads: BTreeMap<ReadToken, Slot>,
    /// The last read that was confirmed.
    pub confirmed: Option<ReadToken>,
}

impl Site {
    /// A machine on which nothing has run yet.
    pub(crate) fn new(member: Member) -> Self {
        Self {
            member,
            node: None,
            disk: Disk::default(),
            process: 0,
            memory_from: 0,
            held: BTreeSet::new(),
            decided: Vec::new(),
            decided_to: Slot::FIRST,
            fetches: Vec::new(),
            serves: Vec::new(),
            forgets: None,
            needs: None,
            failed: false,
            connected: BTreeSet::new(),
            wake: Time(0),
            reads: BTreeMap::new(),
            confirmed: None,
        }
    }

    /// The process is gone, and with it what only it knew.
    pub(crate) fn forget_process(&mut self) {
        self.failed = false;
        self.connected.clear();
        self.fetches.clear();
        self.serves.clear();
        self.forgets = None;
        self.needs = None;
        self.reads.clear();
    }

    /// A new process has what the log holds: the bytes there, and what is decided.
    pub(crate) fn read_back(&mut self, decided: Vec<(SlotRange, Value)>, decided_to: Slot) {
        // What is not in the log is gone.
        self.held.clear();
        let sound = self.disk.entries().iter().filter(|entry| !entry.lost);
        let records: Vec<Record> = sound.map(|entry| entry.record).collect();
        for record in records {
            if let Record::Vote { range, value, .. } | Record::Decided { range, value } = record {
                self.hold(&value, range);
            }
        }
        self.decided_to = decided_to;
        self.decided = decided;
    }

    /// Decided values, in slot order.
    pub(crate) fn decided(&self) -> &[(SlotRange, Value)] {
        &self.decided
    }

    /// Slots below are decided here.
    pub(crate) fn decided_to(&self) -> Slot {
        self.decided_to
    }

    /// The values from the log's start to `to`, in slot order, if all are known.
    pub(crate) fn history(&self, to: Slot) -> Option<Vec<(Slot, Value)>> {
        let value = |slot: Slot| {
            let run = self.decided.iter().find(|(range, _)| range.contains(slot));
            run.map(|(_, value)| (slot, *value))
        };
        (self.disk.log_start().0..to.0)
            .map(|at| value(Slot(at)))
            .collect()
    }

    /// [trim-1] The log begins later, and nothing stands for what was below.
    pub(crate) fn forget(&mut self, start: Slot, known: Eras) {
        self.disk.forget(start, known);
        self.begin(start);
    }

    /// A snapshot stands for everything below its log now.
    pub(crate) fn rebase(&mut self, start: Slot, eras: Eras) {
        self.disk.rebase(start, eras);
        self.begin(start);
    }

    fn begin(&mut self, start: Slot) {
        for (range, _) in &mut self.decided {
            range.from = range.from.max(start);
        }
        self.decided.retain(|(range, _)| !range.is_empty());
        // [snap-3] What was asked for before is not read below the log's start any more.
        for (_, range) in &mut self.serves {
            *range = SlotRange::new(range.from.max(start), range.to.max(start));
        }
        self.serves.retain(|(_, range)| !range.is_empty());
        self.decided_to = self.decided_to.max(start);
        self.needs = None;
    }

    /// The machine is given away: nothing of what it held is left.
    pub(crate) fn wipe(&mut self, node: NodeId) {
        *self = Self {
            process: self.process,
            ..Self::new(Member::first(node.0))
        };
    }

    /// The node here says that a range is decided. Returns how far it was before.
    pub(crate) fn decides(&mut self, range: SlotRange, value: Value) -> Slot {
        // [disk-8] What the log holds behind what it lost is not told again.
        while self.decided_to < range.from && self.knows(self.decided_to) {
            self.decided_to = self.decided_to.next();
        }
        let before = self.decided_to;
        self.decided.push((range, value));
        self.decided_to = range.to;
        before
    }

    /// The places of these bytes that are at hand.
    pub(crate) fn bytes_of(&self, value: Value) -> impl Iterator<Item = (Value, Slot)> + '_ {
        let all = self.held.iter().copied();
        all.filter(move |(held, _)| *held == value)
    }

    /// Bytes came.
    pub(crate) fn take_bytes(&mut self, bytes: Vec<(Value, Slot)>) {
        self.held.extend(bytes);
    }

    /// Batches whose bytes are at hand.
    pub(crate) fn batches(&self) -> Vec<Value> {
        let batch = |(value, _): &(Value, Slot)| matches!(value, Value::Batch(_));
        let held = self.held.iter();
        held.filter(|entry| batch(entry)).map(|(v, _)| *v).collect()
    }

    /// A read is asked, when everything below `known` was known to be decided.
    pub(crate) fn asks(&mut self, token: ReadToken, known: Slot) {
        self.reads.insert(token, known);
    }

    /// A read is answered, or never will be. Returns what was known when it was asked.
    pub(crate) fn end_read(&mut self, token: ReadToken) -> Option<Slot> {
        self.reads.remove(&token)
    }

    fn key(value: &Value, slot: Slot) -> (Value, Slot) {
        let anywhere = !matches!(value, Value::Content { .. });
        (*value, if anywhere { Slot(0) } else { slot })
    }

    /// Whether the bytes of `value` in these slots are at hand.
    pub fn holds(&self, value: &Value, range: SlotRange) -> bool {
        !value.has_bytes()
            || (range.from.0..range.to.0)
                .all(|slot| self.held.contains(&Self::key(value, Slot(slot))))
    }

    /// The first part of these slots of whose value this process has the bytes.
    pub fn held_of(&self, value: &Value, range: SlotRange) -> SlotRange {
        let slots = (range.from.0..range.to.0).map(Slot);
        let missing = |slot: &Slot| !self.holds(value, SlotRange::one(*slot));
        let to = slots.into_iter().find(missing).unwrap_or(range.to);
        SlotRange::new(range.from, to)
    }

    pub(crate) fn hold(&mut self, value: &Value, range: SlotRange) {
        if value.has_bytes() {
            for slot in range.from.0..range.to.0 {
                self.held.insert(Self::key(value, Slot(slot)));
            }
        }
    }

    /// Whether this slot is decided here, and its value known.
    fn knows(&self, slot: Slot) -> bool {
        self.decided.iter().any(|(range, _)| range.contains(slot))
    }

    /// Whether somebody could learn the chosen value of this slot from here.
    pub fn can_tell(&self, slot: Slot, value: &Value) -> bool {
        let Some(node) = &self.node else { return false };
        let vote = node.acceptor().vote(slot);
        let voted = vote.is_some_and(|vote| vote.value == *value);
        let told = (voted || self.knows(slot)) && self.holds(value, SlotRange::one(slot));
        told || (slot < self.disk.log_start() && !node.is_hollow())
    }

    /// The highest ballot that this member remembers to have promised.
    pub(crate) fn voted_before(&self) -> Ballot {
        let promised = |record: &Record| match record {
            Record::Promise { ballot } | Record::Vote { ballot, .. } => *ballot,
            Record::Round { .. } | Record::Decided { .. } => Ballot::ZERO,
        };
        let entries = &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..];
        let ballots = entries.iter().map(|entry| promised(&entry.record));
        ballots.max().unwrap_or_default()
    }

    /// The highest vote per slot that this member remembers.
    pub(crate) fn cast(&self) -> BTreeMap<Slot, (Ballot, Value)> {
        let mut cast = BTreeMap::new();
        for entry in &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..] {
            if let Record::Vote {
                ballot,
                range,
                value,
            } = entry.record
            {
                for slot in range.from.0..range.to.0 {
                    cast.insert(Slot(slot), (ballot, value));
                }
            }
        }
        cast
    }
}
