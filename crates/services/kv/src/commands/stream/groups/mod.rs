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
    op::{Op, REPLY_BYTES_MAX},
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
        )
        .with_difference("`DESTROY` and `DELCONSUMER` remove up to 104 000 pending entries, and refuse more"),
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
        .with_difference("returns up to 10 000 entries or 16 MiB at a time"),
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
        .with_difference("claims up to 16 MiB at a time"),
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
        .with_difference("claims up to 10 000 entries or 16 MiB at a time"),
    ),
];

/// Maximum number of entries that XREADGROUP returns or XAUTOCLAIM claims. Part of the replicated
/// format: never changes.
const ENTRIES_MAX: u64 = 10_000;
/// Size in bytes at which the entries in a reply are enough. A single entry may be larger. Part of
/// the replicated format: never changes.
const ENOUGH_BYTES: usize = 16 << 20;
/// Maximum size in bytes of the entries in a reply, which leaves room for the rest of it.
const ENTRIES_BYTES_MAX: usize = REPLY_BYTES_MAX - (1 << 20);
/// Size of the entries that may be read for one reply: enough, and one more, which a client sent.
const READ_BYTES_MAX: u64 = ENOUGH_BYTES as u64 + (8 << 20);

/// Returns the visits of reading the entries for one reply.
fn visits_of_bytes(stream_bytes: u64) -> u64 {
    stream_bytes.min(READ_BYTES_MAX) / 1024
}

/// Returns whether a reply whose entries had `start` bytes may get one more, with which they have
/// `length`.
const fn fits(start: usize, length: usize) -> bool {
    length <= ENOUGH_BYTES || (start == 0 && length <= ENTRIES_BYTES_MAX)
}

/// Returns an upper bound on the visits of a write on groups.
pub(in crate::commands) fn visits(
    op: Op,
    from: &mut Decoder<'_>,
    store: &dyn Store,
) -> Result<u64, Fault> {
    match op {
        Op::XGroup => manage::visits(from, store),
        Op::XReadGroup => read::visits(from, store),
        Op::XClaim => claim::visits(from, store),
        Op::XAutoClaim => claim::visits_idle(from, store),
        _ => Ok(0),
    }
}

/// Reads the front's time in milliseconds, and returns it or the group's time, whichever is later.
/// The group's time is not enough on its own, because it may stand still ([time-1]).
pub(super) fn clock(from: &mut Decoder<'_>, group_ms: u64) -> Result<u64, Malformed> {
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
