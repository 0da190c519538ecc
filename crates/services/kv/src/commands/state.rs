//! Context of an operation: the data, to be read or to be changed, and its reply.

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

/// The error for a command on one type and a key of another.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The reply says it already.
pub(crate) struct WrongType;

/// Returns the string of a key, for a command on strings.
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

/// A message that a command leaves for those who listen: subject and text. The first byte of the
/// subject says what it is.
pub type Notice = (Box<[u8]>, Box<[u8]>);

/// First bytes of subjects.
pub mod notice {
    /// A channel follows.
    pub const CHANNEL: u8 = 0;
    /// All of the subject: clients in line may have their turn.
    pub const WAITS: &[u8] = &[1];
    /// A channel of a shard follows.
    pub const SHARD: u8 = 2;
}

/// Context of a read.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The data.
    pub store: &'a dyn Store,
    /// Every slot below is in it.
    pub applied_to: Slot,
    /// The asking node's clock. `None` in a replicated command, which brings its own time.
    pub wall_ms: Option<u64>,
    /// Clients in line.
    pub waits: &'a Waits,
}

/// Context of a write.
pub struct Writing<'a> {
    /// The data.
    pub store: &'a mut dyn Store,
    /// Every slot below is in it.
    pub applied_to: Slot,
    /// The command, as the version of what it changes.
    pub version: Version,
    /// Remaining copy budget of its batch.
    pub budget: &'a mut Budget,
    /// [visit-2] It is executed within what it may visit, or not at all.
    pub bounded: bool,
    /// Collections that this command has begun.
    pub begun: u32,
    /// Classes of keyspace events to make; 0: none.
    pub events: u32,
    /// Notices to clients; not part of the data.
    pub notices: &'a mut Vec<Notice>,
    /// Clients in line.
    pub waits: &'a mut Waits,
}

impl Writing<'_> {
    /// Sets a key to a string.
    pub fn put(&mut self, key: Key<'_>, value: &[u8], deadline: Option<u64>) {
        self.about_to_change(key, true);
        self.store.put(key, value, self.version, deadline);
    }

    /// Sets a key to a value of some kind.
    pub fn set(&mut self, key: Key<'_>, value: &[u8], deadline: Option<u64>, kind: Kind) {
        let stamp = Stamp { version: self.version, deadline, kind };
        self.about_to_change(key, true);
        self.store.set(key, value, stamp);
        // Whatever gives a key elements comes by here: those who wait may have their turn.
        if matches!(kind, Kind::List | Kind::Zset) && !self.waits.is_empty() {
            self.waits.stir(key.bytes());
        }
    }

    /// Begins a collection.
    pub fn begin(&mut self) -> Id {
        let number = self.begun;
        self.begun += 1;
        Id { version: self.version, number }
    }

    /// The same state, for reading.
    pub fn reading(&self) -> Reading<'_> {
        Reading { store: self.store, applied_to: self.applied_to, wall_ms: None, waits: self.waits }
    }
}

/// Several replies whose number is known only when they are all there.
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

    /// Returns whether they exceed the limit of one reply.
    pub(crate) const fn are_too_many(&self) -> bool {
        self.bytes.len() > REPLY_BYTES_MAX
    }

    /// Returns whether a visitor of elements should go on: beyond the limit of one reply, no more
    /// are needed.
    pub(crate) const fn go_on(&self) -> ControlFlow<()> {
        match self.are_too_many() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Their bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Writes them behind a header, which says how many they are; or an error in their place.
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

/// The error in place of a reply that is too large.
pub(crate) const TOO_LARGE: &str =
    "TOOBIG the reply would be larger than 32 MiB; ask for less at a time";

/// Returns whether a reply that began at `start` has grown beyond its limit; if so it becomes an
/// error.
pub fn too_large(reply: &mut Reply<'_>, start: usize) -> bool {
    let large = reply.0.len() - start > REPLY_BYTES_MAX;
    if large {
        reply.0.truncate(start);
        reply.error(TOO_LARGE);
    }
    large
}
