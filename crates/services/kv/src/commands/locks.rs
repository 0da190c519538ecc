//! Locks: the scripts of lock libraries ([`crate::scripts`]), each executed as one operation.
//!
//! redis-py and node-redlock store a lock as a string, the holder's token. A Redisson lock is a
//! hash with one field, which maps the holder to its number of acquisitions. It is stored here as a
//! *lock record*, a separate format that is older than hashes: TYPE reports a hash, commands that
//! read hashes see the field ([`crate::commands::hash`]), and all others refuse it.

use crate::{
    commands::family::{Family, Operation},
    commands::{
        channels,
        events::class,
        expiry,
        lock::Lock,
        state::{WRONG_TYPE, WriteContext, string},
    },
    encode::{Decoder, Encoder, Fault, Malformed},
    key::Key,
    op::{Deadline, Op},
    resp::{integer::parse_integer, reply::Reply},
    store::{Store, collection::Kind},
};

pub const FAMILY: Family = Family {
    commands: &[],
    operations: &[
        Operation::write(Op::ExpireEqual, expire_equal),
        Operation::write(Op::DelEqual, del_equal),
        Operation::write(Op::SetAll, set_all),
        Operation::write(Op::Lock, lock),
        Operation::write(Op::Unlock, unlock),
        Operation::write(Op::RenewLocks, renew),
        Operation::write(Op::BreakLock, break_lock),
    ],
};

/// State of a lock, as Redisson's scripts distinguish it.
enum LockState {
    Absent,
    /// Held by the caller; the number counts its acquisitions.
    Own(u64),
    Other,
    /// The key has a value other than a lock record.
    String,
}

fn lock_state(store: &dyn Store, key: Key<'_>, holder: &[u8]) -> LockState {
    let Some(entry) = store.get(key) else {
        return LockState::Absent;
    };
    let lock = Lock::parse(&entry.value).filter(|_| entry.kind == Kind::String);
    match lock {
        Some(lock) if lock.holder == holder => LockState::Own(lock.count),
        Some(_) => LockState::Other,
        None => LockState::String,
    }
}

/// Stores a lock record, or removes the key if the deadline has passed.
fn store_lock(state: &mut WriteContext<'_>, key: Key<'_>, lock: Lock<'_>, deadline: Deadline) {
    match deadline {
        Deadline::Never => {
            state.put(key, &lock.value(), None);
            state.event(class::HASH, "hincrby", key);
        }
        Deadline::At(at) => {
            state.put(key, &lock.value(), Some(at));
            state.event(class::HASH, "hincrby", key);
            state.event(class::GENERIC, "expire", key);
        }
        Deadline::Past => {
            state.delete(key);
        }
    }
}

/// New deadline for a lock whose value is a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewDeadline {
    Until(Deadline),
    /// Extend the old deadline, if any, by the given milliseconds.
    Extend(i64),
}

pub(crate) fn write_expire_equal(
    key: &[u8],
    value: &[u8],
    new: NewDeadline,
    out: &mut Encoder<'_>,
) {
    out.byte(Op::ExpireEqual as u8).bytes(key).bytes(value);
    match new {
        NewDeadline::Until(deadline) => deadline.encode(out.byte(0)),
        NewDeadline::Extend(ms) => {
            out.byte(1).signed(ms);
        }
    }
}

pub(super) fn expire_equal(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, value) = (from.key()?, from.bytes()?);
    let new = match from.byte()? {
        0 => NewDeadline::Until(Deadline::decode(from)?),
        1 => NewDeadline::Extend(from.signed()?),
        _ => return Err(Fault::Malformed),
    };
    from.end()?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let old = entry.filter(|entry| &*entry.value == value);
    let deadline = match (old.map(|entry| entry.deadline), new) {
        (None, _) | (Some(None), NewDeadline::Extend(_)) => None,
        (Some(_), NewDeadline::Until(deadline)) => Some(deadline),
        (Some(Some(old)), NewDeadline::Extend(ms)) => Some(match old.saturating_add_signed(ms) {
            0 => Deadline::Past,
            // `u64::MAX` is no valid deadline.
            at => Deadline::At(at.min(u64::MAX - 1)),
        }),
    };
    if let Some(deadline) = deadline {
        expiry::change(state, key, deadline)?;
    }
    reply.integer(i64::from(deadline.is_some()));
    Ok(())
}

fn write_keys<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]>, out: &mut Encoder<'_>) {
    out.length(keys.len());
    for key in keys {
        out.bytes(key);
    }
}

