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

use super::{Parcel, World};
use crate::{
    observer::{Property, Violation},
    streams::bytes_of,
};

/// [stream-8] Maximum number of bytes of a stream that an owner accepts before it has applied them.
const WINDOW: u64 = 8;

impl World {
    /// Opens a stream for a client. The log decides whether this node becomes the owner of the
    /// stream.
    pub(super) fn open(&mut self, at: usize, name: u8, how: OpenMode, writer: u8) {
        let site = &self.sites[at];
        if site.node.is_some() {
            let (owner, boot) = (site.member.node, boot(site.process));
            self.clients.open(owner, boot, name, how, writer);
        }
    }

    /// Returns the streams whose owner is this node's process.
    pub fn owned(&self, at: usize) -> Vec<StreamName> {
        let site = &self.sites[at];
        let own = |stream: &StreamName| {
            (stream.owner, stream.boot) == (site.member.node, boot(site.process))
        };
        let open = site.applied.table().open_streams();
        open.filter(own).filter(|_| site.node.is_some()).collect()
    }

    /// Returns whether the process that owns this stream is running.
    pub fn owner_runs(&self, stream: StreamName) -> bool {
        self.sites.iter().any(|site| {
            let process = (site.member.node, boot(site.process));
            site.node.is_some() && (stream.owner, stream.boot) == process
        })
    }

    /// [stream-5] Hands the next bytes of its client to an owner.
    pub(super) fn give(
        &mut self,
        at: usize,
        stream: StreamName,
        count: u64,
    ) -> Result<(), Violation> {
        let next = self.sites[at].applied.table().next_position(stream);
        let Some(next) = next.filter(|_| self.owned(at).contains(&stream)) else {
            return Ok(());
        };
        let undecided = self.clients.given(stream) - next;
        let from = self.clients.give(stream, count.min(WINDOW - undecided.min(WINDOW)));
        let to = self.clients.given(stream);
        self.carry(at, stream, from, to)
    }

    /// [stream-3] Delivers an owner's bytes to a node, which stores those that it may still need.
    pub(super) fn carry(
        &mut self,
        at: usize,
        stream: StreamName,
        from: u64,
        to: u64,
    ) -> Result<(), Violation> {
        let to = to.min(self.clients.given(stream));
        let site = &mut self.sites[at];
        if site.node.is_none() || !site.applied.table().may_be_open(stream) {
            return Ok(());
        }
        site.take_stream(stream, from, to);
        let of_stream = |(value, _): &(Value, SlotRange)| match value {
            Value::Content { stream: other, .. } => (*other == stream).then_some(*value),
            _ => None,
        };
        let wanted: Vec<Value> = site.fetches.iter().filter_map(of_stream).collect();
        wanted.iter().try_for_each(|value| self.found(at, value))
    }

    /// Fetches the bytes of content `value` from all running nodes that have them.
    pub(super) fn fetch_content(&mut self, at: usize, value: &Value, range: SlotRange) {
        for byte in bytes_of(value, range) {
            let given = |site: &crate::site::Site| site.node.is_some() && site.has_byte(byte);
            if self.sites.iter().any(given) {
                self.sites[at].take_byte(byte);
            }
        }
    }

    /// Notifies a node that parts of the content that it fetches are now complete.
    pub(super) fn found(&mut self, at: usize, value: &Value) -> Result<(), Violation> {
        while let Some(range) = self.sites[at].found(value) {
            let value = *value;
            self.step(at, Input::Held { value, range })?;
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
        let next = node.leading()?.tally.next();
        let room = node.decided_to().plus(self.setup.window_slots).0;
        let most = most.min(room.saturating_sub(next.0));
        let held_to = |from, to| site.held_to(stream, from, to);
        let (to, table) = (site.applied.to(), site.applied.table());
        let offering = &site.offering;
        offering.next_run(stream, most, next, to, table, held_to)
    }

    /// Returns whether this leader has bytes of this stream to propose.
    pub fn may_offer(&self, at: usize, stream: StreamName) -> bool {
        self.next_run(at, stream, 1).is_some()
    }

    /// [stream-1] Makes a leader propose, in the next slots, bytes that it holds.
    pub(super) fn offer(
        &mut self,
        at: usize,
        stream: StreamName,
        most: u64,
    ) -> Result<(), Violation> {
        let Some(run) = self.next_run(at, stream, most) else {
            return Ok(());
        };
        let site = &mut self.sites[at];
        let leading = site.node.as_ref().and_then(Node::leading);
        let Some((ballot, next)) = leading.map(|now| (now.ballot(), now.tally.next())) else {
            return Ok(());
        };
        let table_next = site.applied.table().next_position(stream).unwrap_or(0);
        let (from, to) = (run.position, run.position + run.slots);
        let range = SlotRange::new(next, next.plus(run.slots));
        site.offering.proposed(&run, range);
        let verdict = self.streams.offers(ballot, stream, table_next, from, to);
        self.observer.judge(Property::Streams, verdict)?;
        let (value, slots) = (run.value, run.slots);
        self.step(at, Input::Propose { value, slots })
    }

    /// Makes a node apply everything that it has decided.
    pub(super) fn apply_decided(&mut self, at: usize) -> Result<(), Violation> {
        loop {
            let site = &mut self.sites[at];
            let slot = site.applied.to();
            if slot >= site.decided_to() {
                return Ok(());
            }
            let Some(value) = site.decided_value(slot) else {
                return Ok(());
            };
            let done = site.applied.apply(&value, &self.clients);
            if let Value::Content { stream, .. } = value {
                let next = site.applied.table().next_position(stream);
                site.offering.applied(stream, slot, done.appended.is_none());
                if let Some(next) = next {
                    self.applied_byte(at, slot, &value, stream, next, &done)?;
                }
            }
            let verdict = self.streams.applied(slot, &done);
            self.observer.judge(Property::Streams, verdict)?;
            for (stream, _) in done.closed {
                self.sites[at].drop_stream(stream, u64::MAX);
            }
        }
    }

    /// Checks an applied byte of an open stream, which continues at `next`.
    fn applied_byte(
        &mut self,
        at: usize,
        slot: Slot,
        value: &Value,
        stream: StreamName,
        next: u64,
        done: &crate::streams::applied::Done,
    ) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        if done.appended.is_some() && !site.can_give(value, slot) && site.disk.is_bare(slot, value)
        {
            site.lack.extend(bytes_of(value, SlotRange::one(slot)));
        } else if done.appended.is_some() && !site.can_give(value, slot) {
            let seen =
                Err(format!("slot {slot}: node {} has no byte of {value} to append", at + 1));
            self.observer.judge(Property::Bytes, seen)?;
        }
        if done.appended.is_some() && self.owned(at).contains(&stream) {
            let verdict = self.streams.acknowledged(stream, next);
            self.observer.judge(Property::Streams, verdict)?;
        }
        self.sites[at].drop_stream(stream, next);
        Ok(())
    }

