//! Operations of a replicated command: one, or several in a transaction.

use super::{
    keys::scanned,
    transactions::{commands, watched},
};
use crate::{encode::Decoder, op::Op, store::collection::Kind};

/// [watch-4] Returns whether a command is a transaction that contains versions of absent keys.
pub fn watches_absent_keys(command: &[u8]) -> bool {
    let Some((Op::Exec, mut from, _)) = Op::split(command) else {
        return false;
    };
    let keys = 0..from.length().unwrap_or(0);
    let mut all = keys.map_while(|_| watched(&mut from).ok());
    all.any(|(_, seen)| seen.has_absent_version())
}

/// Passes the operations of a command to `each`: its own, or those of a transaction. Malformed
/// operations are omitted, as they have no effect.
pub(crate) fn each_operation<'a>(command: &'a [u8], mut each: impl FnMut(Op, Decoder<'a>)) {
    match Op::split(command) {
        None => {}
        Some((Op::Exec, from, _)) => {
            for command in commands(from).into_iter().flatten() {
                let mut from = Decoder(command);
                match from.byte().ok().and_then(Op::from_byte) {
                    Some(op) if !op.stands_alone() => each(op, from),
                    _ => {}
                }
            }
        }
        Some((op, from, _)) => each(op, from),
    }
}

/// Returns whether a command may add data. In a transaction, one such operation suffices.
pub fn may_add_data(command: &[u8]) -> bool {
    let mut grows = false;
    each_operation(command, |op, _| grows |= !op.only_removes());
    grows
}

/// Returns whether a command needs feature level 10: it is or contains an operation introduced at
/// that level, or an older one that names the stream type.
pub(crate) fn is_of_level_10(command: &[u8]) -> bool {
    let mut found = false;
    each_operation(command, |op, from| {
        found |= op.is_of_level_10() || names_streams(op, from);
    });
    found
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
