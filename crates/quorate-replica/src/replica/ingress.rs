//! Frames of peers, checked and turned into events for the core or requests to this node.

use quorate_core::{
    effect::{Refusal, Role},
    input::Input,
    message::Message,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
    value::{BatchName, Value},
};
use quorate_disk::Disk;
use quorate_wire::{Frame, Lane};

use crate::{
    applying::digest::Claim,
    applying::sessions::Turn,
    contents::payloads::{self, Payload},
    plane::Plane,
    proposing::batch::Batch,
    replica::Replica,
    replica::egress::origin_of,
    service::StateMachine,
};

/// A leader that has no room, or a node that does not lead, is not asked again before.
const REFUSED_MS: u64 = 5;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    pub(crate) fn take_frame(
        &mut self,
        now: Time,
        from: Member,
        frame: Frame<'_>,
        plane: &mut dyn Plane,
    ) {
        match frame {
            Frame::Protocol { message, bytes } => {
                self.on_protocol(now, from, message, bytes, plane)
            }
            Frame::Forward { value, bytes } => self.on_forward(now, from.node, value, bytes, plane),
            Frame::NotTaken { value, .. } => self.on_not_taken(now, &value),
            Frame::FetchRequest { value, slot } => {
                self.on_fetch_request(from.node, value, slot, plane);
            }
            Frame::FetchReply { value, bytes } => self.on_fetch_reply(now, value, bytes),
            Frame::Applied { to, digest } => self.on_claim(from.node, Claim { to, digest }),
            // The reactor's own business; it does not hand these on.
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Refused(..)
            | Frame::Join(_)
            | Frame::Founding(_) => self.counters.frames_mismatched += 1,
        }
    }

    fn on_protocol(
        &mut self,
        now: Time,
        from: Member,
        message: Message,
        bytes: Option<&[u8]>,
        plane: &mut dyn Plane,
    ) {
        if let Message::Learn { range, value } = message
            && self.repair.wants(range)
        {
            self.take_repair(range, value, bytes);
            return;
        }
        self.tuning.on_message(now, from.node, &message);
        self.promises.heard(now, &message, self.node.era());
        let Some(held) = self.admit(&message, bytes) else {
            return;
        };
        self.step(
            now,
            Input::Message {
                from,
                message,
                held,
            },
            plane,
        );
    }

    /// Whether the bytes of the message's value are at hand; `None` if the frame is dropped.
    fn admit(&mut self, message: &Message, bytes: Option<&[u8]>) -> Option<bool> {
        let (range, value) = match message {
            Message::Phase2a(proposal) => (proposal.range, proposal.value),
            Message::Learn { range, value } => (*range, *value),
            _ => return Some(false),
        };
        if range.len() != 1 && !value.may_span() {
            self.counters.frames_mismatched += 1;
            return None;
        }
        // Admission: what would grow a queue without bound is as good as lost, and is repeated.
        let held = matches!(value, Value::Batch(name) if self.payloads.holds(&name));
        let more = bytes.filter(|_| !held).map_or(0, <[u8]>::len);
        if self.is_overloaded() || !self.has_room_for(message, range.from, more) {
            self.counters.frames_overload += 1;
            return None;
        }
        let name = match value {
            Value::Batch(name) => name,
            // Streams are not served by this version: there is nobody to hold their bytes.
            Value::Content { .. } => {
                self.counters.frames_mismatched += 1;
                return None;
            }
            _ => return Some(false),
        };
        if let Some(bytes) = bytes
            && !self.keep(name, bytes)
        {
            return None;
        }
        // [value-3] From here until the slot is applied the bytes stay, whenever the vote comes.
        let near = range.from < self.node.decided_to().plus(self.window_slots);
        if near && range.from >= self.applier.applied_to() {
            self.payloads.pin(range.from, name);
        }
        Some(self.payloads.holds(&name))
    }

    /// Proposals behind a gap wait for what fills it, so they may take only half of the room: they
    /// must never keep out the very slots that would let them go. The first slot that is not applied
    /// always has room, also when what was voted for before a restart fills all of it: nothing else
    /// makes room again.
    fn has_room_for(&self, message: &Message, slot: Slot, more: usize) -> bool {
        let next = match message {
            Message::Phase2a(proposal) => self.node.run().voted_to(proposal.ballot),
            _ => Slot::FIRST,
        };
        if slot <= self.applier.applied_to() {
            true
        } else if slot <= next.max(self.node.decided_to()) {
            self.payloads.has_room(more)
        } else {
            self.payloads.has_room_ahead(more)
        }
    }

    /// Keeps a payload if it is what its name says; wakes up who waits for it.
    pub(crate) fn keep(&mut self, name: BatchName, bytes: &[u8]) -> bool {
        if !self.payloads.holds(&name) {
            if !payloads::matches(&name, bytes) {
                self.counters.frames_mismatched += 1;
                return false;
            }
            self.payloads.insert(name, Payload::new(bytes.to_vec()));
        }
        self.found(name);
        true
    }

    /// A payload is in the store: the core may have asked for it.
    pub(crate) fn found(&mut self, name: BatchName) {
        if let Some(slot) = self.fetches.found(&name) {
            self.counters.payloads_fetched += 1;
            self.payloads.pin(slot, name);
            self.inbox.push_back(Input::Held(Value::Batch(name)));
        }
    }

    fn on_forward(
        &mut self,
        now: Time,
        from: NodeId,
        value: Value,
        bytes: &[u8],
        plane: &mut dyn Plane,
    ) {
        // [value-2] Only an origin binds its names.
        if origin_of(&value).is_none_or(|(origin, _)| origin != from) {
            self.counters.frames_mismatched += 1;
            return;
        }
        if self.node.role() != Role::Leader {
            return self.refuse(from, value, Refusal::NotLeader, plane);
        }
        if self.forwarded.knows(&value) || self.is_past(&value, bytes) {
            self.counters.forwards_repeated += 1;
            return;
        }
        let payload = match value {
            Value::Batch(name) if payloads::matches(&name, bytes) => {
                Some(Payload::new(bytes.to_vec()))
            }
            Value::RegisterSession { .. } => None,
            _ => {
                self.counters.frames_mismatched += 1;
                return;
            }
        };
        if !self
            .forwarded
            .push(value, payload, self.limits.forwarded_bytes)
        {
            return self.refuse(from, value, Refusal::Busy, plane);
        }
        self.counters.forwards_taken += 1;
        self.propose_forwarded(now, plane);
    }

    /// Whether a batch is known to be executed, or a registration to have taken effect.
    fn is_past(&self, value: &Value, bytes: &[u8]) -> bool {
        let sessions = self.applier.sessions();
        match *value {
            Value::Batch(name) => Batch::header(bytes)
                .is_some_and(|header| sessions.turn(&name, header) == Turn::Past),
            Value::RegisterSession {
                origin,
                boot,
                number,
            } => {
                sessions.node_session(origin, boot, number).is_some()
                    || sessions.client_session(origin, boot, number).is_some()
            }
            _ => false,
        }
    }

    fn on_not_taken(&mut self, now: Time, value: &Value) {
        if origin_of(value) == Some((self.member.node, self.boot)) {
            self.origin.on_refused(value, now.plus_ms(REFUSED_MS));
        }
    }

    fn on_fetch_request(&mut self, from: NodeId, value: Value, slot: Slot, plane: &mut dyn Plane) {
        let Value::Batch(name) = value else {
            self.send(
                from,
                Lane::Bulk,
                &Frame::FetchReply { value, bytes: None },
                plane,
            );
            return;
        };
        if let Some(payload) = self.payloads.get(&name).cloned() {
            self.send(
                from,
                Lane::Bulk,
                &Frame::FetchReply {
                    value,
                    bytes: Some(&payload),
                },
                plane,
            );
        } else if !self
            .serving
            .want_payload(from, name, slot, self.limits.serve_requests)
        {
            self.counters.frames_overload += 1;
        }
    }

    fn on_fetch_reply(&mut self, now: Time, value: Value, bytes: Option<&[u8]>) {
        let Value::Batch(name) = value else { return };
        if !self.fetches.wants(&name) {
            return;
        }
        match bytes {
            Some(bytes) if self.payloads.has_room(bytes.len()) => {
                self.keep(name, bytes);
            }
            Some(_) => self.counters.frames_overload += 1,
            None => self.fetches.not_there(now, &name, self.peers.len()),
        }
    }
}