pub(crate) fn write_del_equal<'k>(
    keys: impl ExactSizeIterator<Item = &'k [u8]>,
    value: &[u8],
    out: &mut Encoder<'_>,
) {
    out.byte(Op::DelEqual as u8).bytes(value);
    write_keys(keys, out);
}

pub(super) fn del_equal(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (value, keys) = (from.bytes()?, from.keys()?);
    from.end()?;
    let mut count = 0;
    for key in keys {
        let Ok(entry) = string(state.store, key, reply) else {
            return Ok(());
        };
        let equal = entry.is_some_and(|entry| &*entry.value == value);
        if equal {
            state.delete(key);
            count += 1;
        }
    }
    reply.count(count);
    Ok(())
}

/// Encodes an operation that sets several keys if all are absent or all have the given value.
pub(crate) fn write_set_all<'k>(
    keys: impl ExactSizeIterator<Item = &'k [u8]>,
    absent: bool,
    value: &[u8],
    deadline: Deadline,
    out: &mut Encoder<'_>,
) {
    out.byte(Op::SetAll as u8).byte(u8::from(absent)).bytes(value);
    deadline.encode(out);
    write_keys(keys, out);
}

pub(super) fn set_all(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (absent, value) = (from.byte()? != 0, from.bytes()?);
    let (deadline, keys) = (Deadline::decode(from)?, from.keys()?);
    from.end()?;
    for key in keys {
        let fits = if absent {
            !state.store.contains(key)
        } else {
            let Ok(entry) = string(state.store, key, reply) else {
                return Ok(());
            };
            entry.is_some_and(|entry| &*entry.value == value)
        };
        if !fits {
            reply.integer(0);
            return Ok(());
        }
    }
    // The command contains the value once, but each key stores it.
    state.budget.charge_bytes(value.len().saturating_mul(keys.len()))?;
    for key in keys {
        match deadline {
            Deadline::Never => state.put(key, value, None),
            Deadline::At(at) => state.put(key, value, Some(at)),
            Deadline::Past => {
                state.delete(key);
                continue;
            }
        }
        state.event(class::STRING, "set", key);
        if deadline != Deadline::Never {
            state.event(class::GENERIC, "expire", key);
        }
    }
    reply.count(keys.len());
    Ok(())
}

/// Encodes the reentrant acquisition of a Redisson lock. `now_ms` is used only for the reply.
pub(crate) fn write_lock(
    key: &[u8],
    holder: &[u8],
    deadline: Deadline,
    now_ms: u64,
    out: &mut Encoder<'_>,
) {
    out.byte(Op::Lock as u8).bytes(key).bytes(holder);
    deadline.encode(out);
    out.word(now_ms);
}

/// Acquires a lock. Replies null, or the remaining milliseconds if another client holds it.
pub(super) fn lock(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, holder) = (from.key()?, from.bytes()?);
    let (deadline, now_ms) = (Deadline::decode(from)?, from.word()?);
    from.end()?;
    let count = match lock_state(state.store, key, holder) {
        LockState::Absent => 1,
        LockState::Own(count) => count.saturating_add(1),
        LockState::Other => {
            let deadline = state.store.get(key).and_then(|entry| entry.deadline);
            let left = deadline.map(|at| at.saturating_sub(now_ms));
            reply.integer(left.map_or(-1, |ms| i64::try_from(ms).unwrap_or(i64::MAX)));
            return Ok(());
        }
        LockState::String => {
            reply.error(WRONG_TYPE);
            return Ok(());
        }
    };
    store_lock(state, key, Lock { count, holder }, deadline);
    reply.null();
    Ok(())
}

/// Channel and message that notify waiting clients.
pub(crate) type LockNotification<'a> = (&'a [u8], &'a [u8]);

/// Release of a Redisson lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlock<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) holder: &'a [u8],
    /// New deadline if the holder has acquisitions left.
    pub(crate) deadline: Deadline,
    /// Key that stores the reply for retries of this request, with that key's deadline.
    pub(crate) latch: Option<(Key<'a>, Deadline)>,
    pub(crate) notification: Option<LockNotification<'a>>,
}

impl<'a> Unlock<'a> {
    pub(crate) fn write(&self, out: &mut Encoder<'_>) {
        out.byte(Op::Unlock as u8).bytes(self.key.bytes()).bytes(self.holder);
        self.deadline.encode(out);
        out.byte(u8::from(self.latch.is_some()));
        if let Some((key, deadline)) = self.latch {
            deadline.encode(out.bytes(key.bytes()));
        }
        write_tell(self.notification, out);
    }

