//! Context in which an operation is executed: the data it reads or changes.

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

/// Notification from a command to the fronts: subject and text. The first byte of the subject is
/// one of [`notice`].
pub type Notice = (Box<[u8]>, Box<[u8]>);

/// Kinds of notices, as the first byte of the subject.
pub mod notice {
    /// Message on a channel. The name of the channel follows.
    pub const CHANNEL: u8 = 0;
    /// Complete subject of a notice that blocked clients may have become ready.
    pub const WAITS: &[u8] = &[1];
    /// Message on a shard channel. The name of the channel follows.
    pub const SHARD: u8 = 2;
}

/// Context in which a read-only operation is executed.
#[derive(Clone, Copy)]
pub struct ReadContext<'a> {
    pub store: &'a dyn Store,
    /// Applied position: the data includes all slots below it.
    pub applied_to: Slot,
    /// Clock of the requesting node in milliseconds; `None` in a replicated command, which carries
    /// its own time.
    pub wall_ms: Option<u64>,
    /// Blocked clients.
    pub waits: &'a Waits,
}

/// Context in which an operation that may change data is executed.
pub struct WriteContext<'a> {
    pub store: &'a mut dyn Store,
    /// Applied position: the data includes all slots below it.
    pub applied_to: Slot,
    /// Version that the keys changed by this command get.
    pub version: Version,
    /// Remaining budget of the batch that contains the command.
    pub budget: &'a mut Budget,
    /// Set if the command must stay within its limit of visits, or fail ([visit-2]).
    pub bounded: bool,
    /// Number of collections that this command has created.
    pub begun: u32,
    /// Classes of keyspace events to generate, or 0 for none.
    pub events: u32,
    /// Notices for the fronts. They are not part of the data.
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
        // All elements added to keys pass through here, so this may make blocked clients ready.
        if matches!(kind, Kind::List | Kind::Zset) && !self.waits.is_empty() {
            self.waits.mark_ready(key.bytes());
        }
    }

    /// Returns the id for a new collection.
    pub fn begin(&mut self) -> Id {
        let number = self.begun;
        self.begun += 1;
        Id { version: self.version, number }
    }

    /// Returns a read-only context of the same state.
    pub fn reading(&self) -> ReadContext<'_> {
        ReadContext {
            store: self.store,
            applied_to: self.applied_to,
            wall_ms: None,
            waits: self.waits,
        }
    }
}

/// Replies collected for an array whose length is known only at the end.
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

    /// Returns [`ControlFlow::Break`] once the items exceed the limit of a reply, to stop a visitor
    /// of elements.
    pub(crate) const fn go_on(&self) -> ControlFlow<()> {
        match self.are_too_many() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Returns the total size of the items in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Writes an array header and the items, or an error if they exceed the limit of a reply.
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

/// Error that replaces a reply that is too large.
pub(crate) const TOO_LARGE: &str =
    "TOOBIG the reply would be larger than 32 MiB; ask for less at a time";

/// Replaces a reply that began at `start` with an error if it exceeds the limit. Returns whether it
/// did.
pub fn too_large(reply: &mut Reply<'_>, start: usize) -> bool {
    let large = reply.0.len() - start > REPLY_BYTES_MAX;
    if large {
        reply.0.truncate(start);
        reply.error(TOO_LARGE);
    }
    large
}
