//! Byte stream clients, and the observations passed to the stream checker.

use quorate_core::{class::Class, slot::Slot};
use quorate_node::host::ClientHost as _;
use quorate_replica::{front::ConnectionId, stream_front::StreamTag, testing::DeliveredEvent};

use super::{Event, World};
use crate::{
    check::{Verdict, Violation},
    faults::Fault,
    front::{CheckerNote, StreamRequest},
    workload::streams::{Role, StreamClient, StreamLoad},
};

impl World {
    /// Starts the stream clients that the run has.
    pub(super) fn plan_streams(&mut self) {
        let Some(load) = self.settings.stream_load else {
            return;
        };
        for number in 0..load.writer_count + load.reader_count {
            let role = if number < load.writer_count { Role::Writer } else { Role::Reader };
            let (index, dice) = (self.stream_clients.len(), self.stream_state.dice.fork());
            self.add_stream_client(StreamClient::new(index, role, load, dice));
        }
    }

    /// Adds a stream client and schedules its first action.
    pub(super) fn add_stream_client(&mut self, streamer: StreamClient) {
        let index = streamer.index;
        self.stream_clients.push(streamer);
        let wait = self.stream_state.dice.between(1, 10_000);
        self.schedule_after(wait, Event::StreamClientActs(index));
    }

    pub(super) fn step_stream_client(&mut self, index: usize) {
        let streamer = &mut self.stream_clients[index];
        if streamer.role == Role::Scripted || streamer.is_done && !streamer.is_busy() {
            return;
        }
        let Some((connection, _)) = streamer.connection else {
            return self.connect_stream_client_anywhere(index);
        };
        if streamer.awaited_tag.is_some() {
            if streamer.reply_deadline.is_some_and(|at| at <= self.now) {
                self.close_stream_connection(index, connection);
            }
            return;
        }
        let ask = streamer.next_request();
        let wait = streamer.draw_pause();
        match ask {
            Some(StreamRequest::Disconnect) => {
                return self.close_stream_connection(index, connection);
            }
            Some(ask) => drop(self.send_tagged_stream_request(index, ask)),
            None => {}
        }
        if self.stream_clients[index].awaited_tag.is_none() {
            self.schedule_after(wait, Event::StreamClientActs(index));
        }
    }

    /// Sends a client's request and returns its tag.
    pub(super) fn send_tagged_stream_request(
        &mut self,
        index: usize,
        ask: StreamRequest,
    ) -> StreamTag {
        self.stream_state.tag_count += 1;
        let tag = StreamTag(self.stream_state.tag_count);
        if self.trace.traces_frames {
            let who = format!("s{}", index + 1);
            self.trace_line(&who, "asks", format_args!("{}: {ask:?}", tag.0));
        }
        let Some((connection, node)) = self.stream_clients[index].connection else {
            return tag;
        };
        if !matches!(ask, StreamRequest::Write(..) | StreamRequest::Disconnect) {
            self.stream_clients[index].awaited_tag = Some(tag);
            self.schedule_stream_timeout(index);
        }
        let life = self.nodes[node].start_count;
        let at = self.stream_arrival_time(connection);
        let event = Event::RequestToStreams { node, life, connection, tag, request: ask };
        self.schedule_at(at, event);
        tag
    }

    /// Starts the timeout of a waiting client.
    fn schedule_stream_timeout(&mut self, index: usize) {
        let patience = self.settings.client_timeout_ms * 2 + 200;
        let patience_at = self.now.plus_ms(patience);
        self.stream_clients[index].reply_deadline = Some(patience_at);
        self.schedule_at(patience_at, Event::StreamClientActs(index));
    }

    fn stream_arrival_time(&mut self, connection: ConnectionId) -> quorate_core::time::Time {
        let at = self.now.plus_us(self.stream_state.dice.between(20, 200));
        self.client_connections.schedule_arrival(connection, at)
    }

    fn connect_stream_client_anywhere(&mut self, index: usize) {
        let count = self.nodes.len();
        let node = self.stream_clients[index].choose_node(count);
        let known = !self.settings.is_auxiliary(node)
            && (self.fault_state.faults_go_on() || self.is_group_node(node));
        let up = known && self.nodes[node].running.is_some();
        let mut wait = 100;
        if up {
            self.stream_clients[index].connection = Some((self.client_connections.open(), node));
        } else {
            wait = self.stream_state.dice.between(500, 20_000);
        }
        self.schedule_after(wait, Event::StreamClientActs(index));
    }

    /// Closes a client's connection, and notifies the node if it is up.
    pub(super) fn close_stream_connection(&mut self, index: usize, connection: ConnectionId) {
        self.send_tagged_stream_request(index, StreamRequest::Disconnect);
        self.handle_stream_client_down(index, connection);
    }

