//! Operations of a replicated command: one, or several in a transaction.

use super::{
    keys::scanned,
    transactions::{commands, watched},
};
use crate::{
    encode::{Decoder, List},
    op::{Op, Split},
    store::{Database, collection::Kind},
};

/// [watch-4] Returns whether a command is a transaction that contains versions of absent keys.
pub fn watches_absent_keys(command: &[u8]) -> bool {
    let Some(Split { op: op @ (Op::Exec | Op::ExecIn), mut from, .. }) = Op::split(command) else {
        return false;
    };
    let keys = 0..from.length().unwrap_or(0);
    let mut all = keys.map_while(|_| watched(op, &mut from).ok());
    all.any(|(_, _, seen)| seen.has_absent_version())
}

/// Returns the commands of a transaction, or `None` if the command is no transaction.
fn queued<'a>(split: &Split<'a>) -> Option<List<'a>> {
    match split.op {
        Op::Exec | Op::ExecIn => commands(split.op, split.from),
        _ => None,
    }
}

/// Passes the operations of a command and their databases to `each`: its own, or those of a
/// transaction. Malformed operations are omitted, as they have no effect.
pub(crate) fn each_operation<'a>(
    command: &'a [u8],
    mut each: impl FnMut(Op, Decoder<'a>, Database),
) {
    match Op::split(command) {
        None => {}
        Some(split) if matches!(split.op, Op::Exec | Op::ExecIn) => {
            for split in queued(&split).into_iter().flatten().filter_map(Op::split_queued) {
                each(split.op, split.from, split.database);
            }
        }
        Some(split) => each(split.op, split.from, split.database),
    }
}

/// Returns whether a command may add data. In a transaction, one such operation suffices.
pub fn may_add_data(command: &[u8]) -> bool {
    let mut grows = false;
    each_operation(command, |op, _, _| grows |= !op.only_removes());
    grows
}

/// Returns whether a command needs feature level 10: it is or contains an operation introduced at
/// that level, or an older one that names the stream type or is on a database other than the first.
pub(crate) fn is_of_level_10(command: &[u8]) -> bool {
    let mut found = begins_at_level_10(command);
    if let Some(mut queued) = Op::split(command).as_ref().and_then(queued) {
        found |= queued.any(begins_at_level_10);
    }
    each_operation(command, |op, from, _| {
        found |= op.is_of_level_10() || names_streams(op, from);
    });
    found
}

/// Returns whether the first number of a command, perhaps malformed, is one of level 10.
fn begins_at_level_10(command: &[u8]) -> bool {
    let number = match command.first() {
        Some(first) if *first == Op::Bounded as u8 => command.get(1),
        first => first,
    };
    number.copied().and_then(Op::from_byte).is_some_and(Op::is_of_level_10)
}

/// Returns whether an operation of an earlier level contains the type of streams.
fn names_streams(op: Op, mut from: Decoder<'_>) -> bool {
    let kind = match op {
        Op::Count => from.bytes().and_then(|_| from.byte()).map(Kind::from_byte),
        Op::Scan => from.word().and_then(|_| from.count()).and_then(|_| from.byte()).map(scanned),
        _ => return false,
    };
    kind == Ok(Some(Kind::Stream))
}
