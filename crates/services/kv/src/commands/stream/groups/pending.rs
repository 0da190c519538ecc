//! XACK and XPENDING: acknowledges pending entries, and lists them.

use std::{collections::BTreeMap, ops::ControlFlow};

use super::{
    super::{
        id::{self, reply_id},
        rows::{self, View},
    },
    change::Change,
    clock, read_ids,
    rows::{Group, Pending},
    text, write_ids,
};
use crate::{
    command::{Refusal, Request, SYNTAX},
    commands::state::{Items, ReadContext, WriteContext, WrongType},
    encode::{Decoder, Encoder, Fault},
    key::Key,
    op::Op,
    resp::reply::Reply,
    store::stream::EntryId,
};

pub(super) fn encode_xack(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let ids: Result<Vec<EntryId>, Refusal> =
        r.arguments.from(2).iter().map(|text| id::parse(text, 0)).collect();
    out.byte(Op::XAck as u8).bytes(r.at(0)).bytes(r.field(1)?);
    write_ids(&ids?, out);
    Ok(())
}

/// Executes XACK.
pub(super) fn acknowledge(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, group, ids) = (from.key()?, from.field()?, read_ids(from)?);
    from.end()?;
    let stream = match rows::Change::find(state, key, reply) {
        Err(WrongType) => return Ok(()),
        Ok(stream) => stream,
    };
    let mut count = 0;
    if let Some(mut change) = stream.and_then(|stream| Change::open(stream, group)) {
        for id in ids {
            if let Some(old) = change.pending(id) {
                change.release(id, old);
                count += 1;
            }
        }
        if count > 0 {
            change.close();
        }
    }
    reply.integer(count);
    Ok(())
}

/// Encodes XPENDING as the key, the group, the clock, and the range, if any.
pub(super) fn encode_xpending(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let count = r.arguments.len();
    if count != 2 && !(5..=8).contains(&count) {
        return Err(SYNTAX.into());
    }
    out.byte(Op::XPending as u8).bytes(r.at(0)).bytes(r.field(1)?).word(r.wall_ms);
    if count == 2 {
        out.byte(0);
        return Ok(());
    }
    let (mut at, mut idle) = (2, 0);
    if r.is(2, "idle") {
        idle = r.integer(3)?;
        if count < 7 {
            return Err(SYNTAX.into());
        }
        at = 4;
    }
    // As in Redis, less than 0 means none.
    let most = u64::try_from(r.integer(at + 2)?).unwrap_or(0);
    let (start, end) = (id::parse_start(r.at(at))?, id::parse_stop(r.at(at + 1))?);
    let consumer = match count > at + 3 {
        true => Some(r.field(at + 3)?),
        false => None,
    };
    out.byte(if consumer.is_some() { 2 } else { 1 });
    out.count(u64::try_from(idle).unwrap_or(0)).count(most);
    id::encode(start, out);
    id::encode(end, out);
    if let Some(consumer) = consumer {
        out.bytes(consumer);
    }
    Ok(())
}

/// Pending entries wanted.
struct Range<'a> {
    now_ms: u64,
    /// Minimum time in milliseconds since the last delivery.
    idle_ms: u64,
    count_max: u64,
    ids: (EntryId, EntryId),
    consumer: Option<&'a [u8]>,
}

impl<'a> Range<'a> {
    /// Decodes a range; `None` if a summary is wanted.
    fn decode(from: &mut Decoder<'a>, group_ms: u64) -> Result<Option<Self>, Fault> {
        let (now_ms, kind) = (clock(from, group_ms)?, from.byte()?);
        if kind > 2 {
            return Err(Fault::Malformed);
        }
        if kind == 0 {
            return Ok(None);
        }
        let (idle_ms, most) = (from.count()?, from.count()?);
        let ids = (id::decode(from)?, id::decode(from)?);
        let consumer = if kind == 2 { Some(from.field()?) } else { None };
        Ok(Some(Self { now_ms, idle_ms, count_max: most, ids, consumer }))
    }
}

