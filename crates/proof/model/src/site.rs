//! A node's machine: its process, its disk, its memory of bytes, what it was asked to do.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    ballot::Ballot,
    group_time::GroupTime,
    input::ReadToken,
    node::Node,
    node_id::{Member, NodeId},
    reconfigure::Eras,
    record::Record,
    slot::{Slot, SlotRange},
    time::Time,
    value::{StreamName, Value},
    witness::{Memory, Witness, Written},
};

use crate::{
    device::Device,
    disk::Disk,
    streams::{self, applied::Applied, offering::Offering},
};

/// A node's machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The node, in its present incarnation.
    pub member: Member,
    /// Its device, which may live longer than its process.
    pub device: Device,
    /// The member that the device votes for.
    pub device_of: Member,
    /// Votes of the device for that member.
    pub(crate) device_cast: BTreeMap<Slot, (Ballot, Value)>,
    /// The process; `None` while it is down.
    pub node: Option<Node>,
    /// Its log.
    pub disk: Disk,
    /// Number of the process, counted over all nodes.
    pub process: u64,
    /// Entries of the log before this were forgotten ([volatile-1]).
    pub memory_from: usize,
    /// Bytes in memory: of a batch (slot 0), or of a stream (offset 0) at a position.
    held: BTreeSet<(Value, Slot)>,
    /// State applied from its decisions.
    pub applied: Applied,
    /// Offers of streams, if it leads.
    pub offering: Offering,
    /// Decided values, in slot order.
    decided: Vec<(SlotRange, Value)>,
    decided_to: Slot,
    /// The decisions' effect on the group's time.
    pub time: GroupTime,
    /// Bytes looked for.
    pub fetches: Vec<(Value, SlotRange)>,
    /// Decided values that a peer asked for.
    pub serves: Vec<(NodeId, SlotRange)>,
    /// Wanted start of its log, as an auxiliary ([trim-1]).
    pub forgets: Option<Slot>,
    /// The node that reported that only a snapshot has what is missing.
    pub needs: Option<NodeId>,
    /// The log has failed.
    pub failed: bool,
    /// Sites connected to this one, by its own notifications.
    pub connected: BTreeSet<usize>,
    /// Wanted time of the next wake-up.
    pub wake: Time,
    reads: BTreeMap<ReadToken, Slot>,
    /// The last read that was confirmed.
    pub confirmed: Option<ReadToken>,
    /// [snap-5] Bytes that are part of a stream by what was learned here, and are not here.
    pub lack: BTreeSet<(StreamName, u64)>,
    /// A value is being learned without its bytes.
    pub learns_bare: bool,
    /// The node was notified that bytes are missing.
    pub told_lack: bool,
    /// Other nodes' reports of their logs ([lie-2]).
    pub witness: Witness,
    /// The disk has lost what the site reported to others, and no peer has reminded it yet.
    pub lied: bool,
    /// [lie-5] A process was reminded of more: the next one is another incarnation.
    pub owes: bool,
}

impl Site {
    /// Creates a machine on which nothing has run yet.
    pub(crate) fn new(member: Member) -> Self {
        Self {
            member,
            device: Device::default(),
            device_of: member,
            device_cast: BTreeMap::new(),
            node: None,
            disk: Disk::default(),
            process: 0,
            memory_from: 0,
            held: BTreeSet::new(),
            applied: Applied::default(),
            offering: Offering::default(),
            decided: Vec::new(),
            decided_to: Slot::FIRST,
            time: GroupTime::START,
            fetches: Vec::new(),
            serves: Vec::new(),
            forgets: None,
            needs: None,
            failed: false,
            connected: BTreeSet::new(),
            wake: Time(0),
            reads: BTreeMap::new(),
            confirmed: None,
            lack: BTreeSet::new(),
            learns_bare: false,
            told_lack: false,
            witness: Witness::default(),
            lied: false,
            owes: false,
        }
    }

    /// Forgets the process, and its state in memory.
    pub(crate) fn forget_process(&mut self) {
        self.failed = false;
        self.connected.clear();
        self.fetches.clear();
        self.serves.clear();
        self.forgets = None;
        self.needs = None;
        self.reads.clear();
        self.offering = Offering::default();
        self.witness = Witness::default();
    }

    /// [lie-1] Returns how far its log is on stable storage.
    pub(crate) fn memory(&self) -> Memory {
        let to = self.disk.persisted() as u64;
        Memory { written: Written { incarnation: self.member.incarnation, to }, boot: 0 }
    }

