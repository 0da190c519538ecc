//! Sets: execution on every node.

use std::{collections::BTreeSet, ops::ControlFlow};

use crate::{
    commands::{
        budget::{CHANGED_ROW, COPIED_BYTES_MAX},
        chance, elements,
        events::class,
        rows::{Change, View, cost, each_placed, placed, view},
        state::{Items, ReadContext, TOO_LARGE, WriteContext, WrongType},
    },
    encode::{Decoder, Fault, Keys, Malformed},
    op::REPLY_BYTES_MAX,
    resp::reply::Reply,
    store::{Position, Store, collection::Kind, meter::Meter},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetOperation {
    Intersection = 0,
    Union = 1,
    Difference = 2,
}

impl SetOperation {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        match from.byte()? {
            0 => Ok(Self::Intersection),
            1 => Ok(Self::Union),
            2 => Ok(Self::Difference),
            _ => Err(Malformed),
        }
    }

    /// Returns the name of the event for storing the result.
    const fn store_event(self) -> &'static str {
        match self {
            Self::Intersection => "sinterstore",
            Self::Union => "sunionstore",
            Self::Difference => "sdiffstore",
        }
    }
}

impl View<'_> {
    fn has(&self, member: &[u8]) -> bool {
        self.row(&placed(b"", member)).is_some()
    }
}

/// Executes SISMEMBER or SMISMEMBER.
pub(super) fn is_member(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, many, members) = (from.key()?, from.byte()? != 0, from.list()?);
    from.end()?;
    if !many && members.len() != 1 {
        return Err(Fault::Malformed);
    }
    let Ok(set) = view(state.store, key, Kind::Set, reply) else {
        return Ok(());
    };
    if many {
        reply.array(members.len());
    }
    for member in members {
        let is_member = set.is_some_and(|set| set.has(member));
        reply.integer(i64::from(is_member));
    }
    Ok(())
}

pub(super) fn members(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    from.end()?;
    let Ok(set) = view(state.store, key, Kind::Set, reply) else {
        return Ok(());
    };
    let mut items = Items::default();
    if let Some(set) = set {
        if set.header.bytes > 2 * REPLY_BYTES_MAX as u64 {
            reply.error(TOO_LARGE);
            return Ok(());
        }
        each_placed(&set, b"", Position::START, &mut |member, _| {
            items.next().bulk(member);
            items.continue_if_fits()
        });
    }
    items.write(reply, Reply::set);
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
    if wanted.has_values() {
        // Set members have no values, so a front never encodes this.
        return Err(Fault::Malformed);
    }
    match view(state.store, key, Kind::Set, reply) {
        Err(WrongType) => {}
        Ok(Some(set)) => elements::random(&set, b"", wanted, reply, |_, _| {}),
        Ok(None) => elements::random_of_one(None, wanted, reply),
    }
    Ok(())
}

/// Returns the sets stored at the keys, `None` for absent ones. For a value of another type,
/// replies with an error.
fn sets<'s>(
    store: &'s dyn Store,
    keys: Keys<'_>,
    reply: &mut Reply<'_>,
) -> Result<Vec<Option<View<'s>>>, WrongType> {
    keys.map(|key| view(store, key, Kind::Set, reply)).collect()
}

