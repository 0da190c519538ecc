//! Store of decided stream bytes: writes, reads, and recovery of bytes that this node lacks.
//!
//! The store lags behind the log: applied bytes are put into the store, and a checkpoint makes them
//! independent of the log. After a restart the log is replayed from the last checkpoint; putting
//! bytes again is harmless. Then the retained bytes that the store lacks are fetched from peers by
//! position: a node that installed a snapshot has the table of streams, but none of the bytes
//! ([snap-5]). No record contains fetched bytes, so they count as available only once a checkpoint
//! covers them ([here-1], [here-2]).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use quorate_core::{
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::{StreamName, Value},
};
use quorate_log::disk::{Blocks, Completed, Disk};
use quorate_log::{ValueBytes, Values};
use quorate_stream::{
    InnerStreamChange, Table,
    store::{Layout, ReadDone, ReadError, Store, StoredPlace, UnitBytes},
};
use quorate_wire::{Frame, Lane};

use crate::{
    applying::applier::AppendedBytes,
    contents::stream_positions,
    outbox::Outbox,
    ports::stream_front::StreamTag,
    streaming::holding::{BackupHold, NotRead, StreamHold},
    wake::earliest_time,
};

/// Maximum number of reads that wait for the store's queue.
const READS_WAITING_MAX: usize = 1024;
/// Maximum number of requests for missing bytes in flight.
const REQUESTS_MAX: u64 = 16;
/// Maximum size of a reply to a request for missing bytes. No chunk of a store is smaller, and a
/// read never crosses the end of its chunk.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Delay in milliseconds before a store that lacks free space or file descriptors retries.
const SHORTAGE_RETRY_MS: u64 = 20;
/// Interval in milliseconds between checks for missing bytes.
const CHECK_INTERVAL_MS: u64 = 50;
/// Minimum interval in milliseconds between checkpoints for bytes that no record contains, since
/// each checkpoint writes a whole catalogue.
const CHECKPOINT_INTERVAL_MS: u64 = 1000;

/// Recipient of bytes read from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadRecipient {
    Front(StreamTag),
    Peer(NodeId),
    /// The backup with this request number.
    Backup(u64),
    /// The scrub, which checks stored bytes for damage.
    Scrub,
}

#[derive(Debug)]
pub(crate) enum Fetched {
    Bytes(Blocks),
    /// This node does not have the bytes now, but another node may.
    NotHere,
}

#[derive(Debug)]
struct WaitingRead {
    reader: ReadRecipient,
    stream: StreamName,
    position: u64,
    bytes_max: usize,
}

/// Bytes that are retained according to the table but missing from the store.
#[derive(Debug, Default)]
struct MissingBytes {
    ranges: VecDeque<(StreamName, Range<u64>)>,
    /// End of the requested positions in the first missing range.
    requested_to: u64,
    /// Peer that last sent missing bytes. The next request goes to it.
    last_source: Option<NodeId>,
    /// Number of failed requests for the first missing byte.
    failed_requests: usize,
    /// A request for the first missing byte is in flight.
    is_requested: bool,
    next_request_at: Time,
    next_check_at: Time,
    /// `ranges` is out of date and must be recomputed from the table and the store.
    is_outdated: bool,
}

/// [here-1] Stored bytes that no log record contains. A restart finds them only through the
/// catalogue.
#[derive(Debug, Default)]
struct UnrecordedBytes {
    /// Number of fetched bytes put into the store since the last checkpoint began.
    fetched_bytes: u64,
    /// Number of fetched bytes that the checkpoint in progress covers.
    saving_bytes: u64,
    /// Slot below which content may have been learned without its bytes, even if they arrived
    /// later.
    without_bytes_to: Slot,
    /// Earliest time of the next checkpoint for these bytes.
    save_at: Time,
}

/// The store of streams, with the reads and fetches in progress.
pub(crate) struct StreamStorage {
    store: Store,
    unrecorded: UnrecordedBytes,
    /// Result of [`StreamStorage::may_lack_bytes`] that was last reported to the core.
    is_reported_lacking: bool,
    /// The store has the bytes of all decided slots below this one.
    stored_to: Slot,
    replay_to: Slot,
    readers: BTreeMap<u64, ReadRecipient>,
    waiting_reads: VecDeque<WaitingRead>,
    next_token: u64,
    missing: MissingBytes,
    retry_ms: u64,
    /// The table may lack streams of the store until all slots below this one are applied.
    known_to: Option<Slot>,
    /// Changes of streams that take effect once everything below the given slots is applied. Open
    /// votes may refer to bytes that the changes free, and a restart would count a vote whose bytes
    /// are lost as forgotten ([trim-4]).
    deferred_changes: VecDeque<(Slot, InnerStreamChange)>,
    /// Time at which a store that lacks a resource retries.
    retry_at: Option<Time>,
    /// A backup's hold on retained bytes, which delays their release.
    backup_hold: BackupHold,
    /// Results of reads for backups.
    backup_reads: VecDeque<(u64, Result<Vec<u8>, NotRead>)>,
    /// A read for a scrub is in flight.
    has_scrub_read: bool,
    scrub_result: Option<ReadDone>,
}

