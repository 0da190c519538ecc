//! Snapshots of this node's state and their uses: trimming the log, restarting from a snapshot and
//! the rest of the log, and sending state to a peer that is far behind ([snap-1], [trim-1]).
//!
//! A snapshot is a stream (`stream`, `header`), split into chunks (`layout`) that are stored in
//! files of their own; `writing` and `reading` access them. It is taken from this node's state
//! (`taking`), or received from a peer (`fetching`, `receiving`). A durable and complete snapshot
//! becomes valid only when the base of the log references it (`note`; [snap-2], [trim-3]). Then the
//! service loads it (`loading`), peers receive it (`serving`), and the log is trimmed (`trimming`).
//!
//! A service in memory is loaded from its node's snapshot at a start. A service that persists
//! itself on a disk does not need one: the log is trimmed up to its synced position ([store-1]),
//! and a snapshot is taken when a peer needs one.

pub(crate) mod allowance;
mod asking;
pub(crate) mod eras;
pub(crate) mod fetching;
pub(crate) mod header;
pub(crate) mod layout;
mod loading;
mod manifest;
mod note;
mod reading;
mod receiving;
mod renewal;
mod serving;
pub(crate) mod stream;
mod taking;
pub(crate) mod trimming;
pub(crate) mod turn;
mod writing;

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use quorate_core::{
    node_id::NodeId,
    reconfigure::{Eras, replay},
    slot::Slot,
    time::Time,
    value::Value,
};
use quorate_log::Log;
use quorate_log::disk::{Disk, DiskError, Family, FileId};

use self::{
    allowance::TransferRateLimit,
    asking::SnapshotRequest,
    fetching::{Fetching, SnapshotOffer},
    header::SnapshotHeader,
    loading::Loading,
    reading::ChunkReads,
    receiving::Receiving,
    serving::Serving,
    taking::SnapshotInProgress,
    trimming::SnapshotOptions,
    writing::SnapshotWriter,
};
pub(crate) use self::{manifest::Manifest, note::BaseNote, renewal::Renewal};
use crate::{backup::HeldSnapshot, ports::status::Snapshot};

/// Delay in milliseconds before the next attempt after a failure.
const RETRY_DELAY_MS: u64 = 10_000;

/// Time in milliseconds after the start by which a node knows whether it needs a snapshot.
const RESUME_WINDOW_MS: u64 = 30_000;
/// Maximum number of files removed in one turn.
const DELETIONS_MAX: usize = 4;

/// Snapshot that is being written, from this node's state or from a peer.
enum SnapshotJob {
    Taking(Box<SnapshotInProgress>),
    Receiving(Box<Receiving>),
}

impl SnapshotJob {
    fn writer(&self) -> &SnapshotWriter {
        match self {
            Self::Taking(taking) => &taking.writer,
            Self::Receiving(receiving) => &receiving.writer,
        }
    }

    fn writer_mut(&mut self) -> &mut SnapshotWriter {
        match self {
            Self::Taking(taking) => &mut taking.writer,
            Self::Receiving(receiving) => &mut receiving.writer,
        }
    }
}

/// A new base of the log that is being written.
struct BaseSwitch {
    start: Slot,
    note: BaseNote,
    /// Header of a peer's snapshot that becomes this node's state, provided that it is still ahead.
    installed_header: Option<SnapshotHeader>,
    /// The new base moves the start of the log forward.
    moves_start: bool,
}