    pub(super) fn handle_stream_client_down(&mut self, index: usize, connection: ConnectionId) {
        let streamer = &mut self.stream_clients[index];
        if streamer.connection.is_none_or(|(known, _)| known != connection) {
            return;
        }
        streamer.handle_disconnect();
        let wait = self.stream_state.dice.between(500, 20_000);
        self.schedule_after(wait, Event::StreamClientActs(index));
    }

    pub(super) fn deliver_stream_reply(
        &mut self,
        index: usize,
        connection: ConnectionId,
        heard: DeliveredEvent,
    ) -> Verdict {
        let streamer = &mut self.stream_clients[index];
        if streamer.connection.is_none_or(|(known, _)| known != connection) {
            return Ok(());
        }
        if self.trace.traces_frames {
            let what = match &heard {
                DeliveredEvent::Bytes(tag, bytes) => format!("{}: {} bytes", tag.0, bytes.len()),
                heard => format!("{heard:?}"),
            };
            let who = format!("s{}", index + 1);
            self.trace.add_line(self.now, &who, "hears", format_args!("{what}"));
        }
        let waited = streamer.awaited_tag.is_some();
        let goes_on = matches!(heard, DeliveredEvent::Durable(..));
        streamer.receive_reply(heard)?;
        if waited && goes_on {
            // The node is responding, but the awaited notification comes later, so the timeout
            // restarts.
            self.schedule_stream_timeout(index);
        }
        let streamer = &mut self.stream_clients[index];
        if waited && streamer.awaited_tag.is_none() {
            let wait = streamer.draw_pause();
            self.schedule_after(wait, Event::StreamClientActs(index));
        }
        Ok(())
    }

    /// Breaks the connections of all stream clients to this node.
    pub(super) fn drop_stream_clients(&mut self, node: usize) {
        for client in 0..self.stream_clients.len() {
            if let Some((connection, at)) = self.stream_clients[client].connection
                && at == node
            {
                let wait = self.stream_state.dice.between(50, 1000);
                self.schedule_after(wait, Event::StreamClientDown { client, connection });
            }
        }
    }

    /// Breaks a random client's connection and notifies the node.
    pub(super) fn reset_stream_client(&mut self) {
        if self.stream_clients.is_empty() {
            return;
        }
        let index = self.stream_state.dice.index(self.stream_clients.len());
        if let Some((connection, _)) = self.stream_clients[index].connection {
            self.close_stream_connection(index, connection);
        }
    }

    /// Checks the streams after a node's turn, and sends the replies to the clients.
    pub(super) fn check_streams(&mut self, node: usize) -> Verdict {
        let Some(running) = &mut self.nodes[node].running else {
            return Ok(());
        };
        let notes = running.host.front_mut().streams.take_notes();
        let replica = running.host.replica();
        let (at, table) = (replica.applied_to(), replica.stream_table());
        let streams = &mut self.stream_history;
        // Bytes are registered as written before any table that may contain them is checked. All
        // other notes are checked against that table.
        for note in notes
            .iter()
            .filter(|note| matches!(note, CheckerNote::ContentKey(..) | CheckerNote::PassedTo(..)))
        {
            streams.check_note(node, table, note)?;
        }
        if at != running.traced_state.streams_checked_to && at > Slot(0) {
            running.traced_state.streams_checked_to = at;
            streams.check_table(node, at, table)?;
        }
        for note in notes
            .iter()
            .filter(|note| !matches!(note, CheckerNote::ContentKey(..) | CheckerNote::PassedTo(..)))
        {
            streams.check_note(node, table, note)?;
        }
        self.update_stream_counts();
        for note in notes {
            let CheckerNote::ReplySent(Some(connection), _, heard) = note else {
                continue;
            };
            let owner =
                |client: &StreamClient| client.connection.is_some_and(|(id, _)| id == connection);
            if let Some(client) = self.stream_clients.iter().position(owner) {
                let at = self.stream_arrival_time(connection);
                let event = Event::ReplyToStreamClient { client, connection, reply: heard };
                self.schedule_at(at, event);
            }
        }
        Ok(())
    }

    // --- Act two.

    /// Stops stream clients from starting new work, so that writers finish their streams.
    pub(super) fn stop_stream_clients(&mut self) {
        for streamer in 0..self.stream_clients.len() {
            self.stream_clients[streamer].is_done = true;
            self.schedule_after(1, Event::StreamClientActs(streamer));
        }
    }

