//! Groups and consumers in the replies of XINFO.

use std::ops::ControlFlow;

use super::{
    super::{id::reply_id, rows::View},
    lag::Positions,
    manage::no_group,
    pending::Names,
    rows::{Consumer, Group},
};
use crate::{
    commands::state::Items, key::Key, op::REPLY_BYTES_MAX, resp::reply::Reply,
    store::stream::EntryId,
};

/// Replies to XINFO GROUPS.
pub(in super::super) fn groups(view: &View<'_>, reply: &mut Reply<'_>) {
    let (positions, mut items) = (Positions::of(view), Items::default());
    view.each_group(&mut |name, group| {
        let reply = &mut items.next();
        reply.map(6);
        field("name", name, reply);
        number("consumers", group.consumers, reply);
        number("pending", group.pending, reply);
        progress(&group, &positions, reply);
        items.continue_if_fits()
    });
    items.write(reply, Reply::array);
}

/// Replies to XINFO CONSUMERS, given the time in milliseconds.
pub(in super::super) fn consumers(
    view: &View<'_>,
    key: Key<'_>,
    group: &[u8],
    now_ms: u64,
    reply: &mut Reply<'_>,
) {
    let Some(found) = view.group(group) else {
        return reply.error(&no_group(key, group));
    };
    let mut items = Items::default();
    view.each_consumer(found.number, &mut |name, consumer| {
        let reply = &mut items.next();
        reply.map(4);
        field("name", name, reply);
        number("pending", consumer.pending, reply);
        number("idle", now_ms.saturating_sub(consumer.last_command_ms), reply);
        reply.bulk(b"inactive");
        let inactive = consumer.active_ms.map(|active| now_ms.saturating_sub(active));
        reply.integer(inactive.map_or(-1, u64::cast_signed));
        items.continue_if_fits()
    });
    items.write(reply, Reply::array);
}

/// Appends the groups in the reply to XINFO STREAM FULL, with up to `count` pending entries of each
/// group and consumer; 0 is no limit. Ends early once the reply is longer than allowed, for the
/// caller to discard.
pub(in super::super) fn write_full(view: &View<'_>, count: u64, reply: &mut Reply<'_>) {
    let positions = Positions::of(view);
    let most = if count == 0 { u64::MAX } else { count };
    list(reply, |reply| write_all_groups(view, &positions, most, reply));
}

fn write_all_groups(
    view: &View<'_>,
    positions: &Positions,
    most: u64,
    reply: &mut Reply<'_>,
) -> usize {
    let mut count = 0;
    view.each_group(&mut |name, group| {
        count += 1;
        reply.map(7);
        field("name", name, reply);
        progress(&group, positions, reply);
        number("pel-count", group.pending, reply);
        reply.bulk(b"pending");
        list(reply, |reply| write_all_pending(view, &group, most, reply));
        reply.bulk(b"consumers");
        list(reply, |reply| write_all_consumers(view, &group, most, reply));
        continue_if_fits(reply, 0, 1)
    });
    count
}

/// Appends the last id delivered, the number of entries read, and the lag.
fn progress(group: &Group, positions: &Positions, reply: &mut Reply<'_>) {
    let read = group.read.map(u64::cast_signed);
    let lag = positions.lag(group);
    reply.bulk(b"last-delivered-id");
    reply_id(group.last, reply);
    for (name, value) in [("entries-read", read), ("lag", lag)] {
        reply.bulk(name.as_bytes());
        match value {
            Some(value) => reply.integer(value),
            None => reply.null(),
        }
    }
}

fn field(name: &str, value: &[u8], reply: &mut Reply<'_>) {
    reply.bulk(name.as_bytes());
    reply.bulk(value);
}

fn number(name: &str, value: u64, reply: &mut Reply<'_>) {
    reply.bulk(name.as_bytes());
    reply.integer(value.cast_signed());
}

/// Appends an array of as many items as `write` adds and returns.
fn list(reply: &mut Reply<'_>, write: impl FnOnce(&mut Reply<'_>) -> usize) {
    let mut items = Vec::new();
    let count = write(&mut Reply(&mut items));
    reply.array(count);
    reply.0.extend_from_slice(&items);
}

/// Stops once a reply is too long or has enough items.
fn continue_if_fits(reply: &Reply<'_>, count: usize, most: u64) -> ControlFlow<()> {
    match reply.0.len() <= REPLY_BYTES_MAX && (count as u64) < most {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

fn write_all_pending(view: &View<'_>, group: &Group, most: u64, reply: &mut Reply<'_>) -> usize {
    let (mut count, mut names) = (0, Names::new(view, group.number));
    let all = (group.first, EntryId::MAX);
    view.each_pending(group.number, all, false, &mut |id, pending| {
        count += 1;
        reply.array(4);
        reply_id(id, reply);
        reply.bulk(names.name_of(pending.consumer));
        reply.integer(pending.delivered_ms.cast_signed());
        reply.integer(pending.deliveries.cast_signed());
        continue_if_fits(reply, count, most)
    });
    count
}

fn write_all_consumers(view: &View<'_>, group: &Group, most: u64, reply: &mut Reply<'_>) -> usize {
    let mut count = 0;
    view.each_consumer(group.number, &mut |name, consumer| {
        count += 1;
        reply.map(5);
        field("name", name, reply);
        number("seen-time", consumer.last_command_ms, reply);
        reply.bulk(b"active-time");
        reply.integer(consumer.active_ms.map_or(-1, u64::cast_signed));
        number("pel-count", consumer.pending, reply);
        reply.bulk(b"pending");
        list(reply, |reply| write_all_owned(view, group, &consumer, most, reply));
        continue_if_fits(reply, 0, 1)
    });
    count
}

fn write_all_owned(
    view: &View<'_>,
    group: &Group,
    consumer: &Consumer,
    most: u64,
    reply: &mut Reply<'_>,
) -> usize {
    let mut count = 0;
    let of = (group.number, consumer.number);
    view.each_owned(of, (consumer.first, EntryId::MAX), &mut |id| {
        if let Some(pending) = view.pending(group.number, id) {
            count += 1;
            reply.array(3);
            reply_id(id, reply);
            reply.integer(pending.delivered_ms.cast_signed());
            reply.integer(pending.deliveries.cast_signed());
        }
        continue_if_fits(reply, count, most)
    });
    count
}
