//! Entries in replies.

use std::ops::ControlFlow;

use super::{id, rows::View};
use crate::{commands::state::Items, encode::Decoder, resp::reply::Reply, store::stream::EntryId};

/// Writes the encoded fields of an entry: an array of alternating names and values.
pub(super) fn write_fields(fields: &[u8], reply: &mut Reply<'_>) {
    let Ok(fields) = Decoder(fields).list() else {
        return reply.array(0);
    };
    reply.array(fields.len());
    fields.for_each(|field| reply.bulk(field));
}

/// Writes an entry: its id and its fields.
pub(super) fn write_entry(id: EntryId, fields: &[u8], reply: &mut Reply<'_>) {
    reply.array(2);
    id::reply_id(id, reply);
    write_fields(fields, reply);
}

/// Collects up to `count` entries with ids from `from` to `to`, both inclusive, the last first if
/// `back`. Stops when a reply cannot take more.
pub(super) fn collect(
    view: &View<'_>,
    ids: (EntryId, EntryId),
    back: bool,
    count: Option<u64>,
) -> Items {
    let mut items = Items::default();
    let most = count.unwrap_or(u64::MAX);
    if most == 0 {
        return items;
    }
    view.entries(ids, back, &mut |id, fields| {
        write_entry(id, fields, &mut items.next());
        match items.count() as u64 >= most {
            true => ControlFlow::Break(()),
            false => items.continue_if_fits(),
        }
    });
    items
}
