//! EXEC: executes the commands of a transaction atomically.

use crate::{
    commands::{
        execute,
        scripts::run,
        state::{WriteContext, too_large},
        transactions::{key_state, watched},
        visits::execute_bounded,
    },
    encode::{Decoder, Fault},
    op::Op,
    resp::reply::{NULL_ARRAY, Reply},
};

/// Executes all commands of a transaction. If a watched key has changed since WATCH, executes none.
pub fn exec(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut unchanged = true;
    for _ in 0..from.length()? {
        let (key, was) = watched(from)?;
        if was.has_absent_version() {
            state.store.removals_mut().replicate(state.version);
        }
        unchanged &= was.is_unchanged(key_state(state.store, key));
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
        // Once the reply is too large, writes are still executed. Reads are skipped, as their
        // replies would be discarded.
        let op = command.first().copied().and_then(Op::from_byte);
        if large && op.is_some_and(Op::is_read) {
            continue;
        }
        let unwanted = &mut Vec::new();
        let place = &mut Reply(if large { unwanted } else { &mut *reply.0 });
        execute_command(command, state, place);
        large = large || too_large(reply, start);
    }
    Ok(())
}

/// Executes one command of a transaction and writes exactly one reply.
fn execute_command(command: &[u8], state: &mut WriteContext<'_>, reply: &mut Reply<'_>) {
    let start = reply.0.len();
    let mut decoder = Decoder(command);
    let done = match decoder.byte().ok().and_then(Op::from_byte) {
        None => Err(Fault::Malformed),
        Some(op) if op.stands_alone() => Err(Fault::Malformed),
        Some(op @ (Op::Script | Op::ScriptRo)) => run::apply(op, &mut decoder, state, reply),
        Some(op) if state.is_bounded => execute_bounded(op, &mut decoder, state, reply),
        Some(op) => execute(op, &mut decoder, state, reply),
    };
    if let Err(fault) = done {
        reply.0.truncate(start);
        reply.error(fault.text());
    }
}
