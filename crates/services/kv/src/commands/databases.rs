//! Commands on several databases: MOVE, SWAPDB, FLUSHALL, and COPY to a given database.
//!
//! Every other command uses the database that its store has selected. A command in the log has the
//! number of its database as a prefix ([`Op::In`]), and a change of selection within a command is
//! undone before it ends.

use crate::{
    command::{Doc, REMOVES, Refusal, Request, Spec, WRITES},
    commands::{
        events::class,
        family::{Family, Operation},
        keys::{SAME_OBJECTS, contents, copy_between, note_flushed},
        rows::copy_rows,
        selection::{decode_database, parse_database, within},
        state::WriteContext,
    },
    encode::{Decoder, Encoder, Fault},
    op::Op,
    resp::{integer::parse_integer, reply::Reply},
    store::{Database, collection::Header},
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::write(Op::MoveDb, move_db),
        Operation::write(Op::SwapDb, swap_db),
        Operation::write(Op::FlushAll, flush_all),
        Operation::write(Op::CopyTo, copy_to),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "move",
        3,
        WRITES,
        (1, 1, 1),
        encode_move,
        Doc::new(
            "generic",
            "1.0.0",
            "O(1), and O(N) for a collection of N elements",
            "Moves a key to another database.",
        )
        .with_difference("copies a collection: more than 209 715 rows are refused"),
    ),
    Spec::data(
        "swapdb",
        3,
        REMOVES,
        (0, 0, 0),
        encode_swapdb,
        Doc::new(
            "server",
            "4.0.0",
            "O(N), where N is the number of keys that clients wait for in both databases",
            "Swaps two databases.",
        ),
    ),
    Spec::data(
        "flushall",
        -1,
        REMOVES,
        (0, 0, 0),
        encode_flush_all,
        Doc::new("server", "1.0.0", "O(1)", "Removes all keys from all databases."),
    ),
];

/// Visits per key that clients wait for in a database that is swapped.
pub(super) const SWAPPED_NAME: u64 = 4;

fn encode_move(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let to = parse_database(r.at(1))?;
    if to == r.database {
        return Err(SAME_OBJECTS.into());
    }
    out.byte(Op::MoveDb as u8).byte(to.number()).bytes(r.at(0));
    Ok(())
}

/// Moves a key. A collection is copied and removed, because its rows belong to its database.
fn move_db(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (to, key) = (decode_database(from)?, from.key()?);
    from.end()?;
    if to == state.store.selected() {
        reply.error(SAME_OBJECTS);
        return Ok(());
    }
    if !state.store.contains(key) || within(state, to, |state| state.store.contains(key)) {
        reply.integer(0);
        return Ok(());
    }
    let Some(mut found) = contents(state, key)? else {
        reply.integer(0);
        return Ok(());
    };
    if let Some(header) = Header::from_bytes(&found.value).filter(|_| found.kind.has_rows()) {
        found.value = copy_rows(state, header, to)?.to_bytes().to_vec();
    }
    state.remove(key);
    state.event(class::GENERIC, "move_from", key);
    within(state, to, |state| {
        state.set(key, &found.value, found.deadline, found.kind);
        state.notify_blocked_readers(key);
        state.event(class::GENERIC, "move_to", key);
    });
    reply.integer(1);
    Ok(())
}

fn encode_swapdb(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    for (at, text) in [(0, "ERR invalid first DB index"), (1, "ERR invalid second DB index")] {
        parse_integer(r.at(at)).ok_or(text)?;
    }
    let (a, b) = (parse_database(r.at(0))?, parse_database(r.at(1))?);
    out.byte(Op::SwapDb as u8).byte(a.number()).byte(b.number());
    Ok(())
}

/// Swaps the contents of two databases. The clients that wait for keys stay with the number of
/// their database.
fn swap_db(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (a, b) = (decode_database(from)?, decode_database(from)?);
    from.end()?;
    if a != b {
        state.store.swap(a, b, state.version);
        state.waits.mark_all_ready(a);
        state.waits.mark_all_ready(b);
        state.notify_all_changed();
    }
    reply.ok();
    Ok(())
}

fn encode_flush_all(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    super::keys::check_flush_arguments(r)?;
    out.byte(Op::FlushAll as u8);
    Ok(())
}

fn flush_all(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    from.end()?;
    let used = state.store.in_use();
    let used = || Database::all().filter(move |database| used & database.bit() != 0);
    note_flushed(state, used(), None);
    for database in used() {
        within(state, database, |state| state.store.clear());
    }
    state.notify_all_changed();
    reply.ok();
    Ok(())
}

fn copy_to(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (replace, to) = (from.byte()? != 0, decode_database(from)?);
    let (source, target) = (from.key()?, from.key()?);
    from.end()?;
    copy_between((source, target), to, replace, state, reply)
}
