//! Stream bytes in a world, on their way from clients to owners, to every node, into slots, and to
//! the output.

use quorate_core::{
    input::Input,
    learner::Tally,
    message::Message,
    node::Node,
    node_id::Member,
    slot::{Slot, SlotRange},
    value::{StreamName, Value},
};
use quorate_stream::OpenMode;

use super::{SentMessage, World};
use crate::{
    observer::{Property, Violation},
    streams::content_bytes,
};

/// [stream-8] Maximum number of bytes of a stream that an owner accepts before it has applied them.
const STREAM_WINDOW_BYTES: u64 = 8;

impl World {
    /// Opens a stream for a client. The log decides whether this node becomes the owner of the
    /// stream.
    pub(super) fn open(&mut self, at: usize, name: u8, how: OpenMode, writer: u8) {
        let site = &self.sites[at];
        if site.node.is_some() {
            let (owner, boot) = (site.member.node, boot_number(site.process_number));
            self.clients.open(owner, boot, name, how, writer);
        }
    }

    /// Returns the streams whose owner is this node's process.
    pub fn owned_streams(&self, at: usize) -> Vec<StreamName> {
        let site = &self.sites[at];
        let own = |stream: &StreamName| {
            (stream.owner, stream.boot) == (site.member.node, boot_number(site.process_number))
        };
        let open = site.applied_streams.table().open_streams();
        open.filter(own).filter(|_| site.node.is_some()).collect()
    }

    /// Returns whether the process that owns this stream is running.
    pub fn is_owner_running(&self, stream: StreamName) -> bool {
        self.sites.iter().any(|site| {
            let process = (site.member.node, boot_number(site.process_number));
            site.node.is_some() && (stream.owner, stream.boot) == process
        })
    }

    /// [stream-5] Hands the next bytes of its client to an owner.
    pub(super) fn give_stream_bytes(
        &mut self,
        at: usize,
        stream: StreamName,
        count: u64,
    ) -> Result<(), Violation> {
        let next = self.sites[at].applied_streams.table().next_position(stream);
        let Some(next) = next.filter(|_| self.owned_streams(at).contains(&stream)) else {
            return Ok(());
        };
        let undecided = self.clients.given_bytes(stream) - next;
        let from = self.clients.give_bytes(
            stream,
            count.min(STREAM_WINDOW_BYTES - undecided.min(STREAM_WINDOW_BYTES)),
        );
        let to = self.clients.given_bytes(stream);
        self.deliver_stream_bytes(at, stream, from, to)
    }

    /// [stream-3] Delivers an owner's bytes to a node, which stores those that it may still need.
    pub(super) fn deliver_stream_bytes(
        &mut self,
        at: usize,
        stream: StreamName,
        from: u64,
        to: u64,
    ) -> Result<(), Violation> {
        let to = to.min(self.clients.given_bytes(stream));
        let site = &mut self.sites[at];
        if site.node.is_none() || !site.applied_streams.table().may_be_appended_to(stream) {
            return Ok(());
        }
        site.store_stream_bytes(stream, from, to);
        let of_stream = |(value, _): &(Value, SlotRange)| match value {
            Value::Content { stream: other, .. } => (*other == stream).then_some(*value),
            _ => None,
        };
        let wanted: Vec<Value> = site.queued_fetches.iter().filter_map(of_stream).collect();
        wanted.iter().try_for_each(|value| self.notify_fetched(at, value))
    }

    /// Fetches the bytes of content `value` from all running nodes that have them.
    pub(super) fn fetch_content(&mut self, at: usize, value: &Value, range: SlotRange) {
        for byte in content_bytes(value, range) {
            let given = |site: &crate::site::Site| site.node.is_some() && site.has_byte(byte);
            if self.sites.iter().any(given) {
                self.sites[at].store_stream_byte(byte);
            }
        }
    }

    /// Notifies a node that parts of the content that it fetches are now complete.
    pub(super) fn notify_fetched(&mut self, at: usize, value: &Value) -> Result<(), Violation> {
        while let Some(range) = self.sites[at].take_complete_fetch(value) {
            let value = *value;
            self.step_node(at, Input::BytesHeld { value, range })?;
        }
        Ok(())
    }

    /// Returns the run of a stream that this leader would propose next, of at most `most` bytes.
    fn next_run(
        &self,
        at: usize,
        stream: StreamName,
        most: u64,
    ) -> Option<crate::streams::offering::NextRun> {
        let site = &self.sites[at];
        let node = site.node.as_ref().filter(|node| node.can_propose())?;
        let next = node.phase2()?.tally.next();
        let room = node.decided_to().plus(self.setup.window_slots).0;
        let most = most.min(room.saturating_sub(next.0));
        let held_to = |from, to| site.contiguous_bytes_end(stream, from, to);
        let (to, table) = (site.applied_streams.applied_to(), site.applied_streams.table());
        let offering = &site.stream_offering;
        offering.next_run(stream, most, next, to, table, held_to)
    }