/// Visits the members of the intersection, which is empty if any set is absent. Walks over the
/// smallest set.
fn intersect(sets: &[Option<View<'_>>], visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {
    let all: Option<Vec<View<'_>>> = sets.iter().copied().collect();
    let Some(all) = all else { return };
    let smallest = all.iter().enumerate().min_by_key(|(_, set)| set.count());
    let Some((smallest, set)) = smallest else {
        return;
    };
    each_placed(set, b"", Position::START, &mut |member, _| {
        let mut others = all.iter().enumerate().filter(|(at, _)| *at != smallest);
        if others.all(|(_, other)| other.has(member)) {
            return visit(member);
        }
        ControlFlow::Continue(())
    });
}

/// Returns the members of the combined sets in stored order, or `None` if above `bytes_max`.
fn combined(
    how: SetOperation,
    sets: &[Option<View<'_>>],
    bytes_max: usize,
    meter: &Meter,
) -> Option<Vec<Vec<u8>>> {
    let (mut found, mut bytes, mut united) = (Vec::new(), 0, BTreeSet::new());
    let mut add = |member: &[u8]| {
        if how == SetOperation::Union && !united.insert(placed(b"", member)) {
            return ControlFlow::Continue(());
        }
        bytes += cost(1, member.len() as u64);
        if how != SetOperation::Union {
            found.push(member.to_vec());
        }
        match bytes > bytes_max || !meter.count_visits(CHANGED_ROW) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    match how {
        SetOperation::Intersection => intersect(sets, &mut add),
        SetOperation::Union => {
            for set in sets.iter().flatten() {
                each_placed(set, b"", Position::START, &mut |member, _| add(member));
            }
        }
        SetOperation::Difference => {
            if let Some((Some(first), others)) = sets.split_first() {
                each_placed(first, b"", Position::START, &mut |member, _| {
                    if others.iter().flatten().any(|other| other.has(member)) {
                        return ControlFlow::Continue(());
                    }
                    add(member)
                });
            }
        }
    }
    if how == SetOperation::Union {
        let names = united.iter();
        found = names.map(|name| name[Position::BYTES..].to_vec()).collect();
    }
    (bytes <= bytes_max).then_some(found)
}

/// Executes SINTER, SUNION or SDIFF.
pub(super) fn combine(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (how, keys) = (SetOperation::decode(from)?, from.keys()?);
    from.end()?;
    let Ok(sets) = sets(state.store, keys, reply) else {
        return Ok(());
    };
    let Some(members) = combined(how, &sets, COPIED_BYTES_MAX, state.store.meter()) else {
        reply.error(TOO_LARGE);
        return Ok(());
    };
    let mut items = Items::default();
    for member in &members {
        items.next().bulk(member);
        if items.exceed_reply_limit() {
            break;
        }
    }
    items.write(reply, Reply::set);
    Ok(())
}

pub(super) fn intersection_size(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (limit, keys) = (from.count()?, from.keys()?);
    from.end()?;
    let Ok(sets) = sets(state.store, keys, reply) else {
        return Ok(());
    };
    let mut count = 0_i64;
    intersect(&sets, &mut |_| {
        count += 1;
        match limit > 0 && count.unsigned_abs() >= limit {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    reply.integer(count);
    Ok(())
}

pub(super) fn add(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, members) = (from.key()?, from.fields(0, 1)?);
    from.end()?;
    if members.is_empty() {
        return Err(Fault::Malformed);
    }
    let Ok(mut set) = Change::open(state, key, Kind::Set, reply) else {
        return Ok(());
    };
    let mut added = 0;
    for member in members {
        added += usize::from(set.put(&placed(b"", member), b""));
    }
    if added > 0 {
        set.close();
        state.event(class::SET, "sadd", key);
    }
    reply.count(added);
    Ok(())
}

pub(super) fn remove(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, members) = (from.key()?, from.fields(0, 1)?);
    from.end()?;
    elements::remove(state, key, Kind::Set, members, reply);
    Ok(())
}

pub(super) fn transfer(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (source, target, member) = (from.key()?, from.key()?, from.field()?);
    from.end()?;
    let name = placed(b"", member);
    let Ok(set) = view(state.store, source, Kind::Set, reply) else {
        return Ok(());
    };
    let Some(set) = set else {
        reply.integer(0);
        return Ok(());
    };
    let is_member = set.row(&name).is_some();
    if view(state.store, target, Kind::Set, reply).is_err() {
        return Ok(());
    }
    if is_member && source != target {
        if let Ok(Some(mut set)) = Change::find(state, source, Kind::Set, reply) {
            set.remove(&name);
            set.event(class::SET, "srem");
            set.close();
        }
        if let Ok(mut set) = Change::open(state, target, Kind::Set, reply)
            && set.put(&name, b"")
        {
            set.close();
            state.event(class::SET, "sadd", target);
        }
    }
    reply.integer(i64::from(is_member));
    Ok(())
}

pub(super) fn pop(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, seed) = (from.key()?, from.word()?);
    let count = match from.byte()? {
        0 => None,
        1 => Some(from.count()?),
        _ => return Err(Fault::Malformed),
    };
    from.end()?;
    let Ok(set) = Change::find(state, key, Kind::Set, reply) else {
        return Ok(());
    };
    let Some(mut set) = set else {
        match count {
            None => reply.null(),
            Some(_) => reply.set(0),
        }
        return Ok(());
    };
    let mut draws = chance::Draws::of(seed);
    let mut items = Items::default();
    let most = count.unwrap_or(1);
    if elements::would_be_too_large(&set.view(), most) {
        reply.error(TOO_LARGE);
        return Ok(());
    }
    let drawn = match count {
        None => Vec::from_iter(chance::draw_one(&set.view(), b"", &mut draws)),
        Some(_) => chance::several(&set.view(), b"", most, &mut draws),
    };
    for (member, _) in &drawn {
        items.next().bulk(member);
    }
    if items.exceed_reply_limit() {
        reply.error(TOO_LARGE);
        return Ok(());
    }
    if !drawn.is_empty() {
        set.event(class::SET, "spop");
    }
    if drawn.len() as u64 == set.header.count {
        set.state.delete(key);
    } else if !drawn.is_empty() {
        for (member, _) in &drawn {
            set.remove(&placed(b"", member));
        }
        set.close();
    }
    match count {
        None => items.write(reply, |_, _| {}),
        Some(_) => items.write(reply, Reply::set),
    }
    Ok(())
}

/// Executes SINTERSTORE, SUNIONSTORE or SDIFFSTORE.
pub(super) fn store(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (target, how, keys) = (from.key()?, SetOperation::decode(from)?, from.keys()?);
    from.end()?;
    let Ok(sets) = sets(state.store, keys, reply) else {
        return Ok(());
    };
    let members =
        combined(how, &sets, COPIED_BYTES_MAX, state.store.meter()).ok_or(Fault::Budget)?;
    let bytes = members.iter().map(|member| member.len() as u64).sum();
    state.budget.charge_bytes(cost(members.len() as u64, bytes))?;
    let mut set = Change::new(state, target, Kind::Set);
    for member in &members {
        set.put_known(&placed(b"", member), b"", None);
    }
    set.close_in_place();
    if !members.is_empty() {
        state.event(class::SET, how.store_event(), target);
    }
    reply.count(members.len());
    Ok(())
}
