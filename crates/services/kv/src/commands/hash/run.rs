//! Hashes: execution on every node.

use super::forms::{how, part};
use crate::{
    commands::{
        counters::{Decimal, TOO_LARGE_SUM},
        elements,
        events::class,
        lock::Lock,
        rows::{Change, View, each_placed, lock_record, placed, view},
        state::{Items, ReadContext, TOO_LARGE, WriteContext, WrongType},
    },
    encode::{Decoder, Fault},
    key::Key,
    op::REPLY_BYTES_MAX,
    resp::{integer::parse_integer, reply::Reply},
    store::{Position, Store, VisitRow, collection::Kind},
};

const NOT_AN_INTEGER: &str = "ERR hash value is not an integer";
const NOT_A_FLOAT: &str = "ERR hash value is not a float";
const OVERFLOW: &str = "ERR increment or decrement would overflow";

/// Hash, or a lock record that commands read as a hash.
pub(super) enum Hash<'s> {
    Rows(View<'s>),
    /// Redisson lock: its holder, and the number of acquisitions as text.
    Lock(Vec<u8>, String),
}

impl<'s> Hash<'s> {
    pub(super) fn at(
        store: &'s dyn Store,
        key: Key<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Option<Self>, WrongType> {
        if let Some(value) = lock_record(store, key) {
            let lock = Lock::parse(&value);
            return Ok(lock.map(|lock| Self::Lock(lock.holder.to_vec(), lock.count.to_string())));
        }
        Ok(view(store, key, Kind::Hash, reply)?.map(Self::Rows))
    }

    pub(super) fn value(&self, field: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Rows(view) => Some(view.row(&placed(b"", field))?.to_vec()),
            Self::Lock(holder, count) => (holder == field).then(|| count.clone().into_bytes()),
        }
    }

    /// Returns the length of a field's value; `None` if the field is absent.
    pub(super) fn length(&self, field: &[u8]) -> Option<usize> {
        match self {
            Self::Rows(view) => view.row(&placed(b"", field)).map(|value| value.len()),
            Self::Lock(holder, count) => (holder == field).then_some(count.len()),
        }
    }

    /// Returns the deadline of an existing field.
    pub(super) fn deadline(&self, field: &[u8]) -> Option<u64> {
        match self {
            Self::Rows(view) => view.field_deadline(&placed(b"", field)),
            Self::Lock(..) => None,
        }
    }

    /// Returns the total length of fields and values; 0 if expired fields make it unknown.
    fn bytes(&self) -> u64 {
        match self {
            Self::Rows(view) if view.has_expired_field() => 0,
            Self::Rows(view) => view.header.bytes,
            Self::Lock(holder, count) => (holder.len() + count.len()) as u64,
        }
    }

    fn each(&self, visit: &mut VisitRow<'_>) {
        match self {
            Self::Rows(view) => each_placed(view, b"", Position::START, visit),
            Self::Lock(holder, count) => {
                let _ = visit(holder, count.as_bytes());
            }
        }
    }
}

/// Executes HGET or HEXISTS.
pub(super) fn field(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let value = from.byte()? != 0;
    let (key, field) = (from.key()?, from.bytes()?);
    from.end()?;
    let Ok(hash) = Hash::at(state.store, key, reply) else {
        return Ok(());
    };
    let found = hash.and_then(|hash| hash.value(field));
    if value {
        reply.optional(found.as_deref());
    } else {
        reply.integer(i64::from(found.is_some()));
    }
    Ok(())
}

pub(super) fn fields(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, fields) = (from.key()?, from.list()?);
    from.end()?;
    let Ok(hash) = Hash::at(state.store, key, reply) else {
        return Ok(());
    };
    let mut items = Items::default();
    for field in fields {
        let value = hash.as_ref().and_then(|hash| hash.value(field));
        items.next().optional(value.as_deref());
        if items.exceed_reply_limit() {
            break;
        }
    }
    items.write(reply, Reply::array);
    Ok(())
}