    /// Returns whether this leader has bytes of this stream to propose.
    pub fn has_bytes_to_offer(&self, at: usize, stream: StreamName) -> bool {
        self.next_run(at, stream, 1).is_some()
    }

    /// [stream-1] Makes a leader propose, in the next slots, bytes that it holds.
    pub(super) fn propose_stream_bytes(
        &mut self,
        at: usize,
        stream: StreamName,
        most: u64,
    ) -> Result<(), Violation> {
        let Some(run) = self.next_run(at, stream, most) else {
            return Ok(());
        };
        let site = &mut self.sites[at];
        let leading = site.node.as_ref().and_then(Node::phase2);
        let Some((ballot, next)) = leading.map(|now| (now.ballot(), now.tally.next())) else {
            return Ok(());
        };
        let table_next = site.applied_streams.table().next_position(stream).unwrap_or(0);
        let (from, to) = (run.position, run.position + run.slot_count);
        let range = SlotRange::new(next, next.plus(run.slot_count));
        site.stream_offering.record_proposed(&run, range);
        let verdict = self.stream_judge.judge_offer(ballot, stream, table_next, from, to);
        self.observer.to_violation(Property::Streams, verdict)?;
        let (value, slots) = (run.value, run.slot_count);
        self.step_node(at, Input::Propose { value, slots })
    }

    /// Makes a node apply everything that it has decided.
    pub(super) fn apply_decided(&mut self, at: usize) -> Result<(), Violation> {
        loop {
            let site = &mut self.sites[at];
            let slot = site.applied_streams.applied_to();
            if slot >= site.decided_to() {
                return Ok(());
            }
            let Some(value) = site.decided_value(slot) else {
                return Ok(());
            };
            let done = site.applied_streams.apply(&value, &self.clients);
            if let Value::Content { stream, .. } = value {
                let next = site.applied_streams.table().next_position(stream);
                site.stream_offering.record_applied(stream, slot, done.appended_byte.is_none());
                if let Some(next) = next {
                    self.judge_applied_byte(at, slot, &value, stream, next, &done)?;
                }
            }
            let verdict = self.stream_judge.judge_applied(slot, &done);
            self.observer.to_violation(Property::Streams, verdict)?;
            for (stream, _) in done.closed_streams {
                self.sites[at].drop_stream_bytes(stream, u64::MAX);
            }
        }
    }

