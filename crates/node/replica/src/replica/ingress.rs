//! Validates peers' frames and turns them into inputs of the core or requests to this node.

use quorate_core::{
    effect::{Refusal, Role},
    input::Input,
    message::Message,
    node_id::{Member, NodeId},
    record::Record,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_log::disk::Disk;
use quorate_wire::{Frame, Lane};

use super::{Replica, egress::origin_of};
use crate::{
    applying::digest::DigestClaim,
    contents::ReceivedBytes,
    hops::Hop,
    outbox::Outbox,
    ports::{
        plane::{Plane, ReceivedFrame},
        service::StateMachine,
    },
    snapshots::{fetching::SnapshotOffer, turn::offer_frame},
    storing::RecordForm,
};

/// Delay in milliseconds before the next offer to a leader that was busy or does not lead.
const REFUSED_OFFER_DELAY_MS: u64 = 5;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Handles a frame from a peer.
    pub fn on_frame(
        &mut self,
        now: Time,
        wall_ms: u64,
        received: ReceivedFrame<'_>,
        plane: &mut dyn Plane,
    ) {
        if let Frame::Recalled(memory) = received.frame {
            // This frame must be handled even while the node is still reading its votes.
            if let Some(why) = self.rollback.on_recalled(&self.spine, received.from.node, memory) {
                self.fail_storage(why);
            }
            return;
        }
        if received.from.node == self.spine.identity.member.node || self.is_silent() {
            self.spine.counters.frames_overload += 1;
            return;
        }
        self.rollback.send_reminders(&mut self.spine, plane);
        self.spine.clocks.update_own_reading(now, wall_ms);
        self.begin_turn(now);
        self.spine.stamp(Hop::Frame, None);
        self.drain_inbox(now, plane);
        self.handle_frame(now, received, plane);
    }

    fn handle_frame(&mut self, now: Time, received: ReceivedFrame<'_>, plane: &mut dyn Plane) {
        let ReceivedFrame { from, frame, body_checksum: body_check, logged_to: logged, body } =
            received;
        if logged > 0 && !self.rollback.accept_log_statement(&mut self.spine, (from, logged), plane)
        {
            return;
        }
        let brought = |bytes| ReceivedBytes { bytes, checksum: body_check, body };
        match frame {
            Frame::Protocol { message, bytes } => {
                self.on_protocol(now, from, message, bytes.map(brought), plane);
            }
            Frame::Forward { value, bytes } => {
                self.on_forward(now, from.node, value, brought(bytes), plane);
            }
            Frame::NotTaken { value, .. } => self.on_not_taken(now, &value),
            Frame::FetchRequest { value, slot }
                if self.streams_work().is_needless(&value, slot) =>
            {
                self.streams_work().notify_needless(from.node, &value, plane);
            }
            Frame::FetchRequest { value, slot }
                if self.streams_work().start_read_if_stored(from.node, &value, slot) => {}
            Frame::FetchRequest { value, slot } => {
                let mut out =
                    Outbox::new(self.spine.identity.member, plane, &mut self.spine.counters);
                self.catching_up.on_question(
                    from.node,
                    value,
                    slot,
                    &self.spine.contents,
                    &mut out,
                );
            }
            Frame::FetchReply { value, bytes } => {
                self.on_fetch_reply(now, value, bytes.map(brought));
            }
            Frame::StreamBytes { stream, position, bytes } => {
                self.streams_work().on_bytes(now, from.node, (stream, position), brought(bytes))
            }
            Frame::Needless { stream, below, from } => {
                self.streams_work().on_needless(now, stream, below, from)
            }
            Frame::Applied { to, state_digest: digest } => {
                self.on_claim(from.node, DigestClaim { to, digest })
            }
            Frame::SnapshotAsk { at, digest, offset } => {
                self.on_snapshot_ask(now, from.node, (at, digest, offset), plane);
            }
            Frame::SnapshotOffer { at, digest, bytes, busy, .. } => {
                let offer = SnapshotOffer { slot: at, digest, bytes, is_busy: busy };
                self.snapshots.on_offer(now, from.node, offer);
            }
            Frame::SnapshotPiece { at, digest, offset, bytes } => {
                self.on_snapshot_piece(now, from.node, (at, digest, offset), bytes, plane)
            }
            // The reactor handles these frames itself.
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Refused(..)
            | Frame::Join(_)
            | Frame::Founding(_)
            | Frame::Recall { .. }
            | Frame::Recalled(_)
            | Frame::Datagrams(_) => self.spine.counters.frames_mismatched += 1,
        }
    }

    fn on_protocol(
        &mut self,
        now: Time,
        from: Member,
        message: Message,
        brought: Option<ReceivedBytes<'_>>,
        plane: &mut dyn Plane,
    ) {
        if let Message::Learn { range, value } = message
            && self.catching_up.is_fetching(range)
        {
            self.store_repaired(range, value, brought);
            return;
        }
        if let Message::BelowStart { log_start } = message
            && let Some((lost, _)) = self.catching_up.first_lost_slot()
            && lost < log_start
        {
            self.snapshots.request_for_lost(log_start);
        }
        if let Message::Learn { range, value } = message
            && let Some(cut) = self.spine.needless_end(range, &value)
        {
            // The part that is not needed and the part to append are recorded separately.
            for part in [SlotRange::new(range.from, cut), SlotRange::new(cut, range.to)] {
                let brought = brought.and_then(|brought| brought.part_for(range, part));
                let message = Message::Learn { range: part, value };
                self.on_protocol(now, from, message, brought, plane);
            }
            return;
        }
        let (now, message) = self.spine.received_at(now, message);
        self.tuning.on_message(now, from.node, &message);
        self.spine.observing.record_message(now, &message, self.spine.node().era());
        let Some(held) = self.spine.admit_value(now, &message, brought) else {
            return;
        };
        let beat = match &message {
            Message::Heartbeat(beat) => Some((beat.clock_ms, beat.full_disk)),
            Message::HeartbeatReply(reply) => {
                self.fitness.full_disks.on_reply(from.node, reply.disk_full);
                if reply.ballot == self.spine.node().ballot() {
                    let (wall_ms, group_ms) = (reply.clock_ms, reply.group_ms);
                    self.spine.clocks.on_answer(
                        self.spine.read_clock(now),
                        from.node,
                        wall_ms,
                        group_ms,
                    );
                }
                None
            }
            _ => None,
        };
        self.step(now, Input::Message { from, message, bytes_held: held }, plane);
        // Only the current leader counts: an earlier one may have been replaced because its clock
        // was wrong.
        if let Some((clock_ms, full_disk)) = beat
            && self.spine.node().leader() == Some(from.node)
        {
            self.fitness.full_disks.on_leader(full_disk);
            self.spine.clocks.on_leader(self.spine.read_clock(now), clock_ms);
        }
    }

    fn on_forward(
        &mut self,
        now: Time,
        from: NodeId,
        value: Value,
        brought: ReceivedBytes<'_>,
        plane: &mut dyn Plane,
    ) {
        // [value-2] Only the origin of a name may bind it to bytes, so others may not offer it.
        if origin_of(&value).is_none_or(|(origin, _)| origin != from) {
            self.spine.counters.frames_mismatched += 1;
            return;
        }
        if self.spine.node().role() != Role::Leader {
            return self.spine.refuse_value(from, value, Refusal::NotLeader, plane);
        }
        if self.spine.proposing.has_pending(&value)
            || self.spine.is_already_executed(&value, brought.bytes)
        {
            self.spine.counters.forwards_repeated += 1;
            return;
        }
        let payload = if !value.has_bytes() {
            None
        } else if brought.holds_bytes_of(&value, SlotRange::default()) {
            Some(brought.to_payload())
        } else {
            self.spine.counters.frames_mismatched += 1;
            return;
        };
        if !self.spine.proposing.take_forwarded(value, payload) {
            return self.spine.refuse_value(from, value, Refusal::Busy, plane);
        }
        self.spine.counters.forwards_taken += 1;
        self.propose_forwarded(now, plane);
    }

    fn on_not_taken(&mut self, now: Time, value: &Value) {
        if origin_of(value) == Some((self.spine.identity.member.node, self.spine.identity.boot)) {
            let until = now.plus_ms(REFUSED_OFFER_DELAY_MS);
            self.spine.proposing.origin_mut().on_refused(value, until);
        }
    }

    fn on_fetch_reply(&mut self, now: Time, value: Value, brought: Option<ReceivedBytes<'_>>) {
        if let (Value::Content { stream, .. }, None) = (value, &brought) {
            let keeping = &mut self.streaming.stream_storage;
            keeping.on_missing_unavailable(now, stream, self.spine.peers.len());
        }
        let Some(range) = self.spine.contents.fetching_range(&value) else {
            return;
        };
        match brought {
            // The bytes for the first slot always fit, as in a proposal.
            Some(brought)
                if range.from <= self.spine.needed_from()
                    || self.spine.contents.has_room(brought.bytes.len()) =>
            {
                let streams = self.spine.applying.streams();
                let held = self.spine.contents.holds_all(&value, range, streams);
                self.spine.store_bytes(now, value, range, held, brought);
            }
            Some(_) => self.spine.counters.frames_overload += 1,
            None => self.spine.contents.on_unavailable(now, &value, self.spine.peers.len()),
        }
    }

    /// Records a value that a peer sent because this node's log had lost it.
    fn store_repaired(
        &mut self,
        range: SlotRange,
        value: Value,
        brought: Option<ReceivedBytes<'_>>,
    ) {
        let is_content = matches!(value, Value::Content { .. });
        let written = match brought {
            _ if !value.has_bytes() => RecordForm::Bytes(&[]),
            Some(brought) if brought.holds_bytes_of(&value, range) && !brought.bytes.is_empty() => {
                RecordForm::Bytes(brought.bytes)
            }
            // [snap-5] The store already has the bytes, or it fetches those that peers still
            // retain.
            _ if is_content => {
                self.record_learned_without_bytes(range.to);
                RecordForm::Places(&[])
            }
            _ => return,
        };
        let record = Record::Decided { range, value };
        let hard = self.spine.node().hard_state();
        if let Err(error) = self.spine.storing.append_unreported(&record, written, hard) {
            self.fail_storage(error.to_string());
        }
        self.catching_up.record_repaired(range, &mut self.spine.protocol, &mut self.spine.counters);
    }

    /// Handles a peer's request to begin or continue sending it a snapshot.
    fn on_snapshot_ask(
        &mut self,
        now: Time,
        from: NodeId,
        asked: (Slot, u128, u64),
        plane: &mut dyn Plane,
    ) {
        let (at, _, offset) = asked;
        // [differ-3] A state that may be wrong is not sent to other nodes.
        if self.suspicion.is_in_doubt() {
            return;
        }
        if at > Slot(0) && self.snapshots.on_peer_request(now, from, asked) {
            return;
        }
        let needed = if at > Slot(0) { at } else { Slot(offset) };
        let start = self.spine.storing.log().start();
        let frame = offer_frame(
            self.snapshots.offer_snapshot(start, self.spine.applying.applied_to(), needed),
            start,
        );
        self.spine.outbox(plane).send(from, Lane::Bulk, &frame);
    }

    fn on_snapshot_piece(
        &mut self,
        now: Time,
        from: NodeId,
        place: (Slot, u128, u64),
        bytes: &[u8],
        plane: &mut dyn Plane,
    ) {
        self.with_snapshots(now, plane, |snapshots, around| {
            snapshots.on_piece(from, place, bytes, around);
        });
    }

    fn on_claim(&mut self, from: NodeId, claim: DigestClaim) {
        if let Some(alarm) =
            self.spine.peers.compare_claim(from, claim, self.spine.applying.digest())
        {
            self.spine.observing.raise_alarm(alarm, &mut self.spine.counters);
            self.suspicion.update_record(&mut self.spine);
        }
    }
}
