//! Unions, intersections and differences of sorted sets. In a plain set, all members have score 1.

use std::{collections::BTreeMap, ops::ControlFlow};

use super::{
    members::{MEMBER, Member},
    run::put_all,
};
use crate::{
    command::{Refusal, Request, SYNTAX},
    commands::{
        budget::{CHANGED_ROW, COPIED_BYTES_MAX},
        elements,
        rows::{View, cost, each_placed, placed, view},
        score::Score,
        state::{Items, ReadContext, TOO_LARGE, WRONG_TYPE, WriteContext, WrongType},
    },
    encode::{Decoder, Encoder, Fault, List, Malformed},
    key::Key,
    op::Op,
    resp::reply::Reply,
    store::{Position, Store, collection::Kind, meter::Meter},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZsetOperation {
    Union = 0,
    Intersection = 1,
    Difference = 2,
}

impl ZsetOperation {
    /// Returns the name of the event for storing the result.
    const fn stored(self) -> &'static str {
        match self {
            Self::Union => "zunionstore",
            Self::Intersection => "zinterstore",
            Self::Difference => "zdiffstore",
        }
    }
}

/// Rule that determines the score of a member of several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum = 0,
    Min = 1,
    Max = 2,
}

impl Aggregate {
    fn of(self, one: Score, other: Score) -> Score {
        match self {
            // The sum of opposite infinities is 0, as in Redis.
            Self::Sum => one.plus(other).unwrap_or(Score::ZERO),
            Self::Min if other < one => other,
            Self::Max if other > one => other,
            Self::Min | Self::Max => one,
        }
    }
}

struct Plan<'a> {
    how: ZsetOperation,
    aggregate: Aggregate,
    scores: bool,
    /// Input keys, each followed by the weight for its scores.
    keys: List<'a>,
}

/// Parses `numkeys key …`. Returns the keys and the index of the first argument after them.
fn keys<'a>(r: &Request<'a>, from: usize) -> Result<(Vec<&'a [u8]>, usize), Refusal> {
    if r.integer(from)? < 1 {
        let text = format!("ERR at least 1 input key is needed for '{}' command", r.name);
        return Err(Refusal::Text(text.into()));
    }
    elements::keys(r, from, SYNTAX)
}

fn write(
    how: ZsetOperation,
    stored: Option<&[u8]>,
    r: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let (keys, mut at) = keys(r, usize::from(stored.is_some()))?;
    let (mut weights, mut aggregate, mut scores) = (None, Aggregate::Sum, false);
    while at < r.arguments.len() {
        let rest = r.arguments.len() - at - 1;
        if how != ZsetOperation::Difference && rest >= keys.len() && r.is(at, "weights") {
            let all = (at + 1..=at + keys.len()).map(|at| {
                let weight = Score::parse(r.at(at));
                weight.ok_or(Refusal::from("ERR weight value is not a float"))
            });
            weights = Some(all.collect::<Result<Vec<_>, _>>()?);
            at += keys.len() + 1;
        } else if how != ZsetOperation::Difference && rest >= 1 && r.is(at, "aggregate") {
            aggregate = match &*r.at(at + 1).to_ascii_lowercase() {
                b"sum" => Aggregate::Sum,
                b"min" => Aggregate::Min,
                b"max" => Aggregate::Max,
                _ => return Err(SYNTAX.into()),
            };
            at += 2;
        } else if stored.is_none() && r.is(at, "withscores") {
            scores = true;
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
    }
    match stored {
        None => out.byte(Op::ZCombine as u8),
        Some(key) => out.byte(Op::ZStore as u8).bytes(key),
    };
    out.byte(how as u8).byte(aggregate as u8).byte(u8::from(scores)).length(2 * keys.len());
    let one = Score::new(1.0).unwrap_or(Score::ZERO);
    for (at, key) in keys.iter().enumerate() {
        let weight = weights.as_ref().map_or(one, |weights| weights[at]);
        out.bytes(key).bytes(&weight.to_bytes());
    }
    Ok(())
}

pub(super) fn encode_zunion(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write(ZsetOperation::Union, None, r, out)
}

pub(super) fn encode_zinter(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write(ZsetOperation::Intersection, None, r, out)
}

pub(super) fn encode_zdiff(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write(ZsetOperation::Difference, None, r, out)
}

pub(super) fn encode_zunionstore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write(ZsetOperation::Union, Some(r.at(0)), r, out)
}