    /// Checks an applied byte of an open stream, which continues at `next`.
    fn judge_applied_byte(
        &mut self,
        at: usize,
        slot: Slot,
        value: &Value,
        stream: StreamName,
        next: u64,
        done: &crate::streams::applied::AppliedEffect,
    ) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        if done.appended_byte.is_some()
            && !site.can_send_bytes(value, slot)
            && site.disk.is_learned_without_bytes(slot, value)
        {
            site.missing_bytes.extend(content_bytes(value, SlotRange::one(slot)));
        } else if done.appended_byte.is_some() && !site.can_send_bytes(value, slot) {
            let seen =
                Err(format!("slot {slot}: node {} has no byte of {value} to append", at + 1));
            self.observer.to_violation(Property::Bytes, seen)?;
        }
        if done.appended_byte.is_some() && self.owned_streams(at).contains(&stream) {
            let verdict = self.stream_judge.judge_confirmation(stream, next);
            self.observer.to_violation(Property::Streams, verdict)?;
        }
        self.sites[at].drop_stream_bytes(stream, next);
        Ok(())
    }

    /// [here-1] Learns decided content without its bytes. From then on the node supplies nothing to
    /// other nodes until the retained bytes are present. It still leads and promises ([here-3]).
    pub(super) fn learn_without_bytes(
        &mut self,
        at: usize,
        from: Member,
        message: Message,
    ) -> Result<(), Violation> {
        self.notify_lacking(at, true)?;
        self.sites[at].is_learning_without_bytes = true;
        let held = true;
        self.step_node(at, Input::Message { from, message, bytes_held: held })?;
        self.sites[at].is_learning_without_bytes = false;
        self.notify_missing_bytes(at)
    }

    /// Fetches the missing bytes that any running node has.
    pub(super) fn fetch_missing_bytes(&mut self, at: usize) -> Result<(), Violation> {
        if self.sites[at].node.is_none() {
            return Ok(());
        }
        for byte in self.sites[at].missing_bytes.clone() {
            let has = |site: &crate::site::Site| site.node.is_some() && site.has_byte(byte);
            if self.sites.iter().any(has) {
                self.sites[at].missing_bytes.remove(&byte);
                self.sites[at].disk.store_late_byte(byte);
                self.situations.missing_bytes_found += 1;
            }
        }
        self.notify_missing_bytes(at)
    }

    /// Notifies the node of whether bytes are missing.
    pub(super) fn notify_missing_bytes(&mut self, at: usize) -> Result<(), Violation> {
        let lacks = self.sites[at].may_lack_bytes();
        self.notify_lacking(at, lacks)
    }

    fn notify_lacking(&mut self, at: usize, lacks: bool) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        if site.node.is_none() || site.last_reported_missing == lacks {
            return Ok(());
        }
        site.last_reported_missing = lacks;
        self.step_node(at, Input::StreamBytesLacking(lacks))
    }

    /// [value-3], [stream-4] Checks that a recorded value has its bytes, or that they are not
    /// needed. Returns the first slot for which the record has bytes.
    pub(super) fn check_recorded_bytes(
        &mut self,
        at: usize,
        range: SlotRange,
        value: Value,
    ) -> Result<Slot, Violation> {
        let member = self.sites[at].member;
        let Some(from) = self.sites[at].first_slot_with_bytes(&value, range) else {
            let seen = Err(format!("{member} has not all bytes of {value} for slot {range}"));
            self.observer.to_violation(Property::Bytes, seen)?;
            return Ok(range.to);
        };
        for slot in (range.from.0..from.0).map(Slot) {
            let verdict = self.stream_judge.judge_record_without_bytes(member, slot, value);
            self.observer.to_violation(Property::Bytes, verdict)?;
        }
        Ok(from)
    }

    /// Counts a vote for a part of a run that was proposed as a whole.
    pub(super) fn count_partial_vote(&mut self, range: SlotRange, value: &Value) {
        let whole = |parcel: &SentMessage| match &parcel.message {
            Message::Phase2a(m) => {
                m.value == *value && m.range.from <= range.from && m.range.to > range.to
            }
            _ => false,
        };
        let cut = self.clients.is_given_content(value) && self.soup.iter().any(whole);
        self.situations.partial_run_votes += u64::from(cut);
    }

    /// Checks the stream content chosen since the last call.
    pub(super) fn judge_streams(&mut self) -> Result<(), Violation> {
        while self.stream_judge.judged_to() < self.observer.chosen_to() {
            let slot = self.stream_judge.judged_to();
            let chosen = *self.observer.chosen_value(slot).expect("below what is chosen");
            let open = |stream| self.stream_judge.is_open(stream);
            if let Value::CloseStream(stream) = chosen
                && open(stream)
            {
                self.situations.lost_owners += 1;
            }
            let verdict = self.stream_judge.judge_chosen(&chosen, &self.clients);
            self.observer.to_violation(Property::Streams, verdict)?;
        }
        Ok(())
    }

    /// [p1-6] Checks a step that begins a ballot of this node. The step may propose only no-ops and
    /// values that were proposed in these slots before.
    pub(super) fn judge_inheritance(
        &self,
        at: usize,
        before: Option<&Tally>,
    ) -> Result<(), Violation> {
        let leading = self.sites[at].node.as_ref().and_then(Node::phase2);
        let Some(leading) = leading else {
            return Ok(());
        };
        if before.is_some_and(|before| before.ballot() == leading.ballot()) {
            return Ok(());
        }
        for proposal in leading.tally.proposals() {
            for slot in (proposal.range.from.0..proposal.range.to.0).map(Slot) {
                let own = before.into_iter().flat_map(|tally| tally.proposals_from(slot));
                let own =
                    own.take(1).any(|old| old.range.contains(slot) && old.value == proposal.value);
                let known = own
                    || proposal.value == Value::NoOp
                    || self.observer.was_proposed(slot, &proposal.value);
                let verdict = match known {
                    true => Ok(()),
                    false => Err(format!(
                        "ballot {}: {} is new in slot {slot}, in front of others",
                        leading.ballot(),
                        proposal.value
                    )),
                };
                self.observer.to_violation(Property::Inheritance, verdict)?;
            }
        }
        Ok(())
    }

    /// [stream-6] Returns the streams whose owners' processes have ended, as far as a leader can
    /// know.
    pub fn lost_streams(&self, at: usize) -> Vec<StreamName> {
        let open = self.sites[at].applied_streams.table().open_streams();
        open.filter(|stream| !self.is_owner_running(*stream)).collect()
    }

    /// Returns a stream whose running owner has bytes that are not appended yet; `None` if there is
    /// none.
    pub fn owed_stream(&self, at: usize) -> Option<StreamName> {
        let behind = |stream: &StreamName| {
            let next = self.sites[at].applied_streams.table().next_position(*stream);
            next.is_some_and(|next| next < self.clients.given_bytes(*stream))
        };
        self.owned_streams(at).into_iter().find(behind)
    }
}

/// Returns the number of a process, as used in stream names.
fn boot_number(process: u64) -> u32 {
    u32::try_from(process).expect("few")
}
