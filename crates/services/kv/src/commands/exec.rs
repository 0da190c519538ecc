//! EXEC: executes the commands of a transaction atomically.

use crate::{
    commands::{
        execute,
        scripts::run,
        selection::{in_database, within},
        state::{WriteContext, too_large},
        transactions::{key_state, watched},
        visits::execute_bounded,
    },
    encode::{Decoder, Fault},
    op::{Op, Split},
    resp::reply::{NULL_ARRAY, Reply},
};

/// Executes all commands of a transaction, each in its database. If a watched key has changed since
/// WATCH in its database, executes none ([db-6]). `op` is [`Op::Exec`] or [`Op::ExecIn`].
pub fn exec(
    op: Op,
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut unchanged = true;
    for _ in 0..from.length()? {
        let (database, key, was) = watched(op, from)?;
        if was.has_absent_version() {
            state.store.removals_mut().replicate(state.version);
        }
        let now = in_database(state.store, database, || key_state(state.store, key));
        unchanged &= was.is_unchanged(now);
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
        let split = Op::split_queued(command);
        if large && split.is_some_and(|split| split.op.is_read()) {
            continue;
        }
        let unwanted = &mut Vec::new();
        let place = &mut Reply(if large { unwanted } else { &mut *reply.0 });
        execute_command(split, state, place);
        large = large || too_large(reply, start);
    }
    Ok(())
}

/// Executes one command of a transaction and writes exactly one reply.
fn execute_command(split: Option<Split<'_>>, state: &mut WriteContext<'_>, reply: &mut Reply<'_>) {
    let start = reply.0.len();
    let done = match split {
        None => Err(Fault::Malformed),
        Some(Split { op, mut from, database, .. }) => within(state, database, |state| match op {
            Op::Script | Op::ScriptRo => run::apply(op, &mut from, state, reply),
            op if state.is_bounded => execute_bounded(op, &mut from, state, reply),
            op => execute(op, &mut from, state, reply),
        }),
    };
    if let Err(fault) = done {
        reply.0.truncate(start);
        reply.error(fault.text());
    }
}
