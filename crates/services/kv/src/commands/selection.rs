//! Selection of a database, within a command and by the words of a client.

use crate::{
    command::NOT_AN_INTEGER,
    commands::state::WriteContext,
    encode::{Decoder, Fault},
    op::Op,
    resp::integer::parse_integer,
    store::{Database, Store},
};

/// Redis' error for a number above that of the last database, or below 0.
pub const OUT_OF_RANGE: &str = "ERR DB index is out of range";

/// Redis' error for SELECT of another database in cluster mode.
pub(crate) const SELECT_IN_CLUSTER_MODE: &str = "ERR SELECT is not allowed in cluster mode";

/// Returns Redis' error for an operation on a second database in cluster mode, if it is one.
pub(crate) const fn refusal_in_cluster_mode(op: Op) -> Option<&'static str> {
    match op {
        Op::MoveDb => Some("ERR MOVE is not allowed in cluster mode"),
        Op::SwapDb => Some("ERR SWAPDB is not allowed in cluster mode"),
        Op::CopyTo => Some("ERR Copying to another database is not allowed in cluster mode"),
        _ => None,
    }
}

/// [db-2] Executes a read with a database selected, and selects the one before again.
pub(crate) fn in_database<T>(store: &dyn Store, database: Database, read: impl FnOnce() -> T) -> T {
    let before = store.select(database);
    let done = read();
    store.select(before);
    done
}

/// [db-2] Executes a part of a command with a database selected, and selects the one before again.
pub(crate) fn within<'s, T>(
    state: &mut WriteContext<'s>,
    database: Database,
    run: impl FnOnce(&mut WriteContext<'s>) -> T,
) -> T {
    let before = state.store.select(database);
    let done = run(state);
    state.store.select(before);
    done
}

/// Parses the argument of SELECT, or another argument that is the number of a database.
pub fn parse_database(text: &[u8]) -> Result<Database, &'static str> {
    let number = parse_integer(text).ok_or(NOT_AN_INTEGER)?;
    u64::try_from(number).ok().and_then(Database::new).ok_or(OUT_OF_RANGE)
}

/// Decodes the number of a database that a command names besides its own.
pub(super) fn decode_database(from: &mut Decoder<'_>) -> Result<Database, Fault> {
    Database::new(from.byte()?.into()).ok_or(Fault::Malformed)
}
