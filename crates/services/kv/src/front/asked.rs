//! Reads and writes of a connection that have not been sent yet.

use quorate_replica::front::Sequenced;

use crate::{command::SubscriptionKind, commands::transactions::encode_versions, encode::Encoder};

/// Use of the answer to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query {
    /// Sends the answer as the reply.
    Reply,
    /// Records the versions as seen by a WATCH of this epoch.
    Watch(u64),
    /// Sends no query. The connection subscribes (`true`) or unsubscribes at this point in the
    /// order of requests.
    Listen(SubscriptionKind, bool),
}

/// Freshness that the reads of a connection require.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The read sees all writes acknowledged before it was requested.
    #[default]
    Linearizable,
    /// The read sees all writes acknowledged at least this many milliseconds before it ([read-6]).
    Within(u64),
    /// The read sees the local state of this node, however old (READONLY).
    Stale,
}

/// A query that has not been answered yet.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) query: Vec<u8>,
    pub(super) fresh: Freshness,
    /// Set if the read must not run between the commands of a batch. It then waits until no write
    /// is in flight.
    pub(super) alone: bool,
    pub(super) what: Query,
}

impl Read {
    /// Creates the read for a WATCH in this epoch.
    pub(super) fn watch<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]>, epoch: u64) -> Self {
        let mut query = Vec::new();
        encode_versions(keys, &mut Encoder(&mut query));
        let what = Query::Watch(epoch);
        Self { query, fresh: Freshness::Linearizable, alone: true, what }
    }

    /// Creates a read whose answer is sent as the reply.
    pub(super) const fn plain(query: Vec<u8>, fresh: Freshness) -> Self {
        Self { query, fresh, alone: false, what: Query::Reply }
    }
}

/// Form in which a write is sent to the replica.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriteKind {
    /// A command as encoded, with its number in a session if it has one.
    Plain(Option<Sequenced>),
    /// A transaction of `count` commands, with the keys watched in `epoch`.
    Exec { epoch: u64, count: usize, at: Option<Sequenced> },
    /// The registration of a session, which has no command.
    Register,
}

/// A write that has not been sent yet.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) command: Vec<u8>,
    pub(super) how: WriteKind,
    /// Set if the reply waits until the write is on stable storage at a quorum ([class-2]).
    pub(super) lasting: bool,
}

impl Write {
    pub(super) const fn plain(command: Vec<u8>) -> Self {
        Self::new(command, WriteKind::Plain(None))
    }

    pub(super) const fn new(command: Vec<u8>, how: WriteKind) -> Self {
        Self { command, how, lasting: false }
    }
}