/// Executes HKEYS, HVALS or HGETALL.
pub(super) fn all(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, wanted) = (from.key()?, from.byte()?);
    from.end()?;
    let Ok(hash) = Hash::at(state.store, key, reply) else {
        return Ok(());
    };
    let mut items = Items::default();
    if let Some(hash) = hash {
        if wanted == part::BOTH && hash.bytes() > REPLY_BYTES_MAX as u64 {
            reply.error(TOO_LARGE);
            return Ok(());
        }
        hash.each(&mut |field, value| {
            if wanted & part::FIELDS != 0 {
                items.next().bulk(field);
            }
            if wanted & part::VALUES != 0 {
                items.next().bulk(value);
            }
            items.continue_if_fits()
        });
    }
    items.write(reply, |reply, count| match wanted {
        part::BOTH => reply.map(count / 2),
        _ => reply.array(count),
    });
    Ok(())
}

pub(super) fn length(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, field) = (from.key()?, from.bytes()?);
    from.end()?;
    if let Ok(hash) = Hash::at(state.store, key, reply) {
        reply.count(hash.and_then(|hash| hash.length(field)).unwrap_or(0));
    }
    Ok(())
}

pub(super) fn random(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    let wanted = elements::Random::decode(from)?;
    from.end()?;
    match Hash::at(state.store, key, reply) {
        Err(WrongType) => {}
        Ok(Some(Hash::Rows(view))) => {
            elements::random(&view, b"", wanted, reply, |value, reply| reply.bulk(value));
        }
        Ok(found) => {
            let one = match &found {
                Some(Hash::Lock(holder, count)) => Some((holder.as_slice(), count.as_bytes())),
                _ => None,
            };
            elements::random_of_one(one, wanted, reply);
        }
    }
    Ok(())
}

/// Executes HSET, HMSET or HSETNX.
pub(super) fn set(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, how) = (from.key()?, from.byte()?);
    let mut pairs = from.fields(0, 2)?;
    from.end()?;
    if pairs.is_empty() || pairs.len() % 2 != 0 {
        return Err(Fault::Malformed);
    }
    let Ok(mut hash) = Change::open(state, key, Kind::Hash, reply) else {
        return Ok(());
    };
    if how == how::ABSENT {
        let field = pairs.clone().next().unwrap_or_default();
        if hash.view().row(&placed(b"", field)).is_some() {
            reply.integer(0);
            return Ok(());
        }
    }
    let mut added = 0;
    while let (Some(field), Some(value)) = (pairs.next(), pairs.next()) {
        added += usize::from(hash.put(&placed(b"", field), value));
    }
    hash.close();
    state.event(class::HASH, "hset", key);
    match how {
        how::OK => reply.ok(),
        _ => reply.count(added),
    }
    Ok(())
}

pub(super) fn delete(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, fields) = (from.key()?, from.fields(0, 1)?);
    from.end()?;
    elements::remove(state, key, Kind::Hash, fields, reply);
    Ok(())
}

pub(super) fn increment(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, field, delta) = (from.key()?, from.field()?, from.signed()?);
    from.end()?;
    let Ok(mut hash) = Change::open(state, key, Kind::Hash, reply) else {
        return Ok(());
    };
    let name = placed(b"", field);
    let old = hash.view().row(&name);
    let number = old.as_ref().map_or(Some(0), |value| parse_integer(value));
    match number.map(|number| number.checked_add(delta)) {
        None => reply.error(NOT_AN_INTEGER),
        Some(None) => reply.error(OVERFLOW),
        Some(Some(new)) => {
            let old = old.map(|old| old.len());
            hash.put_known(&name, new.to_string().as_bytes(), old);
            hash.close();
            state.event(class::HASH, "hincrby", key);
            reply.integer(new);
        }
    }
    Ok(())
}

pub(super) fn increment_float(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, field, delta) = (from.key()?, from.field()?, from.bytes()?);
    from.end()?;
    let delta = Decimal::parse(delta).ok_or(Fault::Malformed)?;
    let Ok(mut hash) = Change::open(state, key, Kind::Hash, reply) else {
        return Ok(());
    };
    let name = placed(b"", field);
    let old = hash.view().row(&name);
    let number = match &old {
        Some(value) => Decimal::parse(value),
        None => Some(Decimal::ZERO),
    };
    match number.map(|number| number.plus(delta)) {
        None => reply.error(NOT_A_FLOAT),
        Some(None) => reply.error(TOO_LARGE_SUM),
        Some(Some(new)) => {
            let (old, text) = (old.map(|old| old.len()), new.to_string());
            hash.put_known(&name, text.as_bytes(), old);
            hash.close();
            state.event(class::HASH, "hincrbyfloat", key);
            reply.bulk(text.as_bytes());
        }
    }
    Ok(())
}
