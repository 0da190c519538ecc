//! Names and outcomes of requests, shared by front ends and the parts of a replica.

use quorate_core::{node_id::NodeId, slot::Slot};

/// Tag of a request, chosen by the front; unique among open requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Tag of a request for byte streams, chosen by the front; unique among open stream requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamTag(pub u64);

/// Id of a client connection, never reused within a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Id of a client session: the slot of its registration, and the index in the slot ([session-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Slot in which the session was registered.
    pub slot: u64,
    /// Index of the registration in its slot's batch.
    pub index: u32,
}

/// Position of a command in its client's session ([session-1]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequenced {
    /// Id of the client's session.
    pub session: SessionId,
    /// Number of the command, counted from 1 by the client.
    pub sequence: u64,
    /// The client has received the replies to all sequences below this one.
    pub acknowledged_below: u64,
}

/// Reason why a request got no reply. In the cases up to [`Failure::Unavailable`], nothing was
/// executed, and a retry at this or another node may succeed unless the command is too big.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// Queues are full.
    Busy,
    /// No leader was found in time, and the command never left this node.
    NoQuorum,
    /// The command is larger than `--command-max`.
    TooBig,
    Stopping,
    /// The node was removed from the group ([member-1]).
    Removed,
    /// The node cannot vote: its log failed, its device forgot votes, or its device does not answer
    /// and no leader was found in time.
    Voteless,
    /// The service of this node is not working at the moment; another node's may be.
    Unavailable,
    /// The command was not executed: it may add data, and this node's disk is too full ([room-2]),
    /// or the service waits for space on it.
    DiskFull(NodeId),
    /// The command was not executed: this node and others have applied different commands, and this
    /// one may be wrong ([differ-2]).
    Diverged,
    /// The outcome is unknown: the command may have been executed, or may still be executed later.
    Unknown,
    /// The session is unknown or expired, so the command was not executed ([session-4]). If it was
    /// also sent earlier, it may have been executed then.
    NoSession,
    /// The command was executed before, and its reply was acknowledged and dropped ([session-2]).
    ReplyForgotten,
    /// The command was not executed: the session already has the maximum number of open sequences.
    SessionFull,
    /// The read was not executed: this node may not be as fresh as requested ([read-6]).
    Stale,
    /// The command was not executed: it requires a level that the group does not use yet
    /// ([level-9]).
    Level,
    /// The condition that allowed this read no longer held when it finished. The caller must retry
    /// ([`crate::Requests::run_query`]).
    Overtaken,
    /// The command was decided and executed, but not confirmed in time to be on stable storage at a
    /// quorum ([class-2]). It is lost only if many nodes lose their memory before it is.
    NotLasting,
}

/// Result of a request, reported to the front that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion<'a> {
    /// The command was executed, with this reply from the service.
    Written(Tag, &'a [u8]),
    /// The command is in memory at a quorum, as requested ([`crate::Requests::write_early`]), but
    /// not decided yet. It will be decided in this slot unless a member of that quorum loses
    /// its memory first ([less-4]).
    InMemory(Tag, Slot),
    Registered(Tag, SessionId),
    /// A linearizable read, or one with a bound on staleness, may run now. The front must call
    /// [`crate::Requests::run_query`] before it returns.
    Readable(Tag),
    /// A read requested with [`crate::Requests::queue_read`] has run in
    /// [`crate::Front::read_now`].
    Read(Tag),
    /// The request failed, or its outcome is unknown.
    Failed(Tag, Failure),
}
