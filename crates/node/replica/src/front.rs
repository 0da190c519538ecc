//! The front port: what a client protocol can ask of a replica, and what it hears back.
//!
//! A front is a set of connection state machines without sockets. The reactor feeds it bytes; the
//! front calls [`Requests`]; the replica answers with [`Completion`]s, in any order.

use quorate_access::{Users, Who};
use quorate_core::{level::Level, slot::Slot};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::{
    frame_clients::FrameClients,
    status::Status,
    stream_front::{StreamEvent, StreamRequests},
};

/// Chosen by the front to recognise its request; unique among those that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// One client connection; never reused within a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Which of a node's addresses for clients a connection came to: each has a protocol of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// Commands of the service.
    #[default]
    Commands,
    /// Byte streams, framed.
    Streams,
    /// The bytes of one stream, and nothing else.
    StreamsRaw,
}

/// The ends of a client's connection, for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Where it came in.
    pub door: Door,
    /// Where the client is.
    pub peer: String,
    /// Where it came to.
    pub local: String,
    /// Who the client proved to be when it came.
    pub who: Who,
}

/// Id of a client session: the slot of its registration, and the index therein ([session-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The slot.
    pub slot: u64,
    /// The index of the registration in its slot's batch.
    pub index: u32,
}

/// A command's place in its client's session ([session-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequenced {
    /// The session.
    pub session: SessionId,
    /// Numbered from 1 by the client.
    pub sequence: u64,
    /// The client has the replies of all sequences below.
    pub acknowledged_below: u64,
}

/// Why there is no reply. The first six say: not executed, try again at will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// Queues are full.
    Busy,
    /// No leader was found in time; the command never left this node.
    NoQuorum,
    /// Larger than `--command-max`.
    TooBig,
    /// The node is stopping.
    Stopping,
    /// The node cannot vote: its log failed, or its device forgot votes, or does not answer and no
    /// leader was found in time.
    Voteless,
    /// This node's service cannot work at the moment; another node's may.
    Unavailable,
    /// This node and others have applied different things, and this one may be wrong ([differ-2]);
    /// not executed.
    Diverged,
    /// It may have been executed, or may yet be.
    Unknown,
    /// The session is unknown or expired; not executed now ([session-4]). Had the number been sent
    /// before, it may have been executed then.
    NoSession,
    /// Executed before, and its reply was acknowledged and forgotten ([session-2]).
    ReplyForgotten,
    /// More sequences open than a session may have; not executed.
    SessionFull,
    /// What this node has could not be shown to be as fresh as was asked for; not executed
    /// ([read-6]).
    Stale,
    /// It needs a feature level that the group does not use yet; not executed ([level-9]).
    Level,
    /// What let this read run was over when it had read: ask again ([`Requests::answer`]).
    Overtaken,
    /// Executed, as the group decides; that it is on stable storage at a quorum could not be said
    /// in time ([class-2]). It is executed all the same, and will be there, unless many memories
    /// are lost before.
    NotLasting,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion<'a> {
    /// Executed; this is the service's reply.
    Written(Tag, &'a [u8]),
    /// In memory at a quorum, which was asked for ([`Requests::write_early`]), and not decided yet:
    /// in this slot, unless it loses that ([less-4]).
    InMemory(Tag, Slot),
    /// A session was registered.
    Registered(Tag, SessionId),
    /// A linearizable read, or one with a bound, may run now: call [`Requests::answer`] before
    /// returning.
    Readable(Tag),
    /// A read that was asked for with [`Requests::read_in_order`] has run, in [`Front::read_now`].
    Read(Tag),
    /// Not done, or not known to be.
    Failed(Tag, Failure),
}

/// Where there are no users, everybody may do everything.
pub(crate) static NOBODY: Users = Users::NONE;

/// What a front can ask for. All calls return at once.
pub trait Requests {
    /// Order this command and execute it on every node.
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure>;

    /// The same, exactly once within a client's session.
    fn write_once(&mut self, tag: Tag, at: Sequenced, command: &[u8]) -> Result<(), Failure>;

    /// One of the two above, answered when it outlasts a crash of everybody: when it is on stable
    /// storage at a quorum, whatever class the group decides by ([class-2]). If that cannot be said
    /// in time: [`Failure::NotLasting`]. In a group that does not use the level that this takes:
    /// [`Failure::Level`], and nothing is executed.
    fn write_lasting(
        &mut self,
        tag: Tag,
        at: Option<Sequenced>,
        command: &[u8],
    ) -> Result<(), Failure> {
        let _ = (tag, at, command);
        Err(Failure::Level)
    }

    /// As [`Requests::write`], answered as soon as a quorum has it in memory, whatever class the
    /// group decides by ([class-2]): with [`Completion::InMemory`], or, if the group decided first,
    /// as ever. In a group that does not use the level that this takes: [`Failure::Level`], and
    /// nothing is executed.
    fn write_early(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        let _ = (tag, command);
        Err(Failure::Level)
    }

