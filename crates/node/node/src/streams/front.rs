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
    shared::{Cx, Owner, Shared},
};

#[derive(Debug, Default)]
pub struct StreamFront {
    connections: FxHashMap<ConnectionId, Client>,
    shared: Shared,
    patient: WaitingConnections,
}

impl StreamFront {
    /// Sets the checker to which clients' passwords are passed.
    #[must_use]
    pub fn with_checker(mut self, checker: Box<dyn Checker + Send>) -> Self {
        self.shared.desk = PendingChecks::new(checker);
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

    fn answered(&mut self, tag: StreamTag, event: StreamEvent<'_>, requests: &mut dyn Requests) {
        // The request was dropped, or this is a duplicate answer.
        let Some(owner) = self.shared.release_tag(tag) else {
            return;
        };
        match owner {
            Owner::Connection(connection) | Owner::Follower(connection) => {
                self.with_connection(connection, requests, |client, cx| {
                    client.answered(tag, event, cx);
                });
            }
            Owner::Opening => {
                if let StreamEvent::Done(_, StreamOutcome::Opened { stream, .. }) = event {
                    self.abandon(stream, requests);
                }
            }
            Owner::Closing(piece) => {
                if let StreamEvent::Failed(..) = event {
                    self.abandon(piece, requests);
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
        let Some(connection) = self.shared.pieces.get(&piece).copied() else {
            return;
        };
        let full = self.with_connection(connection, requests, |client, cx| {
            act(client, cx);
            client.is_full()
        });
        if full == Some(false) {
            self.shared.full.remove(&connection);
        }
    }

    /// Notifies waiting writers in turn that there is free space, as many writers as can use it.
    /// Space may become free for reasons other than the progress of a writer's own piece. If a
    /// thousand writers wait for little space, only some are checked each time.
    fn look_for_room(&mut self, requests: &mut dyn Requests) {
        let Some(streams) = requests.streams() else {
            return;
        };
        let mut left = streams.shared_available_bytes();
        for _ in 0..self.shared.full.len() {
            if left == 0 {
                return;
            }
            let Some(connection) = self.shared.full.take_turn() else {
                return;
            };
            let found = self.with_connection(connection, requests, |client, cx| {
                (client.look_for_room(cx), client.is_full())
            });
            let (room, full) = found.unwrap_or_default();
            if !full {
                self.shared.full.remove(&connection);
            }
            left = left.saturating_sub(room);
        }
    }

    fn abandon(&mut self, piece: StreamName, requests: &mut dyn Requests) {
        let mut cx = Cx { shared: &mut self.shared, requests };
        cx.abandon(piece);
    }
}

impl Front for StreamFront {
    fn handle_opened(
        &mut self,
        connection: ConnectionId,
        ends: Endpoints,
        requests: &mut dyn Requests,
    ) {
        if self.patient.is_needed(requests) {
            return self.patient.add_connection(connection, ends);
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
        if self.patient.has(connection) {
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
        self.with_connection(connection, requests, |client, cx| client.intake(cx, read))
            .unwrap_or(InputDecision::AtMost(usize::MAX))
    }

    fn half_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        if !self.patient.record_half_close(connection) {
            self.with_connection(connection, requests, Client::half_closed);
        }
    }

    fn accepts_input(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.is_some_and(Client::ready)
    }

    /// Unused, because all requests are made through [`Requests::streams`].
    fn handle_completion(&mut self, _: Completion<'_>, _: &mut dyn Requests) {}

    fn handle_stream_event(&mut self, event: StreamEvent<'_>, requests: &mut dyn Requests) {
        match event {
            StreamEvent::Done(tag, _)
            | StreamEvent::Refused(tag, _)
            | StreamEvent::Failed(tag, _)
            | StreamEvent::UpToDate(tag)
            | StreamEvent::Bytes(tag, _)
            | StreamEvent::NoBytes(tag, _) => self.answered(tag, event, requests),
            StreamEvent::Durable(piece, position) => {
                self.notify_writer(piece, requests, |client, cx| client.durable(position, cx));
            }
            StreamEvent::Ended(piece, position) => {
                self.notify_writer(piece, requests, |client, cx| client.ended(position, cx));
            }
        }
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        while let Some(connection) = self.shared.dirty.pop_front() {
            if let Some(client) = self.connections.get_mut(&connection) {
                client.unmark();
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
            client.sent(count, &mut self.shared);
        }
    }

    fn held_bytes(&self) -> usize {
        self.shared.held_bytes
    }

    fn refusal_counts(&self) -> RefusalCounts {
        RefusalCounts {
            forbidden: self.shared.forbidden,
            wrong_passwords: self.shared.wrong_passwords,
        }
    }

    fn held_bytes_of(&self, connection: ConnectionId) -> usize {
        let client = self.connections.get(&connection);
        client.map_or(0, Client::held_bytes)
    }

    fn should_close(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.map_or(!self.patient.has(connection), Client::closing)
    }

    fn reset_reason(&self, connection: ConnectionId) -> Option<&str> {
        self.connections.get(&connection)?.broken()
    }

    fn handle_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        self.patient.remove_connection(connection);
        self.shared.full.remove(&connection);
        let Some(mut client) = self.connections.remove(&connection) else {
            return;
        };
        self.shared.held_bytes -= client.held_bytes();
        let mut cx = Cx { shared: &mut self.shared, requests };
        client.let_go(&mut cx);
    }

    fn is_busy(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.map_or(self.patient.has(connection), Client::is_busy)
    }

    fn open_requests(&self) -> usize {
        self.shared.open_requests()
    }

    fn connections(&self) -> usize {
        self.connections.len() + self.patient.count()
    }

    fn run_turn(&mut self, requests: &mut dyn Requests) {
        for (connection, waiting) in self.patient.take_if_ready(requests) {
            self.handle_opened(connection, waiting.ends, requests);
            if waiting.ended {
                self.half_closed(connection, requests);
            }
        }
        while let Some((ticket, connection, fits)) = self.shared.desk.verdict() {
            self.with_connection(connection, requests, |client, cx| {
                client.judged(ticket, fits, cx);
            });
        }
        for connection in std::mem::take(&mut self.shared.hungry) {
            self.with_connection(connection, requests, Client::feed);
        }
        self.look_for_room(requests);
    }

    fn is_eager(&self) -> bool {
        !self.shared.hungry.is_empty() || !self.shared.dirty.is_empty()
    }
}
