//! Transactions: EXEC is one replicated command, which brings the versions that WATCH saw.

use crate::{
    command::{Doc, Local, Spec},
    commands::family::{Family, Operation},
    commands::state::Reading,
    encode::{Decoder, Encoder, Fault, Malformed},
    op::Op,
    resp::reply::Reply,
    store::Version,
};

/// The family.
pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[Operation::read(Op::Versions, versions)],
};

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
        Doc::new(
            "transactions",
            "2.2.0",
            "O(1)",
            "Forgets about watched keys of a transaction.",
        ),
    ),
];

/// What WATCH saw of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The key.
    pub key: Vec<u8>,
    /// Its last change.
    pub version: Version,
}

/// Asks for the versions of keys; `keys` is an encoded list.
pub fn encode_versions<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]>, out: &mut Encoder<'_>) {
    out.byte(Op::Versions as u8).length(keys.len());
    for key in keys {
        out.bytes(key);
    }
}

/// Answers with a version for each key, in their order; not a reply for a client.
pub(super) fn versions(
    from: &mut Decoder<'_>,
    state: &Reading<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let keys = from.keys()?;
    from.end()?;
    for key in keys {
        let version = state
            .store
            .get(key)
            .map_or(Version::ABSENT, |entry| entry.version);
        Encoder(reply.0)
            .word(version.slot)
            .count(version.index.into());
    }
    Ok(())
}

/// The answer to [`encode_versions`].
pub fn decode_versions(mut answer: Decoder<'_>) -> Result<Vec<Version>, Malformed> {
    let mut versions = Vec::new();
    while answer.end().is_err() {
        let slot = answer.word()?;
        let index = u32::try_from(answer.count()?).map_err(|_| Malformed)?;
        versions.push(Version { slot, index });
    }
    Ok(versions)
}

/// `commands` holds `count` encoded commands, each with its length before it.
pub fn encode_exec<'w>(
    watched: impl ExactSizeIterator<Item = &'w Watched>,
    count: usize,
    commands: &[u8],
    out: &mut Encoder<'_>,
) {
    out.byte(Op::Exec as u8).length(watched.len());
    for Watched { key, version } in watched {
        out.bytes(key)
            .word(version.slot)
            .count(version.index.into());
    }
    out.length(count);
    out.0.extend_from_slice(commands);
}
