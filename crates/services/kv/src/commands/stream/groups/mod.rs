//! Consumer groups of streams: client commands, one file per kind with encoding and execution.
//! `rows` says how groups are stored.

mod change;
mod claim;
pub(super) mod info;
mod lag;
mod manage;
mod pending;
mod read;
mod rows;

use super::{id, rows::View};
use crate::{
    command::{Doc, READS, REMOVES, Spec, WRITES},
    commands::family::{Family, Operation},
    encode::{Decoder, Encoder, Fault, Malformed},
    op::Op,
    store::{Store, stream::EntryId},
};

pub(in crate::commands) const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::XPending, pending::pending),
        Operation::write(Op::XGroup, manage::manage),
        Operation::write(Op::XReadGroup, read::read),
        Operation::write(Op::XAck, pending::acknowledge),
        Operation::write(Op::XClaim, claim::claim),
        Operation::write(Op::XAutoClaim, claim::claim_idle),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "xgroup",
        -2,
        WRITES,
        (2, 2, 1),
        manage::encode,
        Doc::new(
            "stream",
            "5.0.0",
            "O(1), O(N) for DESTROY and DELCONSUMER, where N is the number of pending entries removed",
            "A container for consumer groups commands.",
        ),
    ),
    Spec::data(
        "xreadgroup",
        -7,
        &["write", "denyoom", "blocking", "movablekeys"],
        (0, 0, 0),
        read::encode,
        Doc::new(
            "stream",
            "5.0.0",
            "O(M), where M is the number of entries returned",
            "Returns new or historical messages from a stream for a consumer in a group. Blocks until a message is available otherwise.",
        )
        .differs("returns up to 16384 entries or 32 MiB at a time"),
    ),
    Spec::data(
        "xack",
        -4,
        REMOVES,
        (1, 1, 1),
        pending::encode_xack,
        Doc::new(
            "stream",
            "5.0.0",
            "O(1) for each entry acknowledged",
            "Returns the number of messages that were successfully acknowledged by the consumer group member of a stream.",
        ),
    ),
    Spec::data(
        "xpending",
        -3,
        READS,
        (1, 1, 1),
        pending::encode_xpending,
        Doc::new(
            "stream",
            "5.0.0",
            "O(N), where N is the number of pending entries examined, or of consumers without a range",
            "Returns the information and entries from a stream consumer group's pending entries list.",
        ),
    ),
    Spec::data(
        "xclaim",
        -6,
        WRITES,
        (1, 1, 1),
        claim::encode_xclaim,
        Doc::new(
            "stream",
            "5.0.0",
            "O(1) for each entry claimed",
            "Changes, or acquires, ownership of a message in a consumer group, as if the message was delivered a consumer group member.",
        )
        .differs("claims up to 32 MiB at a time"),
    ),
    Spec::data(
        "xautoclaim",
        -6,
        WRITES,
        (1, 1, 1),
        claim::encode_xautoclaim,
        Doc::new(
            "stream",
            "6.2.0",
            "O(1) if COUNT is small",
            "Changes, or acquires, ownership of messages in a consumer group, as if the messages were delivered to as consumer group member.",
        )
        .differs("claims up to 8192 entries or 32 MiB at a time"),
    ),
];

/// Returns an upper bound on the visits of a write on groups.
pub(in crate::commands) fn visits(
    op: Op,
    from: &mut Decoder<'_>,
    store: &dyn Store,
) -> Result<u64, Fault> {
    match op {
        Op::XGroup => manage::visits(from, store),
        Op::XReadGroup => read::visits(from, store),
        Op::XAutoClaim => claim::visits(from, store),
        _ => Ok(0),
    }
}

/// Reads the clock of the front in milliseconds. The group's clock, if it is ahead, takes its place;
/// it may stand still ([time-1]), so it would not do alone.
fn clock(from: &mut Decoder<'_>, group_ms: u64) -> Result<u64, Malformed> {
    const LAST_MS: u64 = i64::MAX.cast_unsigned();
    Ok(from.word()?.max(group_ms).min(LAST_MS))
}

fn write_ids(ids: &[EntryId], out: &mut Encoder<'_>) {
    out.length(ids.len());
    ids.iter().for_each(|id| id::encode(*id, out));
}

/// Reads a counted list of ids.
fn read_ids(from: &mut Decoder<'_>) -> Result<impl Iterator<Item = EntryId> + use<>, Malformed> {
    let count = from.length()?;
    let bytes = count.checked_mul(EntryId::BYTES).ok_or(Malformed)?;
    let (ids, rest) = from.0.split_at_checked(bytes).ok_or(Malformed)?;
    from.0 = rest;
    let ids: Vec<EntryId> = ids.chunks(EntryId::BYTES).filter_map(EntryId::from_bytes).collect();
    Ok(ids.into_iter())
}

/// Returns text for an error message.
fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Returns the id of the last entry that a group has delivered.
pub(super) fn last_delivered(view: &View<'_>, group: &[u8]) -> Option<EntryId> {
    view.group(group).map(|group| group.last)
}
