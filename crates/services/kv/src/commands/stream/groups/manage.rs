//! XGROUP: creates, changes and removes groups and consumers.

use std::ops::ControlFlow;

use super::{
    super::{
        id,
        rows::{self, View},
    },
    change::{Change, next_number},
    clock,
    rows::{Group, name, rows_end},
    text,
};
use crate::{
    command::{Refusal, Request},
    commands::{
        budget::CHANGED_ROW,
        server::encode_literal,
        state::{WriteContext, WrongType},
    },
    encode::{Decoder, Encoder, Fault},
    key::Key,
    op::Op,
    resp::reply::Reply,
    store::{Span, Store, stream::EntryId},
};

/// Subcommands with their numbers of arguments, which include both words, as in the command table.
const SUBCOMMANDS: [(&str, i8); 6] = [
    ("create", -5),
    ("createconsumer", 5),
    ("delconsumer", 5),
    ("destroy", 4),
    ("help", 2),
    ("setid", -5),
];

const HELP: [&str; 17] = [
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
    "HELP",
    "    Print this help.",
];

const NO_STREAM: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.";

/// Bytes of rows removed at a time.
const CHUNK_BYTES: usize = 1 << 20;

mod sub {
    pub(super) const CREATE: u8 = 0;
    /// CREATE with MKSTREAM.
    pub(super) const CREATE_STREAM: u8 = 1;
    pub(super) const SET_ID: u8 = 2;
    pub(super) const DESTROY: u8 = 3;
    pub(super) const CREATE_CONSUMER: u8 = 4;
    pub(super) const DELETE_CONSUMER: u8 = 5;
}

