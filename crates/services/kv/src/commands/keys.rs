//! Generic commands for keys: DEL, EXISTS, RENAME, COPY, SCAN and others.

use std::ops::ControlFlow;

use crate::{
    command::{Doc, NOT_AN_INTEGER, READS, REMOVES, Refusal, Request, SYNTAX, Spec, WRITES},
    commands::family::{Family, Operation},
    commands::{
        events::class,
        lock::is_lock,
        rows::copy_rows,
        selection::{in_database, parse_database, within},
        state::{Items, ReadContext, WriteContext, too_large},
        strings::encode_list,
    },
    encode::{Decoder, Encoder, Fault},
    glob::Pattern,
    key::Key,
    op::Op,
    resp::{integer::parse_integer, reply::Reply},
    store::{
        Database, Entry, Position,
        collection::{Header, Kind},
    },
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::Exists, exists),
        Operation::read(Op::Type, type_of),
        Operation::read(Op::Keys, keys),
        Operation::read(Op::Scan, scan),
        Operation::read(Op::Dbsize, dbsize),
        Operation::read(Op::RandomKey, random_key),
        Operation::write(Op::Del, del),
        Operation::write(Op::Rename, rename),
        Operation::write(Op::Copy, copy),
        Operation::write(Op::Flush, flush),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "del",
        -2,
        REMOVES,
        (1, -1, 1),
        encode_del,
        Doc::new(
            "generic",
            "1.0.0",
            "O(N), where N is the number of keys",
            "Deletes one or more keys.",
        ),
    ),
    Spec::data(
        "unlink",
        -2,
        REMOVES,
        (1, -1, 1),
        encode_del,
        Doc::new(
            "generic",
            "4.0.0",
            "O(N), where N is the number of keys",
            "Deletes one or more keys, exactly as DEL does.",
        ),
    ),
    Spec::data(
        "exists",
        -2,
        READS,
        (1, -1, 1),
        encode_exists,
        Doc::new(
            "generic",
            "1.0.0",
            "O(N), where N is the number of keys",
            "Determines whether one or more keys exist.",
        ),
    ),
    Spec::data(
        "touch",
        -2,
        READS,
        (1, -1, 1),
        encode_exists,
        Doc::new(
            "generic",
            "3.2.1",
            "O(N), where N is the number of keys",
            "Returns the number of existing keys out of those specified.",
        ),
    ),
    Spec::data(
        "type",
        2,
        READS,
        (1, 1, 1),
        encode_type,
        Doc::new(
            "generic",
            "1.0.0",
            "O(1)",
            "Determines the type of value stored at a key.",
        ),
    ),
    Spec::data(
        "rename",
        3,
        REMOVES,
        (1, 2, 1),
        encode_rename,
        Doc::new(
            "generic",
            "1.0.0",
            "O(N), where N is the length of the value",
            "Renames a key and overwrites the destination.",
        ),
    ),
    Spec::data(
        "renamenx",
        3,
        REMOVES,
        (1, 2, 1),
        encode_renamenx,
        Doc::new(
            "generic",
            "1.0.0",
            "O(N), where N is the length of the value",
            "Renames a key only when the target key name doesn't exist.",
        ),
    ),
    Spec::data(
        "copy",
        -3,
        WRITES,
        (1, 2, 1),
        encode_copy,
        Doc::new(
            "generic",
            "6.2.0",
            "O(N), where N is the length of the value",
            "Copies the value of a key to a new key.",
        ),
    ),
    Spec::data(
        "randomkey",
        1,
        READS,
        (0, 0, 0),
        encode_randomkey,
        Doc::new(
            "generic",
            "1.0.0",
            "O(1)",
            "Returns a random key name from the database.",
        ).with_difference("not uniform"),
    ),
    Spec::data(
        "keys",
        2,
        READS,
        (0, 0, 0),
        encode_keys,
        Doc::new(
            "generic",
            "1.0.0",
            "O(N), where N is the number of keys in the database",
            "Returns all key names that match a pattern.",
        ).with_difference("at most 32 MiB of keys"),
    ),
    Spec::data(
        "scan",
        -2,
        READS,
        (0, 0, 0),
        encode_scan,
        Doc::new(
            "generic",
            "2.8.0",
            "O(1) for every call, O(N) for a complete iteration",
            "Iterates over the key names in the database.",
        ).with_difference("every key that is there throughout comes exactly once; cursors are valid on every node"),
    ),
    Spec::data(
        "dbsize",
        1,
        READS,
        (0, 0, 0),
        encode_dbsize,
        Doc::new(
            "server",
            "1.0.0",
            "O(1)",
            "Returns the number of keys in the database.",
        ).with_difference("includes keys that are overdue"),
    ),
    Spec::data(
        "flushdb",
        -1,
        REMOVES,
        (0, 0, 0),
        encode_flush,
        Doc::new(
            "server",
            "1.0.0",
            "O(1)",
            "Removes all keys from the current database.",
        ),
    ),
];

