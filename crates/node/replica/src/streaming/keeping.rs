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
use quorate_log::{Body, Values};
use quorate_stream::{
    Change, Table,
    store::{Bulk, Layout, Place, ReadDone, ReadError, Store},
};
use quorate_wire::{Frame, Lane};

use crate::{
    applying::applier::Appended,
    contents::positions,
    outbox::Outbox,
    ports::stream_front::StreamTag,
    streaming::holding::{Holding, NotRead, StreamHold},
    wake::earliest,
};

/// Maximum number of reads that wait for the store's queue.
const READS_WAITING_MAX: usize = 1024;
/// Maximum number of requests for missing bytes in flight.
const REQUESTS_MAX: u64 = 16;
/// Maximum size of a reply to a request for missing bytes. No chunk of a store is smaller, and a
/// read never crosses the end of its chunk.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Delay in milliseconds before a store that lacks free space or file descriptors retries.
const SHORT_MS: u64 = 20;
/// Interval in milliseconds between checks for missing bytes.
const CHECK_INTERVAL_MS: u64 = 50;
/// Minimum interval in milliseconds between checkpoints for bytes that no record contains, since
/// each checkpoint writes a whole catalogue.
const SAVE_MS: u64 = 1000;

/// Recipient of bytes read from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
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
    reader: Reader,
    stream: StreamName,
    position: u64,
    bytes_max: usize,
}

/// Bytes that are retained according to the table but missing from the store.
#[derive(Debug, Default)]
struct Lack {
    ranges: VecDeque<(StreamName, Range<u64>)>,
    /// End of the requested positions in the first missing range.
    requested_to: u64,
    /// Peer that last sent missing bytes. The next request goes to it.
    source: Option<NodeId>,
    /// Number of failed requests for the first missing byte.
    failed_requests: usize,
    /// A request for the first missing byte is in flight.
    is_requested: bool,
    next_request_at: Time,
    next_check_at: Time,
    /// `ranges` is out of date and must be recomputed from the table and the store.
    unknown: bool,
}

/// [here-1] Stored bytes that no log record contains. A restart finds them only through the
/// catalogue.
#[derive(Debug, Default)]
struct Unrecorded {
    /// Number of fetched bytes put into the store since the last checkpoint began.
    fetched: u64,
    /// Number of fetched bytes that the checkpoint in progress covers.
    saving: u64,
    /// Slot below which content may have been learned without its bytes, even if they arrived
    /// later.
    without_bytes_to: Slot,
    /// Earliest time of the next checkpoint for these bytes.
    save_at: Time,
}

/// The store of streams, with the reads and fetches in progress.
pub(crate) struct Keeping {
    store: Store,
    unrecorded: Unrecorded,
    /// Result of [`Keeping::lacks`] that was last reported to the core.
    noted_lacking: bool,
    /// The store has the bytes of all decided slots below this one.
    stored_to: Slot,
    replay_to: Slot,
    readers: BTreeMap<u64, Reader>,
    waiting_reads: VecDeque<WaitingRead>,
    next_token: u64,
    lack: Lack,
    retry_ms: u64,
    /// The table may lack streams of the store until all slots below this one are applied.
    known_to: Option<Slot>,
    /// Changes of streams that take effect once everything below the given slots is applied. Open
    /// votes may refer to bytes that the changes free, and a restart would count a vote whose bytes
    /// are lost as forgotten ([trim-4]).
    later: VecDeque<(Slot, Change)>,
    /// Time at which a store that lacks a resource retries.
    retry_at: Option<Time>,
    /// A backup's hold on retained bytes, which delays their release.
    holding: Holding,
    /// Results of reads for backups.
    backup_reads: VecDeque<(u64, Result<Vec<u8>, NotRead>)>,
    /// A read for a scrub is in flight.
    scrubs: bool,
    scrubbed: Option<ReadDone>,
}

