//! HGETDEL: execution on every node.

use std::collections::BTreeSet;

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
    let Ok(hash) = Change::find(state, key, Kind::Hash, reply) else {
        return Ok(());
    };
    // No removal is undone, so the size of the reply is checked first.
    let (mut items, mut taken) = (Items::default(), BTreeSet::new());
    for field in fields {
        let value = hash.as_ref().and_then(|hash| hash.view().row(&placed(b"", field)));
        // A field that is named twice is gone the second time.
        let value = value.filter(|_| taken.insert(field));
        items.next().optional(value.as_deref());
        if items.exceed_reply_limit() {
            reply.error(TOO_LARGE);
            return Ok(());
        }
    }
    if let Some(mut hash) = hash.filter(|_| !taken.is_empty()) {
        for field in taken {
            hash.remove(&placed(b"", field));
        }
        hash.event(class::HASH, "hdel");
        hash.close();
    }
    items.write(reply, Reply::array);
    Ok(())
}
