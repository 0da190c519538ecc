//! Two front ends in one node. Each connection belongs to the front end whose port it uses.

use quorate_replica::{
    front::{
        Completion, ConnectionId, Endpoints, Front, InputDecision, ListenerKind, RefusalCounts,
        Requests, State, Tag,
    },
    stream_front::StreamEvent,
};
use rustc_hash::FxHashSet;

/// A front end for commands and one for byte streams. Their requests cannot be confused, because
/// they use separate calls and answers.
#[derive(Debug, Default)]
pub struct Doors<C, S> {
    pub commands: C,
    pub streams: S,
    /// Connections that belong to the byte stream front end.
    at_streams: FxHashSet<ConnectionId>,
}

impl<C: Front, S: Front> Doors<C, S> {
    pub fn new(commands: C, streams: S) -> Self {
        Self { commands, streams, at_streams: FxHashSet::default() }
    }

    fn of(&self, connection: ConnectionId) -> &dyn Front {
        match self.at_streams.contains(&connection) {
            true => &self.streams,
            false => &self.commands,
        }
    }

    fn front_of(&mut self, connection: ConnectionId) -> &mut dyn Front {
        match self.at_streams.contains(&connection) {
            true => &mut self.streams,
            false => &mut self.commands,
        }
    }
}

impl<C: Front, S: Front> Front for Doors<C, S> {
    fn handle_opened(
        &mut self,
        connection: ConnectionId,
        ends: Endpoints,
        requests: &mut dyn Requests,
    ) {
        if matches!(ends.door, ListenerKind::Streams | ListenerKind::StreamsRaw) {
            self.at_streams.insert(connection);
        }
        self.front_of(connection).handle_opened(connection, ends, requests);
    }

    fn receive_bytes(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        requests: &mut dyn Requests,
    ) -> usize {
        self.front_of(connection).receive_bytes(connection, bytes, requests)
    }

    fn read_input(
        &mut self,
        connection: ConnectionId,
        requests: &mut dyn Requests,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> InputDecision {
        self.front_of(connection).read_input(connection, requests, read)
    }

    fn half_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        self.front_of(connection).half_closed(connection, requests);
    }

    fn accepts_input(&self, connection: ConnectionId) -> bool {
        self.of(connection).accepts_input(connection)
    }

    fn handle_completion(&mut self, completion: Completion<'_>, requests: &mut dyn Requests) {
        self.commands.handle_completion(completion, requests);
    }

    fn read_now(&mut self, tag: Tag, state: &dyn State) {
        self.commands.read_now(tag, state);
    }

    fn handle_stream_event(&mut self, event: StreamEvent<'_>, requests: &mut dyn Requests) {
        self.streams.handle_stream_event(event, requests);
    }

    fn deliver_notice(&mut self, subject: &[u8], message: &[u8]) {
        self.commands.deliver_notice(subject, message);
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        let commands = self.commands.next_dirty();
        commands.or_else(|| self.streams.next_dirty())
    }

    fn output(&mut self, connection: ConnectionId) -> &[u8] {
        self.front_of(connection).output(connection)
    }

    fn record_sent(&mut self, connection: ConnectionId, count: usize) {
        self.front_of(connection).record_sent(connection, count);
    }

    fn held_bytes(&self) -> usize {
        self.commands.held_bytes() + self.streams.held_bytes()
    }

    fn refusal_counts(&self) -> RefusalCounts {
        let (commands, streams) = (self.commands.refusal_counts(), self.streams.refusal_counts());
        RefusalCounts {
            forbidden: commands.forbidden + streams.forbidden,
            wrong_passwords: commands.wrong_passwords + streams.wrong_passwords,
        }
    }

    fn held_bytes_of(&self, connection: ConnectionId) -> usize {
        self.of(connection).held_bytes_of(connection)
    }

    fn should_close(&self, connection: ConnectionId) -> bool {
        self.of(connection).should_close(connection)
    }

    fn reset_reason(&self, connection: ConnectionId) -> Option<&str> {
        self.of(connection).reset_reason(connection)
    }

    fn handle_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        self.front_of(connection).handle_closed(connection, requests);
        self.at_streams.remove(&connection);
    }

    fn is_busy(&self, connection: ConnectionId) -> bool {
        self.of(connection).is_busy(connection)
    }

    fn open_requests(&self) -> usize {
        self.commands.open_requests() + self.streams.open_requests()
    }

    fn connections(&self) -> usize {
        self.commands.connections() + self.streams.connections()
    }

    fn run_turn(&mut self, requests: &mut dyn Requests) {
        self.commands.run_turn(requests);
        self.streams.run_turn(requests);
    }

    fn is_eager(&self) -> bool {
        self.commands.is_eager() || self.streams.is_eager()
    }

    fn wake_ms(&self) -> Option<u64> {
        let both = [self.commands.wake_ms(), self.streams.wake_ms()];
        both.into_iter().flatten().min()
    }
}