pub(super) fn encode_zinterstore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write(ZsetOperation::Intersection, Some(r.at(0)), r, out)
}

pub(super) fn encode_zdiffstore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write(ZsetOperation::Difference, Some(r.at(0)), r, out)
}

pub(super) fn encode_zintercard(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    keys(r, 0)?;
    let (keys, limit) = elements::card(r)?;
    out.byte(Op::ZInterCard as u8).count(limit);
    out.keys(&keys);
    Ok(())
}

impl<'a> Plan<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Fault> {
        let how = match from.byte()? {
            0 => ZsetOperation::Union,
            1 => ZsetOperation::Intersection,
            2 => ZsetOperation::Difference,
            _ => return Err(Fault::Malformed),
        };
        let aggregate = match from.byte()? {
            0 => Aggregate::Sum,
            1 => Aggregate::Min,
            2 => Aggregate::Max,
            _ => return Err(Fault::Malformed),
        };
        let scores = from.byte()? != 0;
        let keys = from.list()?;
        if keys.is_empty() || keys.len() % 2 != 0 {
            return Err(Fault::Malformed);
        }
        Ok(Self { how, aggregate, scores, keys })
    }
}

/// Input set of a union, intersection or difference.
#[derive(Clone, Copy)]
struct Source<'s> {
    view: View<'s>,
    is_sorted: bool,
    weight: Score,
}

impl Source<'_> {
    fn weighted(&self, score: Score) -> Score {
        Score::new(score.number() * self.weight.number()).unwrap_or(Score::ZERO)
    }

    fn score(&self, member: &[u8]) -> Option<Score> {
        let score = match self.is_sorted {
            true => self.view.score(member)?,
            false => {
                self.view.row(&placed(b"", member))?;
                Score::new(1.0)?
            }
        };
        Some(self.weighted(score))
    }

    fn each(&self, visit: &mut dyn FnMut(&[u8], Score) -> ControlFlow<()>) {
        let prefix = if self.is_sorted { MEMBER } else { b"" };
        each_placed(&self.view, prefix, Position::START, &mut |member, value| {
            let score = match self.is_sorted {
                true => Score::from_bytes(value),
                false => Score::new(1.0),
            };
            visit(member, self.weighted(score.unwrap_or(Score::ZERO)))
        });
    }
}

/// Returns the input at a key, if any. If the value is of another type, replies with an error.
fn source<'s>(
    store: &'s dyn Store,
    key: Key<'_>,
    weight: Score,
    reply: &mut Reply<'_>,
) -> Result<Option<Source<'s>>, WrongType> {
    let kind = store.get(key).map(|entry| entry.kind);
    let is_sorted = match kind {
        None => return Ok(None),
        Some(Kind::Zset) => true,
        Some(Kind::Set) => false,
        Some(_) => {
            reply.error(WRONG_TYPE);
            return Err(WrongType);
        }
    };
    let kind = if is_sorted { Kind::Zset } else { Kind::Set };
    let view = view(store, key, kind, reply)?;
    Ok(view.map(|view| Source { view, is_sorted, weight }))
}

fn sources<'s>(
    store: &'s dyn Store,
    mut keys: List<'_>,
    reply: &mut Reply<'_>,
) -> Result<Result<Vec<Option<Source<'s>>>, WrongType>, Fault> {
    let mut found = Vec::new();
    while let (Some(key), Some(weight)) = (keys.next(), keys.next()) {
        let weight = Score::from_bytes(weight).ok_or(Malformed)?;
        match source(store, Key::new(key)?, weight, reply) {
            Ok(source) => found.push(source),
            Err(wrong) => return Ok(Err(wrong)),
        }
    }
    Ok(Ok(found))
}