impl StreamStorage {
    /// Creates the state around an open store that has claimed the places to which the log refers.
    /// The service, and with it the table, is at `applied_to`. The log covers the slots from
    /// `log_start` to `log_end`. Content below `bare_to` may have been learned without its bytes.
    pub(crate) fn new(
        store: Store,
        (log_start, log_end): (Slot, Slot),
        bare_to: Slot,
        applied_to: Slot,
        streams: &Table,
        retry_ms: u64,
    ) -> Self {
        let mut keeping = Self {
            unrecorded: UnrecordedBytes { without_bytes_to: bare_to, ..UnrecordedBytes::default() },
            is_reported_lacking: false,
            stored_to: applied_to,
            replay_to: applied_to,
            readers: BTreeMap::new(),
            waiting_reads: VecDeque::new(),
            next_token: 0,
            missing: MissingBytes { is_outdated: true, ..MissingBytes::default() },
            retry_ms,
            known_to: Some(log_end.max(store.checkpointed_to())),
            deferred_changes: VecDeque::new(),
            retry_at: None,
            backup_hold: BackupHold::default(),
            backup_reads: VecDeque::new(),
            has_scrub_read: false,
            scrub_result: None,
            store,
        };
        keeping.begin_replay(log_start, applied_to, streams);
        keeping
    }

    /// Starts a replay of the applied slots, those below `at`, from the last checkpoint on: the
    /// store may lack their bytes. Slots below `log_start` are no longer in the log.
    fn begin_replay(&mut self, log_start: Slot, at: Slot, streams: &Table) {
        let from = self.store.checkpointed_to().max(log_start);
        // Without streams there are no bytes to put.
        let nothing = streams.is_empty();
        self.stored_to = if nothing { at } else { from.min(at) };
        self.replay_to = at;
    }

    /// Returns the slots that must be replayed before other bytes are put into the store.
    pub(crate) fn replay_range(&self) -> Option<SlotRange> {
        (self.stored_to < self.replay_to).then(|| SlotRange::new(self.stored_to, self.replay_to))
    }

    /// Puts values, as read from the log, into the store.
    pub(crate) fn store_replayed<D: Disk>(
        &mut self,
        values: Values,
        streams: &Table,
        disk: &mut D,
    ) {
        for (range, value, body) in values {
            if range.from > self.stored_to || range.to <= self.stored_to {
                continue;
            }
            // Placed bytes need no replay: they were claimed when the store was opened.
            if let Value::Content { stream, offset } = value
                && let ValueBytes::Bytes(bytes) = body
                && streams.is_retained(stream)
                && bytes.len() as u64 == range.len()
            {
                let position = stream_positions(offset, range).start;
                self.store.put_bytes(stream, position, &bytes, disk);
            }
            self.stored_to = range.to.min(self.replay_to);
        }
    }

    /// Skips slots that the log no longer has. Their content is fetched by position.
    pub(crate) fn skip_replay(&mut self) {
        self.stored_to = self.replay_to;
        self.missing.is_outdated = true;
    }

    /// Returns whether there is space for the bytes of further slots, so that these may be applied.
    pub(crate) fn has_room(&self) -> bool {
        self.replay_range().is_none() && (self.store.failure().is_some() || self.store.has_room())
    }

