//! Requests of a connection that are not sent yet: reads and writes.

use quorate_replica::front::Sequenced;

use crate::{command::SubscriptionKind, commands::transactions::encode_versions, encode::Encoder};

/// Use of a query's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query {
    /// Send it as the reply.
    Reply,
    /// Record the versions as seen by a WATCH of this epoch.
    Watch(u64),
    /// There is no query: the connection subscribes (`true`) or unsubscribes at this point.
    Listen(SubscriptionKind, bool),
}

/// Required freshness of a connection's reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Everything acknowledged before the read was requested.
    #[default]
    Linearizable,
    /// Everything acknowledged at least this many milliseconds before ([read-6]).
    Within(u64),
    /// The local state of this node (READONLY).
    Stale,
}

/// A query without an answer yet.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) query: Vec<u8>,
    pub(super) fresh: Freshness,
    /// Must not run between commands of a batch: waits until no write is in flight.
    pub(super) alone: bool,
    pub(super) what: Query,
}

impl Read {
    /// Creates the read for a WATCH of this epoch.
    pub(super) fn watch<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]>, epoch: u64) -> Self {
        let mut query = Vec::new();
        encode_versions(keys, &mut Encoder(&mut query));
        let what = Query::Watch(epoch);
        Self { query, fresh: Freshness::Linearizable, alone: true, what }
    }

    /// Creates a read whose answer is the reply.
    pub(super) const fn plain(query: Vec<u8>, fresh: Freshness) -> Self {
        Self { query, fresh, alone: false, what: Query::Reply }
    }
}

/// Form in which a write is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriteKind {
    /// Unchanged; within a session if it has a number.
    Plain(Option<Sequenced>),
    /// Transaction of `count` commands, with the keys watched in this epoch.
    Exec { epoch: u64, count: usize, at: Option<Sequenced> },
    /// Registration of a session, without a command.
    Register,
}

/// A write that is not sent yet.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) command: Vec<u8>,
    pub(super) how: WriteKind,
    /// Its reply waits until the write is on stable storage at a quorum ([class-2]).
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
