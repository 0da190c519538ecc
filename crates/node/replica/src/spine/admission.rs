//! Checks values in peers' frames before they reach the core, and stores their bytes.

use quorate_core::{
    effect::Refusal,
    input::Input,
    lease::Lease,
    message::Message,
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_log::disk::Disk;
use quorate_wire::{Frame, Lane};

use crate::{
    applying::sessions::BatchVerdict,
    contents::{MismatchedBytes, ReceivedBytes, stream_positions},
    outbox::Outbox,
    ports::{plane::Plane, service::StateMachine},
    proposing::batch::Batch,
    spine::Spine,
};

impl<D: Disk, S: StateMachine> Spine<D, S> {
    /// [stream-4] If the first part of a run of content is not needed and a needed part follows,
    /// returns the end of the first part.
    pub(crate) fn needless_end(&self, range: SlotRange, value: &Value) -> Option<Slot> {
        let streams = self.applying.streams();
        let cut = self.contents.needless_part(value, range, streams).to;
        (range.from < cut && cut < range.to).then_some(cut)
    }

    /// [read-4] Returns a message with the time at which it was received. For a lease request the
    /// clock is read, because the lease begins at that time and the turn may have begun before the
    /// request was sent. Without a clock, no lease is granted.
    pub(crate) fn received_at(&mut self, now: Time, mut message: Message) -> (Time, Message) {
        let Message::Heartbeat(beat) = &mut message else {
            return (now, message);
        };
        if beat.lease.duration_us == 0 {
            return (now, message);
        }
        match self.clocks.steady_clock() {
            Some(clock) => {
                let now = clock.now().max(now);
                self.protocol.record_clock_reading(now);
                (now, message)
            }
            None => {
                beat.lease = Lease::default();
                (now, message)
            }
        }
    }

    /// Returns whether the value's bytes are available; `None` if the frame must be dropped.
    pub(crate) fn admit_value(
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
        // A frame that would grow a queue beyond its bound is dropped; its sender repeats it.
        let held = self.contents.holds_all(&value, range, self.applying.streams());
        let more = brought.filter(|_| !held).map_or(0, |brought| brought.bytes.len());
        if self.is_overloaded() || !self.has_room_for(message, range.from, more) {
            self.counters.frames_overload += 1;
            return None;
        }
        if !value.has_bytes() {
            return Some(false);
        }
        if let Some(brought) = brought
            && !self.store_bytes(now, value, range, held, brought)
        {
            return None;
        }
        // [value-3] From now on, the bytes are retained until the slot is applied.
        let near =
            range.from < self.protocol.node().decided_to().plus(self.protocol.window_slots());
        if near && range.from >= self.needed_from() {
            self.contents.pin_bytes(&value, range);
        }
        if let (Value::Content { .. }, Message::Learn { .. }) = (value, message) {
            // [snap-5] Decided content is learned even without its bytes. The store fetches what
            // peers retain; until then, this node does not count as having them.
            return Some(true);
        }
        if let Value::Content { .. } = value {
            // [stream-4] Content may arrive without bytes that are not needed, which `holds_all`
            // takes into account.
            let streams = self.applying.streams();
            return Some(self.contents.holds_all(&value, range, streams));
        }
        // Bytes that were just stored are available, since the newest bytes are never dropped.
        Some(held || brought.is_some())
    }

    /// Returns whether there is capacity for a proposal's bytes. Proposals after a gap may use only
    /// half of it, so that they never block the slots for which they wait. The first slot that
    /// needs bytes always fits, even if votes from before a restart exceed the capacity, because
    /// only its progress frees memory.
    pub(crate) fn has_room_for(&self, message: &Message, slot: Slot, more: usize) -> bool {
        let node = self.protocol.node();
        let next = match message {
            Message::Phase2a(proposal) => node.newest_run().voted_to(proposal.ballot),
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
    pub(crate) fn store_bytes(
        &mut self,
        now: Time,
        value: Value,
        range: SlotRange,
        held: bool,
        brought: ReceivedBytes<'_>,
    ) -> bool {
        let kept = match held {
            true => Ok(()),
            false => self.contents.store_bytes(&value, range, brought),
        };
        match kept {
            Ok(()) => self.handle_arrival(now, value),
            Err(MismatchedBytes) => self.counters.frames_mismatched += 1,
        }
        kept.is_ok()
    }

    /// Handles the arrival of a value's bytes, for which the core may be waiting.
    pub(crate) fn handle_arrival(&mut self, now: Time, value: Value) {
        // Parts of a run that are not needed are reported separately.
        while let Some(range) = self.contents.record_available(now, &value, self.applying.streams())
        {
            self.counters.payloads_fetched += 1;
            self.protocol.queue_input(Input::BytesHeld { value, range });
        }
    }

    /// Returns whether a batch is known to be executed, or a registration to be in effect.
    pub(crate) fn is_already_executed(&self, value: &Value, bytes: &[u8]) -> bool {
        let sessions = self.applying.sessions();
        match *value {
            Value::Batch(name) => Batch::header(bytes).is_some_and(|header| {
                sessions.preview_verdict(&name, header) == BatchVerdict::AlreadyExecuted
            }),
            Value::RegisterSession { origin, boot, number } => {
                sessions.node_session(origin, boot, number).is_some()
                    || sessions.client_session(origin, boot, number).is_some()
            }
            _ => false,
        }
    }

    pub(crate) fn mark_unplaced(&mut self, value: &Value, range: SlotRange) {
        if let Value::Content { stream, offset } = *value {
            let runs = self.contents.stream_buffers_mut();
            runs.mark_unplaced(stream, stream_positions(offset, range));
        }
    }

    pub(crate) fn refuse_value(
        &mut self,
        to: NodeId,
        value: Value,
        why: Refusal,
        plane: &mut dyn Plane,
    ) {
        self.counters.forwards_refused += 1;
        let leader = self.protocol.node().leader();
        let frame = Frame::NotTaken { value, why, leader };
        Outbox::new(self.identity.member, plane, &mut self.counters).send(
            to,
            Lane::Control,
            &frame,
        );
    }
}
