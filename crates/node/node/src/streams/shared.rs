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
pub(crate) enum RequestOwner {
    Connection(ConnectionId),
    /// The connection of a follower. Its request waits for an event that may never happen.
    Follower(ConnectionId),
    /// The connection that requested to open a piece has ended. If the request succeeds, the piece
    /// must be closed.
    AbandonedOpen,
    /// The connection that requested to close a piece has ended, and will not repeat the request.
    AbandonedClose(StreamName),
}

#[derive(Debug, Default)]
pub(crate) struct FrontState {
    request_owners: Tags<RequestOwner>,
    pub(crate) piece_writers: FxHashMap<StreamName, ConnectionId>,
    /// Connections that have output or must be closed.
    pub(crate) dirty_connections: VecDeque<ConnectionId>,
    /// Connections that have sent output and can request more bytes.
    pub(crate) connections_to_fetch: Vec<ConnectionId>,
    /// Writers that wait for free space.
    pub(crate) waiting_writers: RoundRobin<ConnectionId>,
    /// Lower bound for the number in the next raw connection's stream name, derived from the
    /// numbers that this front has assigned.
    pub(crate) next_raw_number: u64,
    /// Number of pending requests of followers.
    pending_wait_count: usize,
    /// Total memory of all connections, in bytes.
    pub(crate) held_bytes: usize,
    /// Requests refused since the start because the client lacked the role.
    pub(crate) forbidden_count: u64,
    /// Password checks whose verdict has not arrived yet.
    pub(crate) password_checks: PendingChecks<ConnectionId>,
    /// Number of wrong passwords since the start.
    pub(crate) wrong_password_count: u64,
}

impl FrontState {
    fn allocate_tag(&mut self, owner: RequestOwner) -> StreamTag {
        self.pending_wait_count += usize::from(matches!(owner, RequestOwner::Follower(_)));
        StreamTag(self.request_owners.allocate(owner).0)
    }

    pub(crate) fn release_tag(&mut self, tag: StreamTag) -> Option<RequestOwner> {
        let owner = self.request_owners.release(Tag(tag.0))?;
        self.pending_wait_count -= usize::from(matches!(owner, RequestOwner::Follower(_)));
        Some(owner)
    }

    /// Returns the number of requests that the replica has not answered.
    pub(crate) fn open_request_count(&self) -> usize {
        self.request_owners.open() - self.pending_wait_count
    }
}

/// Context for handling an event of a connection.
pub(crate) struct Cx<'a> {
    pub(crate) shared: &'a mut FrontState,
    pub(crate) requests: &'a mut dyn Requests,
}

impl Cx<'_> {
    pub(crate) fn stream_requests(&mut self) -> Result<&mut dyn StreamRequests, Failure> {
        self.requests.streams().ok_or(Failure::Unavailable)
    }

    /// Makes a request to the replica under a new tag.
    pub(crate) fn make_request(
        &mut self,
        owner: RequestOwner,
        ask: impl FnOnce(&mut dyn StreamRequests, StreamTag) -> Result<(), Failure>,
    ) -> Result<StreamTag, Failure> {
        let tag = self.shared.allocate_tag(owner);
        let asked = self.stream_requests().and_then(|streams| ask(streams, tag));
        if asked.is_err() {
            self.shared.release_tag(tag);
        }
        asked.map(|()| tag)
    }

    /// Drops a request whose answer is no longer needed.
    pub(crate) fn drop_request(&mut self, tag: StreamTag) {
        self.shared.release_tag(tag);
        if let Ok(streams) = self.stream_requests() {
            streams.drop_request(tag);
        }
    }

    /// Reassigns a request whose connection has ended and whose answer still matters.
    pub(crate) fn reassign_request(&mut self, tag: StreamTag, to: RequestOwner) {
        if let Some(owner) = self.shared.request_owners.get_mut(Tag(tag.0)) {
            *owner = to;
        }
    }

    pub(crate) fn abandon_piece(&mut self, piece: StreamName) {
        self.shared.piece_writers.remove(&piece);
        if let Ok(streams) = self.stream_requests() {
            streams.abandon_piece(piece);
        }
    }
}