    fn read(from: &mut Decoder<'a>) -> Result<Self, Fault> {
        let (key, holder) = (from.key()?, from.bytes()?);
        let deadline = Deadline::decode(from)?;
        let latch = match from.byte()? {
            0 => None,
            1 => Some((from.key()?, Deadline::decode(from)?)),
            _ => return Err(Fault::Malformed),
        };
        let tell = decode_notification(from)?;
        Ok(Self { key, holder, deadline, latch, notification: tell })
    }
}

fn write_tell(tell: Option<LockNotification<'_>>, out: &mut Encoder<'_>) {
    out.byte(u8::from(tell.is_some()));
    if let Some((channel, message)) = tell {
        out.bytes(channel).bytes(message);
    }
}

fn decode_notification<'a>(
    from: &mut Decoder<'a>,
) -> Result<Option<LockNotification<'a>>, Malformed> {
    match from.byte()? {
        0 => Ok(None),
        1 => Ok(Some((from.bytes()?, from.bytes()?))),
        _ => Err(Malformed),
    }
}

/// Releases a lock once. Replies 1 if it is now free, 0 if the caller still holds it, and null if
/// the caller did not hold it.
pub(super) fn unlock(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let asked = Unlock::read(from)?;
    from.end()?;
    if let Some((latch, _)) = asked.latch {
        let Ok(entry) = string(state.store, latch, reply) else {
            return Ok(());
        };
        if let Some(entry) = entry {
            match parse_integer(&entry.value) {
                Some(number) => reply.integer(number),
                None => reply.null(),
            }
            return Ok(());
        }
    }
    let left = match lock_state(state.store, asked.key, asked.holder) {
        LockState::Absent | LockState::Other => {
            reply.null();
            return Ok(());
        }
        LockState::String => {
            reply.error(WRONG_TYPE);
            return Ok(());
        }
        LockState::Own(count) => count.saturating_sub(1),
    };
    let free = left == 0;
    if free {
        state.delete(asked.key);
        channels::queue_notice(state, asked.notification);
    } else {
        let lock = Lock { count: left, holder: asked.holder };
        store_lock(state, asked.key, lock, asked.deadline);
    }
    match asked.latch {
        Some((latch, Deadline::At(at))) => {
            state.put(latch, if free { b"1" } else { b"0" }, Some(at));
        }
        Some((latch, Deadline::Never)) => state.put(latch, if free { b"1" } else { b"0" }, None),
        Some((_, Deadline::Past)) | None => {}
    }
    reply.integer(i64::from(free));
    Ok(())
}

/// Encodes the renewal of Redisson locks, given keys and holders. Locks not held are skipped.
pub(crate) fn write_renew<'k>(
    pairs: impl ExactSizeIterator<Item = (&'k [u8], &'k [u8])>,
    deadline: Deadline,
    each: bool,
    out: &mut Encoder<'_>,
) {
    out.byte(Op::RenewLocks as u8).byte(u8::from(each));
    deadline.encode(out);
    out.length(2 * pairs.len());
    for (key, holder) in pairs {
        out.bytes(key).bytes(holder);
    }
}

/// Renews locks. Replies 1 or 0 for one lock, and an array of 1s and 0s for several.
pub(super) fn renew(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let each = from.byte()? != 0;
    let (deadline, pairs) = (Deadline::decode(from)?, from.pairs()?);
    from.end()?;
    if !each && pairs.len() != 1 {
        return Err(Fault::Malformed);
    }
    let mut answers = Vec::with_capacity(pairs.len());
    for (key, holder) in pairs {
        match lock_state(state.store, key, holder) {
            LockState::Own(count) => {
                store_lock(state, key, Lock { count, holder }, deadline);
                answers.push(1);
            }
            LockState::Absent | LockState::Other => answers.push(0),
            LockState::String => {
                reply.error(WRONG_TYPE);
                return Ok(());
            }
        }
    }
    if each {
        reply.array(answers.len());
    }
    answers.iter().for_each(|answer| reply.integer(*answer));
    Ok(())
}

pub(crate) fn write_break(key: &[u8], tell: Option<LockNotification<'_>>, out: &mut Encoder<'_>) {
    out.byte(Op::BreakLock as u8).bytes(key);
    write_tell(tell, out);
}

pub(super) fn break_lock(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, tell) = (from.key()?, decode_notification(from)?);
    from.end()?;
    let removed = state.delete(key);
    if removed {
        channels::queue_notice(state, tell);
    }
    reply.integer(i64::from(removed));
    Ok(())
}
