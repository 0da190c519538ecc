//! EXEC: commands that are executed all or none, one after the other, with nothing between them.

use crate::{
    commands::{
        ends::seen,
        execute,
        state::{Writing, too_large},
        transactions::Seen,
    },
    encode::{Decoder, Fault},
    op::Op,
    resp::reply::{NULL_ARRAY, Reply},
};

/// Executes all or nothing: nothing if a watched key changed after WATCH saw it.
pub fn exec(
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut unchanged = true;
    for _ in 0..from.length()? {
        let key = from.key()?;
        let (slot, index) = (from.word()?, from.count()?);
        unchanged &= seen(state.store, key) == Seen { slot, index };
    }
    let commands = from.list()?;
    from.end()?;
    if !unchanged {
        reply.0.extend_from_slice(NULL_ARRAY);
        return Ok(());
    }
    let start = reply.0.len();
    reply.array(commands.len());
    let mut large = false;
    for command in commands {
        // The commands behind a reply that became too large are executed all the same, but for
        // reads: nobody sees what those say.
        let op = command.first().copied().and_then(Op::from_byte);
        if large && op.is_some_and(Op::is_read) {
            continue;
        }
        let unwanted = &mut Vec::new();
        let place = &mut Reply(if large { unwanted } else { &mut *reply.0 });
        one(command, state, place);
        large = large || too_large(reply, start);
    }
    Ok(())
}

/// One command of a transaction; whatever happens, it gives one reply.
fn one(command: &[u8], state: &mut Writing<'_>, reply: &mut Reply<'_>) {
    let start = reply.0.len();
    let mut decoder = Decoder(command);
    let done = match decoder.byte().ok().and_then(Op::from_byte) {
        None => Err(Fault::Malformed),
        Some(op) if op.stands_alone() => Err(Fault::Malformed),
        Some(op) => execute(op, &mut decoder, state, reply),
    };
    if let Err(fault) = done {
        reply.0.truncate(start);
        reply.error(fault.text());
    }
}
