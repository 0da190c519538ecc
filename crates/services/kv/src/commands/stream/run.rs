//! Streams: execution on every node.

use super::{
    entries::collect,
    id::{self, NewId, reply_id},
    rows::{Change, View},
    trim::Trim,
};
use crate::{
    commands::{
        budget::CHANGED_ROW,
        state::{ReadContext, WriteContext},
    },
    encode::{Decoder, Fault, Malformed},
    key::{KEY_BYTES_MAX, Key},
    op::{Op, REPLY_BYTES_MAX},
    resp::reply::Reply,
    store::{
        Store,
        stream::{EntryId, Log},
    },
};

/// Flags of [`Op::XAdd`].
pub(super) mod flag {
    /// Add only to an existing stream.
    pub(crate) const EXISTING: u8 = 1;
    /// A trim follows.
    pub(crate) const TRIMS: u8 = 2;
}

/// Arguments of [`Op::XAdd`].
struct Add<'a> {
    key: Key<'a>,
    only_existing: bool,
    trim: Option<Trim>,
    id: NewId,
    /// Clock of the front.
    wall_ms: u64,
    /// Encoded names and values of the fields.
    fields: &'a [u8],
    /// Set if no reply could hold the entry.
    is_too_large: bool,
}

/// Bytes around a field in a reply, at most.
const ITEM_BYTES: usize = 16;
/// Maximum size of an entry's fields in a reply, which leaves room for ids and a key. Part of the
/// replicated format.
const ENTRY_BYTES_MAX: usize = REPLY_BYTES_MAX - 2 * KEY_BYTES_MAX;

/// Decodes the start of [`Op::XAdd`].
fn decode_add_head<'a>(from: &mut Decoder<'a>) -> Result<(Key<'a>, bool, Option<Trim>), Fault> {
    let (key, flags) = (from.key()?, from.byte()?);
    if flags & !(flag::EXISTING | flag::TRIMS) != 0 {
        return Err(Fault::Malformed);
    }
    let trim = match flags & flag::TRIMS {
        0 => None,
        _ => Some(Trim::decode(from)?),
    };
    Ok((key, flags & flag::EXISTING != 0, trim))
}

impl<'a> Add<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Fault> {
        let (key, only_existing, trim) = decode_add_head(from)?;
        let (id, wall_ms) = NewId::decode(from)?;
        let fields = from.0;
        let list = from.list()?;
        from.end()?;
        if list.is_empty() || list.len() % 2 != 0 {
            return Err(Fault::Malformed);
        }
        let is_too_large = fields.len() + ITEM_BYTES * list.len() > ENTRY_BYTES_MAX;
        Ok(Self { key, only_existing, trim, id, wall_ms, fields, is_too_large })
    }
}

pub(super) fn add(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let Add { key, only_existing, trim, id, wall_ms, fields, is_too_large } = Add::decode(from)?;
    let now_ms = state.store.time().max(wall_ms);
    let Ok(found) = Change::find(&mut *state, key, reply) else {
        return Ok(());
    };
    if found.is_none() && only_existing {
        reply.null();
        return Ok(());
    }
    let last = found.as_ref().map_or(EntryId::MIN, |found| found.log.last);
    let id = match id.after(last, now_ms) {
        Ok(id) => id,
        Err(text) => {
            reply.error(text);
            return Ok(());
        }
    };
    if is_too_large {
        reply.error("ERR Elements are too large to be stored");
        return Ok(());
    }
    let view = found.as_ref().map(Change::view);
    let plan = trim.map(|trim| trim.plan(view.as_ref(), Some(id)));
    let mut change = match found {
        Some(found) => found,
        None => Change::new(state, key),
    };
    if let Some(plan) = &plan {
        change.state.budget.charge_bytes(plan.cost())?;
    }
    change.add(id, fields);
    change.event("xadd");
    if let Some(plan) = plan {
        plan.carry_out(&mut change, Some((id, fields.len())));
    }
    change.close();
    reply_id(id, reply);
    Ok(())
}

pub(super) fn trim(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, trim) = (from.key()?, Trim::decode(from)?);
    from.end()?;
    let Ok(found) = Change::find(state, key, reply) else {
        return Ok(());
    };
    let Some(mut change) = found else {
        reply.integer(0);
        return Ok(());
    };
    let plan = trim.plan(Some(&change.view()), None);
    let count = plan.count();
    // A trim without effect keeps the version, so that watchers of the key are not disturbed.
    if count > 0 {
        change.state.budget.charge_bytes(plan.cost())?;
        plan.carry_out(&mut change, None);
        change.close();
    }
    reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// Returns whether an encoded XADD, without its operation number, also trims.