    /// [here-1] Learns decided content without its bytes. From then on the node supplies nothing to
    /// other nodes until the retained bytes are present. It still leads and promises ([here-3]).
    pub(super) fn learn_bare(
        &mut self,
        at: usize,
        from: Member,
        message: Message,
    ) -> Result<(), Violation> {
        self.tell_lack(at, true)?;
        self.sites[at].learns_bare = true;
        let held = true;
        self.step(at, Input::Message { from, message, held })?;
        self.sites[at].learns_bare = false;
        self.tell(at)
    }

    /// Fetches the missing bytes that any running node has.
    pub(super) fn fetch_missing(&mut self, at: usize) -> Result<(), Violation> {
        if self.sites[at].node.is_none() {
            return Ok(());
        }
        for byte in self.sites[at].lack.clone() {
            let has = |site: &crate::site::Site| site.node.is_some() && site.has_byte(byte);
            if self.sites.iter().any(has) {
                self.sites[at].lack.remove(&byte);
                self.sites[at].disk.store(byte);
                self.seen.looked += 1;
            }
        }
        self.tell(at)
    }

    /// Notifies the node of whether bytes are missing.
    pub(super) fn tell(&mut self, at: usize) -> Result<(), Violation> {
        let lacks = self.sites[at].lacks();
        self.tell_lack(at, lacks)
    }

    fn tell_lack(&mut self, at: usize, lacks: bool) -> Result<(), Violation> {
        let site = &mut self.sites[at];
        if site.node.is_none() || site.told_lack == lacks {
            return Ok(());
        }
        site.told_lack = lacks;
        self.step(at, Input::Lacking(lacks))
    }

    /// [value-3], [stream-4] Checks that a recorded value has its bytes, or that they are not
    /// needed. Returns the first slot for which the record has bytes.
    pub(super) fn record_bytes(
        &mut self,
        at: usize,
        range: SlotRange,
        value: Value,
    ) -> Result<Slot, Violation> {
        let member = self.sites[at].member;
        let Some(from) = self.sites[at].recorded(&value, range) else {
            let seen = Err(format!("{member} has not all bytes of {value} for slot {range}"));
            self.observer.judge(Property::Bytes, seen)?;
            return Ok(range.to);
        };
        for slot in (range.from.0..from.0).map(Slot) {
            let verdict = self.streams.hollow(member, slot, value);
            self.observer.judge(Property::Bytes, verdict)?;
        }
        Ok(from)
    }

    /// Counts a vote for a part of a run that was proposed as a whole.
    pub(super) fn note_cut(&mut self, range: SlotRange, value: &Value) {
        let whole = |parcel: &Parcel| match &parcel.message {
            Message::Phase2a(m) => {
                m.value == *value && m.range.from <= range.from && m.range.to > range.to
            }
            _ => false,
        };
        let cut = self.clients.knows(value) && self.soup.iter().any(whole);
        self.seen.cut += u64::from(cut);
    }

    /// Checks the stream content chosen since the last call.
    pub(super) fn judge_streams(&mut self) -> Result<(), Violation> {
        while self.streams.judged_to() < self.observer.chosen_to() {
            let slot = self.streams.judged_to();
            let chosen = *self.observer.chosen(slot).expect("below what is chosen");
            let open = |stream| self.streams.is_open(stream);
            if let Value::CloseStream(stream) = chosen
                && open(stream)
            {
                self.seen.lost_owners += 1;
            }
            let verdict = self.streams.chosen(&chosen, &self.clients);
            self.observer.judge(Property::Streams, verdict)?;
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
        let leading = self.sites[at].node.as_ref().and_then(Node::leading);
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
                self.observer.judge(Property::Inheritance, verdict)?;
            }
        }
        Ok(())
    }

    /// [stream-6] Returns the streams whose owners' processes have ended, as far as a leader can
    /// know.
    pub fn lost_streams(&self, at: usize) -> Vec<StreamName> {
        let open = self.sites[at].applied.table().open_streams();
        open.filter(|stream| !self.owner_runs(*stream)).collect()
    }

    /// Returns a stream whose running owner has bytes that are not appended yet; `None` if there is
    /// none.
    pub fn owes(&self, at: usize) -> Option<StreamName> {
        let behind = |stream: &StreamName| {
            let next = self.sites[at].applied.table().next_position(*stream);
            next.is_some_and(|next| next < self.clients.given(*stream))
        };
        self.owned(at).into_iter().find(behind)
    }
}

/// Returns the number of a process, as used in stream names.
fn boot(process: u64) -> u32 {
    u32::try_from(process).expect("few")
}
