//! CLIENT: lists and changes the client connections of this node.

use quorate_replica::front::ConnectionId;

use super::{
    roster::{ClientEntry, ClientSlot, label},
    shared::{Pause, Shared},
    subcommands,
    waiting::UnblockReply,
};
use crate::{
    command::{Local, NOT_AN_INTEGER, SYNTAX},
    resp::{integer::parse_integer, reply::Reply, request::Arguments},
};

/// Answers CLIENT and its subcommands. The caller has updated the connection's entry, which is in
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
            let name = shared.clients.entry_mut(seat).map(|guest| guest.name.as_bytes());
            r.optional(name.filter(|name| !name.is_empty()));
        }
        b"setname" => match shared.clients.set_name(seat, arguments.at(2)) {
            Ok(()) => r.ok(),
            Err(text) => r.error(text),
        },
        b"setinfo" => set_info(seat, arguments, shared, r),
        // No effect: keys are not evicted, and their use is not recorded.
        b"no-evict" | b"no-touch" => match &*arguments.at(2).to_ascii_lowercase() {
            b"on" | b"off" => r.ok(),
            _ => r.error(SYNTAX),
        },
        b"info" => {
            let guest = shared.clients.entry_mut(seat);
            r.verbatim(&guest.map_or_else(String::new, |guest| guest.line(now_ms)));
        }
        b"list" => {
            list(arguments, shared, now_ms, r);
        }
        b"pause" => answer_pause(arguments, shared, now_ms, r),
        b"unpause" => {
            shared.end_pause();
            r.ok();
        }
        _ => subcommands::help(Local::Client, r),
    }
}

/// Parses CLIENT UNBLOCK. Returns the connection to unblock and the reply to its blocked request.
pub(super) fn parse_unblock(
    arguments: &Arguments<'_>,
) -> Result<(ConnectionId, UnblockReply), &'static str> {
    let how = match (arguments.len(), &*arguments.at(3).to_ascii_lowercase()) {
        (3, _) | (4, b"timeout") => UnblockReply::Timeout,
        (4, b"error") => UnblockReply::Error,
        (4, _) => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        _ => return Err(SYNTAX),
    };
    let id = parse_integer(arguments.at(2)).ok_or(NOT_AN_INTEGER)?;
    // No connection has this number.
    let id = u64::try_from(id).unwrap_or(u64::MAX);
    Ok((ConnectionId(id), how))
}

/// Clients that CLIENT KILL selects, oldest first.
#[derive(Debug)]
pub(super) struct KillSelection {
    pub(super) clients: Vec<ConnectionId>,
    /// True for `CLIENT KILL addr:port`, whose reply is not a number.
    pub(super) by_address: bool,
}

/// Returns the clients to disconnect for CLIENT KILL.
pub(super) fn select_clients_to_kill(
    own: ConnectionId,
    arguments: &Arguments<'_>,
    shared: &Shared,
    now_ms: u64,
) -> Result<KillSelection, String> {
    let by_address = arguments.len() == 3;
    let mut guests = shared.clients.oldest_first();
    if by_address {
        guests.retain(|guest| guest.endpoints.peer.as_bytes() == arguments.at(2));
    } else if !arguments.len().is_multiple_of(2) {
        return Err(SYNTAX.to_owned());
    }
    let mut spares_own = !by_address;
    for at in (2..arguments.len() - 1).step_by(2) {
        let value = arguments.at(at + 1);
        match &*arguments.at(at).to_ascii_lowercase() {
            b"id" => {
                let id = parse_integer(value).and_then(|id| u64::try_from(id).ok());
                let id = id.filter(|id| *id > 0).ok_or("ERR client-id should be greater than 0")?;
                guests.retain(|guest| guest.id.0 == id);
            }
            b"addr" => guests.retain(|guest| guest.endpoints.peer.as_bytes() == value),
            b"laddr" => guests.retain(|guest| guest.endpoints.local.as_bytes() == value),
            b"user" => guests.retain(|guest| guest.user.as_bytes() == value),
            b"type" => {
                let listens = parse_client_type(value)?;
                guests.retain(|guest| Some(guest.is_listening()) == listens);
            }
            b"maxage" => {
                let seconds = parse_integer(value).and_then(|age| u64::try_from(age).ok());
                let seconds = seconds.ok_or(NOT_AN_INTEGER)?;
                guests.retain(|guest| now_ms.saturating_sub(guest.opened_ms) / 1000 >= seconds);
            }
            b"skipme" => match &*value.to_ascii_lowercase() {
                b"yes" => spares_own = true,
                b"no" => spares_own = false,
                _ => return Err(SYNTAX.to_owned()),
            },
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    let clients = guests.iter().map(|guest| guest.id);
    let clients: Vec<_> = clients.filter(|id| !spares_own || *id != own).collect();
    if by_address && clients.is_empty() {
        return Err("ERR No such client".to_owned());
    }
    Ok(KillSelection { clients, by_address })
}

/// Returns whether clients of this type are subscribers. `None` stands for the types of connections
/// between Redis servers, which do not exist here.
fn parse_client_type(name: &[u8]) -> Result<Option<bool>, String> {
    match &*name.to_ascii_lowercase() {
        b"normal" => Ok(Some(false)),
        b"pubsub" => Ok(Some(true)),
        b"master" | b"replica" | b"slave" => Ok(None),
        other => Err(format!("ERR Unknown client type '{}'", other.escape_ascii())),
    }
}

/// Answers `CLIENT PAUSE ms [WRITE|ALL]`.
fn answer_pause(arguments: &Arguments<'_>, shared: &mut Shared, now_ms: u64, r: &mut Reply<'_>) {
    let only_writes = match (arguments.len(), &*arguments.at(3).to_ascii_lowercase()) {
        (3, _) | (4, b"all") => false,
        (4, b"write") => true,
        _ => return r.error("ERR CLIENT PAUSE mode must be WRITE or ALL"),
    };
    let ms = parse_integer(arguments.at(2)).ok_or("ERR timeout is not an integer or out of range");
    match ms.and_then(|ms| u64::try_from(ms).map_err(|_| "ERR timeout is negative")) {
        Ok(ms) => {
            shared.extend_pause(Pause { until_ms: now_ms.saturating_add(ms), only_writes }, now_ms);
            r.ok();
        }
        Err(text) => r.error(text),
    }
}

/// Sets the name and version of the client library.
fn set_info(seat: ClientSlot, arguments: &Arguments<'_>, shared: &mut Shared, r: &mut Reply<'_>) {
    let Some(guest) = shared.clients.entry_mut(seat) else {
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
    let mut listens = None;
    match (&*option, arguments.len()) {
        (_, 2) => {}
        (b"type", 4) => match parse_client_type(arguments.at(3)) {
            Ok(of_type) => listens = Some(of_type),
            Err(text) => return r.error(&text),
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
    let wanted = |guest: &&ClientEntry| {
        let id = i64::try_from(guest.id.0).unwrap_or(i64::MAX);
        ids.as_ref().is_none_or(|ids| ids.contains(&id))
            && listens.is_none_or(|listens| listens == Some(guest.is_listening()))
    };
    let guests = shared.clients.oldest_first();
    let lines = guests.into_iter().filter(wanted).map(|guest| guest.line(now_ms));
    r.verbatim(&lines.collect::<String>());
}
