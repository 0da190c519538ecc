//! Sorted sets: execution on every node.

use std::ops::ControlFlow;

use super::{
    flag,
    members::{MEMBER, Member, order_row, score_text},
    range::{Query, Range, all},
};
use crate::{
    commands::{
        budget::COPIED_BYTES_MAX,
        elements,
        events::class,
        rows::{Change, View, cost, view},
        score::Score,
        state::{Items, ReadContext, TOO_LARGE, WriteContext, WrongType},
    },
    encode::{Decoder, Fault},
    key::Key,
    op::Op,
    resp::reply::Reply,
    store::{Store, collection::Kind},
};

/// Executes ZSCORE or ZMSCORE.
pub(super) fn scores(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, many, members) = (from.key()?, from.byte()? != 0, from.list()?);
    from.end()?;
    if !many && members.len() != 1 {
        return Err(Fault::Malformed);
    }
    let Ok(set) = view(state.store, key, Kind::Zset, reply) else {
        return Ok(());
    };
    if many {
        reply.array(members.len());
    }
    for member in members {
        match set.and_then(|set| set.score(member)) {
            Some(score) => reply.double(&score.text()),
            None => reply.null(),
        }
    }
    Ok(())
}

/// Executes ZRANK or ZREVRANK.
pub(super) fn rank(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, back) = (from.key()?, from.byte()? != 0);
    let (with_score, member) = (from.byte()? != 0, from.bytes()?);
    from.end()?;
    let Ok(set) = view(state.store, key, Kind::Zset, reply) else {
        return Ok(());
    };
    let found = set.and_then(|set| Some((set, set.score(member)?)));
    let Some((set, score)) = found else {
        match with_score {
            true => reply.null_array(),
            false => reply.null(),
        }
        return Ok(());
    };
    let rank = rank_of(&set, member, score);
    let rank = if back { set.count().saturating_sub(rank + 1) } else { rank };
    if with_score {
        reply.array(2);
    }
    reply.integer(i64::try_from(rank).unwrap_or(i64::MAX));
    if with_score {
        reply.double(&score.text());
    }
    Ok(())
}

/// Returns the rank of an existing member. If the store has no ranks, walks from both ends
/// alternately, so the time depends on the distance from the nearer end.
fn rank_of(set: &View<'_>, member: &[u8], score: Score) -> u64 {
    const STRIDE: u64 = 256;
    if let Some(rank) = set.rank(&order_row(member, score)) {
        return rank;
    }
    let place = (score.order(), member);
    let mut reach = STRIDE;
    loop {
        for back in [false, true] {
            let mut passed = 0;
            let mut found = false;
            all(set, back, &mut |other, other_score| {
                let before = (other_score.order(), other);
                found = before == place;
                if found || passed >= reach {
                    return ControlFlow::Break(());
                }
                passed += 1;
                ControlFlow::Continue(())
            });
            if found {
                return match back {
                    false => passed,
                    true => set.count().saturating_sub(passed + 1),
                };
            }
        }
        if reach > set.count() {
            // Reached only if rows are missing.
            return 0;
        }
        reach = reach.saturating_mul(4);
    }
}

/// Executes ZCOUNT or ZLEXCOUNT.
pub(super) fn count(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, range) = (from.key()?, Range::decode(from)?);
    from.end()?;
    let Ok(set) = view(state.store, key, Kind::Zset, reply) else {
        return Ok(());
    };
    let count = set.map_or(0, |set| range.count(&set));
    reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// Executes ZRANGE and its variants.
pub(super) fn range(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, query) = (from.key()?, Query::decode(from)?);
    from.end()?;
    let Ok(set) = view(state.store, key, Kind::Zset, reply) else {
        return Ok(());
    };
    let mut items = Items::default();
    if let Some(set) = set {
        query.visit(&set, &mut |member, score| {
            items.next().bulk(member);
            if query.scores {
                items.next().double(&score.text());
            }
            items.continue_if_fits()
        });
    }
    items.write(reply, |reply, count| match query.scores {
        true => reply.pairs(count / 2),
        false => reply.array(count),
    });
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
    match view(state.store, key, Kind::Zset, reply) {
        Err(WrongType) => {}
        Ok(Some(set)) => elements::random(&set, MEMBER, wanted, reply, |value, reply| {
            reply.double(&score_text(value));
        }),
        Ok(None) => elements::random_of_one(None, wanted, reply),
    }
    Ok(())
}