/// Executes XPENDING.
pub(super) fn pending(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, group) = (from.key()?, from.field()?);
    let range = Range::decode(from, state.store.time())?;
    from.end()?;
    let view = match View::find(state.store, key, reply) {
        Err(WrongType) => return Ok(()),
        Ok(view) => view,
    };
    let found = view.and_then(|view| Some((view, view.group(group)?)));
    match (found, range) {
        (None, _) => reply.error(&no_group(key, group)),
        (Some((view, group)), None) => summary(&view, &group, reply),
        (Some((view, group)), Some(range)) => list(&view, &group, &range, reply),
    }
    Ok(())
}

/// Returns Redis' error for a key or group that does not exist.
pub(super) fn no_group(key: Key<'_>, group: &[u8]) -> String {
    let (group, key) = (text(group), text(key.bytes()));
    format!("NOGROUP No such key '{key}' or consumer group '{group}'")
}

fn summary(view: &View<'_>, group: &Group, reply: &mut Reply<'_>) {
    let mut last = None;
    view.each_pending(group.number, (group.first, EntryId::MAX), true, &mut |id, _| {
        last = Some(id);
        ControlFlow::Break(())
    });
    let mut items = Items::default();
    view.each_consumer(group.number, &mut |name, consumer| {
        if consumer.pending > 0 {
            let reply = &mut items.next();
            reply.array(2);
            reply.bulk(name);
            reply.bulk(consumer.pending.to_string().as_bytes());
        }
        items.continue_if_fits()
    });
    let start = |reply: &mut Reply<'_>| {
        reply.array(4);
        reply.integer(group.pending.cast_signed());
    };
    match last {
        None => {
            start(reply);
            reply.null();
            reply.null();
            reply.null_array();
        }
        Some(last) => items.write(reply, |reply, count| {
            start(reply);
            reply_id(group.first, reply);
            reply_id(last, reply);
            reply.array(count);
        }),
    }
}

fn list(view: &View<'_>, group: &Group, range: &Range<'_>, reply: &mut Reply<'_>) {
    let consumer = match range.consumer.map(|name| view.consumer(group.number, name)) {
        Some(None) => return reply.array(0),
        Some(Some(consumer)) => Some(consumer),
        None => None,
    };
    let (mut items, mut names) = (Items::default(), Names::new(view, group.number));
    let mut add = |id: EntryId, pending: Pending| {
        let idle_ms = range.now_ms.saturating_sub(pending.delivered_ms);
        if idle_ms >= range.idle_ms {
            let reply = &mut items.next();
            reply.array(4);
            reply_id(id, reply);
            reply.bulk(names.name_of(pending.consumer));
            reply.integer(idle_ms.cast_signed());
            reply.integer(pending.deliveries.cast_signed());
        }
        match (items.count() as u64) < range.count_max {
            true => items.continue_if_fits(),
            false => ControlFlow::Break(()),
        }
    };
    let from = |first: EntryId| (range.ids.0.max(first), range.ids.1);
    match consumer {
        _ if range.count_max == 0 => {}
        None => view.each_pending(group.number, from(group.first), false, &mut add),
        Some(consumer) => {
            let of = (group.number, consumer.number);
            view.each_owned(
                of,
                from(consumer.first),
                &mut |id| match view.pending(group.number, id) {
                    Some(pending) => add(id, pending),
                    None => ControlFlow::Continue(()),
                },
            );
        }
    }
    items.write(reply, Reply::array);
}

/// Names of a group's consumers by their numbers, read once.
pub(super) struct Names<'v> {
    view: &'v View<'v>,
    group: u64,
    cached_names: BTreeMap<u64, Vec<u8>>,
}

impl<'v> Names<'v> {
    pub(super) const fn new(view: &'v View<'v>, group: u64) -> Self {
        Self { view, group, cached_names: BTreeMap::new() }
    }

    pub(super) fn name_of(&mut self, consumer: u64) -> &[u8] {
        let read = || self.view.consumer_name(self.group, consumer).unwrap_or_default();
        self.cached_names.entry(consumer).or_insert_with(read)
    }
}
