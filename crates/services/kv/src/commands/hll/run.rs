//! HyperLogLogs: execution on every node.

use super::{
    estimate::estimate,
    hash::place,
    layout::COUNT,
    registers::{
        DENSE_VISITS, Invalid, MERGE_VISITS, Registers, SPARSE_VISITS, cached, is_dense,
        raise_dense,
    },
};
use crate::{
    commands::{
        events::class,
        state::{ReadContext, WriteContext, string},
    },
    encode::{Decoder, Fault, List},
    key::Key,
    resp::reply::Reply,
    store::Store,
};

/// Returns the changed value after elements were added, or `None` if it stays the same.
fn with_elements(value: &[u8], elements: List<'_>) -> Result<Option<Vec<u8>>, Invalid> {
    let dense = is_dense(value)?;
    // As in Redis, only the header is checked then.
    if elements.is_empty() {
        return Ok(None);
    }
    let mut places = elements.map(place);
    if dense {
        let mut value = value.to_vec();
        return Ok(raise_dense(&mut value, places).then_some(value));
    }
    let mut registers = Registers::parse(value)?;
    let changed =
        places.by_ref().fold(false, |changed, (index, to)| registers.raise(index, to) || changed);
    Ok(changed.then(|| registers.to_bytes()))
}

/// Returns the visits of PFADD: those of all registers, unless it changes a copy of a dense value.
pub(in crate::commands) fn add_visits(
    from: &mut Decoder<'_>,
    store: &dyn Store,
) -> Result<u64, Fault> {
    let key = from.key()?;
    let entry = string(store, key, &mut Reply(&mut Vec::new()));
    Ok(match entry {
        Ok(Some(entry)) if is_dense(&entry.value) != Ok(false) => DENSE_VISITS,
        Ok(_) => SPARSE_VISITS,
        Err(_) => 0,
    })
}

fn new(elements: List<'_>) -> Vec<u8> {
    let mut registers = Registers::empty();
    for (index, to) in elements.map(place) {
        registers.raise(index, to);
    }
    registers.to_bytes()
}

pub(super) fn add(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, elements) = (from.key()?, from.list()?);
    from.end()?;
    let Ok(old) = string(state.store, key, reply) else {
        return Ok(());
    };
    // The work, not the few bytes of a sparse value, is what a script pays for.
    state.store.meter().count_moved(COUNT);
    let changed = match &old {
        None => Ok(Some(new(elements))),
        Some(entry) => with_elements(&entry.value, elements),
    };
    match changed {
        Err(invalid) => reply.error(invalid.text()),
        Ok(None) => reply.integer(0),
        Ok(Some(value)) => {
            let before = old.as_ref().map_or(0, |entry| entry.value.len());
            state.budget.charge_bytes(value.len().saturating_sub(before))?;
            let deadline = match old {
                Some(entry) => {
                    state.budget.rewrite(&entry)?;
                    entry.deadline
                }
                None => None,
            };
            state.put(key, &value, deadline);
            state.event(class::STRING, "pfadd", key);
            reply.integer(1);
        }
    }
    Ok(())
}

/// Merges the value at a key, if any. Otherwise replies with an error and returns `false`.
fn merge_key(all: &mut Registers, store: &dyn Store, key: Key<'_>, reply: &mut Reply<'_>) -> bool {
    let Ok(entry) = string(store, key, reply) else {
        return false;
    };
    match entry.map_or_else(|| Ok(Registers::empty()), |entry| Registers::parse(&entry.value)) {
        Ok(registers) => all.merge(&registers),
        Err(invalid) => {
            reply.error(invalid.text());
            return false;
        }
    }
    true
}

pub(super) fn count(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let keys = from.keys()?;
    from.end()?;
    let mut all = Registers::empty();
    let single = keys.len() == 1;
    for key in keys {
        if !state.store.meter().count_visits(MERGE_VISITS) {
            return Ok(());
        }
        if let Some(count) = single.then(|| stored_count(state.store, key)).flatten() {
            reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
            return Ok(());
        }
        if !merge_key(&mut all, state.store, key, reply) {
            return Ok(());
        }
    }
    let count = estimate(&all.histogram());
    reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// Returns the count that a Redis stored in the value of a key, if it is up to date.
fn stored_count(store: &dyn Store, key: Key<'_>) -> Option<u64> {
    let entry = string(store, key, &mut Reply(&mut Vec::new())).ok()??;
    is_dense(&entry.value).ok()?;
    cached(&entry.value)
}

pub(super) fn merge(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let keys = from.keys()?;
    from.end()?;
    let target = { keys }.next().ok_or(Fault::Malformed)?;
    let mut all = Registers::empty();
    for key in keys {
        if !merge_key(&mut all, state.store, key, reply) {
            return Ok(());
        }
    }
    let value = all.to_bytes();
    state.budget.charge_bytes(value.len())?;
    let deadline = state.store.get(target).and_then(|entry| entry.deadline);
    state.put(target, &value, deadline);
    state.event(class::STRING, "pfadd", target);
    reply.ok();
    Ok(())
}
