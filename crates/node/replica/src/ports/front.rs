//! Front end port: a client protocol's requests to a replica, and the replica's answers.
//!
//! A front is a set of sans-I/O connection state machines: the reactor passes received bytes, the
//! front calls [`Requests`], and the replica answers with [`Completion`]s in any order.

use quorate_access::{Users, Who};
use quorate_core::{level::Level, node_id::NodeId};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

pub use crate::ports::outcome::{Completion, ConnectionId, Failure, Sequenced, SessionId, Tag};
use crate::ports::{
    frame_clients::FrameClients,
    status::Status,
    stream_front::{StreamEvent, StreamRequests},
};

/// Kind of client listener. A node may have several, each with its own address and protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenerKind {
    /// Clients of the service. They send commands.
    #[default]
    Commands,
    /// Byte stream clients, with framing.
    Streams,
    /// A client of one byte stream, without framing.
    StreamsRaw,
}

/// Endpoints of a client's connection, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Listener that accepted the connection.
    pub door: ListenerKind,
    /// Address of the client.
    pub peer: String,
    /// Local address to which the client connected.
    pub local: String,
    /// Identity that the client proved while connecting.
    pub identity: Who,
}

/// Rules of a group without users, in which every client may do everything.
pub(crate) static NO_USERS: Users = Users::NONE;

/// Requests that a front can make. All calls return immediately.
pub trait Requests {
    /// Proposes a command, to be ordered and executed on every node.
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure>;

    /// Like [`Requests::write`], but executed exactly once within a client's session.
    fn write_once(&mut self, tag: Tag, at: Sequenced, command: &[u8]) -> Result<(), Failure>;

    /// Like [`Requests::write`] or [`Requests::write_once`], but answered when the command is on
    /// stable storage at a quorum, so that it survives a crash of all nodes, whatever the class of
    /// the group ([class-2]). Fails with [`Failure::NotLasting`] if that is not confirmed in time,
    /// and with [`Failure::Level`], executing nothing, if the group lacks the required level.
    fn write_lasting(
        &mut self,
        tag: Tag,
        at: Option<Sequenced>,
        command: &[u8],
    ) -> Result<(), Failure> {
        let _ = (tag, at, command);
        Err(Failure::Level)
    }

    /// Like [`Requests::write`], but answered as soon as the command is in memory at a quorum,
    /// whatever the class of the group ([class-2]). The answer is [`Completion::InMemory`], or the
    /// usual one if the group decided the command first. Fails with [`Failure::Level`], and
    /// executes nothing, in a group that does not use the required level.
    fn write_early(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        let _ = (tag, command);
        Err(Failure::Level)
    }

    /// Registers a client session.
    fn register(&mut self, tag: Tag) -> Result<(), Failure>;

    /// Requests a linearizable read; the completion reports when it may run.
    fn read(&mut self, tag: Tag) -> Result<(), Failure>;

    /// Requests a read that misses nothing acknowledged more than `most_ms` milliseconds ago
    /// ([read-6]); the completion reports when it may run. Fails with [`Failure::Stale`] if that
    /// cannot be confirmed in time.
    fn read_within(&mut self, tag: Tag, most_ms: u64) -> Result<(), Failure> {
        let _ = most_ms;
        self.read(tag)
    }

    /// Requests a linearizable read in order with the commands: [`Front::read_now`] is called after
    /// all commands requested before the read are executed, and before any requested after it. The
    /// read needs no messages of its own, but may use up a slot.
    fn queue_read(&mut self, tag: Tag) -> Result<(), Failure>;

    /// Drops a closed connection's requests with tag `tag`. They may still be executed.
    fn drop_requests(&mut self, tag: Tag);

