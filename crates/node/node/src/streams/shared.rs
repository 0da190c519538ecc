//! State shared by all stream connections: the request owners, and memory accounting.

use std::collections::VecDeque;

use quorate_access::PendingChecks;
use quorate_core::value::StreamName;
use quorate_replica::{
    front::{ConnectionId, Failure, Requests, Tag, Tags},
    round_robin::RoundRobin,
    stream_front::{StreamRequests, StreamTag},
};
use rustc_hash::FxHashMap;

/// Owner of a request to the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Connection(ConnectionId),
    /// The connection of a follower. Its request waits for an event that may never happen.
    Follower(ConnectionId),
    /// The connection that requested to open a piece has ended. If the request succeeds, the piece
    /// must be closed.
    Opening,
    /// The connection that requested to close a piece has ended, and will not repeat the request.
    Closing(StreamName),
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    tags: Tags<Owner>,
    pub(crate) pieces: FxHashMap<StreamName, ConnectionId>,
    /// Connections that have output or must be closed.
    pub(crate) dirty: VecDeque<ConnectionId>,
    /// Connections that have sent output and can request more bytes.
    pub(crate) hungry: Vec<ConnectionId>,
    /// Writers that wait for free space.
    pub(crate) full: RoundRobin<ConnectionId>,
    /// Lower bound for the number in the next raw connection's stream name, derived from the
    /// numbers that this front has assigned.
    pub(crate) next_raw_number: u64,
    /// Number of pending requests of followers.
    pending_waits: usize,
    /// Total memory of all connections, in bytes.
    pub(crate) held_bytes: usize,
    /// Requests refused since the start because the client lacked the role.
    pub(crate) forbidden: u64,
    /// Password checks whose verdict has not arrived yet.
    pub(crate) desk: PendingChecks<ConnectionId>,
    /// Number of wrong passwords since the start.
    pub(crate) wrong_passwords: u64,
}

impl Shared {
    fn allocate_tag(&mut self, owner: Owner) -> StreamTag {
        self.pending_waits += usize::from(matches!(owner, Owner::Follower(_)));
        StreamTag(self.tags.allocate(owner).0)
    }

    pub(crate) fn release_tag(&mut self, tag: StreamTag) -> Option<Owner> {
        let owner = self.tags.release(Tag(tag.0))?;
        self.pending_waits -= usize::from(matches!(owner, Owner::Follower(_)));
        Some(owner)
    }

    /// Returns the number of requests that the replica has not answered.
    pub(crate) fn open_requests(&self) -> usize {
        self.tags.open() - self.pending_waits
    }
}

/// Context for handling an event of a connection.
pub(crate) struct Cx<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) requests: &'a mut dyn Requests,
}

impl Cx<'_> {
    pub(crate) fn streams(&mut self) -> Result<&mut dyn StreamRequests, Failure> {
        self.requests.streams().ok_or(Failure::Unavailable)
    }

    /// Makes a request to the replica under a new tag.
    pub(crate) fn make_request(
        &mut self,
        owner: Owner,
        ask: impl FnOnce(&mut dyn StreamRequests, StreamTag) -> Result<(), Failure>,
    ) -> Result<StreamTag, Failure> {
        let tag = self.shared.allocate_tag(owner);
        let asked = self.streams().and_then(|streams| ask(streams, tag));
        if asked.is_err() {
            self.shared.release_tag(tag);
        }
        asked.map(|()| tag)
    }

    /// Drops a request whose answer is no longer needed.
    pub(crate) fn drop_request(&mut self, tag: StreamTag) {
        self.shared.release_tag(tag);
        if let Ok(streams) = self.streams() {
            streams.drop_request(tag);
        }
    }

    /// Reassigns a request whose connection has ended and whose answer still matters.
    pub(crate) fn reassign_request(&mut self, tag: StreamTag, to: Owner) {
        if let Some(owner) = self.shared.tags.get_mut(Tag(tag.0)) {
            *owner = to;
        }
    }

    pub(crate) fn abandon(&mut self, piece: StreamName) {
        self.shared.pieces.remove(&piece);
        if let Ok(streams) = self.streams() {
            streams.abandon_piece(piece);
        }
    }
}
