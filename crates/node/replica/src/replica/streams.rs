//! Streams within a turn: sends owned bytes, assigns slots to available bytes, and follows up on
//! applied bytes. Also handles the fronts' requests on streams.

use quorate_core::{
    input::Input,
    node_id::NodeId,
    record::Class,
    slot::{Slot, SlotRange},
    time::Time,
    value::{StreamName, Value},
};
use quorate_log::Values;
use quorate_log::disk::{Completed, Disk};
use quorate_stream::{
    Change, Command, Name, OpenMode, Retention, StreamInfo, Writer, store::Store,
};
use quorate_wire::{Frame, Lane};

use super::{Replica, requests::Requester};
use crate::{
    contents::ReceivedBytes,
    outbox::Outbox,
    ports::{
        front::{Failure, Front},
        plane::Plane,
        service::StateMachine,
        stream_front::{StreamEvent, StreamRequests, StreamTag},
    },
    proposing::{batch::Kind, gather::Waiter},
    storing::reads::Purpose,
    streaming::{
        FrontEvent,
        holding::{NotRead, StreamHold},
        keeping::Fetched,
        owning::NO_FRONT,
    },
};

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Handles bytes of a stream that the owner sent or this node requested.
    pub(super) fn on_stream_bytes(
        &mut self,
        now: Time,
        from: NodeId,
        (stream, position): (StreamName, u64),
        brought: ReceivedBytes<'_>,
    ) {
        let disk = self.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.keeping;
        keeping.take_missing(now, from, (stream, position, brought.bytes), disk);
        if !self.applying.streams().may_be_open(stream) {
            return;
        }
        let wanted = self.contents.wanted_of(stream);
        let payload = brought.to_payload();
        // An unknown stream may only use the regular capacity.
        let open = self.applying.streams().next(stream).is_some();
        let runs = self.contents.runs_mut();
        let kept = runs.put(stream, position, &payload, open);
        if !kept && !wanted.is_empty() && self.contents.has_room(payload.len()) {
            let runs = self.contents.runs_mut();
            runs.put_needed(stream, position, &payload);
        } else if !kept {
            self.counters.stream_bytes_dropped += payload.len() as u64;
        }
        self.place_units(stream);
        for value in wanted {
            self.found(now, value);
        }
        self.streaming.offering.arrived(stream);
    }

    /// [disk-5] Writes whole units that are in memory immediately, so that votes need not contain
    /// them. A volatile group does not need this.
    fn place_units(&mut self, stream: StreamName) {
        let node = self.protocol.node();
        let durable = node.configuration().class() == Class::Durable;
        let open = self.applying.streams().next(stream).is_some();
        if !durable || !open || node.is_hollow() || !self.streaming.keeping.places_units() {
            return;
        }
        let keeping = &mut self.streaming.keeping;
        let (layout, runs) = (keeping.layout(), self.contents.runs_mut());
        let (unit, chunk) = (u64::from(layout.unit_bytes), u64::from(layout.chunk_bytes));
        let disk = self.storing.log_mut().disk_mut();
        while let Some(units) = runs.next_units(stream, unit, chunk) {
            let bulk = units.payload.bulk(units.within.clone());
            if keeping.place(stream, units.from, bulk, disk) {
                runs.placing(stream, units.positions());
            }
        }
    }

    /// Handles units that reached stable storage, so that they may get slots and votes.
    fn hear_placed(&mut self, now: Time) {
        while let Some((stream, positions)) = self.streaming.keeping.next_placed() {
            if self.applying.streams().may_be_open(stream) {
                self.contents.runs_mut().placed(stream, positions);
                self.offer_again(now, stream);
            }
        }
        // If units cannot be placed, records contain the bytes: commands must not wait for stream
        // space.
        if !self.streaming.keeping.places_units() {
            for stream in self.contents.runs_mut().place_nothing() {
                self.offer_again(now, stream);
            }
        }
    }

    fn offer_again(&mut self, now: Time, stream: StreamName) {
        for value in self.contents.wanted_of(stream) {
            self.found(now, value);
        }
        self.streaming.offering.arrived(stream);
    }

    /// [aux-5] Returns the end of the slots that the table covers.
    fn table_holds_from(&self) -> Slot {
        // A service may be ahead of a log that lost its end.
        let decided_to = self.protocol.node().decided_to();
        self.applying.applied_to().max(decided_to)
    }

    /// [aux-5] Returns whether the applied slots make content in this slot a no-op, whatever is
    /// decided in between. An auxiliary cannot know this without a table, and it cannot fetch bytes
    /// that all nodes have dropped.
    pub(super) fn is_needless(&self, value: &Value, slot: Slot) -> bool {
        let Value::Content { stream, offset } = *value else {
            return false;
        };
        let streams = self.applying.streams();
        slot >= self.table_holds_from().max(Slot(offset))
            && streams.may_append(stream, offset, SlotRange::one(slot)).is_empty()
    }

    /// [aux-5] Replies to a node that requested bytes that are not needed. The reply covers all
    /// content of this stream that is not needed.
    pub(super) fn say_needless(&mut self, to: NodeId, value: &Value, plane: &mut dyn Plane) {
        let Value::Content { stream, .. } = *value else {
            return;
        };
        let frame = Frame::Needless {
            stream,
            // A stream that is not open and will never be opened counts as closed.
            below: self.applying.streams().next(stream).unwrap_or(u64::MAX),
            from: self.table_holds_from(),
        };
        Outbox::new(self.member, plane, &mut self.counters).send(to, Lane::Control, &frame);
    }

    /// [aux-5] Handles a full replica's statement that bytes are not needed. This node may be
    /// fetching them. Full replicas ignore such statements and use only their own tables.
    pub(super) fn on_needless(&mut self, now: Time, stream: StreamName, below: u64, from: Slot) {
        if !self.protocol.node().is_auxiliary() {
            return;
        }
        for value in self.contents.settle(stream, below, from) {
            self.counters.stream_bytes_needless += 1;
            self.found(now, value);
        }
    }

    /// Returns whether the store has the bytes that a peer requested for the content in this slot.
    /// If so, starts reading them; they are sent once they have been read.
    pub(super) fn has_in_store(&mut self, from: NodeId, value: &Value, slot: Slot) -> bool {
        let Value::Content { stream, offset } = *value else {
            return false;
        };
        let Some(position) = slot.0.checked_sub(offset) else {
            return true;
        };
        let recent = self.contents.runs().piece(stream, position).is_some();
        let disk = self.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.keeping;
        !recent && keeping.read_for_peer(from, stream, position, disk)
    }

    /// Sends clients' bytes to the other nodes. If this node leads, also assigns slots to available
    /// bytes.
    pub(super) fn offer_streams(&mut self, now: Time, wall_ms: u64, plane: &mut dyn Plane) {
        self.streaming.take_fresh();
        self.close_owned(now);
        let to = self.takers();
        let leader = self.protocol.node().leader();
        let mut out = Outbox::new(self.member, plane, &mut self.counters);
        let mut arrived = Vec::new();
        self.streaming.owning.send(
            now,
            &to,
            leader.filter(|leader| *leader != self.member.node),
            self.contents.runs_mut(),
            &mut out,
            |stream| arrived.push(stream),
        );
        for stream in arrived {
            self.place_units(stream);
            self.streaming.offering.arrived(stream);
        }
        if self.protocol.leads() {
            self.retain_streams(now, wall_ms);
            self.close_lost(now, plane);
            self.propose_streams(now, plane);
        }
    }

    /// [trim-2] As leader, proposes the commands that enforce the retention of streams.
    fn retain_streams(&mut self, now: Time, wall_ms: u64) {
        let streams = self.applying.streams();
        for command in self.streaming.take_retention(now, wall_ms, streams) {
            // If the queue is full, a later turn retries.
            let _ = self.ask_streams(now, NO_FRONT, &command);
        }
    }

    /// [aux-1] Returns the nodes to which an owner sends its bytes: all connected nodes except
    /// auxiliaries.
    fn takers(&self) -> Vec<NodeId> {
        let configuration = self.protocol.node().configuration();
        let takes = |node: &NodeId| {
            let member = self.peers.member(*node);
            member.is_some_and(|member| !configuration.is_auxiliary(member))
        };
        self.peers.ids().into_iter().filter(takes).collect()
    }

    /// Proposes to close inner streams whose bytes are all decided and whose clients have finished.
    fn close_owned(&mut self, now: Time) {
        while let Some((tag, command)) = self.streaming.owning.next_close() {
            if self.ask_streams(now, tag, &command).is_err() {
                self.streaming.owning.not_asked(now, tag);
                return;
            }
        }
    }

    fn ask_streams(&mut self, now: Time, tag: StreamTag, command: &Command) -> Result<(), Failure> {
        let waiter = Waiter::Stream(tag);
        let origin = self.proposing.origin();
        origin.accept_for(now, Kind::Stream, waiter, &command.encode())
    }

    /// [stream-1] As leader, assigns slots to available bytes.
    fn propose_streams(&mut self, now: Time, plane: &mut dyn Plane) {
        let inflight_max = self.streaming.inflight_max();
        loop {
            let node = self.protocol.node();
            let Some(leading) = node.leading() else {
                return;
            };
            let next = leading.tally.next();
            // If the store is full, no more bytes are accepted, because commands need the remaining
            // space.
            let full = self.streaming.keeping.is_full();
            if full || leading.tally.len() >= inflight_max || !self.may_propose(0) {
                return;
            }
            let applied_to = self.applying.applied_to();
            let offering = &mut self.streaming.offering;
            let (streams, runs) = (self.applying.streams(), self.contents.runs());
            let Some(run) = offering.next_run(next, applied_to, streams, runs) else {
                return;
            };
            let end = node.decided_to().plus(self.window_slots);
            if next.plus(run.slots) > end {
                return;
            }
            offering.proposed(&run, SlotRange::new(next, next.plus(run.slots)));
            let (value, slots) = (run.value, run.slots);
            self.step(now, Input::Propose { value, slots }, plane);
        }
    }

    /// [stream-6] As leader, closes streams whose owners are lost.
    fn close_lost(&mut self, now: Time, plane: &mut dyn Plane) {
        let applied_to = self.applying.applied_to();
        while self.may_propose(0) {
            let (own, boot) = (self.member.node, self.boot);
            let streams = self.applying.streams();
            let lost = self.streaming.next_lost(now, applied_to, streams, (own, boot));
            let Some(stream) = lost else {
                return;
            };
            let leading = self.protocol.node().leading();
            let slot = leading.map_or(Slot::FIRST, |leading| leading.tally.next());
            self.streaming.offering.closing(stream, slot);
            let value = Value::CloseStream(stream);
            self.step(now, Input::Propose { value, slots: 1 }, plane);
        }
    }

    /// Follows up on applied slots: moves bytes to the store, and notifies owners and readers.
    pub(super) fn follow_streams(&mut self, now: Time) {
        let more = self.streaming.has_applied(self.applying.streams());
        let changes =
            self.streaming.applied(now, self.applying.streams_mut(), self.contents.runs_mut());
        self.keep_appended(changes);
        if more {
            // [stream-4] Content that is being fetched may no longer be needed.
            for value in self.contents.wanted_content() {
                self.found(now, value);
            }
        }
    }

    /// Moves applied bytes into the store.
    fn keep_appended(&mut self, changes: Vec<Change>) {
        let appended = std::mem::take(&mut self.streaming.appended);
        let applied_to = self.applying.applied_to();
        let voted_to = self.protocol.node().hard_state().voted_to;
        let disk = self.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.keeping;
        keeping.applied((applied_to, voted_to), appended, changes, disk);
    }

    /// Advances the store, and fetches bytes that it lacks. Returns completed disk operations that
    /// belong to other parts.
    pub(super) fn keep_streams(&mut self, now: Time, plane: &mut dyn Plane) -> Vec<Completed> {
        let mut others = Vec::new();
        while let Some(completed) = self.storing.log_mut().next_other() {
            if let Completed::SmallFileRead { name, result, .. } = completed {
                self.recalled = Some((name, result));
            } else if Store::concerns(&completed) {
                let disk = self.storing.log_mut().disk_mut();
                self.streaming.keeping.on_completed(completed, disk);
            } else {
                others.push(completed);
            }
        }
        if let Some(range) = self.streaming.keeping.replays() {
            self.replay_streams(now, range);
        }
        self.hear_placed(now);
        let mut read = Vec::new();
        let mut out = Outbox::new(self.member, plane, &mut self.counters);
        let disk = self.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.keeping;
        keeping.advance(now, disk, &mut out, |tag, fetched| read.push((tag, fetched)));
        keeping.look_for_missing(now, self.applying.streams(), &self.peers.ids(), &mut out);
        for (tag, fetched) in read {
            self.streaming.tell(match fetched {
                Fetched::Bytes(bytes) => FrontEvent::Bytes(tag, bytes),
                Fetched::NotHere => FrontEvent::Failed(tag, Failure::Unavailable),
            });
        }
        if let Some(why) = self.streaming.keeping.failure().map(ToOwned::to_owned) {
            self.fail_storage(format!("the store of streams: {why}"));
        }
        self.note_lacking();
        others
    }

    /// [here-1] Notifies the core when this node starts or stops lacking bytes of streams.
    pub(super) fn note_lacking(&mut self) {
        if let Some(lacking) = self.streaming.keeping.lacking_news() {
            self.protocol.later(Input::Lacking(lacking));
        }
    }

    /// Starts reading from the log the values after the store's last checkpoint.
    fn replay_streams(&mut self, now: Time, range: SlotRange) {
        if range.from < self.storing.log().start() {
            // The slots were trimmed, so a checkpoint covered them, which is lost.
            return self.streaming.keeping.skip_replay();
        }
        let range = self.catching_up.readable(range);
        if !range.is_empty() {
            self.storing.read(now, Purpose::Streams, range);
        }
    }

    /// Passes the values after the last checkpoint, as read from the log, to the store.
    pub(super) fn on_streams_read(&mut self, values: Values) {
        let disk = self.storing.log_mut().disk_mut();
        let streams = self.applying.streams();
        self.streaming.keeping.replayed(values, streams, disk);
    }

    /// Starts a checkpoint of the store if trimming the log up to `wanted` requires one.
    pub(super) fn checkpoint_streams(&mut self, wanted: Option<Slot>) {
        let keeping = &mut self.streaming.keeping;
        if wanted.is_some_and(|wanted| wanted > keeping.kept_to(self.applying.streams())) {
            keeping.start_checkpoint(self.storing.log_mut().disk_mut());
        }
    }

    /// Handles a table of streams that was loaded instead of following from the applied slots.
    pub(super) fn streams_loaded(&mut self, now: Time) {
        let streams = self.applying.streams();
        self.streaming.loaded(now, streams, self.contents.runs_mut());
        let (start, applied_to) = (self.storing.log().start(), self.applying.applied_to());
        let keeping = &mut self.streaming.keeping;
        keeping.loaded(start, applied_to, streams);
    }

    /// [trim-2] Retains the bytes of streams that snapshots taken from now on refer to, until the
    /// returned hold is dropped. An earlier hold is returned again if it has not ended; any other
    /// hold ends now.
    ///
    /// # Errors
    ///
    /// Returns why this node does not have all of the bytes.
    pub fn hold_streams(
        &mut self,
        now: Time,
        earlier: Option<StreamHold>,
    ) -> Result<StreamHold, String> {
        let keeping = &mut self.streaming.keeping;
        if let Some(earlier) = earlier
            && keeping.goes_on(now, &earlier)
        {
            return Ok(earlier);
        }
        if self.protocol.node().is_hollow() || self.protocol.node().is_auxiliary() {
            return Err("it is an auxiliary, which has no bytes of streams".to_owned());
        }
        if keeping.lacks() || keeping.replays().is_some() {
            let missing = keeping.missing_bytes();
            return Err(format!(
                "it is still looking for bytes of streams, of which it knows {missing} to be missing"
            ));
        }
        Ok(keeping.hold(now, self.applying.applied_to()))
    }

    /// Reads up to `bytes_max` held bytes of an inner stream. [`Replica::take_held_bytes`] returns
    /// them with the number `asked`.
    pub fn read_held(
        &mut self,
        now: Time,
        (asked, hold): (u64, u64),
        (stream, position, bytes_max): (StreamName, u64, usize),
    ) {
        let disk = self.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.keeping;
        keeping.read_held(now, (asked, hold), (stream, position, bytes_max), disk);
    }

    /// Takes the next result of a read of held bytes.
    pub fn take_held_bytes(&mut self) -> Option<(u64, Result<Vec<u8>, NotRead>)> {
        self.streaming.keeping.next_held()
    }

    /// Reads bytes at a position of a named stream, as of the applied slots.
    fn read_stream(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
        bytes_max: usize,
    ) -> Result<(), Failure> {
        let located = match self.applying.streams().locate(name, position) {
            Ok(located) => located,
            Err(nowhere) => {
                self.streaming.tell(FrontEvent::Nowhere(tag, nowhere));
                return Ok(());
            }
        };
        let most = usize::try_from(located.bytes).map_or(bytes_max, |bytes| bytes.min(bytes_max));
        let disk = self.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.keeping;
        let taken = keeping.read(tag, located.stream, located.position, most, disk);
        taken.then_some(()).ok_or(Failure::Busy)
    }

    /// Notifies a front of all stream events. Returns whether there were any.
    pub(super) fn deliver_streams(
        &mut self,
        now: Time,
        wall_ms: u64,
        front: &mut dyn Front,
    ) -> bool {
        while let Some((tag, result)) = self.completions.take_stream() {
            self.streaming.tell(match result {
                Ok(()) => FrontEvent::Looked(tag),
                Err(failure) => FrontEvent::Failed(tag, failure),
            });
        }
        let mut some = false;
        while let Some(told) = self.streaming.next_front_event() {
            some = true;
            let event = match told {
                FrontEvent::Bytes(tag, ref bytes) => StreamEvent::Bytes(tag, bytes),
                FrontEvent::Done(tag, done) => StreamEvent::Done(tag, done),
                FrontEvent::Refused(tag, denied) => StreamEvent::Refused(tag, denied),
                FrontEvent::Failed(tag, failure) => StreamEvent::Failed(tag, failure),
                FrontEvent::Looked(tag) => StreamEvent::Looked(tag),
                FrontEvent::Nowhere(tag, nowhere) => StreamEvent::Nowhere(tag, nowhere),
                FrontEvent::Durable(piece, position) => StreamEvent::Durable(piece, position),
                FrontEvent::Ended(piece, position) => StreamEvent::Ended(piece, position),
            };
            front.streamed(event, &mut Requester::new(self, now, wall_ms));
        }
        some
    }
}