    /// Returns why the store has stopped writing, if it has.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.store.failure()
    }

    /// Returns whether the store accepts only bytes that are already in flight, because the
    /// remaining free space is reserved for commands.
    pub(crate) fn is_full(&self) -> bool {
        self.store.is_full()
    }

    /// Returns the resource that the store has run out of, if any.
    pub(crate) fn shortage(&self) -> Option<&str> {
        self.store.shortage()
    }

    /// Processes the slots applied below `applied_to`: appended bytes, and changes of streams.
    pub(crate) fn process_applied<D: Disk>(
        &mut self,
        (applied_to, voted_to): (Slot, Slot),
        appended: Vec<AppendedBytes>,
        changes: Vec<InnerStreamChange>,
        disk: &mut D,
    ) {
        for one in appended {
            let position = one.position + one.skipped_bytes;
            let end = one.position + one.length;
            match one.bytes {
                Some(bytes) => {
                    let skip = usize::try_from(one.skipped_bytes).unwrap_or(usize::MAX);
                    let bytes = bytes.get(skip..).unwrap_or_default();
                    self.store.put_bytes(one.stream, position, bytes, disk);
                }
                // The bytes were placed; bytes that were damaged since then must be fetched.
                None => {
                    self.missing.is_outdated |=
                        self.store.held_contiguous_to(one.stream, position) < end;
                }
            }
        }
        // After a snapshot was loaded, a change may remove bytes that seemed to be missing: a
        // checkpoint ahead of the snapshot lacks streams that were removed in between.
        self.missing.is_outdated |= !changes.is_empty() && !self.missing.ranges.is_empty();
        self.deferred_changes.extend(changes.into_iter().map(|change| (voted_to, change)));
        while let Some((_, change)) =
            self.deferred_changes.pop_front_if(|(slot, _)| *slot <= applied_to)
        {
            match change {
                InnerStreamChange::Trimmed { .. } | InnerStreamChange::Removed { .. }
                    if self.backup_hold.is_holding() =>
                {
                    self.backup_hold.postpone_release();
                }
                InnerStreamChange::Trimmed { stream, below } => {
                    self.store.drop_below(stream, below)
                }
                InnerStreamChange::Removed { stream } => self.store.remove_stream(stream),
                // Bytes placed beyond the final end of the stream are useless.
                InnerStreamChange::Closed { stream, end } => self.store.drop_above(stream, end),
            }
        }
        if self.replay_range().is_none() {
            self.stored_to = self.stored_to.max(applied_to);
            self.replay_to = self.stored_to;
        }
        let known = self.known_to.take_if(|known_to| *known_to <= applied_to);
        self.missing.is_outdated |= known.is_some();
    }

    /// [disk-5] Starts writing whole units of a stream immediately. Returns `false` if that is not
    /// possible now, so that the record must contain the bytes.
    pub(crate) fn place_units<D: Disk>(
        &mut self,
        stream: StreamName,
        position: u64,
        bulk: UnitBytes<'_>,
        disk: &mut D,
    ) -> bool {
        self.can_place_units() && self.store.place_units(stream, position, bulk, disk)
    }

    /// Returns whether units may be placed now: no replay is in progress, and there is free space.
    pub(crate) fn can_place_units(&self) -> bool {
        self.replay_range().is_none()
            && self.store.failure().is_none()
            && self.store.shortage().is_none()
            && !self.store.is_full()
    }

    pub(crate) fn layout(&self) -> Layout {
        self.store.layout()
    }

    /// Takes the next placed bytes that reached stable storage.
    pub(crate) fn next_placed(&mut self) -> Option<(StreamName, Range<u64>)> {
        self.store.next_durable_placed()
    }

    /// Returns the places of the bytes at `positions` for a record; empty if they are not durable.
    pub(crate) fn encoded_places(&self, stream: StreamName, positions: Range<u64>) -> Vec<u8> {
        let places = self.store.places(stream, positions);
        places.map_or_else(Vec::new, |places| StoredPlace::encode_all(&places))
    }

    /// Records that a snapshot replaced the state below `at`. Retained bytes of streams are either
    /// still in the log or must be fetched.
    pub(crate) fn on_loaded(&mut self, log_start: Slot, at: Slot, streams: &Table) {
        self.on_rollback();
        self.known_to.take_if(|known_to| *known_to <= at);
        self.begin_replay(log_start, at, streams);
        self.missing.is_outdated = true;
    }

    /// Handles a rollback of the service and its table to an earlier slot. Until every slot that
    /// the store covers is applied again, the table may not know all streams in the store.
    pub(crate) fn on_rollback(&mut self) {
        let was = self.known_to.unwrap_or_default().max(self.replay_to);
        self.known_to = Some(was);
    }

    /// Drops streams that the table does not know. Must not be called while the table is older than
    /// the store: unknown streams may have placed bytes that are in no log.
    fn forget_unknown(&mut self, streams: &Table) {
        let gone: Vec<StreamName> = self
            .store
            .streams()
            .map(|(stream, _)| stream)
            .filter(|stream| !streams.is_retained(*stream))
            .collect();
        for stream in gone {
            self.store.remove_stream(stream);
        }
    }

    /// [trim-2] Returns the slot below which the log may be trimmed as far as streams are
    /// concerned.
    pub(crate) fn kept_to(&self, streams: &Table) -> Slot {
        let nothing = streams.is_empty() && self.store.streams().next().is_none();
        match nothing {
            true => self.stored_to,
            false => self.store.checkpointed_to(),
        }
    }

    /// Starts a checkpoint. Once it is complete, the stored bytes no longer depend on the log.
    pub(crate) fn start_checkpoint<D: Disk>(&mut self, disk: &mut D) {
        if self.replay_range().is_none() && self.store.start_checkpoint(self.stored_to, disk) {
            self.unrecorded.saving_bytes = std::mem::take(&mut self.unrecorded.fetched_bytes);
        }
    }

    /// [here-2] Starts a checkpoint for bytes that no record contains, once no bytes are missing or
    /// enough chunks have accumulated.
    fn checkpoint_unrecorded<D: Disk>(&mut self, now: Time, disk: &mut D) {
        let due = self.store.justifies_checkpoint(self.unrecorded.fetched_bytes)
            || self.is_ready_to_checkpoint();
        if due && !self.store.is_checkpointing() && now >= self.unrecorded.save_at {
            self.unrecorded.save_at = now.plus_ms(CHECKPOINT_INTERVAL_MS);
            self.start_checkpoint(disk);
        }
    }

    /// Returns whether bytes that no record contains await a checkpoint and no more are expected.
    fn is_ready_to_checkpoint(&self) -> bool {
        let UnrecordedBytes { fetched_bytes: fetched, without_bytes_to: bare_to, .. } =
            self.unrecorded;
        let waits = fetched > 0 || self.store.checkpointed_to() < bare_to;
        waits
            && !self.may_miss_retained()
            && self.replay_range().is_none()
            && self.stored_to >= bare_to
    }

    pub(crate) fn on_completed<D: Disk>(&mut self, completed: Completed, disk: &mut D) {
        self.store.on_completed(completed, disk);
        if !self.store.is_checkpointing() && self.store.failure().is_none() {
            self.unrecorded.saving_bytes = 0;
        }
    }

    /// [here-1] Records that content decided below `to` was learned without its bytes.
    pub(crate) fn record_learned_without_bytes(&mut self, to: Slot) {
        self.unrecorded.without_bytes_to = self.unrecorded.without_bytes_to.max(to);
    }

    /// Reads retained bytes for a front. Returns `false` if too many reads are queued.
    pub(crate) fn read<D: Disk>(
        &mut self,
        tag: StreamTag,
        stream: StreamName,
        position: u64,
        bytes_max: usize,
        disk: &mut D,
    ) -> bool {
        self.read_for(ReadRecipient::Front(tag), stream, position, bytes_max, disk)
    }

    /// Reads bytes for a peer by position. Returns `false` if they are not in the store.
    pub(crate) fn read_for_peer<D: Disk>(
        &mut self,
        to: NodeId,
        stream: StreamName,
        position: u64,
        disk: &mut D,
    ) -> bool {
        if self.store.held_contiguous_to(stream, position) == position {
            return false;
        }
        // If too many reads are queued, the peer repeats its request.
        self.read_for(ReadRecipient::Peer(to), stream, position, REQUEST_BYTES_MAX, disk);
        true
    }

    fn read_for<D: Disk>(
        &mut self,
        reader: ReadRecipient,
        stream: StreamName,
        position: u64,
        bytes_max: usize,
        disk: &mut D,
    ) -> bool {
        if self.waiting_reads.len() >= READS_WAITING_MAX {
            return false;
        }
        self.waiting_reads.push_back(WaitingRead { reader, stream, position, bytes_max });
        self.start_reads(disk);
        true
    }

    fn start_reads<D: Disk>(&mut self, disk: &mut D) {
        while let Some(next) = self.waiting_reads.front() {
            let token = self.next_token;
            let (stream, position, most) = (next.stream, next.position, next.bytes_max);
            let started = self.store.start_read(token, stream, position, most, disk);
            if started.is_err() {
                return;
            }
            self.readers.insert(token, next.reader);
            self.next_token += 1;
            self.waiting_reads.pop_front();
        }
    }

    /// Continues all work, and sends fronts and peers the bytes that were read for them.
    pub(crate) fn continue_work<D: Disk>(
        &mut self,
        now: Time,
        disk: &mut D,
        out: &mut Outbox<'_>,
        mut tell: impl FnMut(StreamTag, Fetched),
    ) {
        self.store.advance(disk);
        self.backup_hold.end_if_over(now, self.store.is_full());
        if self.store.should_free_space() {
            self.start_checkpoint(disk);
        }
        self.checkpoint_unrecorded(now, disk);
        // The store does not report when space becomes free; it retries whenever it is called.
        let short = self.store.shortage().is_some() || self.store.is_checkpointing();
        self.retry_at = short.then(|| now.plus_ms(SHORTAGE_RETRY_MS));
        while let Some(done) = self.store.next_read() {
            let Some(reader) = self.readers.remove(&done.token) else {
                continue;
            };
            if let Err(ReadError::Corrupt { stream, range, .. }) = &done.result {
                // The damaged bytes are fetched from peers.
                self.store.drop_damaged(*stream, range.clone());
                self.missing.is_outdated = true;
            }
            if reader == ReadRecipient::Scrub {
                (self.has_scrub_read, self.scrub_result) = (false, Some(done));
                continue;
            }
            let ReadDone { stream, position, result, .. } = done;
            match (reader, result) {
                (ReadRecipient::Scrub, _) => {}
                (ReadRecipient::Front(tag), Ok(bytes)) => tell(tag, Fetched::Bytes(bytes)),
                (ReadRecipient::Front(tag), Err(_)) => tell(tag, Fetched::NotHere),
                (ReadRecipient::Peer(to), Ok(bytes)) => {
                    let frame = Frame::StreamBytes { stream, position, bytes: &bytes };
                    out.send(to, Lane::Bulk, &frame);
                }
                (ReadRecipient::Peer(_), Err(_)) => {}
                (ReadRecipient::Backup(asked), Ok(bytes)) => {
                    self.backup_reads.push_back((asked, Ok(bytes.to_vec())));
                }
                (ReadRecipient::Backup(asked), Err(_)) => {
                    self.backup_reads.push_back((asked, Err(NotRead::NotHere)));
                }
            }
        }
        self.start_reads(disk);
    }

    /// Returns whether the store may lack retained bytes.
    fn may_miss_retained(&self) -> bool {
        self.missing.is_outdated || !self.missing.ranges.is_empty()
    }

    /// [here-1] Returns whether this node may lack retained bytes, now or after a restart.
    pub(crate) fn may_lack_bytes(&self) -> bool {
        let UnrecordedBytes {
            fetched_bytes: fetched,
            saving_bytes: saving,
            without_bytes_to: bare_to,
            ..
        } = self.unrecorded;
        self.may_miss_retained() || fetched + saving > 0 || self.store.checkpointed_to() < bare_to
    }

    /// Returns [`StreamStorage::may_lack_bytes`] if its result has changed since the last call.
    pub(crate) fn take_lacking_change(&mut self) -> Option<bool> {
        let lacks = self.may_lack_bytes();
        let before = std::mem::replace(&mut self.is_reported_lacking, lacks);
        (before != lacks).then_some(lacks)
    }

    /// Returns the number of bytes that are known to be missing, now or after a restart.
    pub(crate) fn missing_bytes(&self) -> u64 {
        let ranges = self.missing.ranges.iter();
        let missing: u64 = ranges.map(|(_, range)| range.end - range.start).sum();
        missing + self.unrecorded.fetched_bytes + self.unrecorded.saving_bytes
    }

    /// Puts the missing ones among these bytes, which a peer sent by position, into the store.
    pub(crate) fn take_missing<D: Disk>(
        &mut self,
        now: Time,
        from: NodeId,
        (stream, position, bytes): (StreamName, u64, &[u8]),
        disk: &mut D,
    ) {
        let end = position.saturating_add(bytes.len() as u64);
        let known = self
            .missing
            .ranges
            .iter_mut()
            .find(|(name, range)| *name == stream && range.contains(&position));
        let Some((_, range)) = known else {
            return;
        };
        let end = end.min(range.end);
        let taken = usize::try_from(end - position).unwrap_or(usize::MAX);
        let new = self.store.missing(stream, position..end);
        self.unrecorded.fetched_bytes += new.iter().map(|part| part.end - part.start).sum::<u64>();
        self.store.put_bytes(stream, position, bytes.get(..taken).unwrap_or_default(), disk);
        range.start = self.store.held_contiguous_to(stream, range.start).min(range.end);
        self.missing.last_source = Some(from);
        self.missing.failed_requests = 0;
        self.missing.next_request_at = now.plus_ms(self.retry_ms);
        if self.missing.ranges.front().is_some_and(|(_, range)| range.is_empty()) {
            self.missing.ranges.pop_front();
            self.missing.requested_to = 0;
            self.missing.next_request_at = Time(0);
            self.missing.is_requested = false;
        }
    }

    /// Records that a peer does not have the requested bytes. The request goes to another of the
    /// `peers` connected peers at once, unless all of them have already answered so.
    pub(crate) fn on_missing_unavailable(&mut self, now: Time, stream: StreamName, peers: usize) {
        let first = self.missing.ranges.front();
        let wanted = self.missing.is_requested && first.is_some_and(|(name, _)| *name == stream);
        if wanted && !(self.missing.failed_requests + 1).is_multiple_of(peers.max(1)) {
            self.missing.next_request_at = now;
        }
    }

    /// Determines which bytes are missing, and requests them from peers.
    pub(crate) fn request_missing(
        &mut self,
        now: Time,
        streams: &Table,
        peers: &[NodeId],
        out: &mut Outbox<'_>,
    ) {
        if self.replay_range().is_some() {
            return;
        }
        if self.known_to.is_none() && self.is_table_recent() && self.backup_hold.take_postponed() {
            self.forget_unknown(streams);
            self.drop_trimmed(streams);
        }
        if !self.may_miss_retained() {
            return;
        }
        if self.missing.is_outdated
            || (now >= self.missing.next_check_at && self.missing.failed_requests > 0)
        {
            self.check_missing(now, streams);
        }
        let Some((stream, range)) = self.missing.ranges.front().cloned() else {
            return;
        };
        if peers.is_empty() {
            // Without this delay the request would be due in every turn.
            self.missing.next_request_at =
                self.missing.next_request_at.max(now.plus_ms(self.retry_ms));
            return;
        }
        if now >= self.missing.next_request_at {
            // No reply: request everything from the first missing byte on from another peer.
            self.missing.requested_to = range.start;
            self.missing.failed_requests += usize::from(self.missing.is_requested);
            self.missing.is_requested = true;
            self.missing.next_request_at = now.plus_ms(self.retry_ms);
        }
        let piece = REQUEST_BYTES_MAX as u64;
        let most = range.end.min(range.start.saturating_add(REQUESTS_MAX * piece));
        let source = peers.iter().position(|peer| Some(*peer) == self.missing.last_source);
        let to = peers[(source.unwrap_or(0) + self.missing.failed_requests) % peers.len()];
        while self.missing.requested_to < most {
            let position = self.missing.requested_to.max(range.start);
            let frame = Frame::FetchRequest {
                value: Value::Content { stream, offset: 0 },
                slot: Slot(position),
            };
            if !out.send(to, Lane::Control, &frame) {
                return;
            }
            // A peer's read ends with the chunk, whose size is a multiple of this piece size.
            self.missing.requested_to = (position / piece + 1) * piece;
        }
    }

    fn check_missing(&mut self, now: Time, streams: &Table) {
        if self.known_to.is_none() && self.is_table_recent() {
            self.forget_unknown(streams);
        }
        let store = &self.store;
        let missing = |(stream, kept): (StreamName, Range<u64>)| {
            let ranges = store.missing(stream, kept);
            ranges.into_iter().map(move |range| (stream, range))
        };
        self.missing.ranges = streams.retained_ranges().flat_map(missing).collect();
        self.missing.is_outdated = false;
        self.missing.requested_to = 0;
        self.missing.next_check_at = now.plus_ms(CHECK_INTERVAL_MS);
        if self.is_table_recent() {
            self.drop_trimmed(streams);
        }
    }

    /// Returns whether the table is at least as recent as the store, so that the store may drop
    /// streams unknown to the table.
    fn is_table_recent(&self) -> bool {
        self.deferred_changes.is_empty() && !self.backup_hold.is_holding()
    }

    fn drop_trimmed(&mut self, streams: &Table) {
        for (stream, kept) in streams.retained_ranges() {
            if kept.start > 0 {
                self.store.drop_below(stream, kept.start);
            }
        }
    }

    /// [trim-2] Begins a hold for a backup on all bytes retained as of the last applied slot.
    pub(crate) fn begin_hold(&mut self, now: Time, applied_to: Slot) -> StreamHold {
        self.backup_hold.begin_hold(now, applied_to)
    }

    /// Returns whether a hold is still in place. If so, extends it.
    pub(crate) fn extend_hold(&mut self, now: Time, hold: &StreamHold) -> bool {
        self.backup_hold.extend_hold(now, hold.id)
    }

    /// Reads held bytes for a backup. [`StreamStorage::next_held`] returns them.
    pub(crate) fn read_held<D: Disk>(
        &mut self,
        now: Time,
        (asked, hold): (u64, u64),
        (stream, position, bytes_max): (StreamName, u64, usize),
        disk: &mut D,
    ) {
        let why = if !self.backup_hold.extend_hold(now, hold) {
            NotRead::HoldEnded
        } else if self.read_for(ReadRecipient::Backup(asked), stream, position, bytes_max, disk) {
            return;
        } else {
            NotRead::Busy
        };
        self.backup_reads.push_back((asked, Err(why)));
    }

    pub(crate) fn next_held(&mut self) -> Option<(u64, Result<Vec<u8>, NotRead>)> {
        self.backup_reads.pop_front()
    }

    /// Starts reading the stored bytes at a position, or those of the next stream, to check them
    /// for damage. Returns `false` if no bytes are left.
    pub(crate) fn start_scrub_read<D: Disk>(
        &mut self,
        from: Option<(StreamName, u64)>,
        bytes_max: usize,
        disk: &mut D,
    ) -> bool {
        if self.has_scrub_read || self.scrub_result.is_some() {
            return true;
        }
        let Some((stream, position)) = self.store.next_held_byte(from) else {
            return false;
        };
        self.has_scrub_read =
            self.read_for(ReadRecipient::Scrub, stream, position, bytes_max, disk);
        true
    }

    pub(crate) fn take_scrubbed(&mut self) -> Option<ReadDone> {
        self.scrub_result.take()
    }

    pub(crate) fn has_catalogue(&self) -> bool {
        self.store.checkpointed_to() > Slot::FIRST
    }

    /// Returns the time at which the store next needs a turn, even without further input.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let missing = !self.missing.ranges.is_empty() && self.replay_range().is_none();
        // Bytes in memory are read immediately, without a disk completion.
        let scrubbed = (self.has_scrub_read && self.store.has_finished_read()).then_some(Time(0));
        let saves = self.is_ready_to_checkpoint() && !self.store.is_checkpointing();
        let save_at = saves.then_some(self.unrecorded.save_at);
        earliest_time([
            missing.then_some(self.missing.next_request_at),
            self.retry_at,
            scrubbed,
            save_at,
        ])
    }

    /// Returns the size of the chunks in use and of all files, in bytes.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.store.used_bytes(), self.store.file_bytes())
    }
}

