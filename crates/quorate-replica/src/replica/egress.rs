//! Effects of the core, carried out: frames to the plane, records to the log, news to the parts.

use quorate_core::{
    ballot::Ballot,
    effect::{Effect, Effects, Refusal, Role},
    input::Input,
    message::Message,
    node_id::NodeId,
    node_set::NodeSet,
    record::{HardState, Record, RecordSeq},
    slot::SlotRange,
    time::Time,
    value::Value,
};
use quorate_disk::Disk;
use quorate_wire::{Frame, Lane, encoded_len};

use super::Replica;
use crate::{
    contents::Bytes,
    observing::events::Event,
    outbox::{Outbox, RETRY_MS},
    plane::Plane,
    service::StateMachine,
};

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// One event for the core, and everything that it wants done.
    pub(super) fn step(&mut self, now: Time, input: Input, plane: &mut dyn Plane) {
        let (before, mut effects) = self.protocol.step(now, input);
        self.carry_out(now, before, &mut effects, plane);
        self.protocol.recycle(effects);
    }

    fn carry_out(
        &mut self,
        now: Time,
        before: HardState,
        effects: &mut Effects,
        plane: &mut dyn Plane,
    ) {
        let persists = |effect: &Effect| matches!(effect, Effect::Persist { .. });
        let mut records = effects
            .as_slice()
            .iter()
            .filter(|effect| persists(effect))
            .count();
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, message } => self.send_message(now, to, message, plane),
                Effect::Persist { seq, record } => {
                    records -= 1;
                    self.persist(seq, record, before, records == 0);
                }
                Effect::Decided { range, value } => self.on_decided(range, value),
                Effect::Fetch { from, value, range } => self.on_fetch(now, from, value, range),
                Effect::Serve { to, range } => {
                    self.snapshots.on_learner(now, to, range.from);
                    self.catching_up.start_serving(to, range);
                }
                Effect::NeedSnapshot { log_start, .. } => self.snapshots.need(log_start),
                Effect::Forget { to } => self.snapshots.forget(to),
                Effect::ReadReady { token, slot } => {
                    if self.reading.confirmed(token, slot) {
                        self.counters.reads_confirmed += 1;
                    }
                }
                Effect::ReadFailed { token } => self.reading.failed(now, token),
                Effect::Refused { value, why } => self.on_refused(now, value, why, plane),
                Effect::TransferEnded(result) => self.ending.on_transfer_ended(result),
                Effect::Role { role, leader } => self.on_role(now, role, leader),
                Effect::Explain(explanation) => {
                    self.observing.tell(Event::Leadership(explanation));
                }
                Effect::WakeAt(at) => self.protocol.set_wake(at),
                Effect::Alarm(alarm) => self.observing.raise(alarm, &mut self.counters),
            }
        }
    }

    fn send_message(&mut self, now: Time, to: NodeSet, message: Message, plane: &mut dyn Plane) {
        let (content, lane) = match &message {
            Message::Phase2a(proposal) if proposal.with_bytes => {
                (Some((proposal.value, proposal.range)), Lane::Control)
            }
            Message::Learn { value, range } => (Some((*value, *range)), Lane::Bulk),
            _ => (None, Lane::Control),
        };
        // Without them the receiver asks for the bytes, and gets them from the log.
        let payload = content.map(|(value, range)| self.contents.bytes(&value, range));
        let payload = match payload {
            Some(Bytes::Here(payload)) => Some(payload),
            Some(Bytes::None | Bytes::Missing) | None => None,
        };
        let bytes = payload.map(|payload| &payload[..]);
        let frame = Frame::Protocol { message, bytes };
        let mut out = Outbox::new(self.member, plane, &mut self.counters);
        let sent = out.send_all(to, lane, &frame, payload);
        if let Frame::Protocol { message, .. } = &frame {
            let length = encoded_len(&frame);
            for node in sent.iter() {
                self.tuning.on_sent(now, node, message, length);
            }
        }
    }

    /// [disk-1] The hard state that a record's batch restates must not speak of decisions whose
    /// records come behind it: until the last record of a step, it is told what was decided before.
    fn persist(&mut self, seq: RecordSeq, record: Record, before: HardState, last: bool) {
        let mut hard = self.protocol.node().hard_state();
        if !last {
            hard.decided_to = before.decided_to;
        }
        let content = match record {
            Record::Vote {
                ballot,
                range,
                value,
            } => {
                if ballot.node == self.member.node {
                    self.proposing.proposed(ballot, value);
                }
                Some((range, value))
            }
            Record::Decided { range, value } => Some((range, value)),
            Record::Round { .. } | Record::Promise { .. } => None,
        };
        let appended = match content {
            None => self.storing.append(seq, &record, None, &[], hard),
            Some((range, value)) => {
                self.contents.pin(&value, range);
                let bytes = match self.contents.bytes(&value, range) {
                    Bytes::None => &[],
                    Bytes::Here(payload) => &payload[..],
                    // [value-3] A vote without the bytes would be hollow. Nothing may lead here; if
                    // something does, this node has no say any more.
                    Bytes::Missing => {
                        let why = format!("the bytes of {value} are missing for slot {range}");
                        return self.fail_storage(why);
                    }
                };
                self.storing.append(seq, &record, Some(range), bytes, hard)
            }
        };
        if let Err(error) = appended {
            self.fail_storage(error.to_string());
        }
    }

    fn on_decided(&mut self, range: SlotRange, value: Value) {
        self.proposing.decided(&value);
        self.contents.decided(&value, range);
        // [aux-1] An auxiliary that forgot what is before has no state to apply it to.
        if !self.protocol.node().is_hollow() {
            self.applying.decided(range, value);
        }
        self.snapshots.decided(range.from, value);
    }

    fn on_fetch(&mut self, now: Time, from: NodeId, value: Value, range: SlotRange) {
        let range = self.contents.fetch(now, &value, range, from);
        if !range.is_empty() {
            self.protocol.later(Input::Held { value, range });
        }
    }

    fn on_refused(&mut self, now: Time, value: Value, why: Refusal, plane: &mut dyn Plane) {
        let Some((origin, _)) = origin_of(&value) else {
            return;
        };
        if origin == self.member.node {
            let until = now.plus_ms(RETRY_MS);
            self.proposing.origin().on_refused(&value, until);
        } else {
            self.refuse(origin, value, why, plane);
        }
    }

    pub(super) fn refuse(&mut self, to: NodeId, value: Value, why: Refusal, plane: &mut dyn Plane) {
        self.counters.forwards_refused += 1;
        let leader = self.protocol.node().leader();
        let frame = Frame::NotTaken { value, why, leader };
        Outbox::new(self.member, plane, &mut self.counters).send(to, Lane::Control, &frame);
    }

    fn on_role(&mut self, now: Time, role: Role, leader: Option<Ballot>) {
        let led = self.protocol.set_role(role);
        let node = self.protocol.node();
        self.observing.tell(Event::Role {
            role,
            leader: node.leader(),
            ballot: node.ballot(),
        });
        self.tuning.on_peers_changed();
        self.tuning.set_nodes(node.configuration().members().len());
        let newly = role == Role::Leader && !led;
        if newly {
            self.steering.restart(now);
        }
        self.proposing.on_role(now, leader, newly);
        if leader.is_some() {
            self.reading.on_new_ballot();
        }
    }
}

/// The node, and its process start, that made a value.
pub(super) const fn origin_of(value: &Value) -> Option<(NodeId, u32)> {
    match value {
        Value::Batch(name) => Some((name.origin, name.boot)),
        Value::RegisterSession { origin, boot, .. } => Some((*origin, *boot)),
        _ => None,
    }
}
