//! The database of a client: an option of it, selected on each of its connections.

use std::{io, time::Duration};

use crate::{error::Error, link::Link};

/// Prefix of the error of a node that refuses to select the client's database.
const REFUSED: &str = "SELECT refused: ";

/// Selects the client's database on a new connection, which begins in database 0.
pub(crate) fn select(link: &mut Link, database: u8, wait: Duration) -> io::Result<()> {
    if database == 0 {
        return Ok(());
    }
    let number = database.to_string();
    link.run_setup_command(&[b"SELECT", number.as_bytes()], wait).map(drop).map_err(|error| {
        match error.to_string().starts_with("ERR ") {
            true => io::Error::other(format!("{REFUSED}{error}")),
            // Has nothing to do with the database, such as NOAUTH or a lost connection.
            false => error,
        }
    })
}

/// Returns whether a node refused to select the client's database.
pub(crate) fn is_refusal(text: &str) -> bool {
    text.starts_with(REFUSED)
}

/// Returns whether a command would change the database of a connection.
pub(crate) fn is_selection(arguments: &[&[u8]]) -> bool {
    let name = arguments.first().copied().unwrap_or_default();
    name.eq_ignore_ascii_case(b"SELECT") || name.eq_ignore_ascii_case(b"RESET")
}

/// Refuses a command that would change the database of a connection: the next command may be sent
/// on another one.
pub(crate) fn check_command(arguments: &[&[u8]]) -> Result<(), Error> {
    match is_selection(arguments) {
        true => Err(refusal(&String::from_utf8_lossy(arguments[0]))),
        false => Ok(()),
    }
}

/// Refuses a transaction that would change the database of a connection, as `selects` says.
pub(crate) fn check_transaction(selects: bool) -> Result<(), Error> {
    match selects {
        true => Err(refusal("a transaction with SELECT")),
        false => Ok(()),
    }
}

fn refusal(what: &str) -> Error {
    Error::Refused(format!(
        "{what} is not sent: it changes one connection, and later commands may need a new one; \
         the database is an option of the client"
    ))
}
