//! Names of requests, and how requests end: what a front and the parts of a replica share.

use quorate_core::slot::Slot;

/// Chosen by the front to recognise its request; unique among those that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Chosen by the front to recognise its request for byte streams; unique among those that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamTag(pub u64);

/// One client connection; never reused within a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

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

/// Reason why there is no reply. The first six mean: not executed, may be retried.
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
    /// The service of this node cannot work at the moment; that of another node may.
    Unavailable,
    /// This node and others have applied different commands, and this one may be wrong
    /// ([differ-2]); not executed.
    Diverged,
    /// Unknown outcome: it may have been executed, or may yet be.
    Unknown,
    /// The session is unknown or expired; not executed now ([session-4]). Had the number been sent
    /// before, it may have been executed then.
    NoSession,
    /// Executed before, and its reply was acknowledged and forgotten ([session-2]).
    ReplyForgotten,
    /// More sequences open than a session may have; not executed.
    SessionFull,
    /// This node's state could not be shown to be as fresh as requested; not executed ([read-6]).
    Stale,
    /// Requires a feature level that the group does not use yet; not executed ([level-9]).
    Level,
    /// The condition under which this read ran no longer held when it had read: retry
    /// ([`crate::Requests::answer`]).
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
    /// In memory at a quorum, as requested ([`crate::Requests::write_early`]), and not decided yet: in
    /// this slot, unless it loses that ([less-4]).
    InMemory(Tag, Slot),
    /// A session was registered.
    Registered(Tag, SessionId),
    /// A linearizable read, or one with a bound, may run now: call [`crate::Requests::answer`] before
    /// returning.
    Readable(Tag),
    /// A read that was asked for with [`crate::Requests::read_in_order`] has run, in [`crate::Front::read_now`].
    Read(Tag),
    /// Not done, or not known to be.
    Failed(Tag, Failure),
}
