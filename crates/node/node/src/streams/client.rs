//! Client connection, in the protocol of the port to which the client connected.

use quorate_replica::{
    front::{ConnectionId, Endpoints, InputDecision, ListenerKind},
    stream_front::{StreamEvent, StreamTag},
};

use crate::streams::{
    connection::Connection,
    raw::RawConnection,
    shared::{Cx, FrontState},
};

/// A client connection, either framed or raw.
#[derive(Debug)]
pub(crate) enum Client {
    Framed(Connection),
    Raw(Box<RawConnection>),
}

impl Client {
    pub(crate) fn open(id: ConnectionId, ends: Endpoints, cx: &mut Cx<'_>) -> Self {
        match ends.door {
            ListenerKind::StreamsRaw => {
                Self::Raw(Box::new(RawConnection::open(id, ends.identity, cx)))
            }
            ListenerKind::Streams | ListenerKind::Commands => {
                Self::Framed(Connection::new(id, ends.identity))
            }
        }
    }

    pub(crate) fn receive(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        match self {
            Self::Framed(client) => client.receive(bytes, cx),
            Self::Raw(client) => client.receive(bytes, cx),
        }
    }

    /// Handles readable input, possibly by reading it directly into the store. Raw connections
    /// never do that, because they send few bytes or do not know how many will follow.
    pub(crate) fn read_into_store(
        &mut self,
        cx: &mut Cx<'_>,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> InputDecision {
        match self {
            Self::Framed(client) => client.read_into_store(cx, read),
            Self::Raw(_) => InputDecision::AtMost(usize::MAX),
        }
    }

    /// Handles the client's half-close. It has no meaning in the framed protocol.
    pub(crate) fn on_half_close(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(_) => {}
            Self::Raw(client) => client.on_half_close(cx),
        }
    }

    pub(crate) fn on_stream_event(
        &mut self,
        tag: StreamTag,
        event: StreamEvent<'_>,
        cx: &mut Cx<'_>,
    ) {
        match self {
            Self::Framed(client) => client.on_stream_event(tag, event, cx),
            Self::Raw(client) => client.on_stream_event(tag, event, cx),
        }
    }

    pub(crate) fn on_durable(&mut self, position: u64, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.on_durable(position, cx),
            Self::Raw(client) => client.on_durable(position, cx),
        }
    }

    pub(crate) fn on_piece_ended(&mut self, position: u64, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.on_piece_ended(position, cx),
            Self::Raw(client) => client.on_piece_ended(cx),
        }
    }

    /// Handles the verdict on a password. Only the framed protocol has passwords.
    pub(crate) fn on_password_verdict(&mut self, ticket: u64, fits: bool, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.on_password_verdict(ticket, fits, cx),
            Self::Raw(_) => {}
        }
    }

    /// Requests or sends further bytes after output has been sent.
    pub(crate) fn continue_output(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.continue_output(cx),
            Self::Raw(_) => {}
        }
    }

    /// Returns the free space for input that was not consumed for lack of space.
    pub(crate) fn regained_space(&mut self, cx: &mut Cx<'_>) -> usize {
        match self {
            Self::Framed(client) => client.regained_space(cx),
            Self::Raw(client) => client.regained_space(cx),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Framed(client) => client.is_full(),
            Self::Raw(client) => client.is_full(),
        }
    }

    pub(crate) fn accepts_input(&self) -> bool {
        match self {
            Self::Framed(client) => client.accepts_input(),
            Self::Raw(client) => client.accepts_input(),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Framed(client) => client.is_busy(),
            Self::Raw(client) => client.is_busy(),
        }
    }

    pub(crate) fn should_close(&self) -> bool {
        match self {
            Self::Framed(client) => client.should_close(),
            Self::Raw(client) => client.should_close(),
        }
    }

    /// Returns the reason for resetting the connection; `None` if it need not be reset.
    pub(crate) fn reset_reason(&self) -> Option<&str> {
        match self {
            Self::Framed(_) => None,
            Self::Raw(client) => client.reset_reason(),
        }
    }

    pub(crate) fn output(&mut self) -> &[u8] {
        match self {
            Self::Framed(client) => client.output(),
            Self::Raw(client) => client.output(),
        }
    }

    /// Removes `count` sent bytes from the output.
    pub(crate) fn record_sent(&mut self, count: usize, shared: &mut FrontState) {
        match self {
            Self::Framed(client) => client.record_sent(count, shared),
            Self::Raw(client) => client.record_sent(count, shared),
        }
    }

    /// Updates the memory accounting after an event, and notifies the reactor of output.
    pub(crate) fn update_accounting(&mut self, shared: &mut FrontState) {
        match self {
            Self::Framed(client) => client.update_accounting(shared),
            Self::Raw(client) => client.notify_reactor(shared),
        }
    }

    pub(crate) fn clear_dirty(&mut self) {
        match self {
            Self::Framed(client) => client.clear_dirty(),
            Self::Raw(client) => client.clear_dirty(),
        }
    }

    /// Returns the memory charged to the limit, in bytes. A raw connection uses almost none.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Framed(client) => client.held_bytes(),
            Self::Raw(_) => 0,
        }
    }

    pub(crate) fn on_disconnect(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.on_disconnect(cx),
            Self::Raw(client) => client.on_disconnect(cx),
        }
    }
}