    /// Gives a new process what the log holds: the bytes there, and what is decided.
    pub(crate) fn read_back(&mut self, decided: Vec<(SlotRange, Value)>, decided_to: Slot) {
        // What is not in the log is gone.
        self.held.clear();
        self.applied = Applied::default();
        self.lack.clear();
        self.told_lack = false;
        let sound = self.disk.entries().iter();
        let sound = sound.filter(|entry| !entry.lost);
        let records: Vec<(Record, Slot)> =
            sound.map(|entry| (entry.record, entry.bytes_from)).collect();
        for (record, from) in records {
            if let Record::Vote { range, value, .. } | Record::Decided { range, value } = record {
                self.hold(&value, SlotRange::new(range.from.max(from), range.to));
            }
        }
        self.decided_to = decided_to;
        self.decided = decided;
        self.time = GroupTime::START;
        for (_, value) in &self.decided {
            if let Value::Now { ms } = value {
                self.time.hear(*ms);
            }
        }
    }

    /// Returns decided values, in slot order.
    pub(crate) fn decided(&self) -> &[(SlotRange, Value)] {
        &self.decided
    }

    /// Returns the decided value of this slot, if that is known here.
    pub(crate) fn decided_value(&self, slot: Slot) -> Option<Value> {
        let run = self.decided.iter().find(|(range, _)| range.contains(slot));
        run.map(|(_, value)| *value)
    }

    /// Slots below are decided here.
    pub(crate) fn decided_to(&self) -> Slot {
        self.decided_to
    }

    /// Returns the values from the log's start to `to`, in slot order, if all are known.
    pub(crate) fn history(&self, to: Slot) -> Option<Vec<(Slot, Value)>> {
        let value = |slot: Slot| Some((slot, self.decided_value(slot)?));
        (self.disk.log_start().0..to.0).map(|at| value(Slot(at))).collect()
    }

    /// [trim-1] Moves the start of the log, with nothing in place of what was below.
    pub(crate) fn forget(&mut self, start: Slot, known: Eras) {
        self.disk.forget(start, known);
        self.begin(start);
    }

    /// Notes that a snapshot stands for everything below its log now.
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

    /// Wipes the machine: nothing of what it held is left.
    pub(crate) fn wipe(&mut self, node: NodeId) {
        *self = Self {
            process: self.process,
            device: Device::new(self.device.cells()),
            ..Self::new(Member::first(node.0))
        };
    }

    /// Notes a range that the node here reports as decided. Returns how far it was before.
    pub(crate) fn decides(&mut self, range: SlotRange, value: Value) -> Slot {
        // [disk-8] Slots that the log holds after a lost range are not reported again.
        while self.decided_to < range.from && self.knows(self.decided_to) {
            self.decided_to = self.decided_to.next();
        }
        let before = self.decided_to;
        self.decided.push((range, value));
        self.decided_to = range.to;
        before
    }

