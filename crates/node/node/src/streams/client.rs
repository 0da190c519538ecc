//! Client connection, in the protocol of the port to which the client connected.

use quorate_replica::{
    front::{ConnectionId, Endpoints, InputDecision, ListenerKind},
    stream_front::{StreamEvent, StreamTag},
};

use crate::streams::{
    connection::Connection,
    raw::Raw,
    shared::{Cx, Shared},
};

/// A client connection, either framed or raw.
#[derive(Debug)]
pub(crate) enum Client {
    Framed(Connection),
    Raw(Box<Raw>),
}

impl Client {
    pub(crate) fn open(id: ConnectionId, ends: Endpoints, cx: &mut Cx<'_>) -> Self {
        match ends.door {
            ListenerKind::StreamsRaw => Self::Raw(Box::new(Raw::open(id, ends.identity, cx))),
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
    pub(crate) fn intake(
        &mut self,
        cx: &mut Cx<'_>,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> InputDecision {
        match self {
            Self::Framed(client) => client.intake(cx, read),
            Self::Raw(_) => InputDecision::AtMost(usize::MAX),
        }
    }

    /// Handles the client's half-close. It has no meaning in the framed protocol.
    pub(crate) fn half_closed(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(_) => {}
            Self::Raw(client) => client.half_closed(cx),
        }
    }

    pub(crate) fn answered(&mut self, tag: StreamTag, event: StreamEvent<'_>, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.answered(tag, event, cx),
            Self::Raw(client) => client.answered(tag, event, cx),
        }
    }

    pub(crate) fn durable(&mut self, position: u64, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.durable(position, cx),
            Self::Raw(client) => client.durable(position, cx),
        }
    }

    pub(crate) fn ended(&mut self, position: u64, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.ended(position, cx),
            Self::Raw(client) => client.ended(cx),
        }
    }

    /// Handles the verdict on a password. Only the framed protocol has passwords.
    pub(crate) fn judged(&mut self, ticket: u64, fits: bool, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.judged(ticket, fits, cx),
            Self::Raw(_) => {}
        }
    }

    /// Requests or sends further bytes after output has been sent.
    pub(crate) fn feed(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.feed(cx),
            Self::Raw(_) => {}
        }
    }

    /// Returns the free space for input that was not consumed for lack of space.
    pub(crate) fn look_for_room(&mut self, cx: &mut Cx<'_>) -> usize {
        match self {
            Self::Framed(client) => client.look_for_room(cx),
            Self::Raw(client) => client.look_for_room(cx),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Framed(client) => client.is_full(),
            Self::Raw(client) => client.is_full(),
        }
    }

    pub(crate) fn ready(&self) -> bool {
        match self {
            Self::Framed(client) => client.ready(),
            Self::Raw(client) => client.ready(),
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Framed(client) => client.is_busy(),
            Self::Raw(client) => client.is_busy(),
        }
    }

    pub(crate) fn closing(&self) -> bool {
        match self {
            Self::Framed(client) => client.closing(),
            Self::Raw(client) => client.closing(),
        }
    }

    /// Returns the reason for resetting the connection; `None` if it need not be reset.
    pub(crate) fn broken(&self) -> Option<&str> {
        match self {
            Self::Framed(_) => None,
            Self::Raw(client) => client.broken(),
        }
    }

    pub(crate) fn output(&mut self) -> &[u8] {
        match self {
            Self::Framed(client) => client.output(),
            Self::Raw(client) => client.output(),
        }
    }

    /// Removes `count` sent bytes from the output.
    pub(crate) fn sent(&mut self, count: usize, shared: &mut Shared) {
        match self {
            Self::Framed(client) => client.sent(count, shared),
            Self::Raw(client) => client.sent(count, shared),
        }
    }

    /// Updates the memory accounting after an event, and notifies the reactor of output.
    pub(crate) fn update_accounting(&mut self, shared: &mut Shared) {
        match self {
            Self::Framed(client) => client.update_accounting(shared),
            Self::Raw(client) => client.notify_reactor(shared),
        }
    }

    pub(crate) fn unmark(&mut self) {
        match self {
            Self::Framed(client) => client.unmark(),
            Self::Raw(client) => client.unmark(),
        }
    }

    /// Returns the memory charged to the limit, in bytes. A raw connection uses almost none.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Framed(client) => client.held_bytes(),
            Self::Raw(_) => 0,
        }
    }

    pub(crate) fn let_go(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Framed(client) => client.let_go(cx),
            Self::Raw(client) => client.let_go(cx),
        }
    }
}
