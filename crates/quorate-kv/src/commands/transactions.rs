//! Transactions: EXEC is one replicated command, which brings the versions that WATCH saw.

use crate::{
    command::{Local, Op, Spec},
    commands::{Reading, Writing, execute, too_large},
    encode::{Decoder, Encoder, Fault, Malformed},
    resp::reply::{NULL_ARRAY, Reply},
    store::Version,
};

/// The family.
pub const COMMANDS: &[Spec] = &[
    Spec::local("multi", 1, Local::Multi),
    Spec::local("exec", 1, Local::Exec),
    Spec::local("discard", 1, Local::Discard),
    Spec {
        keys: (1, -1, 1),
        ..Spec::local("watch", -2, Local::Watch)
    },
    Spec::local("unwatch", 1, Local::Unwatch),
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

/// Executes all or nothing: nothing if a watched key changed after WATCH saw it.
pub fn exec(
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut unchanged = true;
    for _ in 0..from.length()? {
        let key = from.key()?;
        let (slot, index) = (from.word()?, from.count()?);
        let version = state
            .store
            .get(key)
            .map_or(Version::ABSENT, |entry| entry.version);
        unchanged &= version.slot == slot && u64::from(version.index) == index;
    }
    let commands = from.list()?;
    from.end()?;
    if !unchanged {
        reply.0.extend_from_slice(NULL_ARRAY);
        return Ok(());
    }
    let start = reply.0.len();
    reply.array(commands.len());
    let mut large = false;
    for command in commands {
        // The commands behind a reply that became too large are executed all the same, but for reads:
        // nobody sees what those say.
        let op = command.first().copied().and_then(Op::from_byte);
        if large && op.is_some_and(Op::is_read) {
            continue;
        }
        let unwanted = &mut Vec::new();
        let place = &mut Reply(if large { unwanted } else { &mut *reply.0 });
        one(command, state, place);
        large = large || too_large(reply, start);
    }
    Ok(())
}

/// One command of a transaction; whatever happens, it gives one reply.
fn one(command: &[u8], state: &mut Writing<'_>, reply: &mut Reply<'_>) {
    let start = reply.0.len();
    let mut decoder = Decoder(command);
    let done = match decoder.byte().ok().and_then(Op::from_byte) {
        None | Some(Op::Exec | Op::Versions) => Err(Fault::Malformed),
        Some(op) => execute(op, &mut decoder, state, reply),
    };
    if let Err(fault) = done {
        reply.0.truncate(start);
        reply.error(fault.text());
    }
}
