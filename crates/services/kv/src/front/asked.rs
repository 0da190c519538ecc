//! Reads and writes parsed by a connection but not yet sent to the replica.

use quorate_replica::front::Sequenced;

use crate::{
    command::SubscriptionKind, commands::transactions::encode_versions, encode::Encoder, op::Op,
    store::Database,
};

/// Use of a query's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerUse {
    /// The answer is the reply.
    Reply,
    /// The answer has the versions for a WATCH in this epoch.
    Watch(u64),
    /// No query is sent. The connection subscribes (`true`) or unsubscribes at this point in the
    /// order of requests.
    Subscribe(SubscriptionKind, bool),
}

/// Freshness required by a connection's reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Includes all writes acknowledged before the request.
    #[default]
    Linearizable,
    /// Includes all writes acknowledged the given number of milliseconds before the request or
    /// earlier ([read-6]).
    WithinMs(u64),
    /// Returns the local state, however old (READONLY).
    Stale,
}

#[derive(Debug)]
pub(super) struct Read {
    pub(super) query: Vec<u8>,
    pub(super) freshness: Freshness,
    /// True if the read must not run within a batch, so that it waits for all writes in flight.
    pub(super) after_all_writes: bool,
    pub(super) answer_use: AnswerUse,
}

impl Read {
    pub(super) fn watch<'k>(
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
        database: Database,
        epoch: u64,
    ) -> Self {
        let mut query = Vec::new();
        encode_versions(keys, &mut Encoder(&mut query));
        Op::address(&mut query, database);
        let answer_use = AnswerUse::Watch(epoch);
        Self { query, freshness: Freshness::Linearizable, after_all_writes: true, answer_use }
    }

    pub(super) const fn unrestricted(query: Vec<u8>, freshness: Freshness) -> Self {
        Self { query, freshness, after_all_writes: false, answer_use: AnswerUse::Reply }
    }

    /// Creates a client's read of a database. The visit limit of a turn applies only to confirmed
    /// reads ([read-10]), so a script is confirmed even after READONLY and never executed between
    /// writes.
    pub(super) fn for_client(mut query: Vec<u8>, database: Database, fresh: Freshness) -> Self {
        let is_script = query.first() == Some(&(Op::ScriptRo as u8));
        Op::address(&mut query, database);
        let plain = Self::unrestricted(query, fresh);
        match is_script {
            true => Self {
                after_all_writes: true,
                freshness: match fresh {
                    Freshness::Stale => Freshness::Linearizable,
                    fresh => fresh,
                },
                ..plain
            },
            false => plain,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum WriteKind {
    /// Encoded command, with its number in a session, if any.
    Plain(Option<Sequenced>),
    /// Transaction of `count` commands, with the keys watched in `epoch`.
    Exec { epoch: u64, count: usize, session_number: Option<Sequenced> },
    /// Registration of a session. Has no command.
    Register,
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) command: Vec<u8>,
    pub(super) kind: WriteKind,
    /// True if the reply waits until the write is on stable storage at a quorum ([class-2]).
    pub(super) awaits_durability: bool,
}

impl Write {
    pub(super) const fn without_session(command: Vec<u8>) -> Self {
        Self::new(command, WriteKind::Plain(None))
    }

    pub(super) const fn new(command: Vec<u8>, kind: WriteKind) -> Self {
        Self { command, kind, awaits_durability: false }
    }
}
