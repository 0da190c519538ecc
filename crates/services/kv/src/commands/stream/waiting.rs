//! Parts of XREAD and XREADGROUP that matter to a front: how long the client blocks, and for what.

use std::ops::ControlFlow;

use super::{groups, read::block_ms, rows::View};
use crate::{
    commands::state::ReadContext,
    encode::{Decoder, Encoder, Fault, Keys},
    op::Op,
    resp::reply::Reply,
    store::stream::EntryId,
};

/// Kind of an encoded id that stands for entries that a group has not delivered.
const NEW: u8 = 1;
/// Place of the front's clock in an encoded XREADGROUP.
const CLOCK: usize = 1 + 8;

/// Entries that a blocked client waits for.
pub struct AwaitedEntries<'a> {
    /// Maximum time to block in milliseconds; 0 is no limit.
    pub block_ms: u64,
    pub keys: Keys<'a>,
    /// Group of an XREADGROUP.
    pub group: Option<&'a [u8]>,
    /// Maximum number of entries per stream.
    pub count: u64,
}

impl<'a> AwaitedEntries<'a> {
    /// Decodes an encoded command. Returns `None` if it does not block.
    pub fn decode(command: &'a [u8]) -> Option<Self> {
        let block_ms = block_ms(command)?;
        let mut from = Decoder(command.get(1 + 8..)?);
        let mut group = None;
        if command.first() == Some(&(Op::XReadGroup as u8)) {
            from.word().ok()?;
            group = Some(from.bytes().ok()?);
            from.bytes().ok()?;
        }
        // Whether to resolve ids, or not to keep entries pending.
        from.byte().ok()?;
        let count = match from.count().ok()? {
            0 => u64::MAX,
            count => count - 1,
        };
        let keys = from.keys().ok()?;
        // An XREADGROUP with an id returns what is pending, even if that is nothing.
        let mut ids = from.0.chunks(1 + EntryId::BYTES);
        let blocks = group.is_none() || ids.all(|id| id.first() == Some(&NEW));
        blocks.then_some(Self { block_ms, keys, group, count })
    }
}

/// Sets the clock of an encoded XREADGROUP that is about to be tried again.
pub fn set_clock(command: &mut [u8], wall_ms: u64) {
    if command.first() == Some(&(Op::XReadGroup as u8))
        && let Some(clock) = command.get_mut(CLOCK..CLOCK + 8)
    {
        clock.copy_from_slice(&wall_ms.to_le_bytes());
    }
}

/// Encodes a query for the number of entries that a group has not delivered, up to `most`.
pub fn encode_undelivered(key: &[u8], group: &[u8], most: u64, out: &mut Encoder<'_>) {
    out.byte(Op::XUndelivered as u8).bytes(key).bytes(group).count(most);
}

/// Replies with the number of entries that a group has not delivered, up to a limit.
pub(super) fn undelivered(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, group, most) = (from.key()?, from.field()?, from.count()?);
    from.end()?;
    let Ok(found) = View::find(state.store, key, reply) else {
        return Ok(());
    };
    let last = found.and_then(|view| Some((view, groups::last_delivered(&view, group)?)));
    let Some((view, last)) = last else {
        reply.error("NOGROUP No such key or consumer group");
        return Ok(());
    };
    let mut count = 0;
    if let Some(next) = last.next() {
        view.entries((next, EntryId::MAX), false, &mut |_, _| {
            count += 1;
            if count < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }
    reply.integer(count.try_into().unwrap_or(i64::MAX));
    Ok(())
}