/// Executes ZADD or ZINCRBY.
pub(super) fn add(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, flags) = (from.key()?, from.byte()?);
    let mut pairs = from.fields(1, 2)?;
    from.end()?;
    let has = |flag| flags & flag != 0;
    let increments = has(flag::INCR);
    if pairs.is_empty() || pairs.len() % 2 != 0 || (increments && pairs.len() != 2) {
        return Err(Fault::Malformed);
    }
    // All scores are checked before the first change.
    let mut scores = pairs.step_by(2);
    if scores.any(|score| Score::from_bytes(score).is_none()) {
        return Err(Fault::Malformed);
    }
    let set = match has(flag::XX) {
        true => Change::find(state, key, Kind::Zset, reply),
        false => Change::open(state, key, Kind::Zset, reply).map(Some),
    };
    let Ok(set) = set else {
        return Ok(());
    };
    let Some(mut set) = set else {
        match increments {
            true => reply.null(),
            false => reply.integer(0),
        }
        return Ok(());
    };
    let (mut added, mut updated, mut last) = (0, 0, None);
    while let (Some(score), Some(member)) = (pairs.next(), pairs.next()) {
        let Some(mut new) = Score::from_bytes(score) else {
            return Err(Fault::Malformed);
        };
        let old = set.view().score(member);
        if let (true, Some(old)) = (increments, old) {
            if has(flag::NX) {
                continue;
            }
            let Some(sum) = old.plus(new) else {
                reply.error("ERR resulting score is not a number (NaN)");
                return Ok(());
            };
            new = sum;
        }
        let refused = match old {
            None => has(flag::XX),
            Some(old) => {
                has(flag::NX) || (has(flag::GT) && new <= old) || (has(flag::LT) && new >= old)
            }
        };
        if refused {
            continue;
        }
        last = Some(new);
        match old {
            None => added += 1,
            Some(old) if old == new => continue,
            Some(_) => updated += 1,
        }
        set.score(member, old, new);
    }
    if added + updated > 0 {
        set.close();
        let name = if increments { "zincr" } else { "zadd" };
        state.event(class::ZSET, name, key);
    }
    match (increments, last) {
        (true, Some(score)) => reply.double(&score.text()),
        (true, None) => reply.null(),
        (false, _) if has(flag::CH) => reply.count(added + updated),
        (false, _) => reply.count(added),
    }
    Ok(())
}

pub(super) fn remove(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, members) = (from.key()?, from.fields(0, 1)?);
    from.end()?;
    let Ok(set) = Change::find(state, key, Kind::Zset, reply) else {
        return Ok(());
    };
    let mut removed = 0;
    if let Some(mut set) = set {
        for member in members {
            let score = set.view().score(member);
            if let Some(score) = score {
                set.drop_member(member, score);
                removed += 1;
            }
        }
        if removed > 0 {
            set.event(class::ZSET, "zrem");
            set.close();
        }
    }
    reply.count(removed);
    Ok(())
}