#[cfg(test)]
mod tests {
    use quorate_log::disk::MemoryDisk;
    use quorate_stream::{
        Command, OpenMode, Writer,
        store::{Layout, StoreLimits},
    };

    use quorate_core::node_id::Member;
    use quorate_core::node_set::NodeSet;

    use super::*;
    use crate::{
        counters::Counters,
        ports::{
            payload::Payload,
            plane::{FrameBody, Plane, TooLarge},
        },
    };

    struct NoPeers;

    impl Plane for NoPeers {
        fn has_room(&self, _: NodeId, _: Lane, _: usize) -> bool {
            false
        }

        fn send(
            &mut self,
            _: NodeSet,
            _: Lane,
            _: &[u8],
            _: FrameBody<'_>,
        ) -> Result<NodeSet, TooLarge> {
            Ok(NodeSet::default())
        }
    }

    const S: StreamName = StreamName { owner: NodeId(1), boot: 1, number: 1 };
    const LIMITS: StoreLimits = StoreLimits {
        dirty_bytes_max: 1 << 20,
        gathered_bytes_max: 1 << 20,
        disk_reserve_bytes: 0,
    };

    /// Returns a table whose stream has ten bytes, in slots 2 to 11.
    fn table() -> Table {
        let open = Command::Open {
            name: "s".parse().unwrap(),
            mode: OpenMode::Create,
            writer: Writer(1),
            stream: S,
            now_ms: 0,
        };
        let mut table = Table::default();
        table.execute(Slot(1), &open.encode()).unwrap();
        assert_eq!(table.append(S, 2, slots(2, 12)), 0..10);
        table
    }

