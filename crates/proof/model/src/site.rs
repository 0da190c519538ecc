//! Machine of a node: its process, disk, bytes in memory, and pending requests.

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
    witness::{LogEnd, Memory, RollbackDetector},
};

use crate::{
    device::Device,
    disk::Disk,
    streams::{self, applied::Applied, offering::Offering},
};

/// The machine of a node, on which processes run in sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The node that runs on this machine, in its current incarnation.
    pub member: Member,
    /// The device of the node, which may outlive the node's process.
    pub device: Device,
    /// The member that the device votes for.
    pub device_of: Member,
    /// Votes that the device cast for that member.
    pub(crate) device_cast: BTreeMap<Slot, (Ballot, Value)>,
    /// The running process; `None` while the node is down.
    pub node: Option<Node>,
    pub disk: Disk,
    /// Number of the running process, counted across all nodes.
    pub process: u64,
    /// Index of the first log entry that has not been forgotten ([volatile-1]).
    pub memory_from: usize,
    /// Bytes in memory. Those of a batch are listed under slot 0; those of a stream under offset 0,
    /// with the position as the slot.
    held: BTreeSet<(Value, Slot)>,
    /// State applied from the decided values.
    pub applied: Applied,
    /// State of the leader's choice of the stream bytes to propose.
    pub offering: Offering,
    /// Decided values, in slot order.
    decided: Vec<(SlotRange, Value)>,
    decided_to: Slot,
    /// The group's time, which follows from the decided values.
    pub time: GroupTime,
    /// Values and slots whose bytes the node requested from the caller.
    pub fetches: Vec<(Value, SlotRange)>,
    /// Catch-up requests from peers.
    pub serves: Vec<(NodeId, SlotRange)>,
    /// Start of the log that an auxiliary requested; `None` if there is no such request ([trim-1]).
    pub forgets: Option<Slot>,
    /// Node that reported that the missing slots are available only as a snapshot.
    pub needs: Option<NodeId>,
    pub failed: bool,
    /// Indexes of the sites connected to this one, as reported to this node.
    pub connected: BTreeSet<usize>,
    /// Time at which the node requested to be woken next.
    pub wake: Time,
    reads: BTreeMap<ReadToken, Slot>,
    /// The last read that was confirmed.
    pub confirmed: Option<ReadToken>,
    /// [snap-5] Missing bytes of content that was learned on this node without them.
    pub lack: BTreeSet<(StreamName, u64)>,
    /// A value is being learned without its bytes.
    pub learns_bare: bool,
    /// Most recent notification to the node of whether bytes are missing.
    pub told_lack: bool,
    /// State of other nodes' logs, as they reported it ([lie-2]).
    pub witness: RollbackDetector,
    /// The disk lost records that the site had reported to others, and no peer has reminded the
    /// site yet.
    pub lied: bool,
    /// [lie-5] A peer reminded the process of the lost records, so the next process starts a new
    /// incarnation.
    pub owes: bool,
}