/// Returns the subcommand of a request, or Redis' error if there is none or its number of arguments
/// is wrong.
fn subcommand(r: &Request<'_>) -> Result<&'static str, Refusal> {
    let found = SUBCOMMANDS.into_iter().find(|(name, _)| r.is(0, name));
    let Some((name, arity)) = found else {
        let word = r.at(0).get(..r.at(0).len().min(128)).unwrap_or_default();
        let word = text(word);
        return Err(Refusal::Text(
            format!("ERR unknown subcommand '{word}'. Try XGROUP HELP.").into(),
        ));
    };
    // The arity counts the name of the command.
    let (count, least) = (r.arguments.len() + 1, usize::from(arity.unsigned_abs()));
    let fits = if arity < 0 { count >= least } else { count == least };
    match fits {
        true => Ok(name),
        false => Err(Refusal::Text(Refusal::Arity.text(&format!("xgroup|{name}")))),
    }
}

/// Encodes XGROUP as the key, the subcommand, the name of the group, and what follows for it.
pub(super) fn encode(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let name = subcommand(r)?;
    let consumer = match name {
        "help" => {
            let mut reply = Vec::new();
            Reply(&mut reply).array(HELP.len());
            HELP.iter().for_each(|line| Reply(&mut reply).simple(line));
            encode_literal(&reply, out);
            return Ok(());
        }
        "create" | "setid" => return encode_position(name == "create", r, out),
        "createconsumer" => Some(sub::CREATE_CONSUMER),
        "delconsumer" => Some(sub::DELETE_CONSUMER),
        _ => None,
    };
    out.byte(Op::XGroup as u8).bytes(r.at(1)).byte(consumer.unwrap_or(sub::DESTROY));
    out.bytes(r.field(2)?);
    if consumer.is_some() {
        out.bytes(r.field(3)?);
    }
    if consumer == Some(sub::CREATE_CONSUMER) {
        out.word(r.wall_ms);
    }
    Ok(())
}

/// Encodes CREATE or SETID, whose position is an id, or 1 for the last id of the stream.
fn encode_position(create: bool, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (mut make, mut read, mut at) = (false, None, 4);
    while at < r.arguments.len() {
        if create && r.is(at, "mkstream") {
            make = true;
            at += 1;
        } else if r.is(at, "entriesread") && at + 1 < r.arguments.len() {
            let number = r.integer(at + 1)?;
            read = u64::try_from(number).ok();
            if number < -1 {
                return Err("ERR value for ENTRIESREAD must be positive or -1".into());
            }
            at += 2;
        } else {
            let name = text(r.at(0));
            return Err(Refusal::Text(
                format!(
                    "ERR unknown subcommand or wrong number of arguments for '{name}'. Try XGROUP HELP."
                )
                .into(),
            ));
        }
    }
    let id = match (r.at(3), create) {
        (b"$", _) => None,
        (b"-", false) => Some(EntryId::MIN),
        (b"+", false) => Some(EntryId::MAX),
        (text, _) => Some(id::parse(text, 0)?),
    };
    let how = match (create, make) {
        (true, false) => sub::CREATE,
        (true, true) => sub::CREATE_STREAM,
        (false, _) => sub::SET_ID,
    };
    out.byte(Op::XGroup as u8).bytes(r.at(1)).byte(how).bytes(r.field(2)?);
    out.byte(u8::from(id.is_none()));
    id::encode(id.unwrap_or_default(), out);
    out.word(read.unwrap_or(u64::MAX));
    Ok(())
}

enum Action<'c> {
    Create {
        make: bool,
        at: Position,
    },
    SetId(Position),
    Destroy,
    /// Name, and time in milliseconds.
    CreateConsumer(&'c [u8], u64),
    DeleteConsumer(&'c [u8]),
}

/// New position of a group.
struct Position {
    /// Id of the last entry delivered; `None` for the last one of the stream.
    id: Option<EntryId>,
    read: Option<u64>,
}

impl Position {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Fault> {
        let id = match (from.byte()?, id::decode(from)?) {
            (0, id) => Some(id),
            (1, _) => None,
            _ => return Err(Fault::Malformed),
        };
        let read = Some(from.word()?).filter(|read| *read != u64::MAX);
        Ok(Self { id, read })
    }
}

/// Decoded command.
struct Command<'c> {
    key: Key<'c>,
    group: &'c [u8],
    action: Action<'c>,
}

impl<'c> Command<'c> {
    fn decode(from: &mut Decoder<'c>, group_ms: u64) -> Result<Self, Fault> {
        let (key, how, group) = (from.key()?, from.byte()?, from.field()?);
        let action = match how {
            sub::CREATE | sub::CREATE_STREAM => {
                Action::Create { make: how == sub::CREATE_STREAM, at: Position::decode(from)? }
            }
            sub::SET_ID => Action::SetId(Position::decode(from)?),
            sub::DESTROY => Action::Destroy,
            sub::CREATE_CONSUMER => Action::CreateConsumer(from.field()?, clock(from, group_ms)?),
            sub::DELETE_CONSUMER => Action::DeleteConsumer(from.field()?),
            _ => return Err(Fault::Malformed),
        };
        from.end()?;
        Ok(Self { key, group, action })
    }
}

/// Returns an upper bound on the visits of a command.
pub(super) fn visits(from: &mut Decoder<'_>, store: &dyn Store) -> Result<u64, Fault> {
    /// Visits of the longest name of a consumer.
    const NAME: u64 = 64;
    let command = Command::decode(from, 0)?;
    let view = View::find(store, command.key, &mut Reply(&mut Vec::new()));
    let Some(view) = view.ok().flatten() else {
        return Ok(0);
    };
    let rows = match (view.group(command.group), command.action) {
        (Some(group), Action::Destroy) => {
            group.rows().saturating_add(group.consumers.saturating_mul(NAME))
        }
        (Some(group), Action::DeleteConsumer(name)) => {
            let consumer = view.consumer(group.number, name);
            consumer.map_or(0, |consumer| consumer.pending.saturating_mul(2).saturating_add(2))
        }
        _ => 0,
    };
    Ok(rows.saturating_mul(1 + CHANGED_ROW))
}

/// Executes XGROUP.
pub(super) fn manage(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let Command { key, group, action } = Command::decode(from, state.store.time())?;
    let stream = match rows::Change::find(state, key, reply) {
        Err(WrongType) => return Ok(()),
        Ok(found) => found,
    };
    let stream = match (stream, &action) {
        (Some(stream), _) => stream,
        (None, Action::Create { make: true, .. }) => rows::Change::new(state, key),
        (None, _) => {
            reply.error(NO_STREAM);
            return Ok(());
        }
    };
    match action {
        Action::Create { at, .. } => create(stream, group, &at, reply),
        Action::Destroy => destroy(stream, group, reply),
        Action::SetId(at) => {
            let Some(mut change) = existing(stream, key, group, reply) else {
                return Ok(());
            };
            change.group.last = at.id.unwrap_or(change.stream.log.last);
            change.group.read = at.read;
            change.stream.event("xgroup-setid");
            change.stream.wake();
            change.close();
            reply.ok();
        }
        Action::CreateConsumer(consumer, now_ms) => {
            let Some(mut change) = existing(stream, key, group, reply) else {
                return Ok(());
            };
            let is_new = change.set_acting(consumer, now_ms);
            if is_new {
                change.close();
            }
            reply.integer(i64::from(is_new));
        }
        Action::DeleteConsumer(consumer) => {
            if let Some(change) = existing(stream, key, group, reply) {
                delete_consumer(change, consumer, reply);
            }
        }
    }
    Ok(())
}

/// Opens a group. Replies with an error if it does not exist.
fn existing<'w, 'a, 'n>(
    stream: rows::Change<'w, 'a>,
    key: Key<'_>,
    group: &'n [u8],
    reply: &mut Reply<'_>,
) -> Option<Change<'w, 'a, 'n>> {
    let change = Change::open(stream, group);
    if change.is_none() {
        reply.error(&no_group(key, group));
    }
    change
}

