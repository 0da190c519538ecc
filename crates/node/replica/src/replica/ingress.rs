//! Validates peers' frames, and turns them into inputs of the core or requests to this node.

use quorate_core::{
    effect::{Refusal, Role},
    input::Input,
    lease::Lease,
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
    applying::{digest::Claim, sessions::Turn},
    contents::{Mismatched, ReceivedBytes},
    hops::Hop,
    outbox::Outbox,
    ports::{
        plane::{Plane, Received},
        service::StateMachine,
    },
    proposing::batch::Batch,
    snapshots::{fetching::Offer, turn::offer_frame},
    storing::Written,
};

/// Delay in milliseconds before offering again to a leader that refused an offer because it was
/// busy or does not lead.
const REFUSED_MS: u64 = 5;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Handles a frame from a peer.
    pub fn on_frame(
        &mut self,
        now: Time,
        wall_ms: u64,
        received: Received<'_>,
        plane: &mut dyn Plane,
    ) {
        if let Frame::Recalled(memory) = received.frame {
            // Even a node that still reads its votes must not miss this frame.
            return self.on_recalled(received.from.node, memory);
        }
        if received.from.node == self.member.node || self.is_silent() {
            self.counters.frames_overload += 1;
            return;
        }
        self.remind(plane);
        self.clocks.turn(now, wall_ms);
        self.begin_turn(now);
        self.stamp(Hop::Frame, None);
        self.drain_inbox(now, plane);
        self.take_frame(now, received, plane);
    }

    fn take_frame(&mut self, now: Time, received: Received<'_>, plane: &mut dyn Plane) {
        let Received { from, frame, body_check, logged, body } = received;
        if logged > 0 && !self.believes(from, logged, plane) {
            return;
        }
        let brought = |bytes| ReceivedBytes { bytes, check: body_check, body };
        match frame {
            Frame::Protocol { message, bytes } => {
                self.on_protocol(now, from, message, bytes.map(brought), plane);
            }
            Frame::Forward { value, bytes } => {
                self.on_forward(now, from.node, value, brought(bytes), plane);
            }
            Frame::NotTaken { value, .. } => self.on_not_taken(now, &value),
            Frame::FetchRequest { value, slot } if self.is_needless(&value, slot) => {
                self.say_needless(from.node, &value, plane);
            }
            Frame::FetchRequest { value, slot } if self.has_in_store(from.node, &value, slot) => {}
            Frame::FetchRequest { value, slot } => {
                let mut out = Outbox::new(self.member, plane, &mut self.counters);
                self.catching_up.on_question(from.node, value, slot, &self.contents, &mut out);
            }
            Frame::FetchReply { value, bytes } => {
                self.on_fetch_reply(now, value, bytes.map(brought));
            }
            Frame::StreamBytes { stream, position, bytes } => {
                self.on_stream_bytes(now, from.node, (stream, position), brought(bytes))
            }
            Frame::Needless { stream, below, from } => self.on_needless(now, stream, below, from),
            Frame::Applied { to, digest } => self.on_claim(from.node, Claim { to, digest }),
            Frame::SnapshotAsk { at, digest, offset } => {
                self.on_snapshot_ask(now, from.node, (at, digest, offset), plane);
            }
            Frame::SnapshotOffer { at, digest, bytes, busy, .. } => {
                let offer = Offer { at, digest, bytes, busy };
                self.snapshots.on_offer(now, from.node, offer);
            }
            Frame::SnapshotPiece { at, digest, offset, bytes } => {
                self.on_snapshot_piece(now, from.node, (at, digest, offset), bytes, plane)
            }
            // The reactor handles these frames itself and does not pass them on.
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Refused(..)
            | Frame::Join(_)
            | Frame::Founding(_)
            | Frame::Recall { .. }
            | Frame::Recalled(_)
            | Frame::Datagrams(_) => self.counters.frames_mismatched += 1,
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
            && self.catching_up.wants(range)
        {
            self.take_repair(range, value, brought);
            return;
        }
        if let Message::BelowStart { log_start } = message
            && let Some((lost, _)) = self.catching_up.lost_value()
            && lost < log_start
        {
            self.snapshots.need_for_lost(log_start);
        }
        if let Message::Learn { range, value } = message
            && let Some(cut) = self.cut_of(range, &value)
        {
            // The parts that are not needed and the parts that may be appended are recorded
            // separately.
            for part in [SlotRange::new(range.from, cut), SlotRange::new(cut, range.to)] {
                let brought = brought.and_then(|brought| brought.part(range, part));
                let message = Message::Learn { range: part, value };
                self.on_protocol(now, from, message, brought, plane);
            }
            return;
        }
        let (now, message) = self.received_at(now, message);
        self.tuning.on_message(now, from.node, &message);
        if let Some(routing) = &mut self.routing {
            routing.on_message(&message);
        }
        self.observing.heard(now, &message, self.protocol.node().era());
        let Some(held) = self.admit(now, &message, brought) else {
            return;
        };
        let clock = match &message {
            Message::Heartbeat(beat) => Some(beat.clock_ms),
            Message::HeartbeatReply(reply) => {
                if reply.ballot == self.protocol.node().ballot() {
                    let (wall_ms, group_ms) = (reply.clock_ms, reply.group_ms);
                    self.clocks.on_answer(self.read_clock(now), from.node, wall_ms, group_ms);
                }
                None
            }
            _ => None,
        };
        self.step(now, Input::Message { from, message, held }, plane);
        // A former leader may have been replaced because its clock was wrong.
        if let Some(clock_ms) = clock
            && self.protocol.node().leader() == Some(from.node)
        {
            self.clocks.on_leader(self.read_clock(now), clock_ms);
        }
    }

    /// [stream-4] If the first part of a run of content is not needed and a needed part follows,
    /// returns the end of the first part.
    pub(super) fn cut_of(&self, range: SlotRange, value: &Value) -> Option<Slot> {
        let streams = self.applying.streams();
        let cut = self.contents.needless(value, range, streams).to;
        (range.from < cut && cut < range.to).then_some(cut)
    }

    /// [read-4] Returns a message with the time at which it was received. If a lease is requested,
    /// the clock is read, because the lease begins at that time and the turn may have begun before
    /// the request was sent. Without a clock, no lease is granted.
    fn received_at(&mut self, now: Time, mut message: Message) -> (Time, Message) {
        let Message::Heartbeat(beat) = &mut message else {
            return (now, message);
        };
        if beat.lease.us == 0 {
            return (now, message);
        }
        match &self.clock {
            Some(clock) => {
                let now = clock.now().max(now);
                self.protocol.clock_was_read(now);
                (now, message)
            }
            None => {
                beat.lease = Lease::default();
                (now, message)
            }
        }
    }

    /// Returns whether the bytes of the message's value are available; `None` if the frame must be
    /// dropped.
    fn admit(
        &mut self,
        now: Time,
        message: &Message,
        brought: Option<ReceivedBytes<'_>>,
    ) -> Option<bool> {
        let (range, value) = match message {
            Message::Phase2a(proposal) => (proposal.range, proposal.value),
            Message::Learn { range, value } => (*range, *value),
            _ => return Some(false),
        };
        if range.len() != 1 && !value.may_span() {
            self.counters.frames_mismatched += 1;
            return None;
        }
        // Admission: a frame that would grow a queue beyond its bound is dropped; the sender
        // repeats it.
        let held = self.contents.holds(&value, range, self.applying.streams());
        let more = brought.filter(|_| !held).map_or(0, |brought| brought.bytes.len());
        if self.is_overloaded() || !self.has_room_for(message, range.from, more) {
            self.counters.frames_overload += 1;
            return None;
        }
        if !value.has_bytes() {
            return Some(false);
        }
        if let Some(brought) = brought
            && !self.keep(now, value, range, held, brought)
        {
            return None;
        }
        // [value-3] From here until the slot is applied the bytes are retained, however late the
        // vote is.
        let near = range.from < self.protocol.node().decided_to().plus(self.window_slots);
        if near && range.from >= self.needed_from() {
            self.contents.pin(&value, range);
        }
        if let (Value::Content { .. }, Message::Learn { .. }) = (value, message) {
            // [snap-5] Decided content is learned even without its bytes. The store fetches by
            // position the bytes that peers still retain; until then, this node does not count as
            // having them.
            return Some(true);
        }
        if let Value::Content { .. } = value {
            // [stream-4] Content may arrive without bytes if they are not needed; `holds` takes
            // this into account.
            let streams = self.applying.streams();
            return Some(self.contents.holds(&value, range, streams));
        }
        // Bytes that were just stored are available, since the newest bytes are never dropped.
        Some(held || brought.is_some())
    }

    /// Returns whether there is capacity for a proposal's bytes. Proposals after a gap wait for the
    /// slots that fill it, so they may use only half of the capacity: they must never block the
    /// slots for which they wait. The first slot that needs bytes always fits, even if votes from
    /// before a restart exceed the capacity, because only its progress frees memory.
    fn has_room_for(&self, message: &Message, slot: Slot, more: usize) -> bool {
        let node = self.protocol.node();
        let next = match message {
            Message::Phase2a(proposal) => node.run().voted_to(proposal.ballot),
            _ => Slot::FIRST,
        };
        if slot <= self.needed_from() {
            true
        } else if slot <= next.max(node.decided_to()) {
            self.contents.has_room(more)
        } else {
            self.contents.has_room_ahead(more)
        }
    }

    /// Stores bytes of the value that are not `held` yet, and notifies the core if it waits for
    /// them. Returns `false` if they do not match the value.
    fn keep(
        &mut self,
        now: Time,
        value: Value,
        range: SlotRange,
        held: bool,
        brought: ReceivedBytes<'_>,
    ) -> bool {
        let kept = match held {
            true => Ok(()),
            false => self.contents.keep(&value, range, brought),
        };
        match kept {
            Ok(()) => self.found(now, value),
            Err(Mismatched) => self.counters.frames_mismatched += 1,
        }
        kept.is_ok()
    }

    /// Handles the arrival of a value's bytes, for which the core may be waiting.
    pub(super) fn found(&mut self, now: Time, value: Value) {
        // Parts of a run that are not needed are reported separately.
        while let Some(range) = self.contents.found(now, &value, self.applying.streams()) {
            self.counters.payloads_fetched += 1;
            self.protocol.later(Input::Held { value, range });
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
        // [value-2] Only the origin of a name may bind it to bytes.
        if origin_of(&value).is_none_or(|(origin, _)| origin != from) {
            self.counters.frames_mismatched += 1;
            return;
        }
        if self.protocol.node().role() != Role::Leader {
            return self.refuse(from, value, Refusal::NotLeader, plane);
        }
        if self.proposing.knows(&value) || self.is_past(&value, brought.bytes) {
            self.counters.forwards_repeated += 1;
            return;
        }
        let payload = if !value.has_bytes() {
            None
        } else if brought.is_of(&value, SlotRange::default()) {
            Some(brought.to_payload())
        } else {
            self.counters.frames_mismatched += 1;
            return;
        };
        if !self.proposing.take_forwarded(value, payload) {
            return self.refuse(from, value, Refusal::Busy, plane);
        }
        self.counters.forwards_taken += 1;
        self.propose_forwarded(now, plane);
    }

    /// Returns whether a batch is known to be executed, or a registration is known to have taken
    /// effect.
    pub(super) fn is_past(&self, value: &Value, bytes: &[u8]) -> bool {
        let sessions = self.applying.sessions();
        match *value {
            Value::Batch(name) => Batch::header(bytes)
                .is_some_and(|header| sessions.turn(&name, header) == Turn::Past),
            Value::RegisterSession { origin, boot, number } => {
                sessions.node_session(origin, boot, number).is_some()
                    || sessions.client_session(origin, boot, number).is_some()
            }
            _ => false,
        }
    }

    fn on_not_taken(&mut self, now: Time, value: &Value) {
        if origin_of(value) == Some((self.member.node, self.boot)) {
            let until = now.plus_ms(REFUSED_MS);
            self.proposing.origin().on_refused(value, until);
        }
    }

    fn on_fetch_reply(&mut self, now: Time, value: Value, brought: Option<ReceivedBytes<'_>>) {
        if let (Value::Content { stream, .. }, None) = (value, &brought) {
            let keeping = &mut self.streaming.keeping;
            keeping.missing_not_there(now, stream, self.peers.len());
        }
        let Some(range) = self.contents.wanted(&value) else {
            return;
        };
        match brought {
            // Bytes for the first slot always fit, as with a proposal.
            Some(brought)
                if range.from <= self.needed_from()
                    || self.contents.has_room(brought.bytes.len()) =>
            {
                let streams = self.applying.streams();
                let held = self.contents.holds(&value, range, streams);
                self.keep(now, value, range, held, brought);
            }
            Some(_) => self.counters.frames_overload += 1,
            None => self.contents.not_there(now, &value, self.peers.len()),
        }
    }

    /// Records a value that a peer sent because this node's log had lost it.
    fn take_repair(&mut self, range: SlotRange, value: Value, brought: Option<ReceivedBytes<'_>>) {
        let is_content = matches!(value, Value::Content { .. });
        let written = match brought {
            _ if !value.has_bytes() => Written::Bytes(&[]),
            Some(brought) if brought.is_of(&value, range) && !brought.bytes.is_empty() => {
                Written::Bytes(brought.bytes)
            }
            // [snap-5] The store already has the bytes, or fetches those that peers still retain.
            _ if is_content => {
                self.learns_bare(range.to);
                Written::Places(&[])
            }
            _ => return,
        };
        let record = Record::Decided { range, value };
        let hard = self.protocol.node().hard_state();
        if let Err(error) = self.storing.append_beside(&record, written, hard) {
            self.fail_storage(error.to_string());
        }
        self.catching_up.repaired(range, &mut self.protocol, &mut self.counters);
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
        if self.doubt.is_some() {
            return;
        }
        if at > Slot(0) && self.snapshots.on_ask(now, from, asked) {
            return;
        }
        let needed = if at > Slot(0) { at } else { Slot(offset) };
        let start = self.storing.log().start();
        let frame =
            offer_frame(self.snapshots.offer(start, self.applying.applied_to(), needed), start);
        Outbox::new(self.member, plane, &mut self.counters).send(from, Lane::Bulk, &frame);
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

    fn on_claim(&mut self, from: NodeId, claim: Claim) {
        if let Some(alarm) = self.peers.heard(from, claim, self.applying.digest()) {
            self.observing.raise(alarm, &mut self.counters);
            self.look_at_doubt();
        }
    }
}