impl Keeping {
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
            unrecorded: Unrecorded { without_bytes_to: bare_to, ..Unrecorded::default() },
            noted_lacking: false,
            stored_to: applied_to,
            replay_to: applied_to,
            readers: BTreeMap::new(),
            waiting_reads: VecDeque::new(),
            next_token: 0,
            lack: Lack { unknown: true, ..Lack::default() },
            retry_ms,
            known_to: Some(log_end.max(store.checkpointed_to())),
            later: VecDeque::new(),
            retry_at: None,
            holding: Holding::default(),
            backup_reads: VecDeque::new(),
            scrubs: false,
            scrubbed: None,
            store,
        };
        keeping.replay(log_start, applied_to, streams);
        keeping
    }

    /// Starts a replay of the applied slots, those below `at`, from the last checkpoint on: the
    /// store may lack their bytes. Slots below `log_start` are no longer in the log.
    fn replay(&mut self, log_start: Slot, at: Slot, streams: &Table) {
        let from = self.store.checkpointed_to().max(log_start);
        // Without streams there are no bytes to put.
        let nothing = streams.is_empty();
        self.stored_to = if nothing { at } else { from.min(at) };
        self.replay_to = at;
    }

    /// Returns the slots that must be replayed before other bytes are put into the store.
    pub(crate) fn replays(&self) -> Option<SlotRange> {
        (self.stored_to < self.replay_to).then(|| SlotRange::new(self.stored_to, self.replay_to))
    }

    /// Puts values, as read from the log, into the store.
    pub(crate) fn replayed<D: Disk>(&mut self, values: Values, streams: &Table, disk: &mut D) {
        for (range, value, body) in values {
            if range.from > self.stored_to || range.to <= self.stored_to {
                continue;
            }
            // Placed bytes need no replay: they were claimed when the store was opened.
            if let Value::Content { stream, offset } = value
                && let Body::Bytes(bytes) = body
                && streams.is_kept(stream)
                && bytes.len() as u64 == range.len()
            {
                let position = positions(offset, range).start;
                self.store.put_bytes(stream, position, &bytes, disk);
            }
            self.stored_to = range.to.min(self.replay_to);
        }
    }

    /// Skips slots that the log no longer has. Their content is fetched by position.
    pub(crate) fn skip_replay(&mut self) {
        self.stored_to = self.replay_to;
        self.lack.unknown = true;
    }

    /// Returns whether there is space for the bytes of further slots, so that these may be applied.
    pub(crate) fn has_room(&self) -> bool {
        self.replays().is_none() && (self.store.failure().is_some() || self.store.has_room())
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
    pub(crate) fn short(&self) -> Option<&str> {
        self.store.short()
    }

    /// Processes the slots applied below `applied_to`: appended bytes, and changes of streams.
    pub(crate) fn applied<D: Disk>(
        &mut self,
        (applied_to, voted_to): (Slot, Slot),
        appended: Vec<Appended>,
        changes: Vec<Change>,
        disk: &mut D,
    ) {
        for one in appended {
            let position = one.position + one.skip;
            let end = one.position + one.length;
            match one.bytes {
                Some(bytes) => {
                    let skip = usize::try_from(one.skip).unwrap_or(usize::MAX);
                    let bytes = bytes.get(skip..).unwrap_or_default();
                    self.store.put_bytes(one.stream, position, bytes, disk);
                }
                // The bytes were placed; bytes that were damaged since then must be fetched.
                None => {
                    self.lack.unknown |= self.store.held_to(one.stream, position) < end;
                }
            }
        }
        // After a snapshot was loaded, a change may remove bytes that seemed to be missing: a
        // checkpoint ahead of the snapshot lacks streams that were removed in between.
        self.lack.unknown |= !changes.is_empty() && !self.lack.ranges.is_empty();
        self.later.extend(changes.into_iter().map(|change| (voted_to, change)));
        while let Some((_, change)) = self.later.pop_front_if(|(slot, _)| *slot <= applied_to) {
            match change {
                Change::Trimmed { .. } | Change::Removed { .. } if self.holding.is_holding() => {
                    self.holding.note_late();
                }
                Change::Trimmed { stream, below } => self.store.drop_below(stream, below),
                Change::Removed { stream } => self.store.remove_stream(stream),
                // Bytes placed beyond the final end of the stream are useless.
                Change::Closed { stream, end } => self.store.drop_above(stream, end),
            }
        }
        if self.replays().is_none() {
            self.stored_to = self.stored_to.max(applied_to);
            self.replay_to = self.stored_to;
        }
        let known = self.known_to.take_if(|known_to| *known_to <= applied_to);
        self.lack.unknown |= known.is_some();
    }

    /// [disk-5] Starts writing whole units of a stream immediately. Returns `false` if that is not
    /// possible now, so that the record must contain the bytes.
    pub(crate) fn place_units<D: Disk>(
        &mut self,
        stream: StreamName,
        position: u64,
        bulk: Bulk<'_>,
        disk: &mut D,
    ) -> bool {
        self.places_units() && self.store.place_units(stream, position, bulk, disk)
    }

    /// Returns whether units may be placed now: no replay is in progress, and there is free space.
    pub(crate) fn places_units(&self) -> bool {
        self.replays().is_none()
            && self.store.failure().is_none()
            && self.store.short().is_none()
            && !self.store.is_full()
    }

    pub(crate) fn layout(&self) -> Layout {
        self.store.layout()
    }

    /// Takes the next placed bytes that reached stable storage.
    pub(crate) fn next_placed(&mut self) -> Option<(StreamName, Range<u64>)> {
        self.store.next_placed()
    }

    /// Returns the places of the bytes at `positions` for a record; empty if they are not durable.
    pub(crate) fn places(&self, stream: StreamName, positions: Range<u64>) -> Vec<u8> {
        let places = self.store.places(stream, positions);
        places.map_or_else(Vec::new, |places| Place::encode_all(&places))
    }

    /// Records that a snapshot replaced the state below `at`. Retained bytes of streams are either
    /// still in the log or must be fetched.
    pub(crate) fn loaded(&mut self, log_start: Slot, at: Slot, streams: &Table) {
        self.went_back();
        self.known_to.take_if(|known_to| *known_to <= at);
        self.replay(log_start, at, streams);
        self.lack.unknown = true;
    }

    /// Handles a rollback of the service and its table to an earlier slot. Until every slot that
    /// the store covers is applied again, the table may not know all streams in the store.
    pub(crate) fn went_back(&mut self) {
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
            .filter(|stream| !streams.is_kept(*stream))
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
        if self.replays().is_none() && self.store.start_checkpoint(self.stored_to, disk) {
            self.unrecorded.saving = std::mem::take(&mut self.unrecorded.fetched);
        }
    }

    /// [here-2] Starts a checkpoint for bytes that no record contains, once no bytes are missing or
    /// enough chunks have accumulated.
    fn checkpoint_unrecorded<D: Disk>(&mut self, now: Time, disk: &mut D) {
        let due = self.store.is_worth_saving(self.unrecorded.fetched) || self.has_all_to_save();
        if due && !self.store.is_checkpointing() && now >= self.unrecorded.save_at {
            self.unrecorded.save_at = now.plus_ms(SAVE_MS);
            self.start_checkpoint(disk);
        }
    }

    /// Returns whether bytes that no record contains await a checkpoint and no more are expected.
    fn has_all_to_save(&self) -> bool {
        let Unrecorded { fetched, without_bytes_to: bare_to, .. } = self.unrecorded;
        let waits = fetched > 0 || self.store.checkpointed_to() < bare_to;
        waits && !self.misses_any() && self.replays().is_none() && self.stored_to >= bare_to
    }

    pub(crate) fn on_completed<D: Disk>(&mut self, completed: Completed, disk: &mut D) {
        self.store.on_completed(completed, disk);
        if !self.store.is_checkpointing() && self.store.failure().is_none() {
            self.unrecorded.saving = 0;
        }
    }

    /// [here-1] Records that content decided below `to` was learned without its bytes.
    pub(crate) fn learns_bare(&mut self, to: Slot) {
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
        self.read_for(Reader::Front(tag), stream, position, bytes_max, disk)
    }

    /// Reads bytes for a peer by position. Returns `false` if they are not in the store.
    pub(crate) fn read_for_peer<D: Disk>(
        &mut self,
        to: NodeId,
        stream: StreamName,
        position: u64,
        disk: &mut D,
    ) -> bool {
        if self.store.held_to(stream, position) == position {
            return false;
        }
        // If too many reads are queued, the peer repeats its request.
        self.read_for(Reader::Peer(to), stream, position, REQUEST_BYTES_MAX, disk);
        true
    }

    fn read_for<D: Disk>(
        &mut self,
        reader: Reader,
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
        self.holding.end_if_over(now, self.store.is_full());
        if self.store.is_due() {
            self.start_checkpoint(disk);
        }
        self.checkpoint_unrecorded(now, disk);
        // The store does not report when space becomes free; it retries whenever it is called.
        let short = self.store.short().is_some() || self.store.is_checkpointing();
        self.retry_at = short.then(|| now.plus_ms(SHORT_MS));
        while let Some(done) = self.store.next_read() {
            let Some(reader) = self.readers.remove(&done.token) else {
                continue;
            };
            if let Err(ReadError::Rotten { stream, range, .. }) = &done.result {
                // The damaged bytes are fetched from peers.
                self.store.drop_damaged(*stream, range.clone());
                self.lack.unknown = true;
            }
            if reader == Reader::Scrub {
                (self.scrubs, self.scrubbed) = (false, Some(done));
                continue;
            }
            let ReadDone { stream, position, result, .. } = done;
            match (reader, result) {
                (Reader::Scrub, _) => {}
                (Reader::Front(tag), Ok(bytes)) => tell(tag, Fetched::Bytes(bytes)),
                (Reader::Front(tag), Err(_)) => tell(tag, Fetched::NotHere),
                (Reader::Peer(to), Ok(bytes)) => {
                    let frame = Frame::StreamBytes { stream, position, bytes: &bytes };
                    out.send(to, Lane::Bulk, &frame);
                }
                (Reader::Peer(_), Err(_)) => {}
                (Reader::Backup(asked), Ok(bytes)) => {
                    self.backup_reads.push_back((asked, Ok(bytes.to_vec())));
                }
                (Reader::Backup(asked), Err(_)) => {
                    self.backup_reads.push_back((asked, Err(NotRead::NotHere)));
                }
            }
        }
        self.start_reads(disk);
    }

    /// Returns whether the store may lack retained bytes.
    fn misses_any(&self) -> bool {
        self.lack.unknown || !self.lack.ranges.is_empty()
    }

    /// [here-1] Returns whether this node may lack retained bytes, now or after a restart.
    pub(crate) fn lacks(&self) -> bool {
        let Unrecorded { fetched, saving, without_bytes_to: bare_to, .. } = self.unrecorded;
        self.misses_any() || fetched + saving > 0 || self.store.checkpointed_to() < bare_to
    }

    /// Returns [`Keeping::lacks`] if its result has changed since the last call.
    pub(crate) fn lacking_news(&mut self) -> Option<bool> {
        let lacks = self.lacks();
        let before = std::mem::replace(&mut self.noted_lacking, lacks);
        (before != lacks).then_some(lacks)
    }

    /// Returns the number of bytes that are known to be missing, now or after a restart.
    pub(crate) fn missing_bytes(&self) -> u64 {
        let ranges = self.lack.ranges.iter();
        let missing: u64 = ranges.map(|(_, range)| range.end - range.start).sum();
        missing + self.unrecorded.fetched + self.unrecorded.saving
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
            .lack
            .ranges
            .iter_mut()
            .find(|(name, range)| *name == stream && range.contains(&position));
        let Some((_, range)) = known else {
            return;
        };
        let end = end.min(range.end);
        let taken = usize::try_from(end - position).unwrap_or(usize::MAX);
        let new = self.store.missing(stream, position..end);
        self.unrecorded.fetched += new.iter().map(|part| part.end - part.start).sum::<u64>();
        self.store.put_bytes(stream, position, bytes.get(..taken).unwrap_or_default(), disk);
        range.start = self.store.held_to(stream, range.start).min(range.end);
        self.lack.source = Some(from);
        self.lack.failed_requests = 0;
        self.lack.next_request_at = now.plus_ms(self.retry_ms);
        if self.lack.ranges.front().is_some_and(|(_, range)| range.is_empty()) {
            self.lack.ranges.pop_front();
            self.lack.requested_to = 0;
            self.lack.next_request_at = Time(0);
            self.lack.is_requested = false;
        }
    }

    /// Records that a peer does not have the requested bytes. The request goes to another of the
    /// `peers` connected peers at once, unless all of them have already answered so.
    pub(crate) fn missing_not_there(&mut self, now: Time, stream: StreamName, peers: usize) {
        let first = self.lack.ranges.front();
        let wanted = self.lack.is_requested && first.is_some_and(|(name, _)| *name == stream);
        if wanted && !(self.lack.failed_requests + 1).is_multiple_of(peers.max(1)) {
            self.lack.next_request_at = now;
        }
    }

    /// Determines which bytes are missing, and requests them from peers.
    pub(crate) fn look_for_missing(
        &mut self,
        now: Time,
        streams: &Table,
        peers: &[NodeId],
        out: &mut Outbox<'_>,
    ) {
        if self.replays().is_some() {
            return;
        }
        if self.known_to.is_none() && self.is_table_recent() && self.holding.take_late() {
            self.forget_unknown(streams);
            self.drop_trimmed(streams);
        }
        if !self.misses_any() {
            return;
        }
        if self.lack.unknown || (now >= self.lack.next_check_at && self.lack.failed_requests > 0) {
            self.check_missing(now, streams);
        }
        let Some((stream, range)) = self.lack.ranges.front().cloned() else {
            return;
        };
        if peers.is_empty() {
            // Without this delay the request would be due in every turn.
            self.lack.next_request_at = self.lack.next_request_at.max(now.plus_ms(self.retry_ms));
            return;
        }
        if now >= self.lack.next_request_at {
            // No reply: request everything from the first missing byte on from another peer.
            self.lack.requested_to = range.start;
            self.lack.failed_requests += usize::from(self.lack.is_requested);
            self.lack.is_requested = true;
            self.lack.next_request_at = now.plus_ms(self.retry_ms);
        }
        let piece = REQUEST_BYTES_MAX as u64;
        let most = range.end.min(range.start.saturating_add(REQUESTS_MAX * piece));
        let source = peers.iter().position(|peer| Some(*peer) == self.lack.source);
        let to = peers[(source.unwrap_or(0) + self.lack.failed_requests) % peers.len()];
        while self.lack.requested_to < most {
            let position = self.lack.requested_to.max(range.start);
            let frame = Frame::FetchRequest {
                value: Value::Content { stream, offset: 0 },
                slot: Slot(position),
            };
            if !out.send(to, Lane::Control, &frame) {
                return;
            }
            // A peer's read ends with the chunk, whose size is a multiple of this piece size.
            self.lack.requested_to = (position / piece + 1) * piece;
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
        self.lack.ranges = streams.kept().flat_map(missing).collect();
        self.lack.unknown = false;
        self.lack.requested_to = 0;
        self.lack.next_check_at = now.plus_ms(CHECK_INTERVAL_MS);
        if self.is_table_recent() {
            self.drop_trimmed(streams);
        }
    }

    /// Returns whether the table is at least as recent as the store, so that the store may drop
    /// streams unknown to the table.
    fn is_table_recent(&self) -> bool {
        self.later.is_empty() && !self.holding.is_holding()
    }

    fn drop_trimmed(&mut self, streams: &Table) {
        for (stream, kept) in streams.kept() {
            if kept.start > 0 {
                self.store.drop_below(stream, kept.start);
            }
        }
    }

    /// [trim-2] Begins a hold for a backup on all bytes retained as of the last applied slot.
    pub(crate) fn begin_hold(&mut self, now: Time, applied_to: Slot) -> StreamHold {
        self.holding.begin_hold(now, applied_to)
    }

    /// Returns whether a hold is still in place. If so, extends it.
    pub(crate) fn goes_on(&mut self, now: Time, hold: &StreamHold) -> bool {
        self.holding.extend_hold(now, hold.id)
    }

    /// Reads held bytes for a backup. [`Keeping::next_held`] returns them.
    pub(crate) fn read_held<D: Disk>(
        &mut self,
        now: Time,
        (asked, hold): (u64, u64),
        (stream, position, bytes_max): (StreamName, u64, usize),
        disk: &mut D,
    ) {
        let why = if !self.holding.extend_hold(now, hold) {
            NotRead::LetGo
        } else if self.read_for(Reader::Backup(asked), stream, position, bytes_max, disk) {
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
    pub(crate) fn scrub<D: Disk>(
        &mut self,
        from: Option<(StreamName, u64)>,
        bytes_max: usize,
        disk: &mut D,
    ) -> bool {
        if self.scrubs || self.scrubbed.is_some() {
            return true;
        }
        let Some((stream, position)) = self.store.next_held(from) else {
            return false;
        };
        self.scrubs = self.read_for(Reader::Scrub, stream, position, bytes_max, disk);
        true
    }

    pub(crate) fn take_scrubbed(&mut self) -> Option<ReadDone> {
        self.scrubbed.take()
    }

    pub(crate) fn has_catalogue(&self) -> bool {
        self.store.checkpointed_to() > Slot::FIRST
    }

    /// Returns the time at which the store next needs a turn, even without further input.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let missing = !self.lack.ranges.is_empty() && self.replays().is_none();
        // Bytes in memory are read immediately, without a disk completion.
        let scrubbed = (self.scrubs && self.store.has_read()).then_some(Time(0));
        let saves = self.has_all_to_save() && !self.store.is_checkpointing();
        let save_at = saves.then_some(self.unrecorded.save_at);
        earliest([missing.then_some(self.lack.next_request_at), self.retry_at, scrubbed, save_at])
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
            plane::{Body, Plane, TooLarge},
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
            _: Body<'_>,
        ) -> Result<NodeSet, TooLarge> {
            Ok(NodeSet::default())
        }
    }

    const S: StreamName = StreamName { owner: NodeId(1), boot: 1, number: 1 };
    const LIMITS: StoreLimits =
        StoreLimits { dirty_bytes_max: 1 << 20, gathered_bytes_max: 1 << 20, left_bytes: 0 };

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
    fn ten_bytes() -> Appended {
        Appended {
            stream: S,
            position: 0,
            skip: 0,
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
            let store = Store::open(&mut disk, LIMITS, Layout::USUAL).unwrap();
            disk.set_manual(true);
            let (at, streams) = (Slot(12), table());
            let mut keeping = Keeping::new(store, (at, at), Slot(0), at, &streams, 10);
            keeping.check_missing(Time(0), &streams);
            if fetched {
                keeping.take_missing(Time(0), NodeId(2), (S, 0, &[7; 10]), &mut disk);
            } else {
                keeping.learns_bare(at);
                keeping.applied((at, at), vec![ten_bytes()], Vec::new(), &mut disk);
                keeping.check_missing(Time(0), &streams);
            }
            let (mut plane, mut counters) = (NoPeers, Counters::default());
            let mut steps = 0;
            while keeping.lacks() {
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
            let store = Store::open(&mut disk.attach(), LIMITS, Layout::USUAL).unwrap();
            assert_eq!((keeping.missing_bytes(), store.held_to(S, 0)), (0, 10));
        }
    }

    /// An open vote may refer to places of a stream that is removed in a lower slot. If a
    /// checkpoint frees these places too early, the vote counts as forgotten after two restarts.
    #[test]
    fn removed_bytes_are_freed_after_open_votes_are_applied() {
        let mut disk = MemoryDisk::default();
        let store = Store::open(&mut disk, LIMITS, Layout::USUAL).unwrap();
        let nothing = Table::default();
        let mut keeping = Keeping::new(store, (Slot(1), Slot(1)), Slot(1), Slot(1), &nothing, 10);
        keeping.applied((Slot(12), Slot(20)), vec![ten_bytes()], Vec::new(), &mut disk);
        let removed = vec![Change::Removed { stream: S }];
        keeping.applied((Slot(13), Slot(20)), Vec::new(), removed, &mut disk);
        keeping.check_missing(Time(0), &nothing);
        assert_eq!(keeping.store.held_to(S, 0), 10, "slots 13 to 20 may name it");
        keeping.applied((Slot(19), Slot(40)), Vec::new(), Vec::new(), &mut disk);
        assert_eq!(keeping.store.held_to(S, 0), 10);
        // Votes cast since then do not need the bytes.
        keeping.applied((Slot(20), Slot(40)), Vec::new(), Vec::new(), &mut disk);
        assert_eq!(keeping.store.held_to(S, 0), 0);
    }

    /// A backup holds the bytes that an earlier table retained. When the backup ends, or is idle
    /// for too long, bytes trimmed since then are released.
    #[test]
    fn backup_retains_bytes_trimmed_or_removed_meanwhile() {
        let mut disk = MemoryDisk::default();
        let store = Store::open(&mut disk, LIMITS, Layout::USUAL).unwrap();
        let (nothing, mut streams) = (Table::default(), table());
        let mut keeping = Keeping::new(store, (Slot(1), Slot(1)), Slot(1), Slot(1), &nothing, 10);
        let mut plane = NoPeers;
        let mut counters = Counters::default();
        let put = vec![ten_bytes()];
        keeping.applied((Slot(12), Slot(12)), put, Vec::new(), &mut disk);
        let mut turn = |keeping: &mut Keeping, now, streams: &Table| {
            let mut out = Outbox::new(Member::first(1), &mut plane, &mut counters);
            keeping.continue_work(now, &mut disk, &mut out, |_, _| {});
            keeping.look_for_missing(now, streams, &[], &mut out);
        };
        turn(&mut keeping, Time(0), &streams);
        let trim = Command::Trim { name: "s".parse().unwrap(), retain_from: 4 };
        for (number, remove) in [(1, false), (2, true)] {
            let hold = keeping.begin_hold(Time(0), Slot(12));
            assert_eq!(hold.id, number);
            let (change, after) = match remove {
                false => {
                    streams.execute(Slot(12), &trim.encode()).unwrap();
                    (Change::Trimmed { stream: S, below: 4 }, &streams)
                }
                true => (Change::Removed { stream: S }, &nothing),
            };
            let first = if remove { 4 } else { 0 };
            let slots = (Slot(13), Slot(13));
            keeping.applied(slots, Vec::new(), vec![change], &mut MemoryDisk::default());
            // A check for missing bytes does not release any, either.
            keeping.lack.unknown = true;
            turn(&mut keeping, Time(1), after);
            assert_eq!(keeping.store.held_to(S, first), 10, "it is held");
            drop(hold);
            turn(&mut keeping, Time(2), after);
            assert_eq!(keeping.store.held_to(S, first), first, "it is let go");
            let rest = if remove { 4 } else { 10 };
            assert_eq!(keeping.store.held_to(S, 4), rest);
        }
    }

    /// The service recovers empty just before a check for missing bytes. Its table knows no stream,
    /// but the store must keep them all: a group of one could not fetch them again.
    #[test]
    fn rolled_back_table_does_not_make_the_store_drop_bytes() {
        let mut disk = MemoryDisk::default();
        let store = Store::open(&mut disk, LIMITS, Layout::USUAL).unwrap();
        let (nothing, streams) = (Table::default(), table());
        let mut keeping = Keeping::new(store, (Slot(1), Slot(1)), Slot(1), Slot(1), &nothing, 10);
        keeping.applied((Slot(12), Slot(12)), vec![ten_bytes()], Vec::new(), &mut disk);
        assert_eq!(keeping.known_to, None, "it has looked");
        keeping.went_back();
        keeping.check_missing(Time(0), &nothing);
        assert_eq!(keeping.store.held_to(S, 0), 10);
        // The service is reset once more, this time to load a snapshot.
        keeping.loaded(Slot(1), Slot(1), &nothing);
        keeping.check_missing(Time(0), &nothing);
        assert_eq!(keeping.store.held_to(S, 0), 10);
        // Once everything is applied again, the table knows all streams that still exist.
        keeping.applied((Slot(12), Slot(12)), Vec::new(), Vec::new(), &mut disk);
        keeping.check_missing(Time(0), &streams);
        assert_eq!(keeping.missing_bytes(), 0);
        keeping.check_missing(Time(0), &nothing);
        assert_eq!(keeping.store.held_to(S, 0), 0);
    }
}