    /// Queries the current local state. On failure, leaves `reply` unchanged.
    fn query(&mut self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure>;

    /// Runs the query of read `tag` on the local state, once the read may run. The condition that
    /// allowed the read is checked again after the query ([read-4]). On [`Failure::Overtaken`],
    /// `reply` is unchanged and the read must be requested again.
    fn run_query(&mut self, tag: Tag, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        let _ = tag;
        self.query(query, reply)
    }

    fn status(&self) -> Status;

    /// Returns the leader that this node follows, or this node if it leads.
    fn leader(&self) -> Option<NodeId> {
        self.status().leader
    }

    /// Returns the group's current level ([level-5]).
    fn level(&self) -> Level {
        Level::BASE
    }

    /// Returns the access rules as applied here ([access-2]); `None` until they are known
    /// ([access-4]).
    fn users(&self) -> Option<&Users> {
        Some(&NO_USERS)
    }

    /// Returns a number that changes whenever the result of [`Requests::users`] may have changed.
    fn users_version(&self) -> u64 {
        0
    }

    /// Returns the reading of the group's clock ([time-3]) as Unix time in milliseconds, or of this
    /// node's wall clock until the group's is known.
    fn wall_ms(&self) -> u64;

    /// [time-4] Returns whether the group's clock is known, so that deadlines can be set.
    fn knows_clock(&self) -> bool {
        true
    }

    fn command_bytes_max(&self) -> usize;

    /// Returns the port for device clients, if this node supports them.
    fn frame_clients(&mut self) -> Option<&mut dyn FrameClients> {
        None
    }

    /// Returns the port for byte streams, if streams are available.
    fn streams(&mut self) -> Option<&mut dyn StreamRequests> {
        None
    }
}

/// State of the service between two commands.
pub trait State {
    /// Runs a query and appends its reply.
    fn query(&self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure>;
}

/// Maximum time in milliseconds, counted from the first request, that requests wait for the access
/// rules ([access-4]) and the group's clock ([time-4]). Equals the wait for a leader.
const ACCESS_WAIT_MAX_MS: u64 = 5_000;

/// Time that requests have waited, counted once per process. Each call adds the time since the
/// previous one, up to a bound, because a node's clock jumps when it learns the group's ([time-3]).
#[derive(Debug, Default)]
pub struct AccessPatience {
    /// Last reading of the clock, in milliseconds.
    last_clock_ms: Option<u64>,
    waited_ms: u64,
}

impl AccessPatience {
    /// Returns whether the maximum waiting time has passed.
    pub fn has_expired(&mut self, now_ms: u64) -> bool {
        let last_ms = self.last_clock_ms.replace(now_ms).unwrap_or(now_ms);
        self.waited_ms += now_ms.saturating_sub(last_ms).min(ACCESS_WAIT_MAX_MS / 4);
        self.waited_ms >= ACCESS_WAIT_MAX_MS
    }
}

/// Counts of refused requests and logins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    /// Number of requests that the client's role does not allow ([access-2]).
    pub forbidden: u64,
    pub wrong_passwords: u64,
}

/// A client protocol: its connections as sans-I/O state machines.
pub trait Front {
    /// Handles a new connection of a client.
    fn handle_opened(
        &mut self,
        connection: ConnectionId,
        ends: Endpoints,
        requests: &mut dyn Requests,
    );

    /// Passes received bytes. Returns the number of bytes consumed; the rest is passed again
    /// together with the bytes that follow. A front whose output or open requests are at their
    /// limit may consume none. This is back-pressure: the reactor stops reading that socket until
    /// [`Front::accepts_input`] returns `true`.
    fn receive_bytes(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        requests: &mut dyn Requests,
    ) -> usize;

    /// Handles readable input on a connection that has no unconsumed bytes. A front that knows the
    /// final place of the bytes may have them read directly into it with one call of `read`, which
    /// returns the number of bytes read.
    fn read_input(
        &mut self,
        connection: ConnectionId,
        requests: &mut dyn Requests,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> InputDecision {
        let _ = (connection, requests, read);
        InputDecision::AtMost(usize::MAX)
    }

    /// Handles the end of a client's input, after all its bytes were consumed. The client may still
    /// expect replies.
    fn half_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        let _ = (connection, requests);
    }

    /// Returns whether this connection accepts more input.
    fn accepts_input(&self, connection: ConnectionId) -> bool;

    fn handle_completion(&mut self, completion: Completion<'_>, requests: &mut dyn Requests);

    /// Runs a read requested with [`Requests::queue_read`] on `state`, the state between two
    /// commands. [`Completion::Read`] follows, in order with the completions of the commands.
    fn read_now(&mut self, tag: Tag, state: &dyn State) {
        let _ = (tag, state);
    }

    /// Handles the end of a request on [`Requests::streams`], or progress of an owned inner stream.
    fn handle_stream_event(&mut self, event: StreamEvent<'_>, requests: &mut dyn Requests) {
        let _ = (event, requests);
    }

    /// Delivers a notice of an applied command to the clients that subscribed to `subject`.
    fn deliver_notice(&mut self, subject: &[u8], message: &[u8]) {
        let _ = (subject, message);
    }

    /// Returns the next connection that has gained output or must be closed since the last call.
    fn next_dirty(&mut self) -> Option<ConnectionId>;

    /// Returns the next output of this connection; empty if there is none. Until
    /// [`Front::record_sent`] is called, further calls return the same bytes, possibly followed by
    /// more.
    fn output(&mut self, connection: ConnectionId) -> &[u8];

    /// Records that the first `count` bytes of the output have been sent.
    fn record_sent(&mut self, connection: ConnectionId, count: usize);

    /// Takes all output of this connection, for a driver without sockets.
    fn take_output(&mut self, connection: ConnectionId) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let next = self.output(connection);
            let count = next.len();
            if count == 0 {
                return all;
            }
            all.extend_from_slice(next);
            self.record_sent(connection, count);
        }
    }