pub(crate) struct Snapshots {
    options: SnapshotOptions,
    cluster: u128,
    eras: Eras,
    /// Applied reconfigurations since the start of the log.
    reconfigurations: VecDeque<(Slot, Value)>,
    /// Snapshot referenced by the base of the log.
    own_snapshot: Option<Manifest>,
    /// Number of the next part. Part numbers are never reused.
    next_part: u64,
    job: Option<SnapshotJob>,
    /// Snapshot that an earlier process started to receive; its files must be checked first.
    resuming: Option<Box<Receiving>>,
    /// Writers of abandoned snapshots that still have operations in flight.
    abandoned_writers: Vec<SnapshotWriter>,
    base_switch: Option<BaseSwitch>,
    fetching: Fetching,
    serving: Serving,
    reads: ChunkReads,
    loading: Option<Loading>,
    /// Start of a peer's log, if this node's log has lost slots below it.
    lost_slots_below: Option<Slot>,
    /// Slot at or after which a peer needs a snapshot; `None` if no peer needs one.
    needed_from: Option<Slot>,
    /// [trim-1] Slot below which this auxiliary no longer needs its log.
    forgettable_to: Option<Slot>,
    operator_request: SnapshotRequest,
    /// Files that are no longer needed and wait to be deleted.
    deletable_files: VecDeque<FileId>,
    /// Snapshots that other threads are reading; their files must not be deleted.
    held_snapshots: Vec<(Manifest, Weak<()>)>,
    rate_limit: TransferRateLimit,
    /// Earliest time of the next transfer to this node, after one has failed.
    no_transfer_before: Time,
    /// Earliest time of the next snapshot of this node's state, after one has failed. The node may
    /// still receive one before that.
    no_snapshot_before: Time,
    /// Time until which data received by an earlier process is retained in case it is still useful.
    resume_until: Time,
    next_load_at: Time,
    /// Time of the next check for due work.
    next_check_at: Time,
    /// Time at which to continue work that was deferred by its budget or by the rate limit.
    next_turn_at: Option<Time>,
    /// The store of streams has the bytes of all slots below this one.
    streams_stored_to: Slot,
    /// Slot at which the log could begin once the store of streams has everything below it.
    streams_wanted_to: Option<Slot>,
    /// The service has loaded part of a snapshot that turned out to be damaged.
    is_service_spoiled: bool,
    /// Slot below which the service was requested to sync everything.
    syncing_to: Slot,
    /// Slots below this one were decided before this process started.
    replay_to: Slot,
    /// Result of the last scrubbed chunk, until it is taken.
    scrubbed: Option<turn::ChunkScrub>,
    /// Replacement of the service's damaged files.
    renewal: Renewal,
}

/// State that a replica reads from the base of its log at the start.
pub(crate) struct RecoveredBase {
    pub(crate) eras: Eras,
    /// Slots below the start of the log are missing, and no snapshot replaces them.
    pub(crate) is_hollow: bool,
    own_snapshot: Option<Manifest>,
    replay_to: Slot,
}

/// Error returned if this version cannot decode the base of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UndecodableNote;

/// Decodes the note in the base of the log. Without a note, returns the state at the founding. All
/// slots below `replay_to` are decided according to the log.
pub(crate) fn decode_base(
    note: &[u8],
    replay_to: Slot,
    founding: impl FnOnce() -> Eras,
) -> Result<RecoveredBase, UndecodableNote> {
    if note.is_empty() {
        let eras = founding();
        return Ok(RecoveredBase { eras, is_hollow: false, own_snapshot: None, replay_to });
    }
    let note = BaseNote::decode(note).ok_or(UndecodableNote)?;
    let BaseNote { eras, snapshot, is_hollow: hollow } = note;
    Ok(RecoveredBase { eras, is_hollow: hollow, own_snapshot: snapshot, replay_to })
}

impl Snapshots {
    /// Returns the slot at which the log could begin once the store of streams has everything below
    /// it; `None` if the store delays no trim.
    pub(crate) fn wants_streams_kept_to(&self) -> Option<Slot> {
        self.streams_wanted_to
    }

    /// Creates the state from the content of the base. Deletes files that are not referenced, and
    /// continues a transfer that an earlier process started.
    pub(crate) fn new<D: Disk>(
        now: Time,
        options: SnapshotOptions,
        cluster: u128,
        begun: RecoveredBase,
        reconfigurations: Vec<(Slot, Value)>,
        retry_ms: u64,
        log: &mut Log<D>,
    ) -> Result<Self, DiskError> {
        let start = log.start();
        let disk = log.disk_mut();
        let files = disk.files(Family::Snapshot)?;
        let made = disk.newest_created(Family::Snapshot)?;
        let incoming = disk.read_small_file(receiving::TRANSFER_STATE_FILE)?;
        let resuming = incoming.and_then(|bytes| Receiving::decode(&bytes));
        let resuming = resuming.filter(|receiving| receiving.target.slot > start);
        let files = files.iter().map(|info| info.file);
        let own_end = begun.own_snapshot.as_ref().map_or(0, Manifest::parts_end);
        // Part numbers only increase, so the record of a transfer that is older than the files is
        // useless.
        let resuming = resuming.filter(|receiving| {
            let first = receiving.as_manifest().first_part;
            let behind = files.clone().map(|file| file.number).filter(|number| *number >= first);
            let mut numbers: Vec<u64> = behind.collect();
            numbers.sort_unstable();
            first >= own_end
                && numbers.into_iter().zip(first..).all(|(number, next)| number == next)
        });
        let of_own = |file: &FileId| begun.own_snapshot.is_some_and(|own| own.has_part(*file));
        let of_resuming = |file: &FileId| {
            let manifest = resuming.as_ref().map(Receiving::as_manifest);
            manifest.is_some_and(|manifest| manifest.has_part(*file))
        };
        let idle = files.clone().filter(|file| !of_own(file) && !of_resuming(file)).collect();
        let last = files.chain(made).map(|file| file.number).max();
        Ok(Self {
            options,
            cluster,
            eras: begun.eras,
            reconfigurations: reconfigurations.into(),
            own_snapshot: begun.own_snapshot,
            next_part: last.unwrap_or(0) + 1,
            job: None,
            resuming: resuming.map(Box::new),
            abandoned_writers: Vec::new(),
            base_switch: None,
            fetching: Fetching::new(retry_ms),
            serving: Serving::default(),
            reads: ChunkReads::default(),
            loading: None,
            lost_slots_below: None,
            needed_from: None,
            streams_stored_to: start,
            streams_wanted_to: None,
            forgettable_to: None,
            operator_request: SnapshotRequest::default(),
            deletable_files: idle,
            held_snapshots: Vec::new(),
            rate_limit: TransferRateLimit::new(now, options.transfer_bytes_per_second),
            no_transfer_before: now,
            no_snapshot_before: now,
            resume_until: now.plus_ms(RESUME_WINDOW_MS),
            next_load_at: now,
            next_check_at: now,
            next_turn_at: None,
            is_service_spoiled: false,
            syncing_to: Slot(0),
            replay_to: begun.replay_to,
            scrubbed: None,
            renewal: Renewal::Nothing,
        })
    }

