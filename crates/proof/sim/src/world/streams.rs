//! Byte stream clients, and the observations passed to the stream checker.

use quorate_core::{class::Class, slot::Slot};
use quorate_node::host::ClientSide as _;
use quorate_replica::{front::ConnectionId, stream_front::StreamTag, testing::DeliveredEvent};

use super::{Event, World};
use crate::{
    check::{Verdict, Violation},
    faults::Fault,
    front::{Note, StreamRequest},
    workload::streams::{Load, Role, Streamer},
};

impl World {
    /// Starts the stream clients that the run has.
    pub(super) fn plan_streams(&mut self) {
        let Some(load) = self.settings.streams else {
            return;
        };
        for number in 0..load.writers + load.readers {
            let role = if number < load.writers { Role::Writer } else { Role::Reader };
            let (index, dice) = (self.streamers.len(), self.streaming.dice.fork());
            self.add_streamer(Streamer::new(index, role, load, dice));
        }
    }

    /// Adds a stream client and schedules its first action.
    pub(super) fn add_streamer(&mut self, streamer: Streamer) {
        let index = streamer.index;
        self.streamers.push(streamer);
        let wait = self.streaming.dice.between(1, 10_000);
        self.schedule_after(wait, Event::Streamer(index));
    }

    pub(super) fn streamer_acts(&mut self, index: usize) {
        let streamer = &mut self.streamers[index];
        if streamer.role == Role::Script || streamer.is_done && !streamer.is_busy() {
            return;
        }
        let Some((connection, _)) = streamer.connection else {
            return self.streamer_connects(index);
        };
        if streamer.awaited_tag.is_some() {
            if streamer.reply_deadline.is_some_and(|at| at <= self.now) {
                self.streamer_leaves(index, connection);
            }
            return;
        }
        let ask = streamer.acts();
        let wait = streamer.draw_pause();
        match ask {
            Some(StreamRequest::Leave) => return self.streamer_leaves(index, connection),
            Some(ask) => drop(self.streamer_asks(index, ask)),
            None => {}
        }
        if self.streamers[index].awaited_tag.is_none() {
            self.schedule_after(wait, Event::Streamer(index));
        }
    }

    /// Sends a client's request and returns its tag.
    pub(super) fn streamer_asks(&mut self, index: usize, ask: StreamRequest) -> StreamTag {
        self.streaming.tags += 1;
        let tag = StreamTag(self.streaming.tags);
        if self.trace.frames {
            let who = format!("s{}", index + 1);
            self.line(&who, "asks", format_args!("{}: {ask:?}", tag.0));
        }
        let Some((connection, node)) = self.streamers[index].connection else {
            return tag;
        };
        if !matches!(ask, StreamRequest::Give(..) | StreamRequest::Leave) {
            self.streamers[index].awaited_tag = Some(tag);
            self.is_patient(index);
        }
        let life = self.nodes[node].life;
        let at = self.stream_delay(connection);
        let event = Event::ToStreams { node, life, connection, tag, ask };
        self.schedule_at(at, event);
        tag
    }

    /// Starts the timeout of a waiting client.
    fn is_patient(&mut self, index: usize) {
        let patience = self.settings.client_timeout_ms * 2 + 200;
        let patience_at = self.now.plus_ms(patience);
        self.streamers[index].reply_deadline = Some(patience_at);
        self.schedule_at(patience_at, Event::Streamer(index));
    }

    fn stream_delay(&mut self, connection: ConnectionId) -> quorate_core::time::Time {
        let at = self.now.plus_us(self.streaming.dice.between(20, 200));
        self.wires.arrival(connection, at)
    }

    fn streamer_connects(&mut self, index: usize) {
        let count = self.nodes.len();
        let node = self.streamers[index].choose(count);
        let known =
            !self.settings.is_auxiliary(node) && (self.chaos.goes_on() || self.belongs(node));
        let up = known && self.nodes[node].running.is_some();
        let mut wait = 100;
        if up {
            self.streamers[index].connection = Some((self.wires.open(), node));
        } else {
            wait = self.streaming.dice.between(500, 20_000);
        }
        self.schedule_after(wait, Event::Streamer(index));
    }

    /// Closes a client's connection, and notifies the node if it is up.
    pub(super) fn streamer_leaves(&mut self, index: usize, connection: ConnectionId) {
        self.streamer_asks(index, StreamRequest::Leave);
        self.streamer_down(index, connection);
    }