/// Returns the members that a query selects, or `None` if they exceed the copying limit of a batch.
fn list(
    view: &View<'_>,
    query: &dyn Fn(&View<'_>, &mut super::range::Visit<'_>),
) -> Option<(Vec<Member>, usize)> {
    let (mut members, mut bytes) = (Vec::new(), 0);
    query(view, &mut |member, score| {
        bytes += cost(2, 2 * member.len() as u64);
        members.push((member.to_vec(), score));
        match bytes > COPIED_BYTES_MAX {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    (bytes <= COPIED_BYTES_MAX).then_some((members, bytes))
}

/// Returns the number of members that ZRANGESTORE or ZREMRANGEBY… selects.
pub(crate) fn found(op: Op, from: &mut Decoder<'_>, store: &dyn Store) -> Result<u64, Fault> {
    let mut key = from.key()?;
    if op == Op::ZRangeStore {
        key = from.key()?;
    }
    let mut found = 0;
    if let Some(set) = View::at(store, key, Kind::Zset) {
        let count = &mut |_: &[u8], _: Score| {
            found += 1;
            ControlFlow::Continue(())
        };
        match op {
            Op::ZRangeStore => Query::decode(from)?.visit(&set, count),
            _ => Range::decode(from)?.visit(&set, false, 0, count),
        }
    }
    Ok(found)
}

/// Removes existing members. Generates `event`.
fn drop_members(mut set: Change<'_, '_>, key: Key<'_>, members: &[Member], event: &str) {
    if !members.is_empty() {
        set.event(class::ZSET, event);
    }
    if members.len() as u64 == set.header.count {
        // The whole set is removed, so its rows need not be removed one by one.
        set.state.delete(key);
    } else if !members.is_empty() {
        for (member, score) in members {
            set.drop_member(member, *score);
        }
        set.close();
    }
}

/// Executes ZREMRANGEBYRANK, ZREMRANGEBYSCORE or ZREMRANGEBYLEX.
pub(super) fn remove_range(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, range) = (from.key()?, Range::decode(from)?);
    from.end()?;
    let Ok(set) = Change::find(state, key, Kind::Zset, reply) else {
        return Ok(());
    };
    let mut removed = 0;
    if let Some(set) = set {
        let found = list(&set.view(), &|view, visit| {
            range.visit(view, false, 0, visit);
        });
        let (members, bytes) = found.ok_or(Fault::Budget)?;
        if (members.len() as u64) < set.header.count {
            set.state.budget.charge_bytes(bytes)?;
        }
        removed = members.len();
        drop_members(set, key, &members, range.removed());
    }
    reply.count(removed);
    Ok(())
}

/// Returns the name of the event for a pop.
const fn popped(max: bool) -> &'static str {
    match max {
        true => "zpopmax",
        false => "zpopmin",
    }
}

/// Returns up to `most` members from one end, and whether they exceed the size limit of a reply.
fn take(set: &View<'_>, max: bool, most: u64) -> (Vec<Member>, bool) {
    let (mut members, mut bytes) = (Vec::new(), 0);
    if most > 0 {
        all(set, max, &mut |member, score| {
            // The headers and the score take less than this.
            bytes += member.len() + 64;
            members.push((member.to_vec(), score));
            match members.len() as u64 >= most || bytes > crate::op::REPLY_BYTES_MAX {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
    }
    (members, bytes > crate::op::REPLY_BYTES_MAX)
}

/// Executes ZPOPMIN or ZPOPMAX.
pub(super) fn pop(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, max) = (from.key()?, from.byte()? != 0);
    let count = match from.byte()? {
        0 => None,
        1 => Some(from.count()?),
        _ => return Err(Fault::Malformed),
    };
    from.end()?;
    let Ok(set) = Change::find(state, key, Kind::Zset, reply) else {
        return Ok(());
    };
    let Some(set) = set else {
        reply.array(0);
        return Ok(());
    };
    let (members, too_large) = take(&set.view(), max, count.unwrap_or(1));
    if too_large {
        reply.error(TOO_LARGE);
        return Ok(());
    }
    drop_members(set, key, &members, popped(max));
    match count {
        None => reply.array(2 * members.len()),
        Some(_) => reply.pairs(members.len()),
    }
    for (member, score) in &members {
        reply.bulk(member);
        reply.double(&score.text());
    }
    Ok(())
}

pub(super) fn pop_first(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (max, count, keys) = (from.byte()? != 0, from.count()?, from.keys()?);
    from.end()?;
    for key in keys {
        if pop_from(key, max, Some(count), state, reply) {
            return Ok(());
        }
    }
    reply.null_array();
    Ok(())
}

/// Pops from a sorted set. Replies like ZMPOP if there is a count, otherwise like BZPOPMIN. If the
/// set is absent, returns `false` and writes nothing.
pub(crate) fn pop_from(
    key: Key<'_>,
    max: bool,
    count: Option<u64>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> bool {
    let set = match Change::find(state, key, Kind::Zset, reply) {
        Err(_) => return true,
        Ok(None) => return false,
        Ok(Some(set)) => set,
    };
    let (members, too_large) = take(&set.view(), max, count.unwrap_or(1));
    if too_large {
        reply.error(TOO_LARGE);
        return true;
    }
    drop_members(set, key, &members, popped(max));
    match count {
        None => reply.array(3),
        Some(_) => reply.array(2),
    }
    reply.bulk(key.bytes());
    if count.is_some() {
        reply.array(members.len());
    }
    for (member, score) in &members {
        if count.is_some() {
            reply.array(2);
        }
        reply.bulk(member);
        reply.double(&score.text());
    }
    true
}

/// Stores members as a new sorted set, which replaces any value of the key. Generates `event`.
pub(crate) fn put_all(
    state: &mut WriteContext<'_>,
    key: Key<'_>,
    members: &[Member],
    event: &str,
) -> Result<(), Fault> {
    let bytes = members.iter().map(|(member, _)| 2 * member.len() as u64);
    state.budget.charge_bytes(cost(2 * members.len() as u64, bytes.sum()))?;
    let mut set = Change::new(state, key, Kind::Zset);
    for (member, score) in members {
        set.score(member, None, *score);
    }
    set.close_in_place();
    if !members.is_empty() {
        state.event(class::ZSET, event, key);
    }
    Ok(())
}

pub(super) fn store_range(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (target, source, query) = (from.key()?, from.key()?, Query::decode(from)?);
    from.end()?;
    let Ok(set) = view(state.store, source, Kind::Zset, reply) else {
        return Ok(());
    };
    let members = match set {
        None => Vec::new(),
        Some(set) => {
            let found = list(&set, &|view, visit| query.visit(view, visit));
            found.ok_or(Fault::Budget)?.0
        }
    };
    put_all(state, target, &members, "zrangestore")?;
    reply.count(members.len());
    Ok(())
}