    /// Records a decided reconfiguration. After damage to the log it may already be recorded.
    pub(crate) fn record_reconfiguration(&mut self, slot: Slot, value: Value) {
        if !matches!(value, Value::Reconfigure { .. }) {
            return;
        }
        let at = self.reconfigurations.partition_point(|(known, _)| *known < slot);
        if self.reconfigurations.get(at).is_none_or(|(known, _)| *known > slot) {
            self.reconfigurations.insert(at, (slot, value));
        }
    }

    pub(crate) fn log_bytes_max(&self) -> u64 {
        self.options.log_bytes_max
    }

    pub(crate) fn own_snapshot(&self) -> Option<Snapshot> {
        self.own_snapshot.map(|own| Snapshot { slot: own.slot, bytes: own.bytes })
    }

    /// Returns this node's snapshot for another thread. Its files are retained until the result is
    /// dropped.
    pub(crate) fn hold_snapshot(&mut self) -> Option<HeldSnapshot> {
        let own = self.own_snapshot?;
        let hold = Arc::new(());
        self.held_snapshots.push((own, Arc::downgrade(&hold)));
        Some(HeldSnapshot::new(own, hold))
    }

    /// Returns the eras in force at an applied slot that is still in the log.
    fn eras_at(&self, slot: Slot) -> Eras {
        let below = self.reconfigurations.iter().filter(|(at, _)| *at < slot);
        replay(self.eras.clone(), below)
    }

    /// Requests a snapshot at or after this slot, because no peer's log has the missing slots
    /// ([catch-2]).
    pub(crate) fn request_from_peers(&mut self, from: Slot) {
        self.fetching.need_from(from);
    }

    /// [trim-1] Moves the start of the log to this slot without a snapshot of earlier slots.
    pub(crate) fn trim_to(&mut self, to: Slot) {
        self.forgettable_to = Some(to);
        self.next_check_at = Time(0);
    }

    /// Requests a snapshot at or after this slot, to replace slots lost from the log ([disk-8]).
    pub(crate) fn request_for_lost(&mut self, from: Slot) {
        self.lost_slots_below = self.lost_slots_below.max(Some(from));
        self.fetching.need_from(from);
    }

    /// Records an operator's request for a snapshot at or after this applied slot. The caller takes
    /// the result with [`Snapshots::take_answer`].
    pub(crate) fn record_request(&mut self, at: Slot) {
        self.operator_request.set_request(at);
        if self.job.is_none() {
            self.no_snapshot_before = Time(0);
        }
    }

    pub(crate) fn fail_request(&mut self, why: String) {
        self.operator_request.fail_request(why);
    }

    pub(crate) fn take_answer(&mut self) -> Option<Result<Snapshot, String>> {
        self.operator_request.take_answer()
    }

    /// Returns the slot and the current size of the snapshot that is being taken.
    pub(crate) fn snapshot_in_progress(&self) -> Option<Snapshot> {
        match &self.job {
            Some(SnapshotJob::Taking(taking)) => Some(taking.writer.written_so_far()),
            _ => None,
        }
    }

    /// Returns the number of bytes received and the total size, if a snapshot is being received.
    pub(crate) fn receiving_progress(&self) -> Option<(u64, u64)> {
        match &self.job {
            Some(SnapshotJob::Receiving(receiving)) if self.fetching.needed_slot().is_some() => {
                Some((receiving.writer.bytes(), receiving.target.bytes))
            }
            _ => None,
        }
    }