    pub(super) fn streamer_down(&mut self, index: usize, connection: ConnectionId) {
        let streamer = &mut self.streamers[index];
        if streamer.connection.is_none_or(|(known, _)| known != connection) {
            return;
        }
        streamer.disconnected();
        let wait = self.streaming.dice.between(500, 20_000);
        self.schedule_after(wait, Event::Streamer(index));
    }

    pub(super) fn streamer_hears(
        &mut self,
        index: usize,
        connection: ConnectionId,
        heard: DeliveredEvent,
    ) -> Verdict {
        let streamer = &mut self.streamers[index];
        if streamer.connection.is_none_or(|(known, _)| known != connection) {
            return Ok(());
        }
        if self.trace.frames {
            let what = match &heard {
                DeliveredEvent::Bytes(tag, bytes) => format!("{}: {} bytes", tag.0, bytes.len()),
                heard => format!("{heard:?}"),
            };
            let who = format!("s{}", index + 1);
            self.trace.line(self.now, &who, "hears", format_args!("{what}"));
        }
        let waited = streamer.awaited_tag.is_some();
        let goes_on = matches!(heard, DeliveredEvent::Durable(..));
        streamer.receive_reply(heard)?;
        if waited && goes_on {
            // The node is responding, but the awaited notification comes later, so the timeout
            // restarts.
            self.is_patient(index);
        }
        let streamer = &mut self.streamers[index];
        if waited && streamer.awaited_tag.is_none() {
            let wait = streamer.draw_pause();
            self.schedule_after(wait, Event::Streamer(index));
        }
        Ok(())
    }

    /// Breaks the connections of all stream clients to this node.
    pub(super) fn drop_streamers(&mut self, node: usize) {
        for client in 0..self.streamers.len() {
            if let Some((connection, at)) = self.streamers[client].connection
                && at == node
            {
                let wait = self.streaming.dice.between(50, 1000);
                self.schedule_after(wait, Event::StreamerDown { client, connection });
            }
        }
    }

    /// Breaks a random client's connection and notifies the node.
    pub(super) fn reset_streamer(&mut self) {
        if self.streamers.is_empty() {
            return;
        }
        let index = self.streaming.dice.index(self.streamers.len());
        if let Some((connection, _)) = self.streamers[index].connection {
            self.streamer_leaves(index, connection);
        }
    }

    /// Checks the streams after a node's turn, and sends the replies to the clients.
    pub(super) fn check_streams(&mut self, node: usize) -> Verdict {
        let Some(running) = &mut self.nodes[node].running else {
            return Ok(());
        };
        let notes = running.host.front_mut().streams.take_notes();
        let replica = running.host.replica();
        let (at, table) = (replica.applied_to(), replica.streams());
        let streams = &mut self.stream_check;
        // Bytes are registered as written before any table that may contain them is checked. All
        // other notes are checked against that table.
        for note in notes.iter().filter(|note| matches!(note, Note::Keyed(..) | Note::Given(..))) {
            streams.check_note(node, table, note)?;
        }
        if at != running.traced_state.streams_to && at > Slot(0) {
            running.traced_state.streams_to = at;
            streams.applied(node, at, table)?;
        }
        for note in notes.iter().filter(|note| !matches!(note, Note::Keyed(..) | Note::Given(..))) {
            streams.check_note(node, table, note)?;
        }
        self.count_streams();
        for note in notes {
            let Note::Heard(Some(connection), _, heard) = note else {
                continue;
            };
            let owner =
                |client: &Streamer| client.connection.is_some_and(|(id, _)| id == connection);
            if let Some(client) = self.streamers.iter().position(owner) {
                let at = self.stream_delay(connection);
                let event = Event::ToStreamer { client, connection, heard };
                self.schedule_at(at, event);
            }
        }
        Ok(())
    }

    // --- Act two.

    /// Stops stream clients from starting new work, so that writers finish their streams.
    pub(super) fn heal_streams(&mut self) {
        for streamer in 0..self.streamers.len() {
            self.streamers[streamer].is_done = true;
            self.schedule_after(1, Event::Streamer(streamer));
        }
    }

