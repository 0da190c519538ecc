//! The commands, one file per family: how a request is encoded, what every node then does.

use quorate_core::slot::Slot;

use crate::{
    command::{Deadline, Op, REPLY_BYTES_MAX},
    encode::{Decoder, Fault},
    key::Key,
    resp::reply::Reply,
    store::{Entry, Store, Version},
};

mod budget;
pub mod channels;
pub mod conditions;
pub mod counters;
pub mod expiry;
pub mod keys;
pub mod locks;
pub mod scripts;
pub mod server;
pub mod strings;
pub mod transactions;

pub use budget::{Budget, COPIED_BYTES_MAX};

/// The error for a command on strings and a key that is no string.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The reply says it already.
pub(crate) struct WrongType;

/// What a key has, for a command on strings.
pub(crate) fn string<'s>(
    store: &'s dyn Store,
    key: Key<'_>,
    reply: &mut Reply<'_>,
) -> Result<Option<Entry<'s>>, WrongType> {
    let entry = store.get(key);
    match &entry {
        Some(found) if locks::is_lock(&found.value) => {
            reply.error(WRONG_TYPE);
            Err(WrongType)
        }
        _ => Ok(entry),
    }
}

/// A message that a command leaves for those who listen: channel and text.
pub type Notice = (Box<[u8]>, Box<[u8]>);

/// What a read may see.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The data.
    pub store: &'a dyn Store,
    /// Every slot below is in it.
    pub applied_to: Slot,
    /// The asking node's clock. `None` in a replicated command, which brings its own time.
    pub wall_ms: Option<u64>,
}

/// What a write may change.
pub struct Writing<'a> {
    /// The data.
    pub store: &'a mut dyn Store,
    /// Every slot below is in it.
    pub applied_to: Slot,
    /// The command, as the version of what it changes.
    pub version: Version,
    /// What the commands of its batch may still copy.
    pub budget: &'a mut Budget,
    /// What it tells others; no part of the data.
    pub notices: &'a mut Vec<Notice>,
}

impl Writing<'_> {
    /// Sets a key.
    pub fn put(&mut self, key: Key<'_>, value: &[u8], deadline: Option<u64>) {
        self.store.put(key, value, self.version, deadline);
    }

    /// The same state, for reading.
    pub fn reading(&self) -> Reading<'_> {
        Reading {
            store: self.store,
            applied_to: self.applied_to,
            wall_ms: None,
        }
    }
}

/// The key that a command is about, if it is about one and that is quickly found. Only a hint: the
/// command may be malformed all the same.
pub fn first_key(command: &[u8]) -> Option<&[u8]> {
    let mut from = Decoder(command);
    match Op::from_byte(from.byte().ok()?)? {
        Op::Set => {
            from.byte().ok()?;
            Deadline::decode(&mut from).ok()?;
        }
        Op::IncrBy => {
            from.signed().ok()?;
        }
        Op::GetDel | Op::DelIf => {}
        Op::Expire => {
            from.byte().ok()?;
        }
        Op::Append | Op::Del => {
            from.count().ok()?;
        }
        _ => return None,
    }
    from.bytes().ok()
}

/// Executes any operation but EXEC, which holds others.
pub fn execute(
    op: Op,
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    if op.is_read() {
        read(op, from, &state.reading(), reply)
    } else {
        write(op, from, state, reply)
    }
}

/// Executes a read.
pub fn read(
    op: Op,
    from: &mut Decoder<'_>,
    state: &Reading<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    match op {
        Op::Literal => server::literal(from, reply),
        Op::Get => strings::get(from, state, reply),
        Op::Strlen => strings::strlen(from, state, reply),
        Op::GetRange => strings::get_range(from, state, reply),
        Op::Mget => strings::mget(from, state, reply),
        Op::Exists => keys::exists(from, state, reply),
        Op::Type => keys::type_of(from, state, reply),
        Op::Ttl => expiry::ttl(from, state, reply),
        Op::Keys => keys::keys(from, state, reply),
        Op::Scan => keys::scan(from, state, reply),
        Op::Dbsize => keys::dbsize(from, state, reply),
        Op::RandomKey => keys::random_key(from, state, reply),
        Op::Versions => transactions::versions(from, state, reply),
        Op::Digest => server::digest(from, state, reply),
        Op::ValueDigest => conditions::digest(from, state, reply),
        Op::LockHolder => locks::holder(from, state, reply),
        Op::ErrorIfPresent => strings::error_if_present(from, state, reply),
        Op::Keyspace => server::keyspace(from, state, reply),
        _ => Err(Fault::Malformed),
    }
}

/// Executes a write other than EXEC.
fn write(
    op: Op,
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    match op {
        Op::Set => strings::set(from, state, reply),
        Op::GetDel => strings::get_del(from, state, reply),
        Op::GetEx => strings::get_ex(from, state, reply),
        Op::Append => strings::append(from, state, reply),
        Op::SetRange => strings::set_range(from, state, reply),
        Op::Mset => strings::mset(from, state, reply),
        Op::IncrBy => counters::incr_by(from, state, reply),
        Op::IncrByFloat => counters::incr_by_float(from, state, reply),
        Op::Del => keys::del(from, state, reply),
        Op::Rename => keys::rename(from, state, reply),
        Op::Copy => keys::copy(from, state, reply),
        Op::Flush => keys::flush(from, state, reply),
        Op::Expire => expiry::expire(from, state, reply),
        Op::Persist => expiry::persist(from, state, reply),
        Op::Expired => expiry::expired(from, state, reply),
        Op::DelIf => conditions::del_if(from, state, reply),
        Op::ExpireEqual => locks::expire_equal(from, state, reply),
        Op::DelEqual => locks::del_equal(from, state, reply),
        Op::SetAll => locks::set_all(from, state, reply),
        Op::Lock => locks::lock(from, state, reply),
        Op::Unlock => locks::unlock(from, state, reply),
        Op::RenewLocks => locks::renew(from, state, reply),
        Op::BreakLock => locks::break_lock(from, state, reply),
        Op::Publish => channels::publish(from, state, reply),
        _ => Err(Fault::Malformed),
    }
}

/// Whether a reply that began at `start` has grown beyond its limit; if so it becomes an error.
pub fn too_large(reply: &mut Reply<'_>, start: usize) -> bool {
    let large = reply.0.len() - start > REPLY_BYTES_MAX;
    if large {
        reply.0.truncate(start);
        reply.error("TOOBIG the reply would be larger than 32 MiB; ask for less at a time");
    }
    large
}