    /// Returns the memory in bytes used by all connections for requests and replies. The front
    /// observes the limit while it processes input, and the reactor enforces it between turns.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Returns the counts of refusals since the start.
    fn refusal_counts(&self) -> RefusalCounts {
        RefusalCounts::default()
    }

    /// Returns the memory used by one connection, in bytes.
    fn held_bytes_of(&self, connection: ConnectionId) -> usize {
        let _ = connection;
        0
    }

    /// Returns whether to close the connection once its output has been sent.
    fn should_close(&self, connection: ConnectionId) -> bool;

    /// Returns the reason if the connection must be reset because the protocol cannot report
    /// errors.
    fn reset_reason(&self, connection: ConnectionId) -> Option<&str> {
        let _ = connection;
        None
    }

    /// Handles a closed connection.
    fn handle_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests);

    /// Returns whether replies to this connection's requests are pending.
    fn is_busy(&self, connection: ConnectionId) -> bool;

    /// Returns the number of requests that wait for the replica.
    fn open_requests(&self) -> usize;

    fn connections(&self) -> usize;

    /// Makes further requests, once per turn: for a front whose requests do not come from
    /// connections, or that makes more of them once its output has been sent.
    fn run_turn(&mut self, requests: &mut dyn Requests) {
        let _ = requests;
    }

    /// Returns whether the next turn should begin at once because there is work or output.
    fn is_eager(&self) -> bool {
        false
    }

    /// Returns the latest time at which the next turn should begin, as Unix time in milliseconds.
    fn wake_ms(&self) -> Option<u64> {
        None
    }
}

/// Decision about a connection's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputDecision {
    /// The input was read.
    AlreadyRead,
    /// Pass at most the given number of bytes to [`Front::receive_bytes`].
    AtMost(usize),
}

/// Map from tags to their owners, for a front that allocates tags. A tag is not reused for a long
/// time, so that a late event of a forgotten request has no owner.
#[derive(Debug)]
pub struct Tags<T> {
    owners: SlotMap<DefaultKey, T>,
}

impl<T> Default for Tags<T> {
    fn default() -> Self {
        Self { owners: SlotMap::new() }
    }
}

impl<T> Tags<T> {
    /// Allocates a tag for a request from this owner.
    pub fn allocate(&mut self, owner: T) -> Tag {
        Tag(self.owners.insert(owner).data().as_ffi())
    }

    /// Returns the owner of a tag; `None` if the tag is not allocated.
    pub fn get(&self, tag: Tag) -> Option<&T> {
        self.owners.get(KeyData::from_ffi(tag.0).into())
    }

    pub fn get_mut(&mut self, tag: Tag) -> Option<&mut T> {
        self.owners.get_mut(KeyData::from_ffi(tag.0).into())
    }

    /// Releases a tag and returns its owner; `None` if the tag is not allocated.
    pub fn release(&mut self, tag: Tag) -> Option<T> {
        self.owners.remove(KeyData::from_ffi(tag.0).into())
    }

    /// Returns the number of allocated tags.
    pub fn open(&self) -> usize {
        self.owners.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Tag, &T)> {
        let tag = |key: DefaultKey| Tag(key.data().as_ffi());
        self.owners.iter().map(move |(key, owner)| (tag(key), owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_tag_stays_invalid_when_its_index_is_reused() {
        let mut tags = Tags::default();
        let first = tags.allocate("first");
        assert_eq!(tags.release(first), Some("first"));
        let second = tags.allocate("second");
        assert_ne!(first, second);
        assert_eq!(tags.get(first), None, "told late");
        assert_eq!(tags.release(first), None, "told late");
        assert_eq!(tags.get(second), Some(&"second"));
        assert_eq!(tags.iter().collect::<Vec<_>>(), [(second, &"second")]);
        assert_eq!(tags.release(second), Some("second"));
        assert_eq!(tags.release(second), None, "told twice");
        assert_eq!(tags.release(Tag(u64::MAX)), None, "never given");
        assert_eq!(tags.open(), 0);
    }
}
