//! Streams: client commands and their encoding. `rows` says how a stream is stored.

mod entries;
pub(super) mod groups;
mod id;
mod info;
pub(crate) mod read;
pub(super) mod rows;
pub(super) mod run;
mod trim;
pub mod waiting;

use self::trim::Options;
use crate::{
    command::{
        Doc, NOT_AN_INTEGER, READS, READS_BLOCKING, REMOVES, Refusal, Request, SYNTAX, Spec, WRITES,
    },
    commands::{
        elements,
        family::{Family, Operation},
    },
    encode::Encoder,
    op::Op,
    resp::integer::parse_integer,
    store::{collection::Kind, stream::EntryId},
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::XRange, run::range),
        Operation::read(Op::XRead, read::read),
        Operation::read(Op::XInfo, info::info),
        Operation::read(Op::XUndelivered, waiting::undelivered),
        Operation::write(Op::XAdd, run::add),
        Operation::write(Op::XDel, run::delete),
        Operation::write(Op::XTrim, run::trim),
        Operation::write(Op::XSetId, run::set_id),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "xadd",
        -5,
        WRITES,
        (1, 1, 1),
        encode_xadd,
        Doc::new(
            "stream",
            "5.0.0",
            "O(1) when adding a new entry, O(N) when trimming where N is the number of entries removed",
            "Appends a new message to a stream. Creates the key if it doesn't exist.",
        )
        .with_difference("trims exactly, up to 100 000 entries at a time: [Streams](#streams)"),
    ),
    Spec::data(
        "xlen",
        2,
        READS,
        (1, 1, 1),
        encode_xlen,
        Doc::new("stream", "5.0.0", "O(1)", "Returns the number of messages in a stream."),
    ),
    Spec::data(
        "xrange",
        -4,
        READS,
        (1, 1, 1),
        encode_xrange,
        Doc::new(
            "stream",
            "5.0.0",
            "O(N), where N is the number of entries returned",
            "Returns the messages from a stream within a range of IDs.",
        ),
    ),
    Spec::data(
        "xrevrange",
        -4,
        READS,
        (1, 1, 1),
        encode_xrevrange,
        Doc::new(
            "stream",
            "5.0.0",
            "O(N), where N is the number of entries returned",
            "Returns the messages from a stream within a range of IDs in reverse order.",
        ),
    ),
    Spec::data(
        "xdel",
        -3,
        REMOVES,
        (1, 1, 1),
        encode_xdel,
        Doc::new(
            "stream",
            "5.0.0",
            "O(1) for each entry to be removed",
            "Returns the number of messages after removing them from a stream.",
        ),
    ),
    Spec::data(
        "xtrim",
        -4,
        REMOVES,
        (1, 1, 1),
        encode_xtrim,
        Doc::new(
            "stream",
            "5.0.0",
            "O(N), where N is the number of entries removed",
            "Deletes messages from the beginning of a stream.",
        )
        .with_difference("trims exactly, with `~` up to LIMIT: [Streams](#streams)"),
    ),
    Spec::data(
        "xsetid",
        -3,
        WRITES,
        (1, 1, 1),
        encode_xsetid,
        Doc::new(
            "stream",
            "5.0.0",
            "O(1)",
            "An internal command for replicating stream values.",
        ),
    ),
    Spec::data(
        "xread",
        -4,
        READS_BLOCKING,
        (0, 0, 0),
        read::encode,
        Doc::new(
            "stream",
            "5.0.0",
            "O(N), where N is the number of entries returned",
            "Returns messages from multiple streams with IDs greater than the ones requested. Blocks until a message is available otherwise.",
        ),
    ),
    Spec::data(
        "xinfo",
        -2,
        READS,
        (2, 2, 1),
        info::encode,
        Doc::new(
            "stream",
            "5.0.0",
            "Depends on subcommand.",
            "A container for stream introspection commands.",
        )
        .with_difference("no radix tree, so its numbers are those of a small one"),
    ),
];

fn encode_xadd(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let options = Options::parse(r, true)?;
    let fields = r.arguments.from(options.end);
    let Some(id) = options.id.filter(|_| !fields.is_empty() && fields.len().is_multiple_of(2))
    else {
        return Err(Refusal::Arity);
    };
    let existing = if options.only_existing { run::flag::EXISTING } else { 0 };
    let trims = if options.trim.is_some() { run::flag::TRIMS } else { 0 };
    out.byte(Op::XAdd as u8).bytes(r.at(0)).byte(existing | trims);
    if let Some(trim) = options.trim {
        trim.encode(out);
    }
    id.encode(r.wall_ms, out);
    elements::write_rest(r, options.end, out);
    Ok(())
}

fn encode_xtrim(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let trim = Options::parse(r, false)?.trim.ok_or(SYNTAX)?;
    out.byte(Op::XTrim as u8).bytes(r.at(0));
    trim.encode(out);
    Ok(())
}

fn encode_xlen(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    elements::write_count(Kind::Stream, r, out);
    Ok(())
}

fn write_range(back: bool, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (start, stop) = if back { (2, 1) } else { (1, 2) };
    let (first, last) = (id::parse_start(r.at(start))?, id::parse_stop(r.at(stop))?);
    let (mut count, mut at) = (0, 3);
    while at < r.arguments.len() {
        if !r.is(at, "count") || at + 1 >= r.arguments.len() {
            return Err(SYNTAX.into());
        }
        let number = parse_integer(r.at(at + 1)).ok_or(NOT_AN_INTEGER)?;
        // As in Redis, a negative count is 0.
        count = u64::try_from(number).unwrap_or(0) + 1;
        at += 2;
    }
    out.byte(Op::XRange as u8).bytes(r.at(0)).byte(u8::from(back));
    id::encode(first, out);
    id::encode(last, out);
    out.count(count);
    Ok(())
}

fn encode_xrange(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(false, r, out)
}

fn encode_xrevrange(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(true, r, out)
}

fn encode_xdel(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_ids(Op::XDel, r, 1, out)
}

/// Encodes an operation with a key, a count and the ids from an argument on.
fn write_ids(op: Op, r: &Request<'_>, from: usize, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let ids = r.arguments.from(from);
    out.byte(op as u8).bytes(r.at(0)).length(ids.len());
    for text in ids.iter() {
        id::encode(id::parse(text, 0)?, out);
    }
    Ok(())
}

fn encode_xsetid(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let last = id::parse(r.at(1), 0)?;
    let (mut added, mut deleted, mut at) = (-1, EntryId::MIN, 2);
    while at < r.arguments.len() {
        let has_value = at + 1 < r.arguments.len();
        if r.is(at, "entriesadded") && has_value {
            added = r.integer(at + 1)?;
            if added < 0 {
                return Err("ERR entries_added must be positive".into());
            }
        } else if r.is(at, "maxdeletedid") && has_value {
            deleted = id::parse(r.at(at + 1), 0)?;
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    out.byte(Op::XSetId as u8).bytes(r.at(0));
    id::encode(last, out);
    out.signed(added);
    id::encode(deleted, out);
    Ok(())
}