    /// Checks that every writer can finish its stream, that every node accepts a new stream, and
    /// that every node has all bytes of all streams.
    pub(super) fn streams_become_whole(&mut self, serving: &[usize]) -> Verdict {
        let Some(load) = self.settings.streams else {
            return Ok(());
        };
        self.run_until("writers of streams have finished", Self::streamers_are_through)?;
        for node in serving {
            let (index, dice) = (self.streamers.len(), self.streaming.dice.fork());
            self.add_streamer(Streamer::visit(index, load, dice, *node));
        }
        self.run_until("every node has taken a stream", Self::streamers_are_through)?;
        self.run_until("all nodes have applied the same", Self::is_caught_up)?;
        let serving_now = serving.to_vec();
        self.run_until("every node has every byte of streams", |world| {
            serving_now.iter().all(|node| {
                if world.nodes[*node].retired {
                    return true;
                }
                world.has_all_stream_bytes(*node)
            })
        })?;
        // Undetected rot counts as present data until it is read.
        let rots =
            self.settings.scrubs.is_some() || self.has(Fault::Rot) || self.has(Fault::LostLog);
        if self.settings.class == Class::Durable && !rots {
            for node in serving {
                if !self.nodes[*node].retired {
                    self.restart_alone(*node)?;
                    self.isolate(*node, false);
                    self.run_until("all nodes have applied the same", Self::is_caught_up)?;
                }
            }
        }
        for node in serving {
            let running = self.nodes[*node].running.as_ref();
            let Some(table) = running.map(|running| running.replica().streams()) else {
                continue;
            };
            self.stream_check.ends(*node, table)?;
            let audits = table.infos(None).map(|info| (info.name, info.start)).collect();
            let (index, dice) = (self.streamers.len(), self.streaming.dice.fork());
            self.add_streamer(Streamer::audit(index, load, dice, *node, audits));
        }
        self.run_until("every byte is read on every node", Self::streamers_are_through)
    }

    fn streamers_are_through(&self) -> bool {
        let mut streamers = self.streamers.iter();
        streamers.all(|streamer| !streamer.is_busy() || self.is_retired(streamer.home))
    }

    /// [here-1] Restarts a node isolated from all others, and checks that it still has every byte
    /// that counted as present. The node remains isolated.
    pub fn restart_alone(&mut self, node: usize) -> Verdict {
        self.run_until("every byte of streams is here", |world| world.has_all_stream_bytes(node))?;
        self.kill_now(node);
        self.isolate(node, true);
        self.start_now(node);
        self.run_until("its start finds them", |world| {
            let running = world.nodes[node].running.as_ref();
            let replica = running.map(|running| running.replica());
            replica.is_some_and(|replica| replica.applied_to() >= replica.node().decided_to())
                && world.has_all_stream_bytes(node)
        })
    }

    fn has_all_stream_bytes(&self, node: usize) -> bool {
        let running = self.nodes[node].running.as_ref();
        running.is_some_and(|running| running.replica().stream_bytes_missing() == Some(0))
    }

    // --- Building blocks of directed scenarios.

    /// Connects a new scripted stream client to a node and returns the client's index.
    pub fn streamer(&mut self, node: usize) -> usize {
        let (index, dice) = (self.streamers.len(), self.streaming.dice.fork());
        let load = self.settings.streams.unwrap_or_else(Load::scripted);
        self.streamers.push(Streamer::new(index, Role::Script, load, dice));
        self.connect_streamer(index, node);
        index
    }

    /// Connects a stream client to a node over a new connection.
    pub fn connect_streamer(&mut self, index: usize, node: usize) {
        if let Some((connection, _)) = self.streamers[index].connection {
            self.streamer_leaves(index, connection);
        }
        self.streamers[index].replies.clear();
        self.streamers[index].connection = Some((self.wires.open(), node));
    }

    /// Sends a client's request and waits for the answer; `None` if the connection is broken.
    pub fn ask_streams(
        &mut self,
        index: usize,
        ask: StreamRequest,
    ) -> Result<Option<DeliveredEvent>, Violation> {
        if self.streamers[index].connection.is_none() {
            return Ok(None);
        }
        self.streamers[index].replies.clear();
        self.streamer_asks(index, ask);
        self.run_until("an answer about streams", |world| {
            !world.streamers[index].replies.is_empty()
        })?;
        Ok(self.streamers[index].replies.pop_front().expect("just seen"))
    }

    /// Sends a client's request without waiting for the answer.
    pub fn send_stream_request(&mut self, index: usize, ask: StreamRequest) {
        self.streamer_asks(index, ask);
    }

    /// Writes `bytes` more bytes to the client's piece.
    pub fn write_stream(&mut self, index: usize, bytes: u64) {
        if let Some(piece) = &mut self.streamers[index].piece {
            piece.written_to += bytes;
            let stream = piece.stream;
            self.streamer_asks(index, StreamRequest::Give(stream, bytes));
        }
    }

    fn count_streams(&mut self) {
        let check = &self.stream_check;
        self.counts.stream_bytes = check.acknowledged_bytes();
        self.counts.stream_pieces = check.opened;
        self.counts.stream_bytes_read = check.read_bytes;
    }
}
