//! State shared by all connections: the owners of requests, and the memory that is counted.

use std::collections::VecDeque;

use quorate_access::Desk;
use quorate_core::value::StreamName;
use quorate_replica::{
    front::{ConnectionId, Failure, Requests, Tag, Tags},
    round_robin::RoundRobin,
    stream_front::{StreamRequests, StreamTag},
};
use rustc_hash::FxHashMap;

/// Owner of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Connection(ConnectionId),
    /// Waits for an event that may never happen.
    Follower(ConnectionId),
    /// Disconnected; its client will not close the piece that this request opens.
    Opening,
    /// Disconnected; its client will not repeat the request to close this piece.
    Closing(StreamName),
}

/// State shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    tags: Tags<Owner>,
    /// Connection that writes each piece.
    pub(crate) pieces: FxHashMap<StreamName, ConnectionId>,
    /// Connections with output, or to be closed.
    pub(crate) dirty: VecDeque<ConnectionId>,
    /// Connections whose output was sent, and that have more to ask for.
    pub(crate) hungry: Vec<ConnectionId>,
    /// Connections that wait for space for their bytes.
    pub(crate) full: RoundRobin<ConnectionId>,
    /// Next number for the stream of a raw connection, as far as this front has assigned them.
    pub(crate) raw_behind: u64,
    /// Requests of followers.
    waits: usize,
    /// Memory of all connections.
    pub(crate) held_bytes: usize,
    /// Requests that were refused for want of a role, since the start.
    pub(crate) forbidden: u64,
    /// Passwords that are being checked.
    pub(crate) desk: Desk<ConnectionId>,
    /// Wrong passwords.
    pub(crate) wrong_passwords: u64,
}

impl Shared {
    fn give(&mut self, owner: Owner) -> StreamTag {
        self.waits += usize::from(matches!(owner, Owner::Follower(_)));
        StreamTag(self.tags.give(owner).0)
    }

    /// Removes a request and returns its owner.
    pub(crate) fn take(&mut self, tag: StreamTag) -> Option<Owner> {
        let owner = self.tags.take(Tag(tag.0))?;
        self.waits -= usize::from(matches!(owner, Owner::Follower(_)));
        Some(owner)
    }

    /// Requests that wait for the replica.
    pub(crate) fn open_requests(&self) -> usize {
        self.tags.open() - self.waits
    }
}

/// Context of a connection.
pub(crate) struct Cx<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) requests: &'a mut dyn Requests,
}

impl Cx<'_> {
    pub(crate) fn streams(&mut self) -> Result<&mut dyn StreamRequests, Failure> {
        self.requests.streams().ok_or(Failure::Unavailable)
    }

    /// Asks something under a new tag.
    pub(crate) fn ask(
        &mut self,
        owner: Owner,
        ask: impl FnOnce(&mut dyn StreamRequests, StreamTag) -> Result<(), Failure>,
    ) -> Result<StreamTag, Failure> {
        let tag = self.shared.give(owner);
        let asked = self.streams().and_then(|streams| ask(streams, tag));
        if asked.is_err() {
            self.shared.take(tag);
        }
        asked.map(|()| tag)
    }

    /// Drops the request: its answer is no longer wanted.
    pub(crate) fn forget(&mut self, tag: StreamTag) {
        self.shared.take(tag);
        if let Ok(streams) = self.streams() {
            streams.forget(tag);
        }
    }

    /// Reassigns a request whose connection is gone, because its answer still matters.
    pub(crate) fn leave(&mut self, tag: StreamTag, to: Owner) {
        if let Some(owner) = self.shared.tags.get_mut(Tag(tag.0)) {
            *owner = to;
        }
    }

    pub(crate) fn abandon(&mut self, piece: StreamName) {
        self.shared.pieces.remove(&piece);
        if let Ok(streams) = self.streams() {
            streams.abandon(piece);
        }
    }
}
