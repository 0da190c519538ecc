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
    streams::{self, applied::AppliedStreams, offering::LeaderOffering},
};

/// The machine of a node, on which processes run in sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The node that runs on this machine, in its current incarnation.
    pub member: Member,
    /// The device of the node, which may outlive the node's process.
    pub device: Device,
    /// The member that the device votes for.
    pub device_member: Member,
    /// Votes that the device cast for that member.
    pub(crate) device_votes: BTreeMap<Slot, (Ballot, Value)>,
    /// The running process; `None` while the node is down.
    pub node: Option<Node>,
    pub disk: Disk,
    /// Number of the running process, counted across all nodes.
    pub process_number: u64,
    /// Index of the first log entry that has not been forgotten ([volatile-1]).
    pub memory_from: usize,
    /// Bytes in memory. Those of a batch are listed under slot 0; those of a stream under offset 0,
    /// with the position as the slot.
    held_bytes: BTreeSet<(Value, Slot)>,
    /// State applied from the decided values.
    pub applied_streams: AppliedStreams,
    /// State of the leader's choice of the stream bytes to propose.
    pub stream_offering: LeaderOffering,
    /// Decided values, in slot order.
    decided_values: Vec<(SlotRange, Value)>,
    decided_to: Slot,
    /// The group's time, which follows from the decided values.
    pub group_time: GroupTime,
    /// Values and slots whose bytes the node requested from the caller.
    pub queued_fetches: Vec<(Value, SlotRange)>,
    /// Catch-up requests from peers.
    pub queued_catchups: Vec<(NodeId, SlotRange)>,
    /// Start of the log that an auxiliary requested; `None` if there is no such request ([trim-1]).
    pub forget_request: Option<Slot>,
    /// Node that reported that the missing slots are available only as a snapshot.
    pub snapshot_source: Option<NodeId>,
    pub storage_failed: bool,
    /// Indexes of the sites connected to this one, as reported to this node.
    pub connected_sites: BTreeSet<usize>,
    /// Time at which the node requested to be woken next.
    pub wake_time: Time,
    pending_reads: BTreeMap<ReadToken, Slot>,
    /// The last read that was confirmed.
    pub last_confirmed_read: Option<ReadToken>,
    /// [snap-5] Missing bytes of content that was learned on this node without them.
    pub missing_bytes: BTreeSet<(StreamName, u64)>,
    /// A value is being learned without its bytes.
    pub is_learning_without_bytes: bool,
    /// Most recent notification to the node of whether bytes are missing.
    pub last_reported_missing: bool,
    /// State of other nodes' logs, as they reported it ([lie-2]).
    pub rollback_detector: RollbackDetector,
    /// The disk lost records that the site had reported to others, and no peer has reminded the
    /// site yet.
    pub was_rolled_back: bool,
    /// [lie-5] A peer reminded the process of the lost records, so the next process starts a new
    /// incarnation.
    pub needs_new_incarnation: bool,
}

impl Site {
    pub(crate) fn new(member: Member) -> Self {
        Self {
            member,
            device: Device::default(),
            device_member: member,
            device_votes: BTreeMap::new(),
            node: None,
            disk: Disk::default(),
            process_number: 0,
            memory_from: 0,
            held_bytes: BTreeSet::new(),
            applied_streams: AppliedStreams::default(),
            stream_offering: LeaderOffering::default(),
            decided_values: Vec::new(),
            decided_to: Slot::FIRST,
            group_time: GroupTime::START,
            queued_fetches: Vec::new(),
            queued_catchups: Vec::new(),
            forget_request: None,
            snapshot_source: None,
            storage_failed: false,
            connected_sites: BTreeSet::new(),
            wake_time: Time(0),
            pending_reads: BTreeMap::new(),
            last_confirmed_read: None,
            missing_bytes: BTreeSet::new(),
            is_learning_without_bytes: false,
            last_reported_missing: false,
            rollback_detector: RollbackDetector::default(),
            was_rolled_back: false,
            needs_new_incarnation: false,
        }
    }