    /// Returns the content of the table's stream.
    fn ten_bytes() -> AppendedBytes {
        AppendedBytes {
            stream: S,
            position: 0,
            skipped_bytes: 0,
            length: 10,
            bytes: Some(Payload::new(vec![7; 10])),
        }
    }

    fn slots(from: u64, to: u64) -> SlotRange {
        SlotRange::new(Slot(from), Slot(to))
    }

    /// [here-1] [here-2] Bytes that no record contains, whether fetched or received after their
    /// descriptor, never count as available while a crash would lose them.
    #[test]
    fn bytes_in_no_record_count_when_found_at_start() {
        for fetched in [true, false] {
            let mut disk = MemoryDisk::default();
            let store = Store::open(&mut disk, LIMITS, Layout::DEFAULT).unwrap();
            disk.set_manual_completion(true);
            let (at, streams) = (Slot(12), table());
            let mut keeping = StreamStorage::new(store, (at, at), Slot(0), at, &streams, 10);
            keeping.check_missing(Time(0), &streams);
            if fetched {
                keeping.take_missing(Time(0), NodeId(2), (S, 0, &[7; 10]), &mut disk);
            } else {
                keeping.record_learned_without_bytes(at);
                keeping.process_applied((at, at), vec![ten_bytes()], Vec::new(), &mut disk);
                keeping.check_missing(Time(0), &streams);
            }
            let (mut plane, mut counters) = (NoPeers, Counters::default());
            let mut steps = 0;
            while keeping.may_lack_bytes() {
                let mut out = Outbox::new(Member::first(1), &mut plane, &mut counters);
                keeping.continue_work(Time(0), &mut disk, &mut out, |_, _| {});
                let next = disk.pending().first().expect("it goes on").id;
                assert!(disk.complete(next));
                while let Some(completed) = disk.poll() {
                    keeping.on_completed(completed, &mut disk);
                }
                steps += 1;
            }
            assert!(steps > 3, "{steps}");
            disk.crash(0);
            let store =
                Store::open(&mut disk.reopen_after_crash(), LIMITS, Layout::DEFAULT).unwrap();
            assert_eq!((keeping.missing_bytes(), store.held_contiguous_to(S, 0)), (0, 10));
        }
    }