    /// Drops the transfers to and from a disconnected peer.
    pub(crate) fn drop_transfers(&mut self, node: NodeId) {
        self.serving.pause_transfer(node);
        self.fetching.drop_peer(node);
    }

    /// Returns the snapshot that this node can offer to a peer that needs one at or after `needed`.
    /// If there is none and `needed` is applied here, a snapshot is taken; the peer will ask again.
    pub(crate) fn offer_snapshot(
        &mut self,
        start: Slot,
        applied_to: Slot,
        needed: Slot,
    ) -> SnapshotOffer {
        let useful = |own: &&Manifest| own.slot >= start && own.slot >= needed;
        match self.own_snapshot.as_ref().filter(useful) {
            Some(own) => SnapshotOffer {
                slot: own.slot,
                digest: own.digest,
                bytes: own.bytes,
                is_busy: self.serving.is_full(),
            },
            None => {
                self.needed_from =
                    self.needed_from.max(Some(needed).filter(|needed| *needed <= applied_to));
                SnapshotOffer { slot: Slot(0), digest: 0, bytes: 0, is_busy: true }
            }
        }
    }

    /// Handles a request from a peer that has all bytes of a snapshot below `offset`. Returns
    /// `false` if the peer cannot get the rest from this node.
    pub(crate) fn on_peer_request(
        &mut self,
        now: Time,
        from: NodeId,
        (at, digest, offset): (Slot, u128, u64),
    ) -> bool {
        let have = self.own_snapshot.is_some_and(|own| (own.slot, own.digest) == (at, digest));
        have && self.serving.handle_request(now, from, at, digest, offset)
    }

    /// Records that a peer is being sent the log from slot `from` on.
    pub(crate) fn on_learner(&mut self, now: Time, node: NodeId, from: Slot) {
        self.serving.record_learner(now, node, from);
    }

    pub(crate) fn on_offer(&mut self, now: Time, from: NodeId, offer: SnapshotOffer) {
        self.fetching.on_offer(now, from, offer);
    }

    fn has_no_work(&self) -> bool {
        let works = self.job.is_some()
            || self.resuming.is_some()
            || self.base_switch.is_some()
            || self.loading.is_some();
        let wanted = self.fetching.needed_slot().is_some()
            || self.needed_from.is_some()
            || self.operator_request.requested_slot().is_some();
        let left = !self.abandoned_writers.is_empty()
            || !self.deletable_files.is_empty()
            || !self.serving.is_empty();
        !works && !wanted && !left && !self.renewal.is_under_way()
    }

    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        let received = match &self.job {
            Some(SnapshotJob::Receiving(receiving)) => receiving.writer.bytes(),
            _ => 0,
        };
        let later = |at: Time| Some(at).filter(|at| *at > now);
        let asks = self.base_switch.is_none()
            && self.resuming.is_none()
            && now >= self.no_transfer_before
            && self.job.as_ref().is_none_or(|job| {
                matches!(job, SnapshotJob::Receiving(_)) && job.writer().has_room()
            });
        let asks = asks.then(|| self.fetching.wake_at(received)).flatten();
        crate::wake::earliest_time([
            self.next_turn_at,
            later(self.no_transfer_before),
            later(self.no_snapshot_before),
            later(self.next_load_at),
            asks,
        ])
    }

    /// Abandons an unfinished snapshot. Its files are deleted once they are not in use.
    fn abandon_writer(&mut self, writer: SnapshotWriter) {
        self.next_part = self.next_part.max(writer.parts_end());
        self.abandoned_writers.push(writer);
    }

    /// Deletes files that are no longer needed, unless they are being read.
    fn delete_unused_files<D: Disk>(&mut self, disk: &mut D) {
        let ended = self.abandoned_writers.extract_if(.., |writer| !writer.is_busy());
        for writer in ended {
            self.deletable_files.extend(writer.parts());
        }
        if !self.reads.is_idle() {
            return;
        }
        self.held_snapshots.retain(|(_, hold)| hold.strong_count() > 0);
        let held = |file: &FileId| self.held_snapshots.iter().any(|(held, _)| held.has_part(*file));
        let (kept, mut free): (VecDeque<_>, VecDeque<_>) =
            self.deletable_files.drain(..).partition(held);
        for file in free.drain(..free.len().min(DELETIONS_MAX)) {
            disk.start_retire(file);
        }
        self.deletable_files = kept;
        self.deletable_files.append(&mut free);
    }
}