impl Site {
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
            witness: RollbackDetector::default(),
            lied: false,
            owes: false,
        }
    }

    /// Drops the process and its state in memory.
    pub(crate) fn forget_process(&mut self) {
        self.failed = false;
        self.connected.clear();
        self.fetches.clear();
        self.serves.clear();
        self.forgets = None;
        self.needs = None;
        self.reads.clear();
        self.offering = Offering::default();
        self.witness = RollbackDetector::default();
    }

    /// [lie-1] Returns the end of the log on stable storage, as this site reports it to other
    /// nodes.
    pub(crate) fn memory(&self) -> Memory {
        let to = self.disk.persisted() as u64;
        Memory { log_end: LogEnd { incarnation: self.member.incarnation, last_write: to }, boot: 0 }
    }

    /// Rebuilds what a new process has in memory from the log: bytes and decided values.
    pub(crate) fn read_back(&mut self, decided: Vec<(SlotRange, Value)>, decided_to: Slot) {
        // Bytes that are not in the log are lost.
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
                self.time.apply(*ms);
            }
        }
    }

    pub(crate) fn decided(&self) -> &[(SlotRange, Value)] {
        &self.decided
    }

    /// Returns the decided value of `slot`, if this site has it.
    pub(crate) fn decided_value(&self, slot: Slot) -> Option<Value> {
        let run = self.decided.iter().find(|(range, _)| range.contains(slot));
        run.map(|(_, value)| *value)
    }

    pub(crate) fn decided_to(&self) -> Slot {
        self.decided_to
    }

    /// Returns the values from the start of the log to `to`, in slot order; `None` if any of them
    /// is unknown.
    pub(crate) fn history(&self, to: Slot) -> Option<Vec<(Slot, Value)>> {
        let value = |slot: Slot| Some((slot, self.decided_value(slot)?));
        (self.disk.log_start().0..to.0).map(|at| value(Slot(at))).collect()
    }

    /// [trim-1] Moves the start of the log. No snapshot covers the slots below.
    pub(crate) fn forget(&mut self, start: Slot, known: Eras) {
        self.disk.forget(start, known);
        self.begin(start);
    }

    /// Records that a snapshot now covers everything below the start of the log.
    pub(crate) fn rebase(&mut self, start: Slot, eras: Eras) {
        self.disk.rebase(start, eras);
        self.begin(start);
    }

    fn begin(&mut self, start: Slot) {
        for (range, _) in &mut self.decided {
            range.from = range.from.max(start);
        }
        self.decided.retain(|(range, _)| !range.is_empty());
        // [snap-3] Requests that were queued earlier are no longer served from slots below the
        // start of the log.
        for (_, range) in &mut self.serves {
            *range = SlotRange::new(range.from.max(start), range.to.max(start));
        }
        self.serves.retain(|(_, range)| !range.is_empty());
        self.decided_to = self.decided_to.max(start);
        self.needs = None;
    }

    /// Wipes the machine, which becomes that of a new node.
    pub(crate) fn wipe(&mut self, node: NodeId) {
        *self = Self {
            process: self.process,
            device: Device::new(self.device.cells()),
            ..Self::new(Member::first(node.0))
        };
    }

    /// Records a range that the node reports as decided. Returns the previous end of the decided
    /// slots.
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

    /// Returns the bytes of `value` that are in memory.
    pub(crate) fn bytes_of(&self, value: Value) -> impl Iterator<Item = (Value, Slot)> + '_ {
        let all = self.held.iter().copied();
        let (same, _) = Self::key(&value, Slot(0));
        all.filter(move |(held, _)| *held == same)
    }

    /// Returns whether this byte can be read from memory or the log.
    pub(crate) fn has_byte(&self, byte: (StreamName, u64)) -> bool {
        !self.lack.contains(&byte)
            && (self.held.contains(&Self::byte(byte)) || self.disk.has_byte(byte))
    }

    /// Stores received bytes of batches.
    pub(crate) fn take_bytes(&mut self, bytes: Vec<(Value, Slot)>) {
        self.held.extend(bytes);
    }

    /// Receives bytes of a stream, and stores those that may still be applied.
    pub(crate) fn take_stream(&mut self, stream: StreamName, from: u64, to: u64) {
        let next = self.applied.table().next_position(stream).unwrap_or(0);
        let bytes = (from.max(next)..to).map(|at| Self::byte((stream, at)));
        self.held.extend(bytes);
    }

    /// Receives one byte of a stream, and stores it if it may still be applied.
    pub(crate) fn take_byte(&mut self, (stream, position): (StreamName, u64)) {
        if self.applied.table().next_position(stream).is_none_or(|next| position >= next) {
            self.held.insert(Self::byte((stream, position)));
        }
    }

    /// Returns the end of a stream's contiguous bytes in memory, from `position` on, but at most
    /// `most`.
    pub fn held_to(&self, stream: StreamName, position: u64, most: u64) -> u64 {
        let here = |at: &u64| self.held.contains(&Self::byte((stream, *at)));
        position + (position..most).take_while(here).count() as u64
    }

    /// Drops the bytes of this stream below `next`. They have been applied or never will be.
    pub(crate) fn drop_stream(&mut self, stream: StreamName, next: u64) {
        let (same, next) = Self::byte((stream, next));
        self.held.retain(|(held, at)| *held != same || *at >= next);
    }

    /// Returns the batches whose bytes are in memory.
    pub(crate) fn batches(&self) -> Vec<Value> {
        let batch = |(value, _): &(Value, Slot)| matches!(value, Value::Batch(_));
        let held = self.held.iter();
        held.filter(|entry| batch(entry)).map(|(v, _)| *v).collect()
    }

    /// Records a read. When it was requested, everything below `known` was known to be decided.
    pub(crate) fn asks(&mut self, token: ReadToken, known: Slot) {
        self.reads.insert(token, known);
    }

    /// Removes a read that was answered or never will be. Returns the slot below which everything
    /// was known to be decided when the read was requested.
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

    /// [snap-5] Returns whether retained bytes may be missing. If content was learned without its
    /// bytes and is not applied yet, it is unknown whether the bytes will be retained.
    pub(crate) fn lacks(&self) -> bool {
        !self.lack.is_empty() || self.disk.bare_to() > self.applied.to()
    }

    /// Returns whether `value` is complete in the slots of `range`, because all its bytes are in
    /// memory or none are needed.
    pub fn holds(&self, value: &Value, range: SlotRange) -> bool {
        self.held_of(value, range) == range
    }

    /// Returns the first part of `range` for which `value` is complete. In content, the part that
    /// needs no bytes is separated from the part whose bytes are present, because the two parts are
    /// recorded separately.
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

    /// [stream-4] Returns the end of the first part of `range` that is a no-op whatever is decided
    /// before it. This follows from the table, or from an earlier record made when the table had
    /// advanced further.
    fn needless_to(&self, value: &Value, range: SlotRange) -> Slot {
        let Value::Content { stream, offset } = *value else {
            return range.from;
        };
        if offset > range.from.0 {
            // The slot has no position in the stream yet. The position is established only when the
            // slot is applied.
            return range.from;
        }
        let needed = self.applied.table().may_append(stream, offset, range);
        let from = streams::position(offset, range.from);
        let table = range.from.plus(needed.start.saturating_sub(from));
        let known = |slot: &Slot| *slot < table || self.disk.needed_no_bytes(*slot, value);
        let slots = (range.from.0..range.to.0).map(Slot);
        range.from.plus(slots.take_while(known).count() as u64)
    }

    /// Queues a fetch of the value's bytes. Fetches for the same content value are merged into one
    /// range.
    pub(crate) fn queue_fetch(&mut self, value: Value, range: SlotRange) {
        let same = |(known, _): &&mut (Value, SlotRange)| *known == value && value.may_span();
        if let Some((_, known)) = self.fetches.iter_mut().find(same) {
            known.from = known.from.min(range.from);
            known.to = known.to.max(range.to);
        } else if !self.fetches.contains(&(value, range)) {
            self.fetches.push((value, range));
        }
    }

    /// Removes and returns the next part of the fetched content that is now complete.
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

    /// Drops fetches of content below a decided slot.
    pub(crate) fn forget_fetches(&mut self, slot: Slot) {
        for (value, range) in &mut self.fetches {
            if value.may_span() {
                range.from = range.from.max(slot);
            }
        }
        self.fetches.retain(|(_, range)| !range.is_empty());
    }

    /// Returns the first slot in `range` for which a record must include the bytes of `value`, or
    /// `None` if any of those bytes are missing. Earlier slots need no bytes and get a separate
    /// record.
    pub(crate) fn recorded(&self, value: &Value, range: SlotRange) -> Option<Slot> {
        let from = self.needless_to(value, range);
        let here = |slot| self.held.contains(&Self::key(value, Slot(slot)));
        (!value.has_bytes() || (from.0..range.to.0).all(here)).then_some(from)
    }

    /// Returns whether the bytes of `value` in `slot` can be sent to another node.
    pub(crate) fn can_give(&self, value: &Value, slot: Slot) -> bool {
        self.held.contains(&Self::key(value, slot)) || self.disk.has_bytes(slot, value)
    }

    /// Splits these slots at the points where the bytes of `value` become available or unavailable
    /// for sending.
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

    /// Returns whether this site has the decided value of `slot`.
    fn knows(&self, slot: Slot) -> bool {
        self.decided.iter().any(|(range, _)| range.contains(slot))
    }

    /// Returns whether another node could learn from this site that `slot` chose `value`.
    pub fn can_tell(&self, slot: Slot, value: &Value) -> bool {
        let Some(node) = &self.node else { return false };
        let vote = node.acceptor().vote(slot);
        let voted = vote.is_some_and(|vote| vote.value == *value);
        let bytes = self.holds(value, SlotRange::one(slot)) || self.disk.has_bytes(slot, value);
        let told = (voted || self.knows(slot)) && bytes;
        told || (slot < self.disk.log_start() && !node.is_hollow())
    }

    /// Returns the highest ballot that this member remembers having promised.
    pub(crate) fn voted_before(&self) -> Ballot {
        let promised = |record: &Record| match record {
            Record::Promise { ballot } | Record::Vote { ballot, .. } => *ballot,
            Record::Round { .. } | Record::Decided { .. } => Ballot::ZERO,
        };
        let entries = &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..];
        let ballots = entries.iter().map(|entry| promised(&entry.record));
        ballots.max().unwrap_or_default()
    }

    /// Returns the highest vote in each slot that this member remembers.
    pub(crate) fn cast(&self) -> BTreeMap<Slot, (Ballot, Value)> {
        let mut cast = BTreeMap::new();
        for entry in &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..] {
            if let Record::Vote { ballot, range, value } = entry.record {
                for slot in range.from.0..range.to.0 {
                    cast.insert(Slot(slot), (ballot, value));
                }
            }
        }
        // [offload-8] A vote of the device counts as this member's vote.
        for (slot, (ballot, value)) in &self.device_cast {
            let known = cast.get(slot).map(|(ballot, _)| *ballot);
            if self.device_of == self.member && known.is_none_or(|known| known < *ballot) {
                cast.insert(*slot, (*ballot, *value));
            }
        }
        cast
    }
}