    /// An open vote may refer to places of a stream that is removed in a lower slot. If a
    /// checkpoint frees these places too early, the vote counts as forgotten after two restarts.
    #[test]
    fn removed_bytes_are_freed_after_open_votes_are_applied() {
        let mut disk = MemoryDisk::default();
        let store = Store::open(&mut disk, LIMITS, Layout::DEFAULT).unwrap();
        let nothing = Table::default();
        let mut keeping =
            StreamStorage::new(store, (Slot(1), Slot(1)), Slot(1), Slot(1), &nothing, 10);
        keeping.process_applied((Slot(12), Slot(20)), vec![ten_bytes()], Vec::new(), &mut disk);
        let removed = vec![InnerStreamChange::Removed { stream: S }];
        keeping.process_applied((Slot(13), Slot(20)), Vec::new(), removed, &mut disk);
        keeping.check_missing(Time(0), &nothing);
        assert_eq!(keeping.store.held_contiguous_to(S, 0), 10, "slots 13 to 20 may name it");
        keeping.process_applied((Slot(19), Slot(40)), Vec::new(), Vec::new(), &mut disk);
        assert_eq!(keeping.store.held_contiguous_to(S, 0), 10);
        // Votes cast since then do not need the bytes.
        keeping.process_applied((Slot(20), Slot(40)), Vec::new(), Vec::new(), &mut disk);
        assert_eq!(keeping.store.held_contiguous_to(S, 0), 0);
    }