    /// Returns the places of this value's bytes that are in memory.
    pub(crate) fn bytes_of(&self, value: Value) -> impl Iterator<Item = (Value, Slot)> + '_ {
        let all = self.held.iter().copied();
        let (same, _) = Self::key(&value, Slot(0));
        all.filter(move |(held, _)| *held == same)
    }

    /// Returns whether this byte can be read here, from memory or the log.
    pub(crate) fn has_byte(&self, byte: (StreamName, u64)) -> bool {
        !self.lack.contains(&byte)
            && (self.held.contains(&Self::byte(byte)) || self.disk.has_byte(byte))
    }

    /// Bytes of batches came.
    pub(crate) fn take_bytes(&mut self, bytes: Vec<(Value, Slot)>) {
        self.held.extend(bytes);
    }

    /// Bytes of a stream came: those that may still be applied are kept.
    pub(crate) fn take_stream(&mut self, stream: StreamName, from: u64, to: u64) {
        let next = self.applied.table().next(stream).unwrap_or(0);
        let bytes = (from.max(next)..to).map(|at| Self::byte((stream, at)));
        self.held.extend(bytes);
    }

    /// Takes one byte likewise, wherever it is.
    pub(crate) fn take_byte(&mut self, (stream, position): (StreamName, u64)) {
        if self.applied.table().next(stream).is_none_or(|next| position >= next) {
            self.held.insert(Self::byte((stream, position)));
        }
    }

    /// Returns the end of what is in memory of a stream without a gap from `position` on, at most
    /// `most`.
    pub fn held_to(&self, stream: StreamName, position: u64, most: u64) -> u64 {
        let here = |at: &u64| self.held.contains(&Self::byte((stream, *at)));
        position + (position..most).take_while(here).count() as u64
    }

    /// Drops bytes of this stream below `next`: they are applied, or never will be, and will not be
    /// read from memory again.
    pub(crate) fn drop_stream(&mut self, stream: StreamName, next: u64) {
        let (same, next) = Self::byte((stream, next));
        self.held.retain(|(held, at)| *held != same || *at >= next);
    }

    /// Batches whose bytes are at hand.
    pub(crate) fn batches(&self) -> Vec<Value> {
        let batch = |(value, _): &(Value, Slot)| matches!(value, Value::Batch(_));
        let held = self.held.iter();
        held.filter(|entry| batch(entry)).map(|(v, _)| *v).collect()
    }

    /// Notes a read, asked when everything below `known` was known to be decided.
    pub(crate) fn asks(&mut self, token: ReadToken, known: Slot) {
        self.reads.insert(token, known);
    }

    /// Ends a read that is answered, or never will be. Returns what was known when it was asked.
    pub(crate) fn end_read(&mut self, token: ReadToken) -> Option<Slot> {
        self.reads.remove(&token)
    }

    fn key(value: &Value, slot: Slot) -> (Value, Slot) {
        match *value {
            Value::Content { stream, offset } => {
                Self::byte((stream, streams::position(offset, slot)))
            }
            _ => (*value, Slot(0)),
        }
    }

    fn byte((stream, position): (StreamName, u64)) -> (Value, Slot) {
        let offset = 0;
        (Value::Content { stream, offset }, Slot(position))
    }

    /// [snap-5] Returns whether bytes may be missing that are kept: for content that was learned
    /// without them and is not applied, that is not known.
    pub(crate) fn lacks(&self) -> bool {
        !self.lack.is_empty() || self.disk.bare_to() > self.applied.to()
    }

    /// Returns whether nothing is missing of `value` in these slots: all its bytes are in memory,
    /// or none are needed.
    pub fn holds(&self, value: &Value, range: SlotRange) -> bool {
        self.held_of(value, range) == range
    }

    /// Returns the first part of these slots of whose value nothing is missing. Of content, the
    /// part that is not needed is separated from the part that is here, as they are recorded apart.
    pub fn held_of(&self, value: &Value, range: SlotRange) -> SlotRange {
        let needless = self.needless_to(value, range);
        if needless > range.from {
            return SlotRange::new(range.from, needless);
        }
        let slots = (range.from.0..range.to.0).map(Slot);
        let missing = |slot: &Slot| !self.held.contains(&Self::key(value, *slot));
        let to = slots.into_iter().find(|slot| value.has_bytes() && missing(slot));
        SlotRange::new(range.from, to.unwrap_or(range.to))
    }

    /// [stream-4] Returns the end of the first part of these slots that is a no-op whatever is
    /// decided before it: by the table, or by an earlier record, when the table was further.
    fn needless_to(&self, value: &Value, range: SlotRange) -> Slot {
        let Value::Content { stream, offset } = *value else {
            return range.from;
        };
        if offset > range.from.0 {
            // The slot belongs to no stream, which is unknown before it is applied.
            return range.from;
        }
        let needed = self.applied.table().may_append(stream, offset, range);
        let from = streams::position(offset, range.from);
        let table = range.from.plus(needed.start.saturating_sub(from));
        let known = |slot: &Slot| *slot < table || self.disk.needed_no_bytes(*slot, value);
        let slots = (range.from.0..range.to.0).map(Slot);
        range.from.plus(slots.take_while(known).count() as u64)
    }

    /// Notes that the node looks for these bytes. Of content, all that is looked for of a value is
    /// one range.
    pub(crate) fn wants(&mut self, value: Value, range: SlotRange) {
        let same = |(known, _): &&mut (Value, SlotRange)| *known == value && value.may_span();
        if let Some((_, known)) = self.fetches.iter_mut().find(same) {
            known.from = known.from.min(range.from);
            known.to = known.to.max(range.to);
        } else if !self.fetches.contains(&(value, range)) {
            self.fetches.push((value, range));
        }
    }

    /// Returns the next part of content that was looked for, and of which nothing is missing any
    /// more.
    pub(crate) fn found(&mut self, value: &Value) -> Option<SlotRange> {
        let spans = value.may_span();
        let at = self.fetches.iter().position(|(known, _)| spans && known == value)?;
        let held = self.held_of(value, self.fetches[at].1);
        if held.is_empty() {
            return None;
        }
        self.fetches[at].1.from = held.to;
        if self.fetches[at].1.is_empty() {
            self.fetches.remove(at);
        }
        Some(held)
    }

    /// Drops searches below a decided slot: content is not looked for there.
    pub(crate) fn forget_fetches(&mut self, slot: Slot) {
        for (value, range) in &mut self.fetches {
            if value.may_span() {
                range.from = range.from.max(slot);
            }
        }
        self.fetches.retain(|(_, range)| !range.is_empty());
    }

    /// Returns where the bytes of `value` begin in a record for these slots: the part that is not
    /// needed is recorded apart. `None` if bytes are missing.
    pub(crate) fn recorded(&self, value: &Value, range: SlotRange) -> Option<Slot> {
        let from = self.needless_to(value, range);
        let here = |slot| self.held.contains(&Self::key(value, Slot(slot)));
        (!value.has_bytes() || (from.0..range.to.0).all(here)).then_some(from)
    }

    /// Returns whether the bytes of `value` in this slot can be sent to another node.
    pub(crate) fn can_give(&self, value: &Value, slot: Slot) -> bool {
        self.held.contains(&Self::key(value, slot)) || self.disk.has_bytes(slot, value)
    }

    /// Returns these slots, cut where the bytes of `value` begin or cease to be here to be sent.
    pub(crate) fn parts(&self, range: SlotRange, value: Value) -> Vec<(SlotRange, Value, bool)> {
        let mut parts: Vec<(SlotRange, Value, bool)> = Vec::new();
        for slot in (range.from.0..range.to.0).map(Slot) {
            let bytes = value.has_bytes() && self.can_give(&value, slot);
            match parts.last_mut() {
                Some((part, _, same)) if *same == bytes => part.to = slot.next(),
                _ => parts.push((SlotRange::one(slot), value, bytes)),
            }
        }
        parts
    }

    pub(crate) fn hold(&mut self, value: &Value, range: SlotRange) {
        if value.has_bytes() {
            for slot in range.from.0..range.to.0 {
                self.held.insert(Self::key(value, Slot(slot)));
            }
        }
    }

    /// Returns whether this slot is decided here, and its value known.
    fn knows(&self, slot: Slot) -> bool {
        self.decided.iter().any(|(range, _)| range.contains(slot))
    }

    /// Returns whether another node could learn the chosen value of this slot from here.
    pub fn can_tell(&self, slot: Slot, value: &Value) -> bool {
        let Some(node) = &self.node else { return false };
        let vote = node.acceptor().vote(slot);
        let voted = vote.is_some_and(|vote| vote.value == *value);
        let bytes = self.holds(value, SlotRange::one(slot)) || self.disk.has_bytes(slot, value);
        let told = (voted || self.knows(slot)) && bytes;
        told || (slot < self.disk.log_start() && !node.is_hollow())
    }

    /// Returns the highest ballot that this member remembers to have promised.
    pub(crate) fn voted_before(&self) -> Ballot {
        let promised = |record: &Record| match record {
            Record::Promise { ballot } | Record::Vote { ballot, .. } => *ballot,
            Record::Round { .. } | Record::Decided { .. } => Ballot::ZERO,
        };
        let entries = &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..];
        let ballots = entries.iter().map(|entry| promised(&entry.record));
        ballots.max().unwrap_or_default()
    }

    /// Returns the highest vote per slot that this member remembers.
    pub(crate) fn cast(&self) -> BTreeMap<Slot, (Ballot, Value)> {
        let mut cast = BTreeMap::new();
        for entry in &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..] {
            if let Record::Vote { ballot, range, value } = entry.record {
                for slot in range.from.0..range.to.0 {
                    cast.insert(Slot(slot), (ballot, value));
                }
            }
        }
        // [offload-8] What the device voted for is this member's vote.
        for (slot, (ballot, value)) in &self.device_cast {
            let known = cast.get(slot).map(|(ballot, _)| *ballot);
            if self.device_of == self.member && known.is_none_or(|known| known < *ballot) {
                cast.insert(*slot, (*ballot, *value));
            }
        }
        cast
    }
}