/// Maximum number of keys examined by one SCAN, whatever COUNT says.
const SCAN_COUNT_MAX: u64 = 10_000;
/// Maximum number of keys whose removal FLUSHALL records individually ([watch-2]). Part of the
/// replicated format.
const FLUSHED_KEYS_MAX: usize = 1024;
/// Maximum total size in bytes, values included, of keys whose removal FLUSHALL records
/// individually ([watch-2]). Part of the replicated format.
const FLUSHED_BYTES_MAX: usize = 1 << 20;
/// Number of bytes at which a page of SCAN is full.
const SCAN_PAGE_BYTES: usize = 1024 * 1024;

fn encode_del(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    encode_list(Op::Del, r, out)
}

pub(super) fn del(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let keys = from.keys()?;
    from.end()?;
    reply.count(keys.filter(|key| state.delete(*key)).count());
    Ok(())
}

fn encode_exists(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    encode_list(Op::Exists, r, out)
}

pub(super) fn exists(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let keys = from.keys()?;
    from.end()?;
    reply.count(keys.filter(|key| state.store.contains(*key)).count());
    Ok(())
}

fn encode_type(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::Type as u8).bytes(r.at(0));
    Ok(())
}

pub(super) fn type_of(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    from.end()?;
    reply.simple(match state.store.get(key) {
        Some(entry) if entry.kind == Kind::String && is_lock(&entry.value) => Kind::Hash.name(),
        Some(entry) => entry.kind.name(),
        None => "none",
    });
    Ok(())
}

fn encode_rename(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::Rename as u8).byte(0).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}

fn encode_renamenx(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::Rename as u8).byte(1).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}

/// Contents of a key that are to be stored at another: a string, or the header of a collection.
pub(super) struct Contents {
    pub(super) value: Vec<u8>,
    pub(super) deadline: Option<u64>,
    pub(super) kind: Kind,
}

pub(super) fn contents(
    state: &mut WriteContext<'_>,
    key: Key<'_>,
) -> Result<Option<Contents>, Fault> {
    let Some(entry) = state.store.get(key) else {
        return Ok(None);
    };
    state.budget.charge_bytes(entry.value.len())?;
    Ok(Some(Contents { value: entry.value.to_vec(), deadline: entry.deadline, kind: entry.kind }))
}

pub(super) fn rename(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let only_new = from.byte()? != 0;
    let (old, new) = (from.key()?, from.key()?);
    from.end()?;
    if !state.store.contains(old) {
        reply.error("ERR no such key");
        return Ok(());
    }
    if only_new && state.store.contains(new) {
        reply.integer(0);
        return Ok(());
    }
    if old != new
        && let Some(found) = contents(state, old)?
    {
        // The new key takes over the id of the collection, so the rows stay where they are.
        state.detach(old);
        state.set(new, &found.value, found.deadline, found.kind);
        state.notify_blocked_readers(new);
        state.event(class::GENERIC, "rename_from", old);
        state.event(class::GENERIC, "rename_to", new);
    }
    if only_new {
        reply.integer(1)
    } else {
        reply.ok()
    }
    Ok(())
}

fn encode_copy(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (mut replace, mut to, mut at) = (false, r.database, 2);
    while at < r.arguments.len() {
        if r.is(at, "replace") {
            replace = true;
            at += 1;
        } else if r.is(at, "db") && at + 1 < r.arguments.len() {
            to = parse_database(r.at(at + 1))?;
            at += 2;
        } else {
            return Err(SYNTAX.into());
        }
    }
    if to != r.database {
        out.byte(Op::CopyTo as u8).byte(u8::from(replace)).byte(to.number());
        out.bytes(r.at(0)).bytes(r.at(1));
        return Ok(());
    }
    if r.at(0) == r.at(1) {
        return Err(SAME_OBJECTS.into());
    }
    out.byte(Op::Copy as u8).byte(u8::from(replace)).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}