/// Returns Redis' error for a group that does not exist.
pub(super) fn no_group(key: Key<'_>, group: &[u8]) -> String {
    let (group, key) = (text(group), text(key.bytes()));
    format!("NOGROUP No such consumer group '{group}' for key name '{key}'")
}

fn create(mut stream: rows::Change<'_, '_>, name: &[u8], at: &Position, reply: &mut Reply<'_>) {
    if stream.view().group(name).is_some() {
        reply.error("BUSYGROUP Consumer Group name already exists");
        return;
    }
    let last = at.id.unwrap_or(stream.log.last);
    let group = Group::new(next_number(&mut stream), last, at.read);
    stream.put_group_row(&name::group(name), &group.to_bytes(), None);
    stream.event("xgroup-create");
    stream.wake();
    stream.close();
    reply.ok();
}

fn delete_consumer(mut change: Change<'_, '_, '_>, name: &[u8], reply: &mut Reply<'_>) {
    let found = change.stream.view().consumer(change.group.number, name);
    let Some(consumer) = found else {
        return reply.integer(0);
    };
    change.remove_consumer(name, consumer);
    change.stream.event("xgroup-delconsumer");
    change.close();
    reply.integer(consumer.pending.cast_signed());
}

fn destroy(mut stream: rows::Change<'_, '_>, group: &[u8], reply: &mut Reply<'_>) {
    let Some(Group { number, .. }) = stream.view().group(group) else {
        return reply.integer(0);
    };
    for kind in [name::PENDING, name::OWNED, name::NAME, name::CONSUMER] {
        remove_all(&mut stream, kind, number);
    }
    stream.remove_group_row(&name::group(group), Group::BYTES);
    stream.event("xgroup-destroy");
    stream.wake();
    stream.close();
    reply.integer(1);
}

/// Removes all rows of a group of one kind.
fn remove_all(stream: &mut rows::Change<'_, '_>, kind: u8, group: u64) {
    let (mut from, to) = (name::rows_prefix(kind, group), rows_end(kind, group));
    loop {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let view = stream.view();
        let span = Span { from: &from, to: Some(&to), is_backward: false };
        view.store.rows(view.header.id, span, &mut |name, value| {
            bytes += name.len();
            found.push((name.to_vec(), value.len()));
            match bytes < CHUNK_BYTES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        for (name, length) in &found {
            stream.remove_group_row(name, *length);
        }
        match found.pop() {
            Some((last, _)) if bytes >= CHUNK_BYTES => from = [last, vec![0]].concat(),
            _ => return,
        }
    }
}
