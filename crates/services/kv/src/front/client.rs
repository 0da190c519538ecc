//! CLIENT: the clients connected to this node, and changes to their connections.

use quorate_replica::front::ConnectionId;

use super::{
    roster::{ClientEntry, ClientSlot, label},
    shared::Shared,
    subcommands,
    waiting::UnblockReply,
};
use crate::{
    command::{Local, NOT_AN_INTEGER, SYNTAX},
    resp::{integer::parse_integer, reply::Reply, request::Arguments},
};

/// Answers CLIENT and its subcommands. The caller has updated the table entry of the connection in
/// slot `seat`.
pub(super) fn client(
    id: ConnectionId,
    seat: ClientSlot,
    arguments: &Arguments<'_>,
    shared: &mut Shared,
    now_ms: u64,
    r: &mut Reply<'_>,
) {
    match &*arguments.at(1).to_ascii_lowercase() {
        b"id" => r.integer(i64::try_from(id.0).unwrap_or(i64::MAX)),
        b"getname" => {
            let name = shared.roster.guest(seat).map(|guest| guest.name.as_bytes());
            r.optional(name.filter(|name| !name.is_empty()));
        }
        b"setname" => match shared.roster.set_name(seat, arguments.at(2)) {
            Ok(()) => r.ok(),
            Err(text) => r.error(text),
        },
        b"setinfo" => set_info(seat, arguments, shared, r),
        // Keys are not evicted, and no key records when it was last used.
        b"no-evict" | b"no-touch" => match &*arguments.at(2).to_ascii_lowercase() {
            b"on" | b"off" => r.ok(),
            _ => r.error(SYNTAX),
        },
        b"info" => {
            let guest = shared.roster.guest(seat);
            r.verbatim(&guest.map_or_else(String::new, |guest| guest.line(now_ms)));
        }
        b"list" => {
            list(arguments, shared, now_ms, r);
        }
        _ => subcommands::help(Local::Client, r),
    }
}

/// Returns the connection whose wait CLIENT UNBLOCK ends, and the reply that the blocked client
/// gets.
pub(super) fn unblocks(
    arguments: &Arguments<'_>,
) -> Result<(ConnectionId, UnblockReply), &'static str> {
    let how = match (arguments.len(), &*arguments.at(3).to_ascii_lowercase()) {
        (3, _) | (4, b"timeout") => UnblockReply::Timeout,
        (4, b"error") => UnblockReply::Error,
        (4, _) => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        _ => return Err(SYNTAX),
    };
    let id = parse_integer(arguments.at(2)).ok_or(NOT_AN_INTEGER)?;
    // No connection has a negative number or the largest one.
    let id = u64::try_from(id).unwrap_or(u64::MAX);
    Ok((ConnectionId(id), how))
}

/// Sets the name and version of the client library.
fn set_info(seat: ClientSlot, arguments: &Arguments<'_>, shared: &mut Shared, r: &mut Reply<'_>) {
    let Some(guest) = shared.roster.guest(seat) else {
        return r.ok();
    };
    let option = arguments.at(2).to_ascii_lowercase();
    let field = match &*option {
        b"lib-name" => &mut guest.library,
        b"lib-ver" => &mut guest.library_version,
        _ => {
            let option = arguments.at(2).escape_ascii();
            return r.error(&format!("ERR Unrecognized option '{option}'"));
        }
    };
    match label(arguments.at(3)) {
        Some(text) => {
            *field = text;
            r.ok();
        }
        None => {
            let option = String::from_utf8_lossy(&option);
            r.error(&format!(
                "ERR {option} cannot contain spaces, newlines or special characters."
            ));
        }
    }
}

/// Answers `CLIENT LIST [TYPE normal|…] [ID id …]`.
fn list(arguments: &Arguments<'_>, shared: &Shared, now_ms: u64, r: &mut Reply<'_>) {
    let option = arguments.at(2).to_ascii_lowercase();
    let mut ids = None;
    let mut none = false;
    match (&*option, arguments.len()) {
        (_, 2) => {}
        (b"type", 4) => match &*arguments.at(3).to_ascii_lowercase() {
            b"normal" | b"pubsub" => {}
            b"master" | b"replica" | b"slave" => none = true,
            other => {
                let other = other.escape_ascii();
                return r.error(&format!("ERR Unknown client type '{other}'"));
            }
        },
        (b"id", 4..) => {
            let given: Option<Vec<i64>> = arguments.from(3).iter().map(parse_integer).collect();
            match given {
                Some(given) => ids = Some(given),
                None => return r.error("ERR Invalid client ID"),
            }
        }
        _ => return r.error(SYNTAX),
    }
    let listens = (option == b"type").then(|| arguments.at(3).eq_ignore_ascii_case(b"pubsub"));
    let wanted = |guest: &&ClientEntry| {
        let id = i64::try_from(guest.id.0).unwrap_or(i64::MAX);
        !none
            && ids.as_ref().is_none_or(|ids| ids.contains(&id))
            && listens.is_none_or(|listens| listens == guest.is_listening())
    };
    let guests = shared.roster.all();
    let lines = guests.into_iter().filter(wanted).map(|guest| guest.line(now_ms));
    r.verbatim(&lines.collect::<String>());
}
