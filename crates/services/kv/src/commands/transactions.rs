//! Encoding of EXEC as one replicated command, which contains the versions recorded by WATCH.

use quorate_core::level::Level;

use crate::{
    command::{Doc, Local, Spec},
    commands::family::{Family, Operation},
    commands::state::ReadContext,
    commands::view::View,
    encode::{Decoder, Encoder, Fault, List, Malformed},
    key::Key,
    op::Op,
    resp::reply::Reply,
    store::{
        Database, Position, Store, Version,
        collection::{Header, Kind},
    },
};

pub const FAMILY: Family =
    Family { commands: COMMANDS, operations: &[Operation::read(Op::Versions, versions)] };

const COMMANDS: &[Spec] = &[
    Spec::local(
        "multi",
        1,
        Local::Multi,
        Doc::new("transactions", "1.2.0", "O(1)", "Starts a transaction."),
    ),
    Spec::local(
        "exec",
        1,
        Local::Exec,
        Doc::new(
            "transactions",
            "1.2.0",
            "Depends on commands in the transaction",
            "Executes all commands in a transaction.",
        ),
    ),
    Spec::local(
        "discard",
        1,
        Local::Discard,
        Doc::new(
            "transactions",
            "2.0.0",
            "O(N), where N is the number of queued commands",
            "Discards a transaction.",
        ),
    ),
    Spec {
        keys: (1, -1, 1),
        ..Spec::local(
            "watch",
            -2,
            Local::Watch,
            Doc::new(
                "transactions",
                "2.2.0",
                "O(1) for every key",
                "Monitors changes to keys to determine the execution of a transaction.",
            ),
        )
    },
    Spec::local(
        "unwatch",
        1,
        Local::Unwatch,
        Doc::new("transactions", "2.2.0", "O(1)", "Forgets about watched keys of a transaction."),
    ),
];

/// State of a key, to the extent that WATCH compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// Slot of the last command that changed the key.
    pub slot: u64,
    /// Index of that command in its batch. The upper half is the number of fields that have expired
    /// since.
    pub index: u64,
}

/// First feature level whose transactions contain versions of absent keys ([watch-4]).
pub const ABSENT_LEVEL: Level = Level(10);

impl KeyState {
    /// [watch-4] State of any absent key in releases below [`ABSENT_LEVEL`], which has no version.
    pub const SOME_ABSENT: Self = Self { slot: 0, index: 0 };
    /// State that no key can have.
    pub const NEVER: Self = Self { slot: u64::MAX, index: 0 };
    const ABSENT: u64 = 1 << 63;

    /// [watch-1] Returns the state of an absent key whose last change has version `last`.
    pub fn absent(last: Version) -> Self {
        Self { slot: last.slot, index: u64::from(last.index) | Self::ABSENT }
    }

    pub const fn has_absent_version(self) -> bool {
        self.index & Self::ABSENT != 0
    }

    /// Returns whether a key is unchanged between this state and `now`.
    pub fn is_unchanged(self, now: Self) -> bool {
        self == now || (self == Self::SOME_ABSENT && now.has_absent_version())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    pub database: Database,
    pub key: Vec<u8>,
    pub state: KeyState,
}

/// Encodes the query for the versions of keys of the selected database.
pub fn encode_versions<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]>, out: &mut Encoder<'_>) {
    out.byte(Op::Versions as u8).length(keys.len());
    for key in keys {
        out.bytes(key);
    }
}

/// Replies with the versions of keys, in an internal format that clients never see.
pub(super) fn versions(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let keys = from.keys()?;
    from.end()?;
    for key in keys {
        let KeyState { slot, index } = key_state(state.store, key);
        Encoder(reply.0).word(slot).count(index);
    }
    Ok(())
}

pub fn decode_versions(mut answer: Decoder<'_>) -> Result<Vec<KeyState>, Malformed> {
    let mut versions = Vec::new();
    while answer.end().is_err() {
        let (slot, index) = (answer.word()?, answer.count()?);
        versions.push(KeyState { slot, index });
    }
    Ok(versions)
}

/// Returns the state of a key for WATCH. The expiry of a key or field is a change; its later
/// removal is not. [db-5] A change of the database as a whole is one of all its keys, present and
/// absent.
pub(super) fn key_state(store: &dyn Store, key: Key<'_>) -> KeyState {
    let entry = store.stored(key);
    let Some(entry) = entry.as_ref().filter(|entry| entry.exists_at(store.time())) else {
        let removed = store.removals().version(store.selected(), Position::of(key.bytes()));
        let ended = entry.map_or(removed, |entry| entry.version);
        return KeyState::absent(removed.max(ended).max(store.since()));
    };
    let mut ended = 0_u64;
    if entry.kind == Kind::Hash
        && let Some(header) = Header::from_bytes(&entry.value)
        && let Some(timed) = header.field_deadlines
    {
        ended = View { store, header }.count_expired().saturating_add(timed.removed);
    }
    let version = entry.version.max(store.since());
    KeyState { slot: version.slot, index: u64::from(version.index) | ended << u32::BITS }
}

/// Encodes EXEC. `commands` contains `count` encoded commands, each with its length and, unless it
/// is on the first database, its prefix.
pub fn encode_exec(watched: &[Watched], count: usize, commands: &[u8], out: &mut Encoder<'_>) {
    let names_databases = watched.iter().any(|watched| watched.database != Database::ZERO);
    let op = if names_databases { Op::ExecIn } else { Op::Exec };
    out.byte(op as u8).length(watched.len());
    for Watched { database, key, state: seen } in watched {
        if names_databases {
            out.byte(database.number());
        }
        out.bytes(key).word(seen.slot).count(seen.index);
    }
    out.length(count);
    out.0.extend_from_slice(commands);
}

/// Decodes a watched key of an [`Op::Exec`] or [`Op::ExecIn`].
pub(super) fn watched<'a>(
    op: Op,
    from: &mut Decoder<'a>,
) -> Result<(Database, Key<'a>, KeyState), Fault> {
    let database = match op {
        Op::ExecIn => Database::new(from.byte()?.into()).ok_or(Fault::Malformed)?,
        _ => Database::ZERO,
    };
    let key = from.key()?;
    Ok((database, key, KeyState { slot: from.word()?, index: from.count()? }))
}

/// Returns the commands of an encoded [`Op::Exec`] or [`Op::ExecIn`].
pub(super) fn commands(op: Op, mut from: Decoder<'_>) -> Option<List<'_>> {
    for _ in 0..from.length().ok()? {
        watched(op, &mut from).ok()?;
    }
    from.list().ok()
}
