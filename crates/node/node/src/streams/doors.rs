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
pub struct CombinedFront<C, S> {
    pub command_front: C,
    pub stream_front: S,
    /// Connections that belong to the byte stream front end.
    stream_connections: FxHashSet<ConnectionId>,
}

impl<C: Front, S: Front> CombinedFront<C, S> {
    pub fn new(commands: C, streams: S) -> Self {
        Self {
            command_front: commands,
            stream_front: streams,
            stream_connections: FxHashSet::default(),
        }
    }

    fn front_for(&self, connection: ConnectionId) -> &dyn Front {
        match self.stream_connections.contains(&connection) {
            true => &self.stream_front,
            false => &self.command_front,
        }
    }

    fn front_for_mut(&mut self, connection: ConnectionId) -> &mut dyn Front {
        match self.stream_connections.contains(&connection) {
            true => &mut self.stream_front,
            false => &mut self.command_front,
        }
    }
}

impl<C: Front, S: Front> Front for CombinedFront<C, S> {
    fn handle_opened(
        &mut self,
        connection: ConnectionId,
        ends: Endpoints,
        requests: &mut dyn Requests,
    ) {
        if matches!(ends.door, ListenerKind::Streams | ListenerKind::StreamsRaw) {
            self.stream_connections.insert(connection);
        }
        self.front_for_mut(connection).handle_opened(connection, ends, requests);
    }

    fn receive_bytes(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        requests: &mut dyn Requests,
    ) -> usize {
        self.front_for_mut(connection).receive_bytes(connection, bytes, requests)
    }

    fn read_input(
        &mut self,
        connection: ConnectionId,
        requests: &mut dyn Requests,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> InputDecision {
        self.front_for_mut(connection).read_input(connection, requests, read)
    }

    fn half_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        self.front_for_mut(connection).half_closed(connection, requests);
    }

    fn accepts_input(&self, connection: ConnectionId) -> bool {
        self.front_for(connection).accepts_input(connection)
    }

    fn handle_completion(&mut self, completion: Completion<'_>, requests: &mut dyn Requests) {
        self.command_front.handle_completion(completion, requests);
    }

    fn read_now(&mut self, tag: Tag, state: &dyn State) {
        self.command_front.read_now(tag, state);
    }

    fn handle_stream_event(&mut self, event: StreamEvent<'_>, requests: &mut dyn Requests) {
        self.stream_front.handle_stream_event(event, requests);
    }

    fn deliver_notice(&mut self, subject: &[u8], message: &[u8]) {
        self.command_front.deliver_notice(subject, message);
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        let commands = self.command_front.next_dirty();
        commands.or_else(|| self.stream_front.next_dirty())
    }

    fn output(&mut self, connection: ConnectionId) -> &[u8] {
        self.front_for_mut(connection).output(connection)
    }

    fn record_sent(&mut self, connection: ConnectionId, count: usize) {
        self.front_for_mut(connection).record_sent(connection, count);
    }

    fn held_bytes(&self) -> usize {
        self.command_front.held_bytes() + self.stream_front.held_bytes()
    }

    fn refusal_counts(&self) -> RefusalCounts {
        let (commands, streams) =
            (self.command_front.refusal_counts(), self.stream_front.refusal_counts());
        RefusalCounts {
            forbidden: commands.forbidden + streams.forbidden,
            wrong_passwords: commands.wrong_passwords + streams.wrong_passwords,
        }
    }

    fn held_bytes_of(&self, connection: ConnectionId) -> usize {
        self.front_for(connection).held_bytes_of(connection)
    }

    fn should_close(&self, connection: ConnectionId) -> bool {
        self.front_for(connection).should_close(connection)
    }

    fn reset_reason(&self, connection: ConnectionId) -> Option<&str> {
        self.front_for(connection).reset_reason(connection)
    }

    fn handle_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        self.front_for_mut(connection).handle_closed(connection, requests);
        self.stream_connections.remove(&connection);
    }

    fn is_busy(&self, connection: ConnectionId) -> bool {
        self.front_for(connection).is_busy(connection)
    }

    fn open_requests(&self) -> usize {
        self.command_front.open_requests() + self.stream_front.open_requests()
    }

    fn connections(&self) -> usize {
        self.command_front.connections() + self.stream_front.connections()
    }

    fn run_turn(&mut self, requests: &mut dyn Requests) {
        self.command_front.run_turn(requests);
        self.stream_front.run_turn(requests);
    }

    fn is_eager(&self) -> bool {
        self.command_front.is_eager() || self.stream_front.is_eager()
    }

    fn wake_ms(&self) -> Option<u64> {
        let both = [self.command_front.wake_ms(), self.stream_front.wake_ms()];
        both.into_iter().flatten().min()
    }
}