impl<D: Disk, S: StateMachine> StreamRequests for Requester<'_, D, S> {
    fn retain(&mut self, tag: StreamTag, name: &Name, keep: Retention) -> Result<(), Failure> {
        self.replica.takes_requests()?;
        let name = name.clone();
        let command = Command::Retain { name, keep };
        self.replica.ask_streams(self.now, tag, &command)
    }

    fn open(
        &mut self,
        tag: StreamTag,
        name: &Name,
        how: OpenMode,
        writer: Writer,
    ) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.takes_requests()?;
        let stream = replica.streaming.owning.next_name();
        let command = Command::Open {
            name: name.clone(),
            how,
            writer,
            stream: stream.ok_or(Failure::Busy)?,
            now_ms: self.wall_ms,
        };
        replica.ask_streams(self.now, tag, &command)
    }

    fn room(&self, piece: StreamName) -> usize {
        self.replica.streaming.owning.room(piece)
    }

    fn shared_room(&self) -> usize {
        self.replica.streaming.owning.shared_room()
    }

    fn put(&mut self, piece: StreamName, bytes: &[u8]) -> usize {
        let replica = &mut *self.replica;
        let runs = replica.contents.runs_mut();
        let taken = replica.streaming.owning.put(self.now, piece, bytes, runs);
        if taken > 0 {
            replica.streaming.note_fresh();
        }
        taken
    }

    fn fill(
        &mut self,
        piece: StreamName,
        bytes_max: usize,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> usize {
        let replica = &mut *self.replica;
        let runs = replica.contents.runs_mut();
        let owning = &mut replica.streaming.owning;
        let taken = owning.fill(self.now, piece, bytes_max, runs, read);
        if taken > 0 {
            replica.streaming.note_fresh();
        }
        taken
    }

    fn close(&mut self, tag: StreamTag, piece: StreamName, finish: bool) -> Result<(), Failure> {
        self.replica.takes_requests()?;
        let known = self.replica.streaming.owning.close(tag, piece, finish);
        self.replica.streaming.note_fresh();
        known.then_some(()).ok_or(Failure::Unknown)
    }

    fn abandon(&mut self, piece: StreamName) {
        self.replica.streaming.owning.abandon(piece);
        self.replica.streaming.note_fresh();
    }

    fn trim(&mut self, tag: StreamTag, name: &Name, before: u64) -> Result<(), Failure> {
        self.replica.takes_requests()?;
        let name = name.clone();
        let command = Command::Trim { name, before };
        self.replica.ask_streams(self.now, tag, &command)
    }

    fn remove(&mut self, tag: StreamTag, name: &Name) -> Result<(), Failure> {
        self.replica.takes_requests()?;
        let command = Command::Remove { name: name.clone() };
        self.replica.ask_streams(self.now, tag, &command)
    }

    fn look(&mut self, tag: StreamTag) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.takes_requests()?;
        replica.applying.takes_reads()?;
        replica.reading.accept(self.now, Waiter::Stream(tag))
    }

    fn info(&self, name: &Name) -> Option<StreamInfo> {
        self.replica.applying.streams().info(name)
    }

    fn infos(&self, after: Option<&Name>, each: &mut dyn FnMut(StreamInfo) -> bool) {
        for info in self.replica.applying.streams().infos(after) {
            if !each(info) {
                return;
            }
        }
    }

    fn read(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
        bytes_max: usize,
    ) -> Result<(), Failure> {
        self.replica.takes_requests()?;
        self.replica.read_stream(tag, name, position, bytes_max)
    }

    fn wait(&mut self, tag: StreamTag, name: &Name, position: u64) -> Result<(), Failure> {
        self.replica.takes_requests()?;
        let streams = self.replica.applying.streams();
        self.replica.streaming.wait(tag, name, position, streams)
    }

    fn forget(&mut self, tag: StreamTag) {
        self.replica.streaming.forget(tag);
    }

    fn leader(&self) -> Option<&str> {
        let replica = &*self.replica;
        let leader = replica.protocol.node().leader()?;
        let elsewhere = leader != replica.member.node;
        let addresses = replica.peers.known(leader).filter(|_| elsewhere)?;
        Some(addresses.stream.as_str()).filter(|address| !address.is_empty())
    }
}
