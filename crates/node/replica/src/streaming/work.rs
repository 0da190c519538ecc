//! Byte streams and the spine, borrowed for one call that handles incoming bytes, bytes that this
//! node owns, their slots if it leads, applied bytes, or the store.

use quorate_core::{
    class::Class,
    input::Input,
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::{StreamName, Value},
};
use quorate_log::{
    Values,
    disk::{Completed, Disk},
};
use quorate_stream::{Command, InnerStreamChange, Name};
use quorate_wire::{Frame, Lane};

use crate::{
    contents::ReceivedBytes,
    outbox::Outbox,
    ports::{front::Failure, plane::Plane, service::StateMachine, stream_front::StreamTag},
    proposing::{batch::Kind, gather::Waiter},
    spine::Spine,
    streaming::{FrontEvent, Streaming, holding::StreamHold, keeping::Fetched, owning::NO_FRONT},
};

/// Byte streams and the spine, borrowed for one call.
pub(crate) struct StreamWork<'a, D: Disk, S: StateMachine> {
    pub(crate) streaming: &'a mut Streaming,
    pub(crate) spine: &'a mut Spine<D, S>,
}

impl<D: Disk, S: StateMachine> StreamWork<'_, D, S> {
    /// Handles bytes of a stream, sent by the owner or requested by this node.
    pub(crate) fn on_bytes(
        &mut self,
        now: Time,
        from: NodeId,
        (stream, position): (StreamName, u64),
        brought: ReceivedBytes<'_>,
    ) {
        let disk = self.spine.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.stream_storage;
        keeping.take_missing(now, from, (stream, position, brought.bytes), disk);
        if !self.spine.applying.streams().may_be_appended_to(stream) {
            return;
        }
        let wanted = self.spine.contents.fetching_of_stream(stream);
        let payload = brought.to_payload();
        // An unknown stream may only use the regular capacity.
        let open = self.spine.applying.streams().next_position(stream).is_some();
        let runs = self.spine.contents.stream_buffers_mut();
        let kept = runs.store_new_bytes(stream, position, &payload, open);
        if !kept && !wanted.is_empty() && self.spine.contents.has_room(payload.len()) {
            let runs = self.spine.contents.stream_buffers_mut();
            runs.store_needed(stream, position, &payload);
        } else if !kept {
            self.spine.counters.stream_bytes_dropped += payload.len() as u64;
        }
        self.place_units(stream);
        for value in wanted {
            self.spine.handle_arrival(now, value);
        }
        self.streaming.proposals.mark_ready(stream);
    }

    /// [disk-5] Writes whole units that are in memory to the store at once, so that the records of
    /// votes need not contain them. A volatile group does not need this.
    fn place_units(&mut self, stream: StreamName) {
        let node = self.spine.node();
        let durable = node.configuration().class() == Class::Durable;
        let open = self.spine.applying.streams().next_position(stream).is_some();
        if !durable || !open || node.is_hollow() || !self.streaming.stream_storage.can_place_units()
        {
            return;
        }
        let keeping = &mut self.streaming.stream_storage;
        let (layout, runs) = (keeping.layout(), self.spine.contents.stream_buffers_mut());
        let (unit, chunk) = (u64::from(layout.unit_bytes), u64::from(layout.chunk_bytes));
        let disk = self.spine.storing.log_mut().disk_mut();
        while let Some(units) = runs.next_units(stream, unit, chunk) {
            let bulk = units.payload.as_bulk(units.payload_range.clone());
            if keeping.place_units(stream, units.from, bulk, disk) {
                runs.mark_placing(stream, units.positions());
            }
        }
    }

    /// Handles units that reached stable storage: they may now get slots and votes.
    fn process_placed(&mut self, now: Time) {
        while let Some((stream, positions)) = self.streaming.stream_storage.next_placed() {
            if self.spine.applying.streams().may_be_appended_to(stream) {
                self.spine.contents.stream_buffers_mut().mark_placed(stream, positions);
                self.reoffer_piece(now, stream);
            }
        }
        // The store cannot place units now. Records contain the bytes instead, so that commands
        // need not wait.
        if !self.streaming.stream_storage.can_place_units() {
            for stream in self.spine.contents.stream_buffers_mut().clear_placing() {
                self.reoffer_piece(now, stream);
            }
        }
    }

    fn reoffer_piece(&mut self, now: Time, stream: StreamName) {
        for value in self.spine.contents.fetching_of_stream(stream) {
            self.spine.handle_arrival(now, value);
        }
        self.streaming.proposals.mark_ready(stream);
    }

    /// [aux-5] Returns the first slot that the table does not cover.
    fn table_holds_from(&self) -> Slot {
        // A service may be ahead of a log that has lost its end.
        let decided_to = self.spine.node().decided_to();
        self.spine.applying.applied_to().max(decided_to)
    }

    /// [aux-5] Returns whether the applied slots make content in `slot` a no-op, regardless of
    /// decisions in between. An auxiliary, which has no table, cannot know this, and cannot fetch
    /// bytes that all nodes have dropped.
    pub(crate) fn is_needless(&self, value: &Value, slot: Slot) -> bool {
        let Value::Content { stream, offset } = *value else {
            return false;
        };
        let streams = self.spine.applying.streams();
        slot >= self.table_holds_from().max(Slot(offset))
            && streams.appendable(stream, offset, SlotRange::one(slot)).is_empty()
    }

    /// [aux-5] Notifies a node that the bytes it requested are not needed. The reply covers all
    /// needless content of this stream.
    pub(crate) fn notify_needless(&mut self, to: NodeId, value: &Value, plane: &mut dyn Plane) {
        let Value::Content { stream, .. } = *value else {
            return;
        };
        let frame = Frame::Needless {
            stream,
            // A stream that is not open and will never be opened counts as closed.
            below: self.spine.applying.streams().next_position(stream).unwrap_or(u64::MAX),
            from: self.table_holds_from(),
        };
        self.spine.outbox(plane).send(to, Lane::Control, &frame);
    }

    /// [aux-5] Handles a full replica's statement that bytes are not needed. This node may be
    /// fetching them. Full replicas ignore such statements and use only their own tables.
    pub(crate) fn on_needless(&mut self, now: Time, stream: StreamName, below: u64, from: Slot) {
        if !self.spine.node().is_auxiliary() {
            return;
        }
        for value in self.spine.contents.record_not_needed(stream, below, from) {
            self.spine.counters.stream_bytes_needless += 1;
            self.spine.handle_arrival(now, value);
        }
    }

    /// Starts reading the bytes that a peer requested for the content in `slot`, and sends them
    /// later. Returns `false` if the store does not have them, or they are still in memory.
    pub(crate) fn start_read_if_stored(&mut self, from: NodeId, value: &Value, slot: Slot) -> bool {
        let Value::Content { stream, offset } = *value else {
            return false;
        };
        let Some(position) = slot.0.checked_sub(offset) else {
            return true;
        };
        let recent = self.spine.contents.stream_buffers().piece(stream, position).is_some();
        let disk = self.spine.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.stream_storage;
        !recent && keeping.read_for_peer(from, stream, position, disk)
    }

    /// Sends clients' bytes to the other nodes. If this node leads, also enforces the retention.
    pub(crate) fn send_client_bytes(&mut self, now: Time, wall_ms: u64, plane: &mut dyn Plane) {
        self.streaming.clear_fresh_bytes();
        self.close_owned(now);
        let to = self.receiving_nodes();
        let leader = self.spine.node().leader();
        let mut out = Outbox::new(self.spine.identity.member, plane, &mut self.spine.counters);
        let mut arrived = Vec::new();
        self.streaming.owned_pieces.send_bytes(
            now,
            &to,
            leader.filter(|leader| *leader != self.spine.identity.member.node),
            self.spine.contents.stream_buffers_mut(),
            &mut out,
            |stream| arrived.push(stream),
        );
        for stream in arrived {
            self.place_units(stream);
            self.streaming.proposals.mark_ready(stream);
        }
        if self.spine.protocol.is_leader() {
            self.propose_retention(now, wall_ms);
        }
    }

    /// [trim-2] As leader, proposes the commands that enforce the retention of streams.
    fn propose_retention(&mut self, now: Time, wall_ms: u64) {
        let streams = self.spine.applying.streams();
        for command in self.streaming.take_retention(now, wall_ms, streams) {
            // If the queue is full, a later turn retries.
            let _ = self.request_command(now, NO_FRONT, &command);
        }
    }

    /// [aux-1] Returns the nodes to which owners send bytes: all connected ones except auxiliaries.
    fn receiving_nodes(&self) -> Vec<NodeId> {
        let configuration = self.spine.node().configuration();
        let takes = |node: &NodeId| {
            let member = self.spine.peers.member(*node);
            member.is_some_and(|member| !configuration.is_auxiliary(member))
        };
        self.spine.peers.connected_nodes().into_iter().filter(takes).collect()
    }

    /// Proposes to close inner streams whose bytes are all decided and whose clients have finished.
    fn close_owned(&mut self, now: Time) {
        while let Some((tag, command)) = self.streaming.owned_pieces.next_close() {
            if self.request_command(now, tag, &command).is_err() {
                self.streaming.owned_pieces.retry_close(now, tag);
                return;
            }
        }
    }

    pub(crate) fn request_command(
        &mut self,
        now: Time,
        tag: StreamTag,
        command: &Command,
    ) -> Result<(), Failure> {
        let waiter = Waiter::Stream(tag);
        let origin = self.spine.proposing.origin_mut();
        origin.accept_for(now, Kind::Stream, waiter, &command.encode())
    }

    /// [stream-1] Returns the next run to propose as leader: its value and number of slots.
    pub(crate) fn next_run(&mut self) -> Option<(Value, u64)> {
        let node = self.spine.node();
        let leading = node.phase2()?;
        let next = leading.tally.next();
        // A full store accepts no more bytes, to reserve space for commands.
        if self.streaming.stream_storage.is_full()
            || leading.tally.len() >= self.streaming.inflight_max()
        {
            return None;
        }
        let applied_to = self.spine.applying.applied_to();
        let offering = &mut self.streaming.proposals;
        let (streams, runs) = (self.spine.applying.streams(), self.spine.contents.stream_buffers());
        let run = offering.next_run(next, applied_to, streams, runs)?;
        let end = node.decided_to().plus(self.spine.protocol.window_slots());
        if next.plus(run.slot_count) > end {
            return None;
        }
        offering.record_proposed(&run, SlotRange::new(next, next.plus(run.slot_count)));
        Some((run.value, run.slot_count))
    }

    /// [stream-6] As leader, returns the value that closes the next stream whose owner is lost.
    pub(crate) fn next_lost(&mut self, now: Time) -> Option<Value> {
        let applied_to = self.spine.applying.applied_to();
        let own = (self.spine.identity.member.node, self.spine.identity.boot);
        let stream =
            self.streaming.next_lost(now, applied_to, self.spine.applying.streams(), own)?;
        let leading = self.spine.node().phase2();
        let slot = leading.map_or(Slot::FIRST, |leading| leading.tally.next());
        self.streaming.proposals.record_closing(stream, slot);
        Some(Value::CloseStream(stream))
    }

    /// Processes applied slots: moves their bytes to the store, and notifies owners and readers.
    pub(crate) fn process_applied(&mut self, now: Time) {
        let more = self.streaming.has_unprocessed_effects(self.spine.applying.streams());
        let changes = self.streaming.process_applied(
            now,
            self.spine.applying.streams_mut(),
            self.spine.contents.stream_buffers_mut(),
        );
        self.store_appended(changes);
        if more {
            // [stream-4] Content that is being fetched may no longer be needed.
            for value in self.spine.contents.fetching_content() {
                self.spine.handle_arrival(now, value);
            }
        }
    }

    /// Moves applied bytes into the store.
    fn store_appended(&mut self, changes: Vec<InnerStreamChange>) {
        let appended = std::mem::take(&mut self.streaming.appended_bytes);
        let applied_to = self.spine.applying.applied_to();
        let voted_to = self.spine.node().hard_state().voted_to;
        let disk = self.spine.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.stream_storage;
        keeping.process_applied((applied_to, voted_to), appended, changes, disk);
    }

    /// Advances the store, and fetches bytes that it lacks. Returns the reason if the store has
    /// failed.
    pub(crate) fn advance_store(&mut self, now: Time, plane: &mut dyn Plane) -> Option<String> {
        self.process_placed(now);
        let mut read = Vec::new();
        let mut out = Outbox::new(self.spine.identity.member, plane, &mut self.spine.counters);
        let disk = self.spine.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.stream_storage;
        keeping.continue_work(now, disk, &mut out, |tag, fetched| read.push((tag, fetched)));
        keeping.request_missing(
            now,
            self.spine.applying.streams(),
            &self.spine.peers.connected_nodes(),
            &mut out,
        );
        for (tag, fetched) in read {
            self.streaming.queue_event(match fetched {
                Fetched::Bytes(bytes) => FrontEvent::Bytes(tag, bytes),
                Fetched::NotHere => FrontEvent::Failed(tag, Failure::Unavailable),
            });
        }
        self.streaming.stream_storage.failure().map(|why| format!("the store of streams: {why}"))
    }

    /// [here-1] Notifies the core when this node starts or stops lacking bytes of streams.
    pub(crate) fn report_lacking(&mut self) {
        if let Some(lacking) = self.streaming.stream_storage.take_lacking_change() {
            self.spine.protocol.queue_input(Input::StreamBytesLacking(lacking));
        }
    }

    /// Returns the slots since the store's last checkpoint, to be read from the log.
    pub(crate) fn replay_range(&mut self) -> Option<SlotRange> {
        let range = self.streaming.stream_storage.replay_range()?;
        if range.from < self.spine.storing.log().start() {
            // The slots were trimmed, so a checkpoint had covered them; it has been lost.
            self.streaming.stream_storage.skip_replay();
            return None;
        }
        Some(range)
    }

    pub(crate) fn on_completed(&mut self, completed: Completed) {
        let disk = self.spine.storing.log_mut().disk_mut();
        self.streaming.stream_storage.on_completed(completed, disk);
    }

    /// Passes the values read from the log, those since the last checkpoint, to the store.
    pub(crate) fn on_read(&mut self, values: Values) {
        let disk = self.spine.storing.log_mut().disk_mut();
        let streams = self.spine.applying.streams();
        self.streaming.stream_storage.store_replayed(values, streams, disk);
    }

    /// Starts a checkpoint of the store if trimming the log up to `wanted` requires one.
    pub(crate) fn checkpoint(&mut self, wanted: Option<Slot>) {
        let keeping = &mut self.streaming.stream_storage;
        if wanted.is_some_and(|wanted| wanted > keeping.kept_to(self.spine.applying.streams())) {
            keeping.start_checkpoint(self.spine.storing.log_mut().disk_mut());
        }
    }

    /// Handles a table of streams that was loaded from a snapshot, not derived from the applied
    /// slots.
    pub(crate) fn on_loaded(&mut self, now: Time) {
        let streams = self.spine.applying.streams();
        self.streaming.on_loaded(now, streams, self.spine.contents.stream_buffers_mut());
        let (start, applied_to) =
            (self.spine.storing.log().start(), self.spine.applying.applied_to());
        let keeping = &mut self.streaming.stream_storage;
        keeping.on_loaded(start, applied_to, streams);
    }

    /// [trim-2] Holds the stream bytes to which snapshots taken from now on refer. Fails if this
    /// node does not have all of them.
    pub(crate) fn hold_bytes(
        &mut self,
        now: Time,
        earlier: Option<StreamHold>,
    ) -> Result<StreamHold, String> {
        let keeping = &mut self.streaming.stream_storage;
        if let Some(earlier) = earlier
            && keeping.extend_hold(now, &earlier)
        {
            return Ok(earlier);
        }
        if self.spine.node().is_hollow() || self.spine.node().is_auxiliary() {
            return Err("it is an auxiliary, which has no bytes of streams".to_owned());
        }
        if keeping.may_lack_bytes() || keeping.replay_range().is_some() {
            let missing = keeping.missing_bytes();
            return Err(format!(
                "it is still looking for bytes of streams, of which it knows {missing} to be missing"
            ));
        }
        Ok(keeping.begin_hold(now, self.spine.applying.applied_to()))
    }

    /// Reads bytes at a position of a named stream, in the state after the applied slots.
    pub(crate) fn read(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
        bytes_max: usize,
    ) -> Result<(), Failure> {
        let located = match self.spine.applying.streams().locate(name, position) {
            Ok(located) => located,
            Err(nowhere) => {
                self.streaming.queue_event(FrontEvent::NoBytes(tag, nowhere));
                return Ok(());
            }
        };
        let most = usize::try_from(located.bytes).map_or(bytes_max, |bytes| bytes.min(bytes_max));
        let disk = self.spine.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.stream_storage;
        let taken = keeping.read(tag, located.stream, located.position, most, disk);
        taken.then_some(()).ok_or(Failure::Busy)
    }
}
