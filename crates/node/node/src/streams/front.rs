//! The byte stream front end: dispatches events to the connections of its clients.

use quorate_access::{Checker, PendingChecks};
use quorate_core::value::StreamName;
use quorate_replica::{
    front::{Completion, ConnectionId, Endpoints, Front, InputDecision, RefusalCounts, Requests},
    stream_front::{StreamEvent, StreamTag},
};
use quorate_stream::StreamOutcome;
use rustc_hash::FxHashMap;

use crate::streams::{
    client::Client,
    patient::WaitingConnections,
    shared::{Cx, FrontState, RequestOwner},
};

#[derive(Debug, Default)]
pub struct StreamFront {
    connections: FxHashMap<ConnectionId, Client>,
    shared: FrontState,
    waiting_connections: WaitingConnections,
}

impl StreamFront {
    /// Sets the checker to which clients' passwords are passed.
    #[must_use]
    pub fn with_checker(mut self, checker: Box<dyn Checker + Send>) -> Self {
        self.shared.password_checks = PendingChecks::new(checker);
        self
    }

    /// Runs an action on a connection. Returns `None` if the connection no longer exists.
    fn with_connection<T>(
        &mut self,
        connection: ConnectionId,
        requests: &mut dyn Requests,
        act: impl FnOnce(&mut Client, &mut Cx<'_>) -> T,
    ) -> Option<T> {
        let client = self.connections.get_mut(&connection)?;
        let mut cx = Cx { shared: &mut self.shared, requests };
        let done = act(client, &mut cx);
        client.update_accounting(&mut self.shared);
        Some(done)
    }

    fn on_stream_event(
        &mut self,
        tag: StreamTag,
        event: StreamEvent<'_>,
        requests: &mut dyn Requests,
    ) {
        // The request was dropped, or this is a duplicate answer.
        let Some(owner) = self.shared.release_tag(tag) else {
            return;
        };
        match owner {
            RequestOwner::Connection(connection) | RequestOwner::Follower(connection) => {
                self.with_connection(connection, requests, |client, cx| {
                    client.on_stream_event(tag, event, cx);
                });
            }
            RequestOwner::AbandonedOpen => {
                if let StreamEvent::Executed(_, StreamOutcome::Opened { stream, .. }) = event {
                    self.abandon_piece(stream, requests);
                }
            }
            RequestOwner::AbandonedClose(piece) => {
                if let StreamEvent::Failed(..) = event {
                    self.abandon_piece(piece, requests);
                }
            }
        }
    }

    /// Notifies a writer that bytes of its piece are durable or that the piece ended. Removes the
    /// writer from the list of those that wait for free space if it no longer waits.
    fn notify_writer(
        &mut self,
        piece: StreamName,
        requests: &mut dyn Requests,
        act: impl FnOnce(&mut Client, &mut Cx<'_>),
    ) {
        let Some(connection) = self.shared.piece_writers.get(&piece).copied() else {
            return;
        };
        let full = self.with_connection(connection, requests, |client, cx| {
            act(client, cx);
            client.is_full()
        });
        if full == Some(false) {
            self.shared.waiting_writers.remove(&connection);
        }
    }

    /// Notifies waiting writers in turn that there is free space, as many writers as can use it.
    /// Space may become free for reasons other than the progress of a writer's own piece. If a
    /// thousand writers wait for little space, only some are checked each time.
    fn notify_waiting_writers(&mut self, requests: &mut dyn Requests) {
        let Some(streams) = requests.streams() else {
            return;
        };
        let mut left = streams.shared_available_bytes();
        for _ in 0..self.shared.waiting_writers.len() {
            if left == 0 {
                return;
            }
            let Some(connection) = self.shared.waiting_writers.take_turn() else {
                return;
            };
            let found = self.with_connection(connection, requests, |client, cx| {
                (client.regained_space(cx), client.is_full())
            });
            let (room, full) = found.unwrap_or_default();
            if !full {
                self.shared.waiting_writers.remove(&connection);
            }
            left = left.saturating_sub(room);
        }
    }

    fn abandon_piece(&mut self, piece: StreamName, requests: &mut dyn Requests) {
        let mut cx = Cx { shared: &mut self.shared, requests };
        cx.abandon_piece(piece);
    }
}

impl Front for StreamFront {
    fn handle_opened(
        &mut self,
        connection: ConnectionId,
        ends: Endpoints,
        requests: &mut dyn Requests,
    ) {
        if self.waiting_connections.is_needed(requests) {
            return self.waiting_connections.add_connection(connection, ends);
        }
        let mut cx = Cx { shared: &mut self.shared, requests };
        let mut client = Client::open(connection, ends, &mut cx);
        client.update_accounting(&mut self.shared);
        self.connections.insert(connection, client);
    }

    fn receive_bytes(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        requests: &mut dyn Requests,
    ) -> usize {
        if self.waiting_connections.contains(connection) {
            return 0;
        }
        self.with_connection(connection, requests, |client, cx| client.receive(bytes, cx))
            .unwrap_or(bytes.len())
    }

    fn read_input(
        &mut self,
        connection: ConnectionId,
        requests: &mut dyn Requests,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> InputDecision {
        self.with_connection(connection, requests, |client, cx| client.read_into_store(cx, read))
            .unwrap_or(InputDecision::AtMost(usize::MAX))
    }

    fn half_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        if !self.waiting_connections.record_half_close(connection) {
            self.with_connection(connection, requests, Client::on_half_close);
        }
    }

    fn accepts_input(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.is_some_and(Client::accepts_input)
    }

    /// Unused, because all requests are made through [`Requests::streams`].
    fn handle_completion(&mut self, _: Completion<'_>, _: &mut dyn Requests) {}

    fn handle_stream_event(&mut self, event: StreamEvent<'_>, requests: &mut dyn Requests) {
        match event {
            StreamEvent::Executed(tag, _)
            | StreamEvent::Refused(tag, _)
            | StreamEvent::Failed(tag, _)
            | StreamEvent::UpToDate(tag)
            | StreamEvent::Bytes(tag, _)
            | StreamEvent::NoBytes(tag, _) => self.on_stream_event(tag, event, requests),
            StreamEvent::Durable(piece, position) => {
                self.notify_writer(piece, requests, |client, cx| client.on_durable(position, cx));
            }
            StreamEvent::Ended(piece, position) => {
                self.notify_writer(piece, requests, |client, cx| {
                    client.on_piece_ended(position, cx)
                });
            }
        }
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        while let Some(connection) = self.shared.dirty_connections.pop_front() {
            if let Some(client) = self.connections.get_mut(&connection) {
                client.clear_dirty();
                return Some(connection);
            }
        }
        None
    }

    fn output(&mut self, connection: ConnectionId) -> &[u8] {
        let client = self.connections.get_mut(&connection);
        client.map_or(&[], Client::output)
    }

    fn record_sent(&mut self, connection: ConnectionId, count: usize) {
        if let Some(client) = self.connections.get_mut(&connection) {
            client.record_sent(count, &mut self.shared);
        }
    }

    fn held_bytes(&self) -> usize {
        self.shared.held_bytes
    }

    fn refusal_counts(&self) -> RefusalCounts {
        RefusalCounts {
            forbidden: self.shared.forbidden_count,
            wrong_passwords: self.shared.wrong_password_count,
        }
    }

    fn held_bytes_of(&self, connection: ConnectionId) -> usize {
        let client = self.connections.get(&connection);
        client.map_or(0, Client::held_bytes)
    }

    fn should_close(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.map_or(!self.waiting_connections.contains(connection), Client::should_close)
    }

    fn reset_reason(&self, connection: ConnectionId) -> Option<&str> {
        self.connections.get(&connection)?.reset_reason()
    }

    fn handle_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        self.waiting_connections.remove_connection(connection);
        self.shared.waiting_writers.remove(&connection);
        let Some(mut client) = self.connections.remove(&connection) else {
            return;
        };
        self.shared.held_bytes -= client.held_bytes();
        let mut cx = Cx { shared: &mut self.shared, requests };
        client.on_disconnect(&mut cx);
    }

    fn is_busy(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.map_or(self.waiting_connections.contains(connection), Client::is_busy)
    }

    fn open_requests(&self) -> usize {
        self.shared.open_request_count()
    }

    fn connections(&self) -> usize {
        self.connections.len() + self.waiting_connections.count()
    }

    fn run_turn(&mut self, requests: &mut dyn Requests) {
        for (connection, waiting) in self.waiting_connections.take_if_ready(requests) {
            self.handle_opened(connection, waiting.endpoints, requests);
            if waiting.is_half_closed {
                self.half_closed(connection, requests);
            }
        }
        while let Some((ticket, connection, fits)) = self.shared.password_checks.verdict() {
            self.with_connection(connection, requests, |client, cx| {
                client.on_password_verdict(ticket, fits, cx);
            });
        }
        for connection in std::mem::take(&mut self.shared.connections_to_fetch) {
            self.with_connection(connection, requests, Client::continue_output);
        }
        self.notify_waiting_writers(requests);
    }

    fn is_eager(&self) -> bool {
        !self.shared.connections_to_fetch.is_empty() || !self.shared.dirty_connections.is_empty()
    }
}