/// Visits the members of all inputs with their scores. Walks over the smallest input.
fn intersect(
    sources: &[Option<Source<'_>>],
    aggregate: Aggregate,
    visit: &mut dyn FnMut(&[u8], Score) -> ControlFlow<()>,
) {
    let all: Option<Vec<Source<'_>>> = sources.iter().copied().collect();
    let Some(mut all) = all else { return };
    all.sort_by_key(|source| source.view.count());
    let Some((smallest, others)) = all.split_first() else {
        return;
    };
    smallest.each(&mut |member, score| {
        let sum = others
            .iter()
            .try_fold(score, |sum, other| Some(aggregate.of(sum, other.score(member)?)));
        match sum {
            Some(sum) => visit(member, sum),
            None => ControlFlow::Continue(()),
        }
    });
}

/// Returns the result in order of score, or `None` if it exceeds the copying limit of a batch.
fn combined(plan: &Plan<'_>, sources: &[Option<Source<'_>>], meter: &Meter) -> Option<Vec<Member>> {
    let mut bytes = 0;
    let mut scores: BTreeMap<Vec<u8>, Score> = BTreeMap::new();
    let mut set = |member: &[u8], score: Score, scores: &mut BTreeMap<Vec<u8>, Score>| {
        if scores.insert(member.to_vec(), score).is_none() {
            bytes += cost(2, 2 * member.len() as u64);
        }
        match bytes > COPIED_BYTES_MAX || !meter.count_visits(CHANGED_ROW) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    match plan.how {
        ZsetOperation::Union => {
            let mut all: Vec<Source<'_>> = sources.iter().flatten().copied().collect();
            all.sort_by_key(|source| source.view.count());
            for source in &all {
                source.each(&mut |member, score| {
                    let old = scores.get(member);
                    let sum = old.map_or(score, |old| plan.aggregate.of(*old, score));
                    set(member, sum, &mut scores)
                });
            }
        }
        ZsetOperation::Intersection => {
            intersect(sources, plan.aggregate, &mut |member, score| set(member, score, &mut scores))
        }
        ZsetOperation::Difference => {
            if let Some((Some(first), others)) = sources.split_first() {
                first.each(&mut |member, score| {
                    let mut others = others.iter().flatten();
                    if others.any(|other| other.score(member).is_some()) {
                        return ControlFlow::Continue(());
                    }
                    set(member, score, &mut scores)
                });
            }
        }
    }
    if bytes > COPIED_BYTES_MAX {
        return None;
    }
    let mut members: Vec<Member> = scores.into_iter().collect();
    // The sort is stable, so members of equal score stay in the order of their names.
    members.sort_by_key(|(_, score)| score.order());
    Some(members)
}

/// Executes ZUNION, ZINTER or ZDIFF.
pub(super) fn combine(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let plan = Plan::decode(from)?;
    from.end()?;
    let Ok(sources) = sources(state.store, plan.keys, reply)? else {
        return Ok(());
    };
    let Some(members) = combined(&plan, &sources, state.store.meter()) else {
        reply.error(TOO_LARGE);
        return Ok(());
    };
    let mut items = Items::default();
    for (member, score) in &members {
        items.next().bulk(member);
        if plan.scores {
            items.next().double(&score.text());
        }
        if items.exceed_reply_limit() {
            break;
        }
    }
    items.write(reply, |reply, count| match plan.scores {
        true => reply.pairs(count / 2),
        false => reply.array(count),
    });
    Ok(())
}

pub(super) fn intersection_size(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (limit, keys) = (from.count()?, from.keys()?);
    from.end()?;
    let mut sources = Vec::new();
    for key in keys {
        let Ok(source) = source(state.store, key, Score::ZERO, reply) else {
            return Ok(());
        };
        sources.push(source);
    }
    let mut count = 0_i64;
    intersect(&sources, Aggregate::Max, &mut |_, _| {
        count += 1;
        match limit > 0 && count.unsigned_abs() >= limit {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    reply.integer(count);
    Ok(())
}

/// Executes ZUNIONSTORE, ZINTERSTORE or ZDIFFSTORE.
pub(super) fn store(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let target = from.key()?;
    let plan = Plan::decode(from)?;
    from.end()?;
    let Ok(sources) = sources(state.store, plan.keys, reply)? else {
        return Ok(());
    };
    let members = combined(&plan, &sources, state.store.meter()).ok_or(Fault::Budget)?;
    put_all(state, target, &members, plan.how.stored())?;
    reply.count(members.len());
    Ok(())
}
