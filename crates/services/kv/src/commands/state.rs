//! Context of an operation: the data to read or change.

use std::ops::ControlFlow;

use quorate_core::slot::Slot;

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

/// Error for a command on a key of another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The key has another type; the error is already in the reply.
pub(crate) struct WrongType;

/// Returns the string at a key; replies with an error if the key has another type.
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

/// Notification from a command to the fronts: subject and text. The first byte of the subject is
/// its kind.
pub type Notice = (Box<[u8]>, Box<[u8]>);

/// Kinds of notices: the first byte of the subject.
pub mod notice {
    /// Message on a channel, whose name follows.
    pub const CHANNEL: u8 = 0;
    /// Complete subject: it may be the turn of blocked clients.
    pub const WAITS: &[u8] = &[1];
    /// Message on a shard channel, whose name follows.
    pub const SHARD: u8 = 2;
}

/// Context of a read.
#[derive(Clone, Copy)]
pub struct ReadContext<'a> {
    pub store: &'a dyn Store,
    /// Applied position: all slots below it are in the data.
    pub applied_to: Slot,
    /// Clock of the requesting node. `None` in a replicated command, which has its own time.
    pub wall_ms: Option<u64>,
    /// Blocked clients.
    pub waits: &'a Waits,
}

/// Context of a write.
pub struct WriteContext<'a> {
    pub store: &'a mut dyn Store,
    /// Applied position: all slots below it are in the data.
    pub applied_to: Slot,
    /// Version of the keys that this command changes.
    pub version: Version,
    /// Remaining budget of the batch.
    pub budget: &'a mut Budget,
    /// [visit-2] The command is executed within its limit of visits, or not at all.
    pub bounded: bool,
    /// Number of collections created by this command.
    pub begun: u32,
    /// Classes of keyspace events to generate; 0: none.
    pub events: u32,
    /// Notices for the fronts; not part of the data.
    pub notices: &'a mut Vec<Notice>,
    /// Blocked clients.
    pub waits: &'a mut Waits,
}

impl WriteContext<'_> {
    /// Sets a key to a string.
    pub fn put(&mut self, key: Key<'_>, value: &[u8], deadline: Option<u64>) {
        self.about_to_change(key, true);
        self.store.put(key, value, self.version, deadline);
    }

    /// Sets a key to a value of any type.
    pub fn set(&mut self, key: Key<'_>, value: &[u8], deadline: Option<u64>, kind: Kind) {
        let stamp = Stamp { version: self.version, deadline, kind };
        self.about_to_change(key, true);
        self.store.set(key, value, stamp);
        // All elements added to keys pass through here: it may be the turn of blocked clients.
        if matches!(kind, Kind::List | Kind::Zset) && !self.waits.is_empty() {
            self.waits.mark_ready(key.bytes());
        }
    }

    /// Returns the id of a new collection.
    pub fn begin(&mut self) -> Id {
        let number = self.begun;
        self.begun += 1;
        Id { version: self.version, number }
    }

    /// Returns the context for reading the same state.
    pub fn reading(&self) -> ReadContext<'_> {
        ReadContext {
            store: self.store,
            applied_to: self.applied_to,
            wall_ms: None,
            waits: self.waits,
        }
    }
}

/// A series of replies whose number is known only at the end.
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

    /// Returns whether the items exceed the limit of a reply.
    pub(crate) const fn are_too_many(&self) -> bool {
        self.bytes.len() > REPLY_BYTES_MAX
    }

    /// Returns whether a visitor of elements should continue: not beyond the limit of a reply.
    pub(crate) const fn go_on(&self) -> ControlFlow<()> {
        match self.are_too_many() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of the items.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the items after a header with their number, or an error if they exceed the limit.
    pub(crate) fn write<'r>(
        &self,
        reply: &mut Reply<'r>,
        header: impl FnOnce(&mut Reply<'r>, usize),
    ) {
        if self.are_too_many() {
            reply.error(TOO_LARGE);
            return;
        }
        header(reply, self.count);
        reply.0.extend_from_slice(&self.bytes);
    }
}

/// Error in place of a reply that is too large.
pub(crate) const TOO_LARGE: &str =
    "TOOBIG the reply would be larger than 32 MiB; ask for less at a time";

/// Replaces a reply that began at `start` with an error if it exceeds the limit; returns whether it
/// did.
pub fn too_large(reply: &mut Reply<'_>, start: usize) -> bool {
    let large = reply.0.len() - start > REPLY_BYTES_MAX;
    if large {
        reply.0.truncate(start);
        reply.error(TOO_LARGE);
    }
    large
}