    /// Register a client session.
    fn register(&mut self, tag: Tag) -> Result<(), Failure>;

    /// Say when a linearizable read may run.
    fn read(&mut self, tag: Tag) -> Result<(), Failure>;

    /// Say when a read may run that misses nothing acknowledged more than `most_ms` ago ([read-6]).
    /// [`Failure::Stale`] if that cannot be said in time.
    fn read_within(&mut self, tag: Tag, most_ms: u64) -> Result<(), Failure> {
        let _ = most_ms;
        self.read(tag)
    }

    /// Let a linearizable read run at its place among the commands: [`Front::read_now`] is called
    /// when all that were asked for before it, and none that were asked for after it, are executed.
    /// It sends nothing of its own, but it may cost a place in the log.
    fn read_in_order(&mut self, tag: Tag) -> Result<(), Failure>;

    /// The requests with these tags matter to nobody any more (their connection closed). They may
    /// be executed all the same.
    fn forget(&mut self, tag: Tag);

    /// Ask the local state, as it stands. If the service cannot answer, nothing is appended.
    fn query(&mut self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure>;

    /// Ask the local state for the read of this tag, which may run. What let it run is looked at
    /// once more behind the query ([read-4]): on [`Failure::Overtaken`] nothing was appended, and
    /// the read is to be asked for again.
    fn answer(&mut self, tag: Tag, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        let _ = tag;
        self.query(query, reply)
    }

    /// What this node is.
    fn status(&self) -> Status;

    /// Returns the level that the group uses ([level-5]).
    fn level(&self) -> Level {
        Level::BASE
    }

    /// Who may do what, as this node has applied it ([access-2]); `None`: it does not know
    /// ([access-4]).
    fn users(&self) -> Option<&Users> {
        Some(&NOBODY)
    }

    /// Another number whenever [`Requests::users`] may say something else.
    fn users_version(&self) -> u64 {
        0
    }

    /// Returns what the group's clock shows ([time-3]), Unix time in milliseconds; by this node's
    /// own while that is not known.
    fn wall_ms(&self) -> u64;

    /// [time-4] Says whether the group's clock is known, so that deadlines can be made.
    fn knows_clock(&self) -> bool {
        true
    }

    /// Largest command taken, in bytes.
    fn command_bytes_max(&self) -> usize;

    /// What clients of devices can ask, where there may be such.
    fn frame_clients(&mut self) -> Option<&mut dyn FrameClients> {
        None
    }

    /// What can be asked about byte streams, where there are any.
    fn streams(&mut self) -> Option<&mut dyn StreamRequests> {
        None
    }
}

/// The service's state at one moment.
pub trait State {
    /// Asks it.
    fn query(&self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure>;
}

/// [access-4] [time-4] So long requests wait after the first of them came, until it is known who
/// may do what, and what the group's clock shows: as long as for a leader.
const PATIENCE_MS: u64 = 5_000;

/// How long that is from now on; once in a process.
#[derive(Debug, Default)]
pub struct Patience {
    /// Unix time in milliseconds.
    until_ms: Option<u64>,
}

impl Patience {
    /// Whether nobody waits any more.
    pub fn is_over(&mut self, now_ms: u64) -> bool {
        let until_ms = *self.until_ms.get_or_insert(now_ms + PATIENCE_MS);
        // A clock that goes back makes nobody wait longer.
        now_ms >= until_ms || until_ms - now_ms > PATIENCE_MS
    }
}

/// What clients were refused, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Requests of those whose role is not enough ([access-2]).
    pub forbidden: u64,
    /// Passwords that did not fit.
    pub wrong_passwords: u64,
}

/// A client protocol: connections as state machines.
pub trait Front {
    /// A client connected.
    fn opened(&mut self, connection: ConnectionId, ends: Endpoints, requests: &mut dyn Requests);

    /// Bytes arrived. Returns how many were used up; the rest comes again with what follows it.
    /// Using none although output or open requests are at their limit is back-pressure: the
    /// reactor stops reading that socket until [`Front::ready`] says otherwise.
    fn received(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        requests: &mut dyn Requests,
    ) -> usize;

    /// Bytes can be read of this connection, and none are left over. A front that knows what they
    /// are may have them read to where they are kept, with one call of `read`, which says how many
    /// it read.
    fn intake(
        &mut self,
        connection: ConnectionId,
        requests: &mut dyn Requests,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Intake {
        let _ = (connection, requests, read);
        Intake::AtMost(usize::MAX)
    }

    /// The client has sent its last byte, and all were used. It may still want its answers.
    fn half_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        let _ = (connection, requests);
    }

    /// Whether this connection takes more input.
    fn ready(&self, connection: ConnectionId) -> bool;