    /// Drops the process and its state in memory.
    pub(crate) fn drop_process(&mut self) {
        self.storage_failed = false;
        self.connected_sites.clear();
        self.queued_fetches.clear();
        self.queued_catchups.clear();
        self.forget_request = None;
        self.snapshot_source = None;
        self.pending_reads.clear();
        self.stream_offering = LeaderOffering::default();
        self.rollback_detector = RollbackDetector::default();
    }

    /// [lie-1] Returns the end of the log on stable storage, as this site reports it to other
    /// nodes.
    pub(crate) fn log_end(&self) -> Memory {
        let to = self.disk.persisted_count() as u64;
        Memory { log_end: LogEnd { incarnation: self.member.incarnation, last_write: to }, boot: 0 }
    }

    /// Rebuilds what a new process has in memory from the log: bytes and decided values.
    pub(crate) fn rebuild_memory(&mut self, decided: Vec<(SlotRange, Value)>, decided_to: Slot) {
        // Bytes that are not in the log are lost.
        self.held_bytes.clear();
        self.applied_streams = AppliedStreams::default();
        self.missing_bytes.clear();
        self.last_reported_missing = false;
        let sound = self.disk.entries().iter();
        let sound = sound.filter(|entry| !entry.is_lost);
        let records: Vec<(Record, Slot)> =
            sound.map(|entry| (entry.record, entry.bytes_from)).collect();
        for (record, from) in records {
            if let Record::Vote { range, value, .. } | Record::Decided { range, value } = record {
                self.hold_bytes(&value, SlotRange::new(range.from.max(from), range.to));
            }
        }
        self.decided_to = decided_to;
        self.decided_values = decided;
        self.group_time = GroupTime::START;
        for (_, value) in &self.decided_values {
            if let Value::Now { ms } = value {
                self.group_time.apply(*ms);
            }
        }
    }

    pub(crate) fn decided_values(&self) -> &[(SlotRange, Value)] {
        &self.decided_values
    }

    /// Returns the decided value of `slot`, if this site has it.
    pub(crate) fn decided_value(&self, slot: Slot) -> Option<Value> {
        let run = self.decided_values.iter().find(|(range, _)| range.contains(slot));
        run.map(|(_, value)| *value)
    }

    pub(crate) fn decided_to(&self) -> Slot {
        self.decided_to
    }

    /// Returns the values from the start of the log to `to`, in slot order; `None` if any of them
    /// is unknown.
    pub(crate) fn decided_history(&self, to: Slot) -> Option<Vec<(Slot, Value)>> {
        let value = |slot: Slot| Some((slot, self.decided_value(slot)?));
        (self.disk.log_start().0..to.0).map(|at| value(Slot(at))).collect()
    }

    /// [trim-1] Moves the start of the log. No snapshot covers the slots below.
    pub(crate) fn forget_below(&mut self, start: Slot, known: Eras) {
        self.disk.forget_below(start, known);
        self.set_log_start(start);
    }

    /// Records that a snapshot now covers everything below the start of the log.
    pub(crate) fn move_to_snapshot(&mut self, start: Slot, eras: Eras) {
        self.disk.move_to_snapshot(start, eras);
        self.set_log_start(start);
    }

    fn set_log_start(&mut self, start: Slot) {
        for (range, _) in &mut self.decided_values {
            range.from = range.from.max(start);
        }
        self.decided_values.retain(|(range, _)| !range.is_empty());
        // [snap-3] Requests that were queued earlier are no longer served from slots below the
        // start of the log.
        for (_, range) in &mut self.queued_catchups {
            *range = SlotRange::new(range.from.max(start), range.to.max(start));
        }
        self.queued_catchups.retain(|(_, range)| !range.is_empty());
        self.decided_to = self.decided_to.max(start);
        self.snapshot_source = None;
    }

