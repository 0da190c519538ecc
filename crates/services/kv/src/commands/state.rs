//! Execution context of an operation: the data it reads or changes.

use std::{cell::RefCell, ops::ControlFlow};

use quorate_core::slot::Slot;
use quorate_lua::Interpreter;

use super::{budget::Budget, lock};
use crate::{
    key::Key,
    op::REPLY_BYTES_MAX,
    resp::reply::Reply,
    store::{
        Entry, Stamp, Store, Version,
        collection::{Id, Kind},
    },
    waits::Waits,
};

/// Redis' error for a command on a key of another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Marker: the key has another type, and the reply already contains the error.
pub(crate) struct WrongType;

/// Returns the string at a key, if any. Replies with an error if the key has another type.
pub(crate) fn string<'s>(
    store: &'s dyn Store,
    key: Key<'_>,
    reply: &mut Reply<'_>,
) -> Result<Option<Entry<'s>>, WrongType> {
    let entry = store.get(key);
    match &entry {
        Some(found) if found.kind != Kind::String || lock::is_lock(&found.value) => {
            reply.error(WRONG_TYPE);
            Err(WrongType)
        }
        _ => Ok(entry),
    }
}

/// Notification to the fronts: a subject, whose first byte is one of [`notice`], and a text.
pub type Notice = (Box<[u8]>, Box<[u8]>);

/// First byte of a notice's subject.
pub mod notice {
    /// Message on a channel, whose name follows.
    pub const CHANNEL: u8 = 0;
    /// Complete subject: blocked clients may have become ready.
    pub const WAITS: &[u8] = &[1];
    /// Message on a shard channel, whose name follows.
    pub const SHARD: u8 = 2;
    /// Change of a key, which follows.
    pub const CHANGED: u8 = 3;
    /// Change of a stream, or removal of a key. The number of its database follows, then the key.
    pub const STREAM: u8 = 5;
    /// Complete subject: subscriptions of a node's clients, in the message.
    pub const ANNOUNCED: &[u8] = &[6];
    /// Complete subject: all keys may have changed.
    pub const ALL_CHANGED: &[u8] = &[4];
}

/// Execution context of a read-only operation.
#[derive(Clone, Copy)]
pub struct ReadContext<'a> {
    pub store: &'a dyn Store,
    /// Applied position: the data includes all slots below it.
    pub applied_to: Slot,
    /// Clock of the requesting node in milliseconds. `None` in a replicated command, which carries
    /// a time.
    pub wall_ms: Option<u64>,
    pub waits: &'a Waits,
}

/// Execution context of an operation that may change data.
pub struct WriteContext<'a> {
    pub store: &'a mut dyn Store,
    /// Applied position: the data includes all slots below it.
    pub applied_to: Slot,
    /// Version of the keys that this command changes.
    pub version: Version,
    /// Remaining budget of the command's batch.
    pub budget: &'a mut Budget,
    /// Set if the command must stay within its limit of visits, or fail ([visit-2]).
    pub is_bounded: bool,
    /// Number of collections that this command has created.
    pub begun: u32,
    /// Classes of keyspace events to generate.
    pub events: u32,
    /// Notices for the fronts, not part of the data.
    pub notices: &'a mut Vec<Notice>,
    pub waits: &'a mut Waits,
    /// Interpreter of scripts.
    pub interpreter: &'a RefCell<Interpreter>,
}

impl WriteContext<'_> {
    pub fn put(&mut self, key: Key<'_>, value: &[u8], deadline: Option<u64>) {
        self.about_to_change(key, true);
        self.store.meter().count_moved(value.len());
        self.store.put(key, value, self.version, deadline);
    }

    pub fn set(&mut self, key: Key<'_>, value: &[u8], deadline: Option<u64>, kind: Kind) {
        let stamp = Stamp { version: self.version, deadline, kind };
        self.about_to_change(key, true);
        self.store.meter().count_moved(value.len());
        self.store.set(key, value, stamp);
        // Every addition of elements passes here, so blocked clients are marked ready here.
        if matches!(kind, Kind::List | Kind::Zset) && !self.waits.is_empty() {
            self.waits.mark_ready(self.store.selected(), key.bytes());
        }
    }

    /// Removes a key without its rows.
    pub fn detach(&mut self, key: Key<'_>) {
        self.notify_changed(key);
        self.notify_blocked_readers(key);
        self.store.detach(key);
    }

    pub fn begin(&mut self) -> Id {
        let number = self.begun;
        self.begun += 1;
        Id { version: self.version, number }
    }

    pub fn reading(&self) -> ReadContext<'_> {
        ReadContext {
            store: self.store,
            applied_to: self.applied_to,
            wall_ms: None,
            waits: self.waits,
        }
    }
}

/// Replies collected for an array of unknown length.
#[derive(Debug, Default)]
pub(crate) struct Items {
    count: usize,
    bytes: Vec<u8>,
}

impl Items {
    /// Begins the next item, or half of a pair.
    pub(crate) fn next(&mut self) -> Reply<'_> {
        self.count += 1;
        Reply(&mut self.bytes)
    }

    pub(crate) const fn exceed_reply_limit(&self) -> bool {
        self.bytes.len() > REPLY_BYTES_MAX
    }

    /// Returns [`ControlFlow::Break`] once the items exceed the limit of a reply.
    pub(crate) const fn continue_if_fits(&self) -> ControlFlow<()> {
        match self.exceed_reply_limit() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Writes an array, or an error if the items exceed the limit of a reply.
    pub(crate) fn write<'r>(
        &self,
        reply: &mut Reply<'r>,
        header: impl FnOnce(&mut Reply<'r>, usize),
    ) {
        if self.exceed_reply_limit() {
            reply.error(TOO_LARGE);
            return;
        }
        header(reply, self.count);
        reply.0.extend_from_slice(&self.bytes);
    }
}

pub(crate) const TOO_LARGE: &str =
    "TOOBIG the reply would be larger than 32 MiB; ask for less at a time";

/// Replaces the reply since `start` with an error if it exceeds the limit, and returns whether it
/// did.
pub fn too_large(reply: &mut Reply<'_>, start: usize) -> bool {
    let large = reply.0.len() - start > REPLY_BYTES_MAX;
    if large {
        reply.0.truncate(start);
        reply.error(TOO_LARGE);
    }
    large
}