    /// Checks that every writer can finish its stream, that every node accepts a new stream, and
    /// that every node has all bytes of all streams.
    pub(super) fn check_streams_recovery(&mut self, serving: &[usize]) -> Verdict {
        let Some(load) = self.settings.stream_load else {
            return Ok(());
        };
        self.run_until("writers of streams have finished", Self::are_stream_clients_finished)?;
        for node in serving {
            let (index, dice) = (self.stream_clients.len(), self.stream_state.dice.fork());
            self.add_stream_client(StreamClient::new_one_writer(index, load, dice, *node));
        }
        self.run_until("every node has taken a stream", Self::are_stream_clients_finished)?;
        self.run_until("all nodes have applied the same", Self::is_caught_up)?;
        let serving_now = serving.to_vec();
        self.run_until("every node has every byte of streams", |world| {
            serving_now.iter().all(|node| {
                if world.nodes[*node].is_retired {
                    return true;
                }
                world.has_all_stream_bytes(*node)
            })
        })?;
        // Undetected rot counts as present data until it is read.
        let rots = self.settings.scrub_settings.is_some()
            || self.includes_fault(Fault::Rot)
            || self.includes_fault(Fault::LostLog);
        if self.settings.class == Class::Durable && !rots {
            for node in serving {
                if !self.nodes[*node].is_retired {
                    self.check_restart_alone(*node)?;
                    self.set_isolated(*node, false);
                    self.run_until("all nodes have applied the same", Self::is_caught_up)?;
                }
            }
        }
        for node in serving {
            let running = self.nodes[*node].running.as_ref();
            let Some(table) = running.map(|running| running.replica().stream_table()) else {
                continue;
            };
            self.stream_history.check_end(*node, table)?;
            let audits = table.infos(None).map(|info| (info.name, info.start)).collect();
            let (index, dice) = (self.stream_clients.len(), self.stream_state.dice.fork());
            self.add_stream_client(StreamClient::new_full_reader(index, load, dice, *node, audits));
        }
        self.run_until("every byte is read on every node", Self::are_stream_clients_finished)
    }

    fn are_stream_clients_finished(&self) -> bool {
        let mut streamers = self.stream_clients.iter();
        streamers.all(|streamer| !streamer.is_busy() || self.is_retired(streamer.only_node))
    }

    /// [here-1] Restarts a node isolated from all others, and checks that it still has every byte
    /// that counted as present. The node remains isolated.
    pub fn check_restart_alone(&mut self, node: usize) -> Verdict {
        self.run_until("every byte of streams is here", |world| world.has_all_stream_bytes(node))?;
        self.kill_now(node);
        self.set_isolated(node, true);
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
    pub fn add_scripted_stream_client(&mut self, node: usize) -> usize {
        let (index, dice) = (self.stream_clients.len(), self.stream_state.dice.fork());
        let load = self.settings.stream_load.unwrap_or_else(StreamLoad::scripted_only);
        self.stream_clients.push(StreamClient::new(index, Role::Scripted, load, dice));
        self.connect_stream_client(index, node);
        index
    }

    /// Connects a stream client to a node over a new connection.
    pub fn connect_stream_client(&mut self, index: usize, node: usize) {
        if let Some((connection, _)) = self.stream_clients[index].connection {
            self.close_stream_connection(index, connection);
        }
        self.stream_clients[index].replies.clear();
        self.stream_clients[index].connection = Some((self.client_connections.open(), node));
    }

    /// Sends a client's request and waits for the answer; `None` if the connection is broken.
    pub fn run_stream_request(
        &mut self,
        index: usize,
        ask: StreamRequest,
    ) -> Result<Option<DeliveredEvent>, Violation> {
        if self.stream_clients[index].connection.is_none() {
            return Ok(None);
        }
        self.stream_clients[index].replies.clear();
        self.send_tagged_stream_request(index, ask);
        self.run_until("an answer about streams", |world| {
            !world.stream_clients[index].replies.is_empty()
        })?;
        Ok(self.stream_clients[index].replies.pop_front().expect("just seen"))
    }

    /// Sends a client's request without waiting for the answer.
    pub fn send_stream_request(&mut self, index: usize, ask: StreamRequest) {
        self.send_tagged_stream_request(index, ask);
    }

    /// Writes `bytes` more bytes to the client's piece.
    pub fn write_stream(&mut self, index: usize, bytes: u64) {
        if let Some(piece) = &mut self.stream_clients[index].piece {
            piece.written_to += bytes;
            let stream = piece.stream;
            self.send_tagged_stream_request(index, StreamRequest::Write(stream, bytes));
        }
    }

    fn update_stream_counts(&mut self) {
        let check = &self.stream_history;
        self.counts.stream_bytes = check.acknowledged_byte_count();
        self.counts.stream_pieces = check.opened_count;
        self.counts.stream_bytes_read = check.read_bytes;
    }
}