    /// Wipes the machine, which becomes that of a new node.
    pub(crate) fn wipe(&mut self, node: NodeId) {
        *self = Self {
            process_number: self.process_number,
            device: Device::new(self.device.cell_count()),
            ..Self::new(Member::first(node.0))
        };
    }

    /// Records a range that the node reports as decided. Returns the previous end of the decided
    /// slots.
    pub(crate) fn record_decided(&mut self, range: SlotRange, value: Value) -> Slot {
        // [disk-8] Slots that the log holds after a lost range are not reported again.
        while self.decided_to < range.from && self.knows_decided(self.decided_to) {
            self.decided_to = self.decided_to.next();
        }
        let before = self.decided_to;
        self.decided_values.push((range, value));
        self.decided_to = range.to;
        before
    }

    /// Returns the bytes of `value` that are in memory.
    pub(crate) fn bytes_of(&self, value: Value) -> impl Iterator<Item = (Value, Slot)> + '_ {
        let all = self.held_bytes.iter().copied();
        let (same, _) = Self::key(&value, Slot(0));
        all.filter(move |(held, _)| *held == same)
    }

    /// Returns whether this byte can be read from memory or the log.
    pub(crate) fn has_byte(&self, byte: (StreamName, u64)) -> bool {
        !self.missing_bytes.contains(&byte)
            && (self.held_bytes.contains(&Self::byte_key(byte)) || self.disk.has_byte(byte))
    }

    /// Stores received bytes of batches.
    pub(crate) fn store_batch_bytes(&mut self, bytes: Vec<(Value, Slot)>) {
        self.held_bytes.extend(bytes);
    }

    /// Receives bytes of a stream, and stores those that may still be applied.
    pub(crate) fn store_stream_bytes(&mut self, stream: StreamName, from: u64, to: u64) {
        let next = self.applied_streams.table().next_position(stream).unwrap_or(0);
        let bytes = (from.max(next)..to).map(|at| Self::byte_key((stream, at)));
        self.held_bytes.extend(bytes);
    }

    /// Receives one byte of a stream, and stores it if it may still be applied.
    pub(crate) fn store_stream_byte(&mut self, (stream, position): (StreamName, u64)) {
        if self.applied_streams.table().next_position(stream).is_none_or(|next| position >= next) {
            self.held_bytes.insert(Self::byte_key((stream, position)));
        }
    }

    /// Returns the end of a stream's contiguous bytes in memory, from `position` on, but at most
    /// `most`.
    pub fn contiguous_bytes_end(&self, stream: StreamName, position: u64, most: u64) -> u64 {
        let here = |at: &u64| self.held_bytes.contains(&Self::byte_key((stream, *at)));
        position + (position..most).take_while(here).count() as u64
    }

    /// Drops the bytes of this stream below `next`. They have been applied or never will be.
    pub(crate) fn drop_stream_bytes(&mut self, stream: StreamName, next: u64) {
        let (same, next) = Self::byte_key((stream, next));
        self.held_bytes.retain(|(held, at)| *held != same || *at >= next);
    }

    /// Returns the batches whose bytes are in memory.
    pub(crate) fn held_batches(&self) -> Vec<Value> {
        let batch = |(value, _): &(Value, Slot)| matches!(value, Value::Batch(_));
        let held = self.held_bytes.iter();
        held.filter(|entry| batch(entry)).map(|(v, _)| *v).collect()
    }

    /// Records a read. When it was requested, everything below `known` was known to be decided.
    pub(crate) fn record_read(&mut self, token: ReadToken, known: Slot) {
        self.pending_reads.insert(token, known);
    }

    /// Removes a read that was answered or never will be. Returns the slot below which everything
    /// was known to be decided when the read was requested.
    pub(crate) fn end_read(&mut self, token: ReadToken) -> Option<Slot> {
        self.pending_reads.remove(&token)
    }

    fn key(value: &Value, slot: Slot) -> (Value, Slot) {
        match *value {
            Value::Content { stream, offset } => {
                Self::byte_key((stream, streams::stream_position(offset, slot)))
            }
            _ => (*value, Slot(0)),
        }
    }

    fn byte_key((stream, position): (StreamName, u64)) -> (Value, Slot) {
        let offset = 0;
        (Value::Content { stream, offset }, Slot(position))
    }

    /// [snap-5] Returns whether retained bytes may be missing. If content was learned without its
    /// bytes and is not applied yet, it is unknown whether the bytes will be retained.
    pub(crate) fn may_lack_bytes(&self) -> bool {
        !self.missing_bytes.is_empty()
            || self.disk.learned_without_bytes_to() > self.applied_streams.applied_to()
    }

    /// Returns whether `value` is complete in the slots of `range`, because all its bytes are in
    /// memory or none are needed.
    pub fn holds_bytes(&self, value: &Value, range: SlotRange) -> bool {
        self.complete_prefix(value, range) == range
    }

    /// Returns the first part of `range` for which `value` is complete. In content, the part that
    /// needs no bytes is separated from the part whose bytes are present, because the two parts are
    /// recorded separately.
    pub fn complete_prefix(&self, value: &Value, range: SlotRange) -> SlotRange {
        let needless = self.no_op_prefix_end(value, range);
        if needless > range.from {
            return SlotRange::new(range.from, needless);
        }
        let slots = (range.from.0..range.to.0).map(Slot);
        let missing = |slot: &Slot| !self.held_bytes.contains(&Self::key(value, *slot));
        let to = slots.into_iter().find(|slot| value.has_bytes() && missing(slot));
        SlotRange::new(range.from, to.unwrap_or(range.to))
    }

    /// [stream-4] Returns the end of the first part of `range` that is a no-op whatever is decided
    /// before it. This follows from the table, or from an earlier record made when the table had
    /// advanced further.
    fn no_op_prefix_end(&self, value: &Value, range: SlotRange) -> Slot {
        let Value::Content { stream, offset } = *value else {
            return range.from;
        };
        if offset > range.from.0 {
            // The slot has no position in the stream yet. The position is established only when the
            // slot is applied.
            return range.from;
        }
        let needed = self.applied_streams.table().appendable(stream, offset, range);
        let from = streams::stream_position(offset, range.from);
        let table = range.from.plus(needed.start.saturating_sub(from));
        let known =
            |slot: &Slot| *slot < table || self.disk.is_recorded_without_bytes(*slot, value);
        let slots = (range.from.0..range.to.0).map(Slot);
        range.from.plus(slots.take_while(known).count() as u64)
    }

    /// Queues a fetch of the value's bytes. Fetches for the same content value are merged into one
    /// range.
    pub(crate) fn queue_fetch(&mut self, value: Value, range: SlotRange) {
        let same = |(known, _): &&mut (Value, SlotRange)| *known == value && value.may_span();
        if let Some((_, known)) = self.queued_fetches.iter_mut().find(same) {
            known.from = known.from.min(range.from);
            known.to = known.to.max(range.to);
        } else if !self.queued_fetches.contains(&(value, range)) {
            self.queued_fetches.push((value, range));
        }
    }

    /// Removes and returns the next part of the fetched content that is now complete.
    pub(crate) fn take_complete_fetch(&mut self, value: &Value) -> Option<SlotRange> {
        let spans = value.may_span();
        let at = self.queued_fetches.iter().position(|(known, _)| spans && known == value)?;
        let held = self.complete_prefix(value, self.queued_fetches[at].1);
        if held.is_empty() {
            return None;
        }
        self.queued_fetches[at].1.from = held.to;
        if self.queued_fetches[at].1.is_empty() {
            self.queued_fetches.remove(at);
        }
        Some(held)
    }

    /// Drops fetches of content below a decided slot.
    pub(crate) fn forget_fetches(&mut self, slot: Slot) {
        for (value, range) in &mut self.queued_fetches {
            if value.may_span() {
                range.from = range.from.max(slot);
            }
        }
        self.queued_fetches.retain(|(_, range)| !range.is_empty());
    }

    /// Returns the first slot in `range` for which a record must include the bytes of `value`, or
    /// `None` if any of those bytes are missing. Earlier slots need no bytes and get a separate
    /// record.
    pub(crate) fn first_slot_with_bytes(&self, value: &Value, range: SlotRange) -> Option<Slot> {
        let from = self.no_op_prefix_end(value, range);
        let here = |slot| self.held_bytes.contains(&Self::key(value, Slot(slot)));
        (!value.has_bytes() || (from.0..range.to.0).all(here)).then_some(from)
    }

    /// Returns whether the bytes of `value` in `slot` can be sent to another node.
    pub(crate) fn can_send_bytes(&self, value: &Value, slot: Slot) -> bool {
        self.held_bytes.contains(&Self::key(value, slot)) || self.disk.has_bytes(slot, value)
    }

    /// Splits these slots at the points where the bytes of `value` become available or unavailable
    /// for sending.
    pub(crate) fn split_by_availability(
        &self,
        range: SlotRange,
        value: Value,
    ) -> Vec<(SlotRange, Value, bool)> {
        let mut parts: Vec<(SlotRange, Value, bool)> = Vec::new();
        for slot in (range.from.0..range.to.0).map(Slot) {
            let bytes = value.has_bytes() && self.can_send_bytes(&value, slot);
            match parts.last_mut() {
                Some((part, _, same)) if *same == bytes => part.to = slot.next(),
                _ => parts.push((SlotRange::one(slot), value, bytes)),
            }
        }
        parts
    }

    pub(crate) fn hold_bytes(&mut self, value: &Value, range: SlotRange) {
        if value.has_bytes() {
            for slot in range.from.0..range.to.0 {
                self.held_bytes.insert(Self::key(value, Slot(slot)));
            }
        }
    }

    /// Returns whether this site has the decided value of `slot`.
    fn knows_decided(&self, slot: Slot) -> bool {
        self.decided_values.iter().any(|(range, _)| range.contains(slot))
    }

    /// Returns whether another node could learn from this site that `slot` chose `value`.
    pub fn can_teach(&self, slot: Slot, value: &Value) -> bool {
        let Some(node) = &self.node else { return false };
        let vote = node.acceptor().vote(slot);
        let voted = vote.is_some_and(|vote| vote.value == *value);
        let bytes =
            self.holds_bytes(value, SlotRange::one(slot)) || self.disk.has_bytes(slot, value);
        let told = (voted || self.knows_decided(slot)) && bytes;
        told || (slot < self.disk.log_start() && !node.is_hollow())
    }

    /// Returns the highest ballot that this member remembers having promised.
    pub(crate) fn remembered_promise(&self) -> Ballot {
        let promised = |record: &Record| match record {
            Record::Promise { ballot } | Record::Vote { ballot, .. } => *ballot,
            Record::Round { .. } | Record::Decided { .. } => Ballot::ZERO,
        };
        let entries = &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..];
        let ballots = entries.iter().map(|entry| promised(&entry.record));
        ballots.max().unwrap_or_default()
    }

    /// Returns the highest vote in each slot that this member remembers.
    pub(crate) fn highest_votes(&self) -> BTreeMap<Slot, (Ballot, Value)> {
        let mut cast = BTreeMap::new();
        for entry in &self.disk.entries()[self.memory_from.min(self.disk.entries().len())..] {
            if let Record::Vote { ballot, range, value } = entry.record {
                for slot in range.from.0..range.to.0 {
                    cast.insert(Slot(slot), (ballot, value));
                }
            }
        }
        // [offload-8] A vote of the device counts as this member's vote.
        for (slot, (ballot, value)) in &self.device_votes {
            let known = cast.get(slot).map(|(ballot, _)| *ballot);
            if self.device_member == self.member && known.is_none_or(|known| known < *ballot) {
                cast.insert(*slot, (*ballot, *value));
            }
        }
        cast
    }
}