/// Redis' error for a copy of a key onto itself, and for MOVE to the selected database.
pub(super) const SAME_OBJECTS: &str = "ERR source and destination objects are the same";

pub(super) fn copy(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let replace = from.byte()? != 0;
    let (source, target) = (from.key()?, from.key()?);
    from.end()?;
    copy_between((source, target), state.store.selected(), replace, state, reply)
}

/// Copies a key of the selected database to one of the database `to`.
pub(super) fn copy_between(
    (source, target): (Key<'_>, Key<'_>),
    to: Database,
    replace: bool,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    if !replace && in_database(state.store, to, || state.store.contains(target)) {
        reply.integer(0);
        return Ok(());
    }
    let Some(mut found) = contents(state, source)? else {
        reply.integer(0);
        return Ok(());
    };
    if let Some(header) = Header::from_bytes(&found.value).filter(|_| found.kind.has_rows()) {
        let copied = copy_rows(state, header, to)?;
        found.value = copied.to_bytes().to_vec();
    }
    within(state, to, |state| {
        state.set(target, &found.value, found.deadline, found.kind);
        state.notify_blocked_readers(target);
        state.event(class::GENERIC, "copy_to", target);
    });
    reply.integer(1);
    Ok(())
}

fn encode_randomkey(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::RandomKey as u8).word(r.seed);
    Ok(())
}

pub(super) fn random_key(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let seed = from.word()?;
    from.end()?;
    let mut found: Option<Vec<u8>> = None;
    for start in [Position::of(&seed.to_le_bytes()), Position::START] {
        if found.is_none() && !state.store.is_empty() {
            state.store.scan(start, &mut |key, entry| {
                if !entry.exists_at(state.store.time()) {
                    return ControlFlow::Continue(());
                }
                found = Some(key.to_vec());
                ControlFlow::Break(())
            });
        }
    }
    reply.optional(found.as_deref());
    Ok(())
}

fn encode_keys(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let pattern = Key::new(r.at(0))?;
    Pattern::check(pattern.bytes())?;
    out.byte(Op::Keys as u8).bytes(pattern.bytes());
    Ok(())
}