    /// A request ended.
    fn completed(&mut self, completion: Completion<'_>, requests: &mut dyn Requests);

    /// A read that was asked for with [`Requests::read_in_order`] runs now; [`Completion::Read`]
    /// follows with the completions of the commands around it. `state` is between them.
    fn read_now(&mut self, tag: Tag, state: &dyn State) {
        let _ = (tag, state);
    }

    /// What was asked with [`Requests::streams`] ended, or a piece that this node owns moved on.
    fn streamed(&mut self, event: StreamEvent<'_>, requests: &mut dyn Requests) {
        let _ = (event, requests);
    }

    /// An applied command told this, for the clients that listen to that subject.
    fn notice(&mut self, subject: &[u8], message: &[u8]) {
        let _ = (subject, message);
    }

    /// Takes the next connection that has output, or is to be closed, since the last call.
    fn next_dirty(&mut self) -> Option<ConnectionId>;

    /// What this connection is to be sent next: the same until [`Front::sent`] is called, or
    /// longer. More may follow once that is sent; there is none if this is empty.
    fn output(&mut self, connection: ConnectionId) -> &[u8];

    /// The first `count` bytes of the output were sent.
    fn sent(&mut self, connection: ConnectionId, count: usize);

    /// All output of this connection, for a driver without sockets.
    fn take_output(&mut self, connection: ConnectionId) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let next = self.output(connection);
            let count = next.len();
            if count == 0 {
                return all;
            }
            all.extend_from_slice(next);
            self.sent(connection, count);
        }
    }

    /// Bytes of memory that connections hold: replies, requests, what they prepare. The bound of
    /// all of them is the front's to know while it works, and the reactor's to enforce between
    /// turns.
    fn held_bytes(&self) -> usize {
        0
    }

    /// What clients were refused since the start.
    fn refused(&self) -> Refused {
        Refused::default()
    }

    /// Those of one connection.
    fn held_bytes_of(&self, connection: ConnectionId) -> usize {
        let _ = connection;
        0
    }

    /// Whether the connection is to be closed once its output is sent.
    fn closing(&self, connection: ConnectionId) -> bool;

    /// Why the connection is to be reset, in a protocol that has no words for it.
    fn broken(&self, connection: ConnectionId) -> Option<&str> {
        let _ = connection;
        None
    }

    /// The client is gone.
    fn closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests);

    /// Whether replies to what this connection asked are still to come.
    fn is_busy(&self, connection: ConnectionId) -> bool;

    /// Requests that wait for the replica: 0 once all is answered.
    fn open_requests(&self) -> usize;

    /// Number of open connections.
    fn connections(&self) -> usize;

    /// Called once a turn: for a front whose requests come by other ways than connections, or that
    /// asks for more once output was sent.
    fn poll(&mut self, requests: &mut dyn Requests) {
        let _ = requests;
    }

    /// Whether the next turn is wanted at once: there is something to poll for, or to send.
    fn is_eager(&self) -> bool {
        false
    }

    /// When a turn is wanted at the latest, Unix time in milliseconds.
    fn wake_ms(&self) -> Option<u64> {
        None
    }
}

/// What is to be done with what can be read of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// It was read.
    Done,
    /// So much of it is to be given to [`Front::received`].
    AtMost(usize),
}

/// Whose request a tag is, for a front that gives tags out. A tag does not come again for a long
/// time, so what is heard late of a request that was forgotten is nobody's.
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
    /// A tag for a request of this owner.
    pub fn give(&mut self, owner: T) -> Tag {
        Tag(self.owners.insert(owner).data().as_ffi())
    }

    /// Whose tag it is. `None`: it was never allocated, or is released.
    pub fn get(&self, tag: Tag) -> Option<&T> {
        self.owners.get(KeyData::from_ffi(tag.0).into())
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, tag: Tag) -> Option<&mut T> {
        self.owners.get_mut(KeyData::from_ffi(tag.0).into())
    }

    /// Releases a tag. `None`: it was never allocated, or was released before.
    pub fn take(&mut self, tag: Tag) -> Option<T> {
        self.owners.remove(KeyData::from_ffi(tag.0).into())
    }

    /// Tags that are given.
    pub fn open(&self) -> usize {
        self.owners.len()
    }

    /// All of them, with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (Tag, &T)> {
        let tag = |key: DefaultKey| Tag(key.data().as_ffi());
        self.owners.iter().map(move |(key, owner)| (tag(key), owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_that_was_taken_back_is_nobodys_even_when_its_place_is_used_again() {
        let mut tags = Tags::default();
        let first = tags.give("first");
        assert_eq!(tags.take(first), Some("first"));
        let second = tags.give("second");
        assert_ne!(first, second);
        assert_eq!(tags.get(first), None, "told late");
        assert_eq!(tags.take(first), None, "told late");
        assert_eq!(tags.get(second), Some(&"second"));
        assert_eq!(tags.iter().collect::<Vec<_>>(), [(second, &"second")]);
        assert_eq!(tags.take(second), Some("second"));
        assert_eq!(tags.take(second), None, "told twice");
        assert_eq!(tags.take(Tag(u64::MAX)), None, "never given");
        assert_eq!(tags.open(), 0);
    }
}
