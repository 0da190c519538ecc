//! XINFO: the state of a stream.

use std::ops::ControlFlow;

use super::{
    entries::{collect, write_entry},
    groups,
    id::reply_id,
    rows::View,
    run::NO_KEY,
};
use crate::{
    command::{NOT_AN_INTEGER, Refusal, Request},
    commands::{
        server::encode_literal,
        state::{ReadContext, TOO_LARGE, too_large},
    },
    encode::{Decoder, Encoder, Fault},
    op::Op,
    resp::{integer::parse_integer, reply::Reply},
    store::{Span, stream::EntryId},
};

/// Subcommands.
mod sub {
    pub(super) const STREAM: u8 = 0;
    pub(super) const FULL: u8 = 1;
    pub(super) const GROUPS: u8 = 2;
    pub(super) const CONSUMERS: u8 = 3;
}

/// Number of entries, and of pending entries of a group and of a consumer, that FULL shows.
const FULL_COUNT: u64 = 10;

const HELP: [&str; 9] = [
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
    "    Prints this help.",
];

pub(super) fn encode(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (name, length) = (r.at(0).to_ascii_lowercase(), r.arguments.len());
    let is_arity = match &*name {
        b"stream" => length >= 2,
        b"groups" => length == 2,
        b"consumers" => length == 3,
        b"help" => length == 1,
        _ => return Err(unknown_subcommand("unknown subcommand", r.at(0))),
    };
    if !is_arity {
        let name = String::from_utf8_lossy(&name);
        let text = format!("ERR wrong number of arguments for 'xinfo|{name}' command");
        return Err(Refusal::Text(text.into()));
    }
    let key = r.at(1);
    match &*name {
        b"help" => help(out),
        b"groups" => _ = out.byte(Op::XInfo as u8).byte(sub::GROUPS).bytes(key),
        b"consumers" => {
            let group = r.field(2)?;
            out.byte(Op::XInfo as u8).byte(sub::CONSUMERS).bytes(key).word(r.wall_ms).bytes(group);
        }
        _ if length == 2 => _ = out.byte(Op::XInfo as u8).byte(sub::STREAM).bytes(key),
        _ => {
            let count = full_count(r)?;
            out.byte(Op::XInfo as u8).byte(sub::FULL).bytes(key).count(count);
        }
    }
    Ok(())
}

fn unknown_subcommand(what: &str, word: &[u8]) -> Refusal {
    let word: String = word.iter().take(128).map(|byte| byte.escape_ascii().to_string()).collect();
    Refusal::Text(format!("ERR {what} '{word}'. Try XINFO HELP.").into())
}

/// Parses `FULL [COUNT n]`. A count of 0 is no limit.
fn full_count(r: &Request<'_>) -> Result<u64, Refusal> {
    match r.arguments.len() {
        3 if r.is(2, "full") => Ok(FULL_COUNT),
        5 if r.is(2, "full") && r.is(3, "count") => {
            let count = parse_integer(r.at(4)).ok_or(NOT_AN_INTEGER)?;
            Ok(u64::try_from(count).unwrap_or(FULL_COUNT))
        }
        _ => {
            Err(unknown_subcommand("unknown subcommand or wrong number of arguments for", r.at(0)))
        }
    }
}

fn help(out: &mut Encoder<'_>) {
    let mut bytes = Vec::new();
    let reply = &mut Reply(&mut bytes);
    reply.array(HELP.len());
    HELP.iter().for_each(|line| reply.simple(line));
    encode_literal(&bytes, out);
}

pub(super) fn info(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (sub, key) = (from.byte()?, from.key()?);
    let what = match sub {
        sub::STREAM => InfoPart::Stream,
        sub::FULL => InfoPart::Full(from.count()?),
        sub::GROUPS => InfoPart::Groups,
        sub::CONSUMERS => {
            InfoPart::Consumers(groups::clock(from, state.store.time())?, from.field()?)
        }
        _ => return Err(Fault::Malformed),
    };
    from.end()?;
    let Ok(found) = View::find(state.store, key, reply) else {
        return Ok(());
    };
    let Some(view) = found else {
        reply.error(NO_KEY);
        return Ok(());
    };
    let start = reply.0.len();
    match what {
        InfoPart::Stream => stream(&view, reply),
        InfoPart::Full(count) => full(&view, count, reply),
        InfoPart::Groups => groups::info::groups(&view, reply),
        InfoPart::Consumers(now_ms, group) => {
            groups::info::consumers(&view, key, group, now_ms, reply);
        }
    }
    too_large(reply, start);
    Ok(())
}

/// Part of a stream's state that a command asks for.
enum InfoPart<'c> {
    Stream,
    /// Everything, with up to this many entries of each list; 0 is no limit.
    Full(u64),
    Groups,
    /// Consumers of a group at a time in milliseconds.
    Consumers(u64, &'c [u8]),
}

/// Writes the seven pairs that both forms of XINFO STREAM begin with.
fn write_head(view: &View<'_>, reply: &mut Reply<'_>) {
    let number = |reply: &mut Reply<'_>, name: &str, number: u64| {
        reply.bulk(name.as_bytes());
        reply.integer(i64::try_from(number).unwrap_or(i64::MAX));
    };
    let id = |reply: &mut Reply<'_>, name: &str, id: EntryId| {
        reply.bulk(name.as_bytes());
        reply_id(id, reply);
    };
    let has_entries = view.header.count > 0;
    number(reply, "length", view.header.count);
    // There is no radix tree. These are the numbers of a small one.
    number(reply, "radix-tree-keys", u64::from(has_entries));
    number(reply, "radix-tree-nodes", 1 + u64::from(has_entries));
    id(reply, "last-generated-id", view.log.last);
    id(reply, "max-deleted-entry-id", view.log.deleted);
    number(reply, "entries-added", view.log.added);
    let first = if has_entries { view.log.first } else { EntryId::MIN };
    id(reply, "recorded-first-entry-id", first);
}

fn stream(view: &View<'_>, reply: &mut Reply<'_>) {
    reply.map(10);
    write_head(view, reply);
    reply.bulk(b"groups");
    reply.count(group_count(view));
    for (name, back) in [("first-entry", false), ("last-entry", true)] {
        reply.bulk(name.as_bytes());
        let mut found = false;
        view.entries((EntryId::MIN, EntryId::MAX), back, &mut |id, fields| {
            found = true;
            write_entry(id, fields, reply);
            ControlFlow::Break(())
        });
        if !found {
            reply.null();
        }
    }
}

/// Returns the number of groups.
fn group_count(view: &View<'_>) -> usize {
    let mut groups = 0;
    if view.log.group_rows > 0 {
        let span = Span { from: b"g", to: Some(b"h"), is_backward: false };
        view.store.rows(view.header.id, span, &mut |_, _| {
            groups += 1;
            ControlFlow::Continue(())
        });
    }
    groups
}

fn full(view: &View<'_>, count: u64, reply: &mut Reply<'_>) {
    let most = (count > 0).then_some(count);
    let entries = collect(view, (EntryId::MIN, EntryId::MAX), false, most);
    if entries.exceed_reply_limit() {
        return reply.error(TOO_LARGE);
    }
    reply.map(9);
    write_head(view, reply);
    reply.bulk(b"entries");
    entries.write(reply, Reply::array);
    reply.bulk(b"groups");
    groups::info::write_full(view, count, reply);
}
