//! Transfers of snapshots between nodes: receiving one from a peer, and serving this node's own.

use quorate_core::{node_id::NodeId, node_set::NodeSet, slot::Slot};
use quorate_log::disk::Disk;
use quorate_wire::{Frame, Lane};

use super::{
    super::{
        SnapshotJob, Snapshots,
        fetching::{NextRequest, SnapshotId, SnapshotOffer},
        layout::padded_chunk_bytes,
        reading::{Chunk, ChunkReadError, Purpose, READS_MAX},
        receiving::{self, Receiving},
    },
    around::{RETRY_DELAY_MS, ReplicaParts},
};
use crate::{observing::events::Event, outbox::RETRY_MS, ports::service::StateMachine};

/// Token of the disk operation that stores the state of the transfer.
const SAVE_STATE_TOKEN: u64 = 0;

impl Snapshots {
    /// Requests a snapshot from peers, if one is needed.
    pub(super) fn request_snapshot<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let start = around.log().start();
        let applied_to = around.applying.applied_to();
        let loads = self.loading.is_some() || self.can_load(start, applied_to, false, None);
        // [aux-4] An auxiliary needs no state of its own unless its log grows too large.
        let small = around.log().used_bytes() <= self.options.log_bytes_max;
        let spared = around.protocol.node().is_auxiliary() && small;
        if applied_to < start && !loads && !spared && self.base_switch.is_none() {
            self.fetching.need_from(start);
        }
        let renews = self.lacks_replacement(start) && !around.protocol.node().is_auxiliary();
        if renews {
            // Any snapshot that reaches the start of this node's log is recent enough.
            self.fetching.need_from(start);
        }
        let decided_to = around.protocol.node().decided_to();
        let lost = around.catching_up.first_lost_slot();
        let lost = lost.is_some_and(|(lost, _)| Some(lost) < self.lost_slots_below);
        if let Some(needed) = self.fetching.needed_slot()
            && needed <= decided_to
            && applied_to >= start
            && !lost
            && !renews
        {
            // This node learned the missing slots in another way.
            self.fetching.stop();
            self.abandon_transfer(around);
        }
        // Data received by an earlier process is not needed after all.
        if self.fetching.needed_slot().is_none() && around.now >= self.resume_until {
            self.abandon_transfer(around);
        }
        if self.base_switch.is_some() || matches!(self.job, Some(SnapshotJob::Taking(_))) {
            return;
        }
        self.resume_receiving(around);
        let (known, received) = match &self.job {
            Some(SnapshotJob::Receiving(receiving)) => {
                (Some(receiving.target), receiving.writer.bytes())
            }
            _ => (None, 0),
        };
        if self.resuming.is_some() || around.now < self.no_transfer_before {
            return;
        }
        // A request makes the peer send a whole window, so most of the previous one must be written
        // first.
        if self.job.as_ref().is_some_and(|job| !job.writer().has_room()) {
            return;
        }
        let leader = around.protocol.node().leader();
        let question = self.fetching.next_request(around.now, leader, known, received);
        match question {
            None => {}
            Some(NextRequest::AskForOffers) => {
                let offset = self.fetching.needed_slot().unwrap_or_default().0;
                let frame = Frame::SnapshotAsk { at: Slot(0), digest: 0, offset };
                for node in around.peers.connected_nodes() {
                    around.outbox.send(node, Lane::Bulk, &frame);
                }
            }
            Some(NextRequest::AskForBytes(node, target, offset)) => {
                self.start_receiving(target, around);
                let frame = Frame::SnapshotAsk { at: target.slot, digest: target.digest, offset };
                around.outbox.send(node, Lane::Bulk, &frame);
            }
        }
    }

    /// Starts receiving this snapshot, unless it is already being received.
    pub(super) fn start_receiving<D: Disk, S: StateMachine>(
        &mut self,
        target: SnapshotId,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if let Some(SnapshotJob::Receiving(receiving)) = &self.job
            && receiving.target == target
        {
            return;
        }
        if let Some(job) = self.job.take() {
            self.abandon_job(job, around);
        }
        let receiving = Receiving::new(target, self.options.layout, self.next_part);
        around.disk().start_replace_small_file(
            SAVE_STATE_TOKEN,
            receiving::TRANSFER_STATE_FILE,
            receiving.encode(),
        );
        self.job = Some(SnapshotJob::Receiving(Box::new(receiving)));
    }

    pub(crate) fn on_piece<D: Disk, S: StateMachine>(
        &mut self,
        from: NodeId,
        (at, digest, offset): (Slot, u128, u64),
        bytes: &[u8],
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(SnapshotJob::Receiving(receiving)) = &mut self.job else {
            return;
        };
        let have = receiving.writer.bytes();
        let takes = receiving.has_room()
            && self.fetching.accept_bytes(around.now, from, (at, digest, offset), have);
        if !takes {
            return;
        }
        around.outbox.counters.snapshot_bytes_received += bytes.len() as u64;
        let disk = around.storing.log_mut().disk_mut();
        match receiving.push(self.cluster, bytes, disk) {
            Ok(()) => self.extend_renewal(around.now),
            Err(wrong) => self.drop_received(wrong.0, around),
        }
    }

    /// Handles a completely received snapshot. It becomes this node's own through the base of the
    /// log.
    pub(super) fn end_receiving<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(SnapshotJob::Receiving(receiving)) = &mut self.job else {
            return;
        };
        receiving.writer.retry_operations(around.storing.log_mut().disk_mut());
        match receiving.received_snapshot() {
            None => {}
            Some(Err(wrong)) => self.drop_received(wrong.0, around),
            Some(Ok((manifest, header))) => {
                let node = around.protocol.node();
                // [snap-2] Slots that are not decided here may be known only to the service.
                let unknown = header.slot > node.decided_to();
                // [disk-8] The snapshot also replaces slots that the log has lost.
                let lost = around.catching_up.first_lost_slot();
                // [trim-1] A node that has forgotten the slots below its log accepts any snapshot.
                let unknown = unknown || node.is_hollow();
                let ahead = unknown || lost.is_some_and(|(lost, _)| lost < header.slot);
                // The core may not know yet that the log of this auxiliary now begins later.
                let below = unknown && header.slot < around.storing.log().start();
                if below || (unknown && !node.may_install(header.slot, &header.eras)) {
                    return self.drop_received("it contradicts what is known here", around);
                }
                self.next_part = receiving.writer.parts_end();
                self.job = None;
                self.fetching.stop();
                let start = around.log().start();
                let (start, install) = match ahead {
                    true => (header.slot, Some(header)),
                    false => (start, None),
                };
                self.begin_rebase(start, Some(manifest), install, around);
            }
        }
    }

    /// Drops all received data, because it does not match the offer.
    pub(super) fn drop_received<D: Disk, S: StateMachine>(
        &mut self,
        why: &str,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if let Some(source) = self.fetching.sender() {
            let why = format!("node {source}'s snapshot was refused: {why}");
            around.observing.queue_event(Event::SnapshotFailed { why });
            self.fetching.mark_as_worse(source);
        }
        if let Some(job) = self.job.take() {
            self.abandon_job(job, around);
        }
    }

    /// Drops the transfer in progress, if any, because it is not needed.
    pub(super) fn abandon_transfer<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        if matches!(self.job, Some(SnapshotJob::Receiving(_)))
            && let Some(job) = self.job.take()
        {
            self.abandon_job(job, around);
        }
    }

    /// Verifies the data received by an earlier process, chunk by chunk.
    pub(super) fn resume_receiving<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(receiving) = &self.resuming else {
            return;
        };
        if self.reads.count_reads(|purpose| purpose == Purpose::Resume) > 0 {
            return;
        }
        let manifest = receiving.as_manifest();
        let offset = receiving.writer.bytes();
        let place =
            manifest.layout.chunk_position(manifest.first_part, manifest.layout.chunk_at(offset).0);
        let there = |disk: &mut D| {
            let files = disk.files(quorate_log::disk::Family::Snapshot).unwrap_or_default();
            files.iter().any(|info| info.file == place.file)
        };
        if offset < manifest.bytes && there(around.disk()) {
            self.reads.start_read(Purpose::Resume, manifest, offset, around.disk());
        } else {
            self.end_resume(around);
        }
    }

    pub(super) fn on_chunk_to_resume<D: Disk, S: StateMachine>(
        &mut self,
        chunk: Chunk,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(receiving) = &mut self.resuming else {
            return;
        };
        let whole = chunk
            .content
            .is_ok_and(|content| receiving.add_received(self.cluster, &content).is_ok());
        if !whole {
            self.end_resume(around);
        }
    }

    /// Ends the verification of data from an earlier process, and continues the transfer.
    pub(super) fn end_resume<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(mut receiving) = self.resuming.take() else {
            return;
        };
        let files = around.disk().files(quorate_log::disk::Family::Snapshot);
        let first = receiving.as_manifest().first_part;
        let there = files.unwrap_or_default();
        let behind =
            there.iter().map(|info| info.file.number).filter(|number| *number >= first).max();
        receiving.writer.resume(behind.map_or(first, |last| last + 1));
        if receiving.writer.bytes() == receiving.target.bytes {
            receiving.writer.finish(around.disk());
        }
        self.job = Some(SnapshotJob::Receiving(receiving));
    }

    /// Sends peers the bytes that they requested, round-robin.
    pub(super) fn serve_peers<D: Disk, S: StateMachine>(
        &mut self,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Some(own) = self.own_snapshot else { return };
        let serves = |purpose| matches!(purpose, Purpose::Serve(_));
        while self.reads.count_reads(serves) < READS_MAX {
            let Some((to, offset)) = self.serving.next_read(around.now, &own) else {
                return;
            };
            if !self.rate_limit.can_transfer(around.now) {
                let at = self.rate_limit.wake_at();
                self.next_turn_at = crate::wake::earliest_time([self.next_turn_at, at]);
                return;
            }
            let room = padded_chunk_bytes(own.layout.content_bytes());
            let before = self.reads.count_reads(|purpose| purpose == Purpose::Serve(to));
            if before > 0 && !around.outbox.can_send(to, Lane::Bulk, room * (before + 1)) {
                // The connection has space only for what is already being read.
                return;
            }
            if !around.outbox.has_room(to, Lane::Bulk, room) {
                let at = around.now.plus_ms(RETRY_MS);
                self.next_turn_at = crate::wake::earliest_time([self.next_turn_at, Some(at)]);
                return;
            }
            let disk = around.disk();
            let end = self.reads.start_read(Purpose::Serve(to), own, offset, disk);
            self.rate_limit.spend_bytes(usize::try_from(end - offset).unwrap_or(usize::MAX));
            self.serving.record_reading(to, end);
        }
    }

    pub(super) fn on_chunk_to_serve<D: Disk, S: StateMachine>(
        &mut self,
        to: NodeId,
        chunk: Chunk,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let Chunk { manifest, offset, content, .. } = chunk;
        let content = match content {
            Ok(content) => content,
            Err(ChunkReadError::NotNow) => {
                self.serving.restart_reading(to);
                self.next_turn_at = Some(around.now.plus_ms(RETRY_DELAY_MS));
                return;
            }
            Err(ChunkReadError::Damaged(why)) => {
                return self.on_own_damaged(manifest, &why, around);
            }
        };
        let Some((offset, bytes)) = self.serving.piece_to_send(to, &manifest, offset, &content)
        else {
            return;
        };
        let frame =
            Frame::SnapshotPiece { at: manifest.slot, digest: manifest.digest, offset, bytes };
        let sent = around.outbox.send_all(NodeSet::one(to), Lane::Bulk, &frame, None);
        if sent.is_empty() {
            self.serving.restart_reading(to);
        } else {
            around.outbox.counters.snapshot_bytes_sent += bytes.len() as u64;
            self.serving.record_sent(around.now, to, bytes.len());
        }
    }
}

/// Returns the reply to a peer that needs a snapshot.
pub(crate) fn offer_frame(offer: SnapshotOffer, log_start: Slot) -> Frame<'static> {
    Frame::SnapshotOffer {
        at: offer.slot,
        digest: offer.digest,
        bytes: offer.bytes,
        log_start,
        busy: offer.is_busy,
    }
}