    /// A backup holds the bytes that an earlier table retained. When the backup ends, or is idle
    /// for too long, bytes trimmed since then are released.
    #[test]
    fn backup_retains_bytes_trimmed_or_removed_meanwhile() {
        let mut disk = MemoryDisk::default();
        let store = Store::open(&mut disk, LIMITS, Layout::DEFAULT).unwrap();
        let (nothing, mut streams) = (Table::default(), table());
        let mut keeping =
            StreamStorage::new(store, (Slot(1), Slot(1)), Slot(1), Slot(1), &nothing, 10);
        let mut plane = NoPeers;
        let mut counters = Counters::default();
        let put = vec![ten_bytes()];
        keeping.process_applied((Slot(12), Slot(12)), put, Vec::new(), &mut disk);
        let mut turn = |keeping: &mut StreamStorage, now, streams: &Table| {
            let mut out = Outbox::new(Member::first(1), &mut plane, &mut counters);
            keeping.continue_work(now, &mut disk, &mut out, |_, _| {});
            keeping.request_missing(now, streams, &[], &mut out);
        };
        turn(&mut keeping, Time(0), &streams);
        let trim = Command::Trim { name: "s".parse().unwrap(), retain_from: 4 };
        for (number, remove) in [(1, false), (2, true)] {
            let hold = keeping.begin_hold(Time(0), Slot(12));
            assert_eq!(hold.id, number);
            let (change, after) = match remove {
                false => {
                    streams.execute(Slot(12), &trim.encode()).unwrap();
                    (InnerStreamChange::Trimmed { stream: S, below: 4 }, &streams)
                }
                true => (InnerStreamChange::Removed { stream: S }, &nothing),
            };
            let first = if remove { 4 } else { 0 };
            let slots = (Slot(13), Slot(13));
            keeping.process_applied(slots, Vec::new(), vec![change], &mut MemoryDisk::default());
            // A check for missing bytes does not release any, either.
            keeping.missing.is_outdated = true;
            turn(&mut keeping, Time(1), after);
            assert_eq!(keeping.store.held_contiguous_to(S, first), 10, "it is held");
            drop(hold);
            turn(&mut keeping, Time(2), after);
            assert_eq!(keeping.store.held_contiguous_to(S, first), first, "it is let go");
            let rest = if remove { 4 } else { 10 };
            assert_eq!(keeping.store.held_contiguous_to(S, 4), rest);
        }
    }

