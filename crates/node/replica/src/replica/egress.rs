//! Carries out the core's effects: frames to the plane, records to the log, notifications.

use quorate_core::{
    ballot::Ballot,
    device::DeviceOrder,
    effect::{Effect, Effects, Refusal, Role},
    explanation::Explanation,
    input::Input,
    message::Message,
    node_id::NodeId,
    node_set::NodeSet,
    record::{Class, HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    time::Time,
    value::{StreamName, Value},
};
use quorate_log::LogError;
use quorate_log::disk::Disk;
use quorate_wire::{Frame, Lane, encoded_len};

use super::Replica;
use crate::{
    contents::{ByteAvailability, stream_positions},
    hops::Hop,
    observing::events::Event,
    outbox::RETRY_MS,
    ports::{plane::Plane, service::StateMachine},
    storing::RecordForm,
};

/// Maximum number of bytes of a stream in one record. Reading any of them reads the whole record.
const RUN_BYTES_MAX: usize = 64 << 10;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Passes one input to the core, and carries out all its effects.
    pub(super) fn step(&mut self, now: Time, input: Input, plane: &mut dyn Plane) {
        let (before, mut effects) = self.spine.protocol.step(now, input);
        self.execute_effects(now, before, &mut effects, plane);
        self.spine.protocol.recycle_effects(effects);
    }

    fn execute_effects(
        &mut self,
        now: Time,
        before: HardState,
        effects: &mut Effects,
        plane: &mut dyn Plane,
    ) {
        let persists = |effect: &Effect| matches!(effect, Effect::Persist { .. });
        let mut records = effects.as_slice().iter().filter(|effect| persists(effect)).count();
        let mut not_applied = Vec::new();
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, message } => self.send_message(now, to, message, plane),
                Effect::Persist { seq, record } => {
                    records -= 1;
                    self.handle_own_vote(&record);
                    self.persist(seq, record, before, records == 0);
                }
                Effect::Decided { range, value } => {
                    not_applied.extend(self.on_decided(range, value));
                }
                Effect::Fetch { from, value, range } => self.on_fetch(now, from, value, range),
                Effect::ServeDecided { to, range } => {
                    self.snapshots.on_learner(now, to, range.from);
                    self.catching_up.start_serving(to, range);
                }
                Effect::NeedSnapshot { log_start, .. } => {
                    self.snapshots.request_from_peers(log_start)
                }
                Effect::Forget { to } => self.snapshots.trim_to(to),
                Effect::ReadReady { token, slot } => {
                    if self.reading.on_confirmed(token, slot) {
                        self.spine.counters.reads_confirmed += 1;
                    }
                }
                Effect::DurableInGroup { to } => self.spine.completions.release_durable(to),
                Effect::VotedInMemory { ballot, to } => {
                    let origin = self.spine.proposing.origin_mut();
                    origin.on_in_memory(ballot, to, &mut self.spine.completions);
                }
                Effect::ReadFailed { token } => self.reading.on_refused(now, token),
                Effect::Device(DeviceOrder::Submit { value }) => {
                    self.submit_to_device(now, value, plane);
                }
                Effect::Device(order) => self.devices.execute_order(&order),
                Effect::Refused { value, why } => self.on_refused(now, value, why, plane),
                Effect::TransferEnded(result) => self.on_transfer_ended(result),
                Effect::Role { role, leader } => self.on_role(now, role, leader),
                Effect::Explain(explanation) => {
                    if explanation == Explanation::DeviceForgot {
                        self.forget_votes();
                    }
                    self.spine.observing.queue_explanation(
                        now,
                        explanation,
                        &mut self.spine.counters,
                    );
                }
                Effect::WakeAt(at) => self.spine.protocol.set_next_tick(at),
                Effect::Alarm(alarm) => {
                    self.spine.observing.raise_alarm(alarm, &mut self.spine.counters)
                }
            }
        }
        // Learned values count as decided in the same step, before their records are written.
        for (stream, end) in not_applied {
            self.spine.contents.stream_buffers_mut().drop_below(stream, end);
        }
    }

    /// [class-2] Handles this node's vote for a batch of its own. If clients wait until the batch
    /// is in memory at a quorum, makes the core query the members about it.
    fn handle_own_vote(&mut self, record: &Record) {
        let Record::Vote { ballot, range, value: Value::Batch(name) } = *record else {
            return;
        };
        if self.spine.proposing.origin_mut().record_vote(&name, ballot, range.from) {
            let to = range.to;
            self.spine.protocol.queue_input(Input::AwaitEarlyVotes { ballot, to });
        }
    }

    fn send_message(
        &mut self,
        now: Time,
        to: NodeSet,
        mut message: Message,
        plane: &mut dyn Plane,
    ) {
        match &mut message {
            Message::Heartbeat(beat) => {
                beat.clock_ms = self.spine.clocks.confirmed_group_ms(now).unwrap_or(0);
                self.fitness.full_disks.check_own_disk(now, &mut self.spine);
                beat.full_disk = self.fitness.full_disks.refusing_member(now, &self.spine);
            }
            Message::HeartbeatReply(reply) => {
                reply.clock_ms = self.spine.clocks.own_wall_ms(now);
                reply.disk_full = self.fitness.full_disks.check_own_disk(now, &mut self.spine);
                // Releases from before [lie-1] also leave these bytes zero.
                let all = self.members.level_raises().all_support_log_statements();
                reply.group_ms = if all { self.spine.clocks.group_ms(now) } else { 0 };
            }
            Message::Phase2a(proposal) => {
                self.spine.stamp(Hop::Proposed, Some(proposal.range.from))
            }
            Message::Phase2b(vote) => {
                let to = match self.spine.node().configuration().class() {
                    Class::Durable => vote.durable_to,
                    Class::Volatile => vote.volatile_to,
                };
                self.spine.stamp(Hop::Voted, Some(Slot(to.0.saturating_sub(1))));
            }
            _ => {}
        }
        let (content, lane) = match &message {
            // [stream-3] The owner of the stream sends the bytes.
            Message::Phase2a(proposal) if matches!(proposal.value, Value::Content { .. }) => {
                (None, Lane::Control)
            }
            Message::Phase2a(proposal) if proposal.with_bytes => {
                (Some((proposal.value, proposal.range)), Lane::Control)
            }
            Message::Learn { value, range } => (Some((*value, *range)), Lane::Bulk),
            _ => (None, Lane::Control),
        };
        // A receiver that gets no bytes requests them, and is served from the log.
        let payload =
            content.and_then(|(value, range)| self.spine.contents.bytes_for_peer(&value, range));
        let payload = payload.as_ref();
        let bytes = payload.map(|payload| &payload[..]);
        let frame = Frame::Protocol { message, bytes };
        let logged = self.stated_log_end();
        let mut out = self.spine.outbox(plane).with_logged_to(logged);
        let sent = out.send_all(to, lane, &frame, payload);
        if let Frame::Protocol { message, .. } = &frame {
            let length = encoded_len(&frame);
            for node in sent.iter() {
                self.tuning.on_sent(now, node, message, length);
            }
        }
    }

    /// [disk-1] Persists a record. All but the last record of a step restate the hard state from
    /// before the step, so that none mentions a decision whose record follows.
    fn persist(&mut self, seq: RecordSeq, record: Record, before: HardState, last: bool) {
        let mut hard = self.spine.node().hard_state();
        if !last {
            hard.decided_to = before.decided_to;
        }
        let content = match record {
            Record::Vote { ballot, range, value } => {
                if ballot.node == self.spine.identity.member.node {
                    self.spine.proposing.record_proposed(ballot, value);
                }
                self.spine.stamp(Hop::Recorded, Some(range.from));
                Some((range, value))
            }
            Record::Decided { range, value } => Some((range, value)),
            Record::Round { .. } | Record::Promise { .. } => None,
        };
        let appended = match content {
            None => self.spine.storing.append(seq, &record, None, RecordForm::Bytes(&[]), hard),
            Some((range, value)) => {
                self.spine.contents.pin_bytes(&value, range);
                let early = HardState { decided_to: before.decided_to, ..hard };
                self.persist_content(seq, record, range, &value, (early, hard))
            }
        };
        if let Err(error) = appended {
            self.fail_storage(error.to_string());
        }
    }

    /// Records a value with its bytes. All parts but the last restate the `early` hard state.
    ///
    /// The part of a run that is no longer needed is recorded separately, without bytes
    /// ([stream-4]): they may have left memory, for example in a run that this node voted for
    /// before and proposes again. Bytes on stable storage in the store of streams are not recorded
    /// either; the record contains their places ([disk-5]). The rest may be as long as all bytes in
    /// flight of its stream, because a new leader proposes inherited content as one value. It is
    /// recorded in parts that fit a log write.
    fn persist_content(
        &mut self,
        seq: RecordSeq,
        record: Record,
        range: SlotRange,
        value: &Value,
        (early, hard): (HardState, HardState),
    ) -> Result<(), LogError> {
        let mut rest = range;
        loop {
            let streams = self.spine.applying.streams();
            let (mut part, bytes) = self.spine.contents.first_part(value, rest, streams);
            let places;
            let written = match &bytes {
                ByteAvailability::None => RecordForm::Bytes(&[]),
                ByteAvailability::InMemory(payload) => {
                    let most = self.spine.storing.log().record_bytes_max().min(RUN_BYTES_MAX);
                    let spans = payload.len() as u64 == part.len();
                    let length = if spans { payload.len().min(most) } else { payload.len() };
                    if spans {
                        part.to = part.from.plus(length as u64);
                        self.mark_recorded(value, part);
                    }
                    RecordForm::Bytes(&payload[..length])
                }
                ByteAvailability::Placed => {
                    places = self.encoded_places(value, part);
                    if places.is_empty() {
                        // The placed bytes are damaged, but may still be in memory.
                        self.spine.mark_unplaced(value, part);
                        continue;
                    }
                    self.spine.counters.stream_bytes_placed += part.len();
                    RecordForm::Places(&places)
                }
                // [snap-5] The value is decided, so the store fetches whatever peers still retain.
                ByteAvailability::Missing if is_learned_content(&record) => {
                    self.record_learned_without_bytes(part.to);
                    RecordForm::Places(&[])
                }
                // [value-3] A vote without its bytes would be void. This should be unreachable; if
                // it happens, the node stops voting.
                ByteAvailability::Missing => {
                    let why = format!("the bytes of {value} are missing for slot {part}");
                    self.fail_storage(why);
                    return Ok(());
                }
            };
            let record = record_part(record, part);
            if part.to == rest.to {
                return self.spine.storing.append(seq, &record, Some(part), written, hard);
            }
            self.spine.storing.append_part(seq, &record, part, written, early)?;
            rest.from = part.to;
        }
    }

    /// [here-1] Records that content decided below `to` was learned without its bytes.
    pub(super) fn record_learned_without_bytes(&mut self, to: Slot) {
        self.streaming.stream_storage.record_learned_without_bytes(to);
        self.streams_work().report_lacking();
    }

    /// Returns the places of a value's bytes in the store, encoded for a record, if any.
    fn encoded_places(&self, value: &Value, range: SlotRange) -> Vec<u8> {
        let Value::Content { stream, offset } = *value else {
            return Vec::new();
        };
        self.streaming.stream_storage.encoded_places(stream, stream_positions(offset, range))
    }

    /// Notes that a record contains these bytes, so that their unit is not placed in the store.
    fn mark_recorded(&mut self, value: &Value, range: SlotRange) {
        if let Value::Content { stream, offset } = *value {
            let end = stream_positions(offset, range).end;
            self.spine.counters.stream_bytes_recorded += range.len();
            self.spine.contents.stream_buffers_mut().mark_recorded(stream, end);
        }
    }

    /// Handles a decision. For content, while this node applies nothing, returns the stream and the
    /// position below which bytes need not stay in memory.
    fn on_decided(&mut self, range: SlotRange, value: Value) -> Option<(StreamName, u64)> {
        self.spine.stamp(Hop::Decided, Some(range.from));
        self.spine.proposing.record_decided(&value);
        let applies = !self.spine.node().is_hollow() && !self.spine.applying.condition().is_stuck();
        let not_applied = match value {
            Value::Content { stream, offset } if !applies => {
                Some((stream, stream_positions(offset, range).end))
            }
            _ => None,
        };
        self.spine.contents.record_decided(&value, range);
        // [aux-1] An auxiliary that forgot earlier slots has no state to apply the value to.
        if !self.spine.node().is_hollow() {
            self.spine.applying.queue_decided(range, value);
        }
        self.snapshots.record_reconfiguration(range.from, value);
        not_applied
    }

    fn on_fetch(&mut self, now: Time, from: NodeId, value: Value, range: SlotRange) {
        let streams = self.spine.applying.streams();
        let held = {
            // [aux-1] Owners send auxiliaries no bytes, so these request them at once.
            let patience = !self.spine.node().is_auxiliary();
            self.spine.contents.start_fetch(now, &value, range, from, streams, patience)
        };
        if !held.is_empty() {
            self.spine.protocol.queue_input(Input::BytesHeld { value, range: held });
        }
        if held != range {
            // The part of the run that follows the needless one may also be available.
            self.spine.handle_arrival(now, value);
        }
    }

    pub(super) fn on_refused(
        &mut self,
        now: Time,
        value: Value,
        why: Refusal,
        plane: &mut dyn Plane,
    ) {
        if let Value::Content { stream, .. } = value {
            return self.streaming.proposals.record_refusal(stream);
        }
        let Some((origin, _)) = origin_of(&value) else {
            return;
        };
        if origin == self.spine.identity.member.node {
            let until = now.plus_ms(RETRY_MS);
            self.spine.proposing.origin_mut().on_refused(&value, until);
        } else {
            self.spine.refuse_value(origin, value, why, plane);
        }
    }

    fn on_transfer_ended(&mut self, result: Result<NodeId, Refusal>) {
        if let (Ok(to), Some(why)) = (result, self.fitness.handover_reason())
            && to != self.spine.identity.member.node
        {
            let why = why.to_owned();
            self.spine.observing.queue_event(Event::HandedOver { to, why });
        }
        self.ending.on_transfer_ended(result);
    }

    fn on_role(&mut self, now: Time, role: Role, leader: Option<Ballot>) {
        let led = self.spine.protocol.set_role(role);
        let node = self.spine.protocol.node();
        let (leads, ballot) = (node.leader(), node.ballot());
        self.spine.observing.queue_event(Event::Role { role, leader: leads, ballot });
        self.spine.observing.record_leader(now, leads, ballot);
        self.tuning.on_peers_changed();
        self.tuning.set_nodes(node.configuration().members().len());
        let newly = role == Role::Leader && !led;
        if newly {
            self.members.on_elected(now);
        }
        self.spine.proposing.on_role(now, leader, newly);
        // [p1-6] All values in lower slots were proposed again, or never will be.
        let leading = self.spine.node().phase2();
        let next = leading.map(|leading| leading.tally.next());
        self.streaming.proposals.restart(next);
        match leader {
            // The new leader may lack bytes that were sent to the previous one.
            Some(other) if other.node != self.spine.identity.member.node => {
                self.streaming.owned_pieces.peer_up(other.node);
            }
            Some(_) => self.streaming.owned_pieces.on_leadership(),
            None => {}
        }
        if leader.is_some() {
            self.reading.on_new_ballot();
        }
    }
}

/// Returns whether the record is a decision on content.
const fn is_learned_content(record: &Record) -> bool {
    let value = match record {
        Record::Decided { value, .. } => value,
        _ => return false,
    };
    matches!(value, Value::Content { .. })
}

const fn record_part(record: Record, range: SlotRange) -> Record {
    match record {
        Record::Vote { ballot, value, .. } => Record::Vote { ballot, range, value },
        Record::Decided { value, .. } => Record::Decided { range, value },
        Record::Round { .. } | Record::Promise { .. } => record,
    }
}

/// Returns the node and the process start that created a value.
pub(super) const fn origin_of(value: &Value) -> Option<(NodeId, u32)> {
    match value {
        Value::Batch(name) => Some((name.origin, name.boot)),
        Value::RegisterSession { origin, boot, .. } => Some((*origin, *boot)),
        _ => None,
    }
}
