//! HGETDEL: execution on every node.

use crate::{
    commands::{
        events::class,
        rows::{Change, placed},
        state::{Items, TOO_LARGE, WriteContext},
    },
    encode::{Decoder, Fault},
    resp::reply::Reply,
    store::collection::Kind,
};

/// Replies with the values of fields and removes the fields.
pub(super) fn take(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, fields) = (from.key()?, from.fields(0, 1)?);
    from.end()?;
    let Ok(mut hash) = Change::find(state, key, Kind::Hash, reply) else {
        return Ok(());
    };
    // No removal is undone, so the size of the reply is checked first.
    let mut all = Items::default();
    for field in fields {
        let value =
            hash.as_ref().and_then(|hash| Some(hash.view().row(&placed(b"", field))?.to_vec()));
        all.next().optional(value.as_deref());
        if all.exceed_reply_limit() {
            reply.error(TOO_LARGE);
            return Ok(());
        }
    }
    let (mut items, mut removed) = (Items::default(), false);
    for field in fields {
        // A field that is named twice is gone the second time.
        let name = placed(b"", field);
        let value = hash.as_ref().and_then(|hash| Some(hash.view().row(&name)?.to_vec()));
        items.next().optional(value.as_deref());
        if let Some(hash) = &mut hash {
            removed |= hash.remove(&name);
        }
    }
    if let Some(mut hash) = hash.filter(|_| removed) {
        hash.event(class::HASH, "hdel");
        hash.close();
    }
    items.write(reply, Reply::array);
    Ok(())
}