    /// The service recovers empty just before a check for missing bytes. Its table knows no stream,
    /// but the store must keep them all: a group of one could not fetch them again.
    #[test]
    fn rolled_back_table_does_not_make_the_store_drop_bytes() {
        let mut disk = MemoryDisk::default();
        let store = Store::open(&mut disk, LIMITS, Layout::DEFAULT).unwrap();
        let (nothing, streams) = (Table::default(), table());
        let mut keeping =
            StreamStorage::new(store, (Slot(1), Slot(1)), Slot(1), Slot(1), &nothing, 10);
        keeping.process_applied((Slot(12), Slot(12)), vec![ten_bytes()], Vec::new(), &mut disk);
        assert_eq!(keeping.known_to, None, "it has looked");
        keeping.on_rollback();
        keeping.check_missing(Time(0), &nothing);
        assert_eq!(keeping.store.held_contiguous_to(S, 0), 10);
        // The service is reset once more, this time to load a snapshot.
        keeping.on_loaded(Slot(1), Slot(1), &nothing);
        keeping.check_missing(Time(0), &nothing);
        assert_eq!(keeping.store.held_contiguous_to(S, 0), 10);
        // Once everything is applied again, the table knows all streams that still exist.
        keeping.process_applied((Slot(12), Slot(12)), Vec::new(), Vec::new(), &mut disk);
        keeping.check_missing(Time(0), &streams);
        assert_eq!(keeping.missing_bytes(), 0);
        keeping.check_missing(Time(0), &nothing);
        assert_eq!(keeping.store.held_contiguous_to(S, 0), 0);
    }
}