pub(in crate::commands) fn trims(mut from: Decoder<'_>) -> bool {
    from.bytes().is_ok() && from.byte().is_ok_and(|flags| flags & flag::TRIMS != 0)
}

/// Returns the visits of XADD or XTRIM. Walks over the entries that it would remove.
pub(in crate::commands) fn trim_visits(
    op: Op,
    from: &mut Decoder<'_>,
    store: &dyn Store,
) -> Result<u64, Fault> {
    let (key, trim) = match op {
        Op::XAdd => {
            let (key, _, trim) = decode_add_head(from)?;
            (key, trim)
        }
        _ => (from.key()?, Some(Trim::decode(from)?)),
    };
    let (Some(trim), Some(view)) = (trim, View::at(store, key)) else {
        return Ok(0);
    };
    let adds = op == Op::XAdd;
    let removed = match trim.few_removals(view.header.count, adds) {
        Some(removed) => removed,
        None => trim.plan(Some(&view), adds.then_some(EntryId::MAX)).count(),
    };
    Ok(removed.saturating_mul(1 + CHANGED_ROW))
}

pub(super) fn delete(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, count, ids) = (from.key()?, from.length()?, from.0);
    check_ids(count, ids)?;
    let Ok(found) = Change::find(state, key, reply) else {
        return Ok(());
    };
    let (mut removed, mut first) = (0, false);
    if let Some(mut change) = found {
        for id in ids.chunks(EntryId::BYTES).filter_map(EntryId::from_bytes) {
            let bytes = change.view().entry(id).map(|fields| fields.len());
            let Some(bytes) = bytes else { continue };
            change.remove(id, bytes);
            change.log.deleted = change.log.deleted.max(id);
            first |= id == change.log.first;
            removed += 1;
        }
        if removed > 0 {
            if let Some(id) = first.then(|| change.view().first_id()).flatten() {
                change.log.first = id;
            }
            change.event("xdel");
            change.close();
        }
    }
    reply.count(removed);
    Ok(())
}

/// Checks that bytes are exactly `count` encoded ids.
fn check_ids(count: usize, ids: &[u8]) -> Result<(), Malformed> {
    match count.checked_mul(EntryId::BYTES) == Some(ids.len()) {
        true => Ok(()),
        false => Err(Malformed),
    }
}

pub(super) fn set_id(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, last, added) = (from.key()?, id::decode(from)?, from.signed()?);
    let deleted = id::decode(from)?;
    from.end()?;
    let added = u64::try_from(added).ok();
    if last < deleted {
        reply.error(
            "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
        );
        return Ok(());
    }
    let Ok(found) = Change::find(state, key, reply) else {
        return Ok(());
    };
    let Some(mut change) = found else {
        reply.error(NO_KEY);
        return Ok(());
    };
    if let Some(text) = check_header(&change, last, added) {
        reply.error(text);
        return Ok(());
    }
    let log = change.log;
    let deleted = if deleted == EntryId::MIN { log.deleted } else { deleted };
    change.log = Log { last, deleted, added: added.unwrap_or(log.added), ..log };
    change.event("xsetid");
    change.close();
    reply.ok();
    Ok(())
}

/// Redis' error for a key that does not exist.
pub(super) const NO_KEY: &str = "ERR no such key";

/// Returns Redis' error if a stream cannot have this last id and number of added entries.
fn check_header(
    change: &Change<'_, '_>,
    last: EntryId,
    added: Option<u64>,
) -> Option<&'static str> {
    let view = change.view();
    if last < view.log.deleted {
        return Some("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
    }
    if view.last_id().is_some_and(|top| last < top) {
        return Some("ERR The ID specified in XSETID is smaller than the target stream top item");
    }
    if added.is_some_and(|added| added < view.header.count) {
        return Some(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        );
    }
    None
}

pub(super) fn range(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, back) = (from.key()?, from.byte()? != 0);
    let (first, last) = (id::decode(from)?, id::decode(from)?);
    let count = from.count()?.checked_sub(1);
    from.end()?;
    let Ok(found) = View::find(state.store, key, reply) else {
        return Ok(());
    };
    match found {
        None => reply.array(0),
        // As in Redis.
        Some(_) if count == Some(0) => reply.null_array(),
        Some(view) => collect(&view, (first, last), back, count).write(reply, Reply::array),
    }
    Ok(())
}