pub(super) fn keys(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let pattern = Pattern::new(from.key()?.bytes());
    from.end()?;
    let mut page = Items::default();
    state.store.scan(Position::START, &mut |key, entry| {
        if entry.exists_at(state.store.time()) && pattern.matches(key) {
            page.next().bulk(key);
        }
        if page.exceed_reply_limit() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    page.write(reply, Reply::array);
    Ok(())
}

/// Types that SCAN can filter by. The numbers are part of queries and of logged transactions.
#[derive(Clone, Copy)]
enum KeyType {
    Nothing = 0,
    All = 1,
    Strings = 2,
    /// Hashes and lock records.
    Hashes = 3,
    Lists = 4,
    Sets = 5,
    Zsets = 6,
    Streams = 7,
}

impl KeyType {
    fn named(name: &[u8]) -> Self {
        match name.to_ascii_lowercase().as_slice() {
            b"string" => Self::Strings,
            b"hash" => Self::Hashes,
            b"list" => Self::Lists,
            b"set" => Self::Sets,
            b"zset" => Self::Zsets,
            b"stream" => Self::Streams,
            _ => Self::Nothing,
        }
    }

    fn includes(wanted: u8, entry: &Entry<'_>) -> bool {
        let kind = match entry.kind {
            Kind::String if is_lock(&entry.value) => Kind::Hash,
            kind => kind,
        };
        match wanted {
            0 => false,
            2 => kind == Kind::String,
            3 => kind == Kind::Hash,
            4 => kind == Kind::List,
            5 => kind == Kind::Set,
            6 => kind == Kind::Zset,
            7 => kind == Kind::Stream,
            _ => true,
        }
    }
}

/// Returns the type that an encoded SCAN selects, if its number is that of one with a feature
/// level.
pub(super) fn scanned(wanted: u8) -> Option<Kind> {
    (wanted == KeyType::Streams as u8).then_some(Kind::Stream)
}

fn encode_scan(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let cursor = match r.at(0) {
        b"" => Some(0),
        text => std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok()),
    };
    let cursor = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count, mut wanted) = (&b"*"[..], 10, KeyType::All);
    let mut at = 1;
    while at < r.arguments.len() {
        if at + 1 >= r.arguments.len() {
            return Err(SYNTAX.into());
        }
        let value = r.at(at + 1);
        if r.is(at, "match") {
            pattern = value;
        } else if r.is(at, "count") {
            count = parse_integer(value).ok_or(NOT_AN_INTEGER)?;
        } else if r.is(at, "type") {
            wanted = KeyType::named(value);
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    let count = u64::try_from(count).ok().filter(|&count| count > 0).ok_or(SYNTAX)?;
    Pattern::check(pattern)?;
    out.byte(Op::Scan as u8)
        .word(cursor)
        .count(count)
        .byte(wanted as u8)
        .bytes(Key::new(pattern)?.bytes());
    Ok(())
}

/// Replies with a page of keys in order of position. Keys with the same position are on one page,
/// so the next position suffices as a cursor. A key that exists throughout the scan is returned
/// exactly once.
pub(super) fn scan(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (cursor, count, wanted) = (from.word()?, from.count()?, from.byte()?);
    let pattern = Pattern::new(from.key()?.bytes());
    from.end()?;
    let (mut page, mut looked_at, mut names) = (Items::default(), 0, 0);
    let mut last = Position::START;
    let mut next = None;
    // In a transaction, SCAN is replicated, and its pages must equal those below feature level 10.
    let is_query = state.wall_ms.is_some();
    if let Some(start) = Position::from_cursor(cursor) {
        state.store.scan(start, &mut |key, entry| {
            let position = Position::of(key);
            let bytes = page.bytes().max(if is_query { names } else { 0 });
            let full = looked_at >= count.min(SCAN_COUNT_MAX) || bytes >= SCAN_PAGE_BYTES;
            if full && position != last {
                next = Some(position);
                return ControlFlow::Break(());
            }
            // Expired keys count too, to bound the time that a page takes.
            (looked_at, last) = (looked_at + 1, position);
            names += key.len();
            let exists = entry.exists_at(state.store.time());
            if exists && KeyType::includes(wanted, entry) && pattern.matches(key) {
                page.next().bulk(key);
            }
            ControlFlow::Continue(())
        });
    }
    let start = reply.0.len();
    reply.array(2);
    reply.bulk(next.map_or(0, Position::cursor).to_string().as_bytes());
    page.write(reply, Reply::array);
    too_large(reply, start);
    Ok(())
}

fn encode_dbsize(_: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::Dbsize as u8);
    Ok(())
}

pub(super) fn dbsize(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    from.end()?;
    reply.integer(i64::try_from(state.store.len()).unwrap_or(i64::MAX));
    Ok(())
}

/// Checks the arguments of FLUSHDB and FLUSHALL. SYNC and ASYNC make no difference: the position in
/// the log determines the removal.
pub(super) fn check_flush_arguments(r: &Request<'_>) -> Result<(), Refusal> {
    match r.arguments.len() {
        0 => Ok(()),
        1 if r.is(0, "sync") || r.is(0, "async") => Ok(()),
        _ => Err(SYNTAX.into()),
    }
}

fn encode_flush(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    check_flush_arguments(r)?;
    out.byte(Op::Flush as u8);
    Ok(())
}

/// [watch-2] Records the removal of all keys of some databases: individually if they are few,
/// otherwise as one record for all absent keys, or for the database `only`.
pub(super) fn note_flushed(
    state: &mut WriteContext<'_>,
    databases: impl Iterator<Item = Database>,
    only: Option<Database>,
) {
    let (mut keys, mut bytes, mut all) = (Vec::new(), 0, true);
    for database in databases {
        in_database(state.store, database, || {
            state.store.scan(Position::START, &mut |key, entry| {
                bytes += key.len() + entry.value.len();
                all &= keys.len() < FLUSHED_KEYS_MAX && bytes <= FLUSHED_BYTES_MAX;
                if !all {
                    return ControlFlow::Break(());
                }
                keys.push((database, Position::of(key), entry.version));
                ControlFlow::Continue(())
            });
        });
    }
    match (all, only) {
        (true, _) => {
            let removals = state.store.removals_mut();
            for (database, position, last) in keys {
                removals.record_removal(database, position, last);
            }
        }
        (false, Some(database)) => {
            within(state, database, |state| state.store.raise_since(state.version));
        }
        (false, None) => state.store.removals_mut().raise_minimum(state.version),
    }
}

pub(super) fn flush(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    from.end()?;
    let database = state.store.selected();
    // [db-3] The first database keeps the record that releases of level 8 made, with equal bytes.
    let only = (database != Database::ZERO).then_some(database);
    note_flushed(state, std::iter::once(database), only);
    state.store.clear();
    state.notify_all_changed();
    reply.ok();
    Ok(())
}
