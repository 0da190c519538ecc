//! Who is behind gets what it lacks: this node from its log and its peers, peers from this node.

pub(crate) mod repair;
pub(crate) mod serving;

use quorate_core::{
    effect::Alarm,
    input::Input,
    message::Message,
    node_id::NodeId,
    record::Record,
    slot::{Slot, SlotRange},
    time::Time,
    value::{BatchName, Value},
};
use quorate_disk::Disk;
use quorate_log::{LogError, ReadDone, Values};
use quorate_wire::{Frame, Lane};

use crate::{
    applying::digest::Claim,
    contents::payloads::{self, Payload},
    front::Front,
    observing::events::Event,
    plane::Plane,
    replica::Replica,
    replica::egress::RETRY_MS,
    service::StateMachine,
    storing::reads::Purpose,
};

/// How often nodes tell each other what they have applied.
pub(crate) const COMPARE_EVERY_MS: u64 = 1_000;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// [value-3] A vote of before the restart says: I have the bytes. So they are read back before
    /// this node says anything.
    pub(crate) fn read_votes(&mut self, now: Time) {
        if let Some(range) = self.unread_votes.front() {
            self.read(now, Purpose::Votes, *range);
        }
    }

    pub(crate) fn read_to_apply(&mut self, now: Time, range: SlotRange) {
        let missing = self.repair.first().filter(|first| *first < range.to);
        let range = SlotRange::new(range.from, missing.unwrap_or(range.to));
        if !range.is_empty() {
            self.read(now, Purpose::Apply, range);
        }
    }

    pub(crate) fn on_log_read(
        &mut self,
        now: Time,
        purpose: Purpose,
        done: ReadDone,
        plane: &mut dyn Plane,
        front: &mut dyn Front,
    ) {
        self.lose(&done.lost);
        let values = match done.result {
            Ok(values) => {
                self.read_error = None;
                values
            }
            Err(error) => {
                if self.read_error.is_none() || !done.lost.is_empty() {
                    let why = error.to_string();
                    self.events.push(Event::Unreadable { why });
                }
                // What is lost is repaired; anything else may succeed the next time.
                self.read_error = done.lost.is_empty().then(|| error.to_string());
                if purpose == Purpose::Votes && !done.lost.is_empty() {
                    return self.on_votes_lost(&error);
                }
                Values::new()
            }
        };
        if values.is_empty() {
            self.log_reads.wait(purpose, now.plus_ms(RETRY_MS));
        }
        match purpose {
            Purpose::Votes => self.on_votes_read(values),
            Purpose::Apply => self.on_read_to_apply(now, values, front),
            Purpose::Serve(to) => self.on_read_to_serve(now, to, values, plane),
            Purpose::Payload(to, name, _) => self.on_payload_read(to, name, &values, plane),
        }
    }

    /// [disk-8] What was decided in this process is fetched from peers; what was decided before, and
    /// the core has not come to yet, is the core's to learn. A vote that is still open has its bytes
    /// in memory; should this process end before it is decided, the next one has forgotten.
    fn lose(&mut self, lost: &[SlotRange]) {
        let decided = SlotRange::new(Slot::FIRST, self.node.decided_to());
        for range in lost {
            self.counters.slots_lost += range.len();
            let known = range.intersect(decided);
            if !known.is_empty() {
                self.repair.lost(known);
                self.inbox.push_back(Input::Missing(self.repair.first()));
            }
            if range.to > decided.to {
                self.inbox.push_back(Input::Lost(*range));
            }
        }
    }

    /// [value-3] Between the walk through the log and now a vote's bytes went: the vote would be
    /// hollow. The next start finds out what else is gone, and who this node is then.
    fn on_votes_lost(&mut self, error: &LogError) {
        self.unread_votes.clear();
        self.fail_storage(format!("votes cannot be read back: {error}"));
    }

    fn on_votes_read(&mut self, values: Values) {
        let Some(mut wanted) = self.unread_votes.pop_front() else {
            return;
        };
        if let Some((range, ..)) = values.last() {
            wanted.from = range.to;
        }
        if !wanted.is_empty() {
            self.unread_votes.push_front(wanted);
        }
        for (range, value, bytes) in values {
            if let Value::Batch(name) = value {
                self.payloads.insert(name, Payload::new(bytes));
                self.payloads.pin(range.from, name);
            }
        }
    }

    fn on_read_to_apply(&mut self, now: Time, values: Values, front: &mut dyn Front) {
        let decided_to = self.node.decided_to();
        for (range, value, bytes) in values {
            let range = range.intersect(SlotRange::new(self.applier.applied_to(), decided_to));
            if range.is_empty() || range.from != self.applier.applied_to() {
                continue;
            }
            if !self.applier.takes() {
                break;
            }
            // A slot that was decided in this process is applied as decided, not as last recorded.
            if let Some(told) = self.applier.told(range.from)
                && told != value
            {
                break;
            }
            self.counters.applied_from_log += 1;
            self.apply_one(now, range, value, Some(&bytes), front);
        }
        self.applied(front);
    }

    /// Catch-up for others, questions of this node's own; within a budget per turn.
    pub(crate) fn help_peers(&mut self, now: Time, plane: &mut dyn Plane) {
        self.ask_for_payloads(now, plane);
        self.ask_for_repairs(now, plane);
        self.serve_payloads(now);
        self.serve_ranges(now, plane);
    }

    /// Now and then this node tells everybody what it has applied. Whoever has applied something else
    /// raises an alarm: a bug, a lost log that nobody noticed, an altered store.
    pub(crate) fn compare_histories(&mut self, now: Time, plane: &mut dyn Plane) {
        if let Some((with, to)) = self.applier.digest.next_different() {
            self.on_different_history(with, to);
        }
        if now < self.compare_at {
            return;
        }
        self.compare_at = now.plus_ms(COMPARE_EVERY_MS);
        let Some(Claim { to, digest }) = self.applier.digest.claim() else {
            return;
        };
        for peer in self.peer_ids() {
            self.send(peer, Lane::Control, &Frame::Applied { to, digest }, plane);
        }
    }

    pub(crate) fn on_claim(&mut self, from: NodeId, claim: Claim) {
        if self.applier.digest.heard(from, claim) {
            self.on_different_history(from, claim.to);
        }
    }

    /// What differs once differs for ever: each peer is told of once.
    fn on_different_history(&mut self, with: NodeId, to: Slot) {
        if self.different.insert(with) {
            self.raise(Alarm::DifferentHistory { with, to });
        }
    }

    fn peer_ids(&self) -> Vec<NodeId> {
        self.peers.keys().copied().collect()
    }

    fn ask_for_payloads(&mut self, now: Time, plane: &mut dyn Plane) {
        if self.fetches.wake_at().is_none_or(|at| at > now) {
            return;
        }
        let mut questions = Vec::new();
        self.fetches.due(now, &self.peer_ids(), &mut questions);
        for question in questions {
            let frame = Frame::FetchRequest {
                value: question.value,
                slot: question.slot,
            };
            self.send(question.to, Lane::Control, &frame, plane);
        }
    }

    fn ask_for_repairs(&mut self, now: Time, plane: &mut dyn Plane) {
        if self.repair.wake_at().is_none_or(|at| at > now) {
            return;
        }
        if let Some((to, range)) = self.repair.question(now, &self.peer_ids()) {
            let message = Message::CatchupRequest { range };
            self.send(
                to,
                Lane::Control,
                &Frame::Protocol {
                    message,
                    bytes: None,
                },
                plane,
            );
        }
    }

    /// A peer sent what the log here has lost: it is recorded as decided, again.
    pub(crate) fn take_repair(&mut self, range: SlotRange, value: Value, bytes: Option<&[u8]>) {
        let bytes = match value {
            Value::Batch(name) => match bytes {
                Some(bytes) if payloads::matches(&name, bytes) => bytes,
                _ => return,
            },
            _ => &[],
        };
        // Not a record of the core: it bears the number of the last one, and releases nothing.
        let record = Record::Decided { range, value };
        self.append(self.last_record, &record, bytes, self.node.hard_state());
        self.counters.slots_repaired += range.len();
        self.repair.repaired(range);
        self.inbox.push_back(Input::Missing(self.repair.first()));
    }

    fn serve_payloads(&mut self, now: Time) {
        let any = Purpose::Payload(NodeId(0), BatchName::default(), Slot(0));
        if self.log_reads.may_start(now, any)
            && let Some((to, name, slot)) = self.serving.next_payload()
        {
            // If it cannot be read now, the peer asks again.
            self.read(now, Purpose::Payload(to, name, slot), SlotRange::one(slot));
        }
    }

    fn serve_ranges(&mut self, now: Time, plane: &mut dyn Plane) {
        let mut budget = self.limits.serve_bytes;
        let mut turns = self.peers.len();
        while budget > 0 && turns > 0 {
            let Some((to, range)) = self.serving.next_range() else {
                return;
            };
            match self.serve_from_memory(to, range.from, plane) {
                Served::Sent(bytes) => budget = budget.saturating_sub(bytes),
                Served::NoRoom => {
                    self.retry_at = Some(now.plus_ms(RETRY_MS));
                    turns -= 1;
                }
                Served::NotHere => {
                    self.read(now, Purpose::Serve(to), range);
                    turns -= 1;
                }
            }
        }
        if budget == 0 && !self.serving.is_idle() {
            self.retry_at = Some(now);
        }
    }

    fn serve_from_memory(&mut self, to: NodeId, slot: Slot, plane: &mut dyn Plane) -> Served {
        let Some((range, value)) = self.history.find(slot) else {
            return Served::NotHere;
        };
        let payload = match value {
            Value::Batch(name) => match self.payloads.get(&name) {
                Some(payload) => Some(payload.clone()),
                None => return Served::NotHere,
            },
            _ => None,
        };
        let range = SlotRange::new(slot, range.to);
        self.teach(to, range, value, payload.as_deref(), plane)
    }

    /// Sends one decided value, as far as the peer is to be sent it.
    fn teach(
        &mut self,
        to: NodeId,
        range: SlotRange,
        value: Value,
        bytes: Option<&[u8]>,
        plane: &mut dyn Plane,
    ) -> Served {
        let Some(wanted) = self.serving.range(to) else {
            return Served::NoRoom;
        };
        let range = range.intersect(wanted);
        if range.is_empty() || range.from != wanted.from {
            return Served::NoRoom;
        }
        let message = Message::Learn { range, value };
        if !self.send(to, Lane::Bulk, &Frame::Protocol { message, bytes }, plane) {
            return Served::NoRoom;
        }
        self.counters.slots_served += range.len();
        self.serving.sent(to, range.to);
        Served::Sent(bytes.map_or(64, <[u8]>::len).max(64))
    }

    fn on_read_to_serve(&mut self, now: Time, to: NodeId, values: Values, plane: &mut dyn Plane) {
        if values.is_empty() {
            // Not on disk yet, or damaged: the peer asks again, here or elsewhere.
            self.serving.stop(to);
        }
        for (range, value, bytes) in values {
            let bytes = matches!(value, Value::Batch(_)).then_some(bytes.as_slice());
            match self.teach(to, range, value, bytes, plane) {
                Served::Sent(_) => {}
                Served::NoRoom | Served::NotHere => {
                    // Reading on would only be thrown away.
                    self.log_reads
                        .wait(Purpose::Serve(to), now.plus_ms(RETRY_MS));
                    return;
                }
            }
        }
    }

    fn on_payload_read(
        &mut self,
        to: NodeId,
        name: BatchName,
        values: &Values,
        plane: &mut dyn Plane,
    ) {
        let wanted = Value::Batch(name);
        let found = values.iter().find(|(_, value, _)| *value == wanted);
        let bytes = found.map(|(_, _, bytes)| bytes.as_slice());
        self.send(
            to,
            Lane::Bulk,
            &Frame::FetchReply {
                value: wanted,
                bytes,
            },
            plane,
        );
    }
}

/// What came of an attempt to serve.
enum Served {
    /// That many bytes went out.
    Sent(usize),
    /// The peer's buffer is full.
    NoRoom,
    /// Not in memory.
    NotHere,
}
