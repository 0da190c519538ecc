//! Effects of the core, carried out: frames to the plane, records to the log, news to the parts.

use quorate_core::{
    ballot::Ballot,
    effect::{Alarm, Effect, Effects, Refusal, Role},
    input::Input,
    message::Message,
    node_id::NodeId,
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_disk::Disk;
use quorate_wire::{Frame, Lane, encode, encoded_len};

use crate::{events::Event, plane::Plane, replica::Replica, service::StateMachine};

/// After a refusal, what was refused waits this long. Long enough not to spin, short enough not to
/// be felt: a slot frees within a disk write.
pub(crate) const RETRY_MS: u64 = 2;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// One event for the core, and everything that it wants done.
    pub(crate) fn step(&mut self, now: Time, input: Input, plane: &mut dyn Plane) {
        let before = self.node.hard_state();
        let mut effects = std::mem::take(&mut self.effects);
        self.node.step(now, input, &mut effects);
        self.carry_out(now, before, &mut effects, plane);
        self.effects = effects;
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
                Effect::Send { to, message } => {
                    for to in to.iter() {
                        self.send_message(now, to, message.clone(), plane);
                    }
                }
                Effect::Persist { seq, record } => {
                    records -= 1;
                    self.persist(seq, record, before, records == 0);
                }
                Effect::Decided { range, value } => self.on_decided(range, value),
                Effect::Fetch { from, value, slot } => self.on_fetch(now, from, value, slot),
                Effect::Serve { to, range } => self.serving.start(to, range),
                Effect::ReadReady { token, slot } => {
                    self.probe.confirmed(token, slot);
                    if self.reads.confirmed(token, slot) {
                        self.counters.reads_confirmed += 1;
                    }
                }
                Effect::ReadFailed { token } => {
                    self.probe.failed(now, token);
                    self.reads.failed(token, now.plus_ms(RETRY_MS));
                }
                Effect::Refused { value, why } => self.on_refused(now, value, why, plane),
                Effect::TransferEnded(result) => self.transfer_ended = Some(result),
                Effect::Role { role, leader } => self.on_role(now, role, leader),
                Effect::Explain(explanation) => {
                    self.events.push(Event::Leadership(explanation));
                }
                Effect::WakeAt(at) => self.node_wake = at,
                Effect::Alarm(alarm) => self.raise(alarm),
            }
        }
    }

    /// A rule was broken somewhere. The first alarm stays in the status.
    pub(crate) fn raise(&mut self, alarm: Alarm) {
        self.counters.alarms += 1;
        self.events.push(Event::Alarm(alarm));
        self.alarm.get_or_insert(alarm);
    }

    fn send_message(&mut self, now: Time, to: NodeId, message: Message, plane: &mut dyn Plane) {
        let (value, lane) = match &message {
            Message::Phase2a(proposal) if proposal.with_bytes => {
                (Some(proposal.value), Lane::Control)
            }
            Message::Learn { value, .. } => (Some(*value), Lane::Bulk),
            _ => (None, Lane::Control),
        };
        // Without them the receiver asks for the bytes, and gets them from the log.
        let payload = match value {
            Some(Value::Batch(name)) => self.payloads.get(&name).cloned(),
            _ => None,
        };
        let frame = Frame::Protocol {
            message,
            bytes: payload.as_deref(),
        };
        if self.send(to, lane, &frame, plane)
            && let Frame::Protocol { message, .. } = &frame
        {
            self.tuning.on_sent(now, to, message, encoded_len(&frame));
        }
    }

    /// Hands a frame to the plane; `false` if it had no room, and the protocol will repeat it.
    pub(crate) fn send(
        &mut self,
        to: NodeId,
        lane: Lane,
        frame: &Frame<'_>,
        plane: &mut dyn Plane,
    ) -> bool {
        let out = plane.outgoing(to, lane, encoded_len(frame));
        let sent = out.is_some_and(|out| encode(self.member, frame, out).is_ok());
        self.counters.sends_dropped += u64::from(!sent);
        sent
    }

    /// [disk-1] The hard state that a record's batch restates must not speak of decisions whose
    /// records come behind it: until the last record of a step, it is told what was decided before.
    fn persist(&mut self, seq: RecordSeq, record: Record, before: HardState, last: bool) {
        let mut hard = self.node.hard_state();
        if !last {
            hard.decided_to = before.decided_to;
        }
        let payload = match record {
            Record::Vote {
                ballot,
                range,
                value,
            } => {
                if ballot.node == self.member.node {
                    self.forwarded.proposed(ballot, value);
                }
                Some((range, value))
            }
            Record::Decided { range, value } => Some((range, value)),
            Record::Round { .. } | Record::Promise { .. } => None,
        };
        let Some((range, Value::Batch(name))) = payload else {
            if let Some((range, _)) = payload {
                self.log_reads
                    .appended(seq, range, self.storage_error.is_some());
            }
            self.append(seq, &record, &[], hard);
            return;
        };
        self.payloads.pin(range.from, name);
        self.log_reads
            .appended(seq, range, self.storage_error.is_some());
        match self.payloads.get(&name).cloned() {
            Some(payload) => self.append(seq, &record, &payload, hard),
            // [value-3] A vote without the bytes would be hollow. Nothing may lead here; if
            // something does, this node has no say any more.
            None => self.fail_storage(format!("bytes of {name:?} are missing for slot {range}")),
        }
    }

    pub(crate) fn append(
        &mut self,
        seq: RecordSeq,
        record: &Record,
        bytes: &[u8],
        hard: HardState,
    ) {
        if self.storage_error.is_none() {
            self.last_record = seq;
            if let Err(error) = self.log.append(seq, record, bytes, hard) {
                self.fail_storage(error.to_string());
            }
        }
    }

    /// [disk-9] The node is told with the next poll; clients at once: nothing will come of it here.
    pub(crate) fn fail_storage(&mut self, why: String) {
        if self.storage_error.is_none() {
            self.events.push(Event::LogFailed { why: why.clone() });
            self.storage_error = Some(why);
            self.inbox.push_back(Input::StorageFailed);
            self.end_requests();
        }
    }

    fn on_decided(&mut self, range: SlotRange, value: Value) {
        self.forwarded.decided(&value);
        match value {
            Value::Batch(name) => self.payloads.decided(range.from, Some(name)),
            _ if range.len() == 1 => self.payloads.decided(range.from, None),
            // A wide range of no-ops: what is pinned there goes when it is applied.
            _ => {}
        }
        self.applier.decided(range, value);
        self.fetches.forget_below(range.to);
    }

    fn on_fetch(&mut self, now: Time, from: NodeId, value: Value, slot: Slot) {
        if let Value::Batch(name) = value {
            if self.payloads.holds(&name) {
                self.payloads.pin(slot, name);
                self.inbox.push_back(Input::Held(value));
            } else {
                self.fetches.start(now, name, from, slot);
            }
        }
    }

    fn on_refused(&mut self, now: Time, value: Value, why: Refusal, plane: &mut dyn Plane) {
        let Some((origin, _)) = origin_of(&value) else {
            return;
        };
        if origin == self.member.node {
            self.origin.on_refused(&value, now.plus_ms(RETRY_MS));
        } else {
            self.refuse(origin, value, why, plane);
        }
    }

    pub(crate) fn refuse(&mut self, to: NodeId, value: Value, why: Refusal, plane: &mut dyn Plane) {
        self.counters.forwards_refused += 1;
        let leader = self.node.leader();
        self.send(
            to,
            Lane::Control,
            &Frame::NotTaken { value, why, leader },
            plane,
        );
    }

    fn voters(&self) -> usize {
        self.node.configuration().members().len()
    }

    fn on_role(&mut self, now: Time, role: Role, leader: Option<Ballot>) {
        let led = std::mem::replace(&mut self.role, role) == Role::Leader;
        self.events.push(Event::Role {
            role,
            leader: self.node.leader(),
            ballot: self.node.ballot(),
        });
        self.tuning.on_peers_changed();
        self.tuning.set_nodes(self.voters());
        self.forwarded.restart(leader);
        if role == Role::Leader && !led {
            self.due_at = now;
        }
        if leader.is_some() {
            self.origin.on_new_ballot();
            self.reads.on_new_ballot();
        }
    }
}

/// The node, and its process start, that made a value.
pub(crate) const fn origin_of(value: &Value) -> Option<(NodeId, u32)> {
    match value {
        Value::Batch(name) => Some((name.origin, name.boot)),
        Value::RegisterSession { origin, boot, .. } => Some((*origin, *boot)),
        _ => None,
    }
}
