//! String commands: GET and SET, those for several keys (MGET), and those for part of a value
//! (APPEND).

use crate::{
    command::{Doc, READS, REMOVES, Refusal, Request, SYNTAX, Spec, WRITES},
    commands::family::{Family, Operation},
    commands::{
        conditions::Condition,
        events::class,
        expiry,
        lock::is_lock,
        state::{ReadContext, WriteContext, string, too_large},
    },
    encode::{Decoder, Encoder, Fault},
    op::{Deadline, Op, set_flag},
    resp::{reply::Reply, request::SKIPPED_BYTES_MAX},
    store::collection::Kind,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::Get, get),
        Operation::read(Op::Strlen, strlen),
        Operation::read(Op::GetRange, get_range),
        Operation::read(Op::Mget, mget),
        Operation::read(Op::ErrorIfPresent, error_if_present),
        Operation::write(Op::Set, set),
        Operation::write(Op::GetDel, get_del),
        Operation::write(Op::GetEx, get_ex),
        Operation::write(Op::Append, append),
        Operation::write(Op::SetRange, set_range),
        Operation::write(Op::Mset, mset),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "get",
        2,
        READS,
        (1, 1, 1),
        encode_get,
        Doc::new(
            "string",
            "1.0.0",
            "O(1)",
            "Returns the string value of a key.",
        ),
    ),
    Spec::data(
        "set",
        -3,
        WRITES,
        (1, 1, 1),
        encode_set,
        Doc::new(
            "string",
            "1.0.0",
            "O(1)",
            "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist.",
        ).with_difference("also `IFEQ`, `IFNE`, `IFDEQ`, `IFDNE`"),
    ),
    Spec::data(
        "setnx",
        3,
        WRITES,
        (1, 1, 1),
        encode_setnx,
        Doc::new(
            "string",
            "1.0.0",
            "O(1)",
            "Set the string value of a key only when the key doesn't exist.",
        ),
    ),
    Spec::data(
        "setex",
        4,
        WRITES,
        (1, 1, 1),
        encode_setex,
        Doc::new(
            "string",
            "2.0.0",
            "O(1)",
            "Sets the string value and expiration time of a key. Creates the key if it doesn't exist.",
        ),
    ),
    Spec::data(
        "psetex",
        4,
        WRITES,
        (1, 1, 1),
        encode_psetex,
        Doc::new(
            "string",
            "2.6.0",
            "O(1)",
            "Sets both string value and expiration time in milliseconds of a key. The key is created if it doesn't exist.",
        ),
    ),
    Spec::data(
        "getset",
        3,
        WRITES,
        (1, 1, 1),
        encode_getset,
        Doc::new(
            "string",
            "1.0.0",
            "O(1)",
            "Returns the previous string value of a key after setting it to a new value.",
        ),
    ),
    Spec::data(
        "getdel",
        2,
        REMOVES,
        (1, 1, 1),
        encode_getdel,
        Doc::new(
            "string",
            "6.2.0",
            "O(1)",
            "Returns the string value of a key after deleting the key.",
        ),
    ),
    Spec::data(
        "getex",
        -2,
        REMOVES,
        (1, 1, 1),
        encode_getex,
        Doc::new(
            "string",
            "6.2.0",
            "O(1)",
            "Returns the string value of a key after setting its expiration time.",
        ),
    ),
    Spec::data(
        "append",
        3,
        WRITES,
        (1, 1, 1),
        encode_append,
        Doc::new(
            "string",
            "2.0.0",
            "O(N), where N is the length of the new value",
            "Appends a string to the value of a key. Creates the key if it doesn't exist.",
        ),
    ),
    Spec::data(
        "strlen",
        2,
        READS,
        (1, 1, 1),
        encode_strlen,
        Doc::new(
            "string",
            "2.2.0",
            "O(1)",
            "Returns the length of a string value.",
        ),
    ),
    Spec::data(
        "getrange",
        4,
        READS,
        (1, 1, 1),
        encode_getrange,
        Doc::new(
            "string",
            "2.4.0",
            "O(N), where N is the length of the returned string",
            "Returns a substring of the string stored at a key.",
        ),
    ),
    Spec::data(
        "substr",
        4,
        READS,
        (1, 1, 1),
        encode_getrange,
        Doc::new(
            "string",
            "1.0.0",
            "O(N), where N is the length of the returned string",
            "Returns a substring from a string value.",
        ),
    ),
    Spec::data(
        "setrange",
        4,
        WRITES,
        (1, 1, 1),
        encode_setrange,
        Doc::new(
            "string",
            "2.2.0",
            "O(N), where N is the length of the new value",
            "Overwrites a part of a string value with another by an offset. Creates the key if it doesn't exist.",
        ),
    ),
    Spec::data(
        "mget",
        -2,
        READS,
        (1, -1, 1),
        encode_mget,
        Doc::new(
            "string",
            "1.0.0",
            "O(N), where N is the number of keys",
            "Atomically returns the string values of one or more keys.",
        ),
    ),
    Spec::data(
        "mset",
        -3,
        WRITES,
        (1, -1, 2),
        encode_mset,
        Doc::new(
            "string",
            "1.0.1",
            "O(N), where N is the number of keys",
            "Atomically creates or modifies the string values of one or more keys.",
        ),
    ),
    Spec::data(
        "msetnx",
        -3,
        WRITES,
        (1, -1, 2),
        encode_msetnx,
        Doc::new(
            "string",
            "1.0.1",
            "O(N), where N is the number of keys",
            "Atomically modifies the string values of one or more keys only when all keys don't exist.",
        ),
    ),
];

const SET_RANGE_TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// Encodes an operation whose only argument is a key.
fn keyed(op: Op, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(op as u8).bytes(r.at(0));
}

fn encode_get(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    keyed(Op::Get, r, out);
    Ok(())
}

fn encode_strlen(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    keyed(Op::Strlen, r, out);
    Ok(())
}

fn encode_getdel(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    keyed(Op::GetDel, r, out);
    Ok(())
}

fn write_set(out: &mut Encoder<'_>, flags: u8, deadline: Deadline, key: &[u8], value: &[u8]) {
    out.byte(Op::Set as u8).byte(flags);
    deadline.encode(out);
    out.bytes(key).bytes(value);
}

fn encode_set(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (mut flags, mut deadline, mut condition) = (0, None, None);
    let mut at = 2;
    while at < r.arguments.len() {
        let word = r.at(at);
        let flag = match () {
            () if word.eq_ignore_ascii_case(b"nx") => set_flag::NX,
            () if word.eq_ignore_ascii_case(b"xx") => set_flag::XX,
            () if word.eq_ignore_ascii_case(b"get") => set_flag::GET,
            () if word.eq_ignore_ascii_case(b"keepttl") => set_flag::KEEP_TTL,
            () if at + 1 >= r.arguments.len() => return Err(SYNTAX.into()),
            () => {
                at += 1;
                if let Some(found) = Condition::parse(word, r.at(at))? {
                    if condition.replace(found).is_some() {
                        return Err(SYNTAX.into());
                    }
                    set_flag::IF
                } else {
                    let unit = expiry::Unit::of_option(word).ok_or(SYNTAX)?;
                    let other = deadline.replace((unit, at));
                    if other.is_some_and(|(other, _)| other != unit) {
                        return Err(SYNTAX.into());
                    }
                    0
                }
            }
        };
        flags |= flag;
        at += 1;
    }
    let exclusive = flags & (set_flag::NX | set_flag::XX | set_flag::IF);
    if exclusive.count_ones() > 1 || (deadline.is_some() && flags & set_flag::KEEP_TTL != 0) {
        return Err(SYNTAX.into());
    }
    let deadline = match deadline {
        Some((unit, at)) => expiry::positive_deadline(r, unit, at)?,
        None => Deadline::Never,
    };
    write_set(out, flags, deadline, r.at(0), r.at(1));
    if let Some(condition) = condition {
        condition.encode(out);
    }
    Ok(())
}

fn encode_setnx(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_set(out, set_flag::NX | set_flag::COUNTED, Deadline::Never, r.at(0), r.at(1));
    Ok(())
}

fn encode_setex(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let deadline = expiry::positive_deadline(r, expiry::Unit::SECONDS, 1)?;
    write_set(out, 0, deadline, r.at(0), r.at(2));
    Ok(())
}

fn encode_psetex(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let deadline = expiry::positive_deadline(r, expiry::Unit::MILLISECONDS, 1)?;
    write_set(out, 0, deadline, r.at(0), r.at(2));
    Ok(())
}

fn encode_getset(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_set(out, set_flag::GET, Deadline::Never, r.at(0), r.at(1));
    Ok(())
}

/// Executes SET and related commands.
pub(super) fn set(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let flags = from.byte()?;
    let deadline = Deadline::decode(from)?;
    let (key, value) = (from.key()?, from.bytes()?);
    let has = |flag| flags & flag != 0;
    let condition = if has(set_flag::IF) { Some(Condition::decode(from)?) } else { None };
    from.end()?;
    let needs_old =
        has(set_flag::NX | set_flag::XX | set_flag::GET | set_flag::KEEP_TTL | set_flag::IF);
    let old = if has(set_flag::GET | set_flag::IF) {
        let Ok(old) = string(state.store, key, reply) else {
            return Ok(());
        };
        old
    } else if needs_old {
        state.store.get(key)
    } else {
        None
    };
    let differs = |condition: Condition<'_>| {
        let value = old.as_ref().map(|entry| &*entry.value);
        !condition.holds(value)
    };
    let refused = (has(set_flag::NX) && old.is_some())
        || (has(set_flag::XX) && old.is_none())
        || condition.is_some_and(differs);
    if has(set_flag::GET) {
        reply.optional(old.as_ref().map(|entry| &*entry.value));
    } else if has(set_flag::COUNTED) {
        reply.integer(i64::from(!refused));
    } else if refused {
        reply.null();
    } else {
        reply.ok();
    }
    let kept = old.filter(|_| has(set_flag::KEEP_TTL)).and_then(|entry| entry.deadline);
    match deadline {
        _ if refused => {}
        Deadline::Never => {
            state.put(key, value, kept);
            state.event(class::STRING, "set", key);
        }
        Deadline::At(at) => {
            state.put(key, value, Some(at));
            state.event(class::STRING, "set", key);
            state.event(class::GENERIC, "expire", key);
        }
        Deadline::Past => {
            state.delete(key);
        }
    }
    Ok(())
}

pub(super) fn get(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    from.end()?;
    if let Ok(entry) = string(state.store, key, reply) {
        reply.optional(entry.as_ref().map(|entry| &*entry.value));
    }
    Ok(())
}

pub(super) fn strlen(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    from.end()?;
    if let Ok(entry) = string(state.store, key, reply) {
        reply.count(entry.map_or(0, |entry| entry.value.len()));
    }
    Ok(())
}

pub(super) fn get_del(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    from.end()?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    reply.optional(entry.as_ref().map(|entry| &*entry.value));
    drop(entry);
    state.delete(key);
    Ok(())
}

fn encode_getex(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (mut persist, mut time, mut at) = (false, None, 1);
    while at < r.arguments.len() {
        if r.is(at, "persist") {
            persist = true;
            at += 1;
        } else {
            let unit = expiry::Unit::of_option(r.at(at)).ok_or(SYNTAX)?;
            let other = time.replace((unit, at + 1)).is_some_and(|(other, _)| other != unit);
            if other || at + 1 >= r.arguments.len() {
                return Err(SYNTAX.into());
            }
            at += 2;
        }
    }
    let deadline = match (persist, time) {
        (false, None) => {
            keyed(Op::Get, r, out);
            return Ok(());
        }
        (true, None) => Ok(Deadline::Never),
        (false, Some((unit, at))) => expiry::positive_deadline(r, unit, at),
        (true, Some(_)) => return Err(SYNTAX.into()),
    };
    match deadline {
        Ok(deadline) => {
            keyed(Op::GetEx, r, out);
            deadline.encode(out);
        }
        // As in Redis, an invalid expiry is an error only if the key exists.
        Err(Refusal::Text(text)) => {
            keyed(Op::ErrorIfPresent, r, out);
            out.bytes(text.as_bytes());
        }
        Err(other) => return Err(other),
    }
    Ok(())
}

pub(super) fn error_if_present(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, text) = (from.key()?, from.bytes()?);
    from.end()?;
    match string(state.store, key, reply) {
        Ok(Some(_)) => reply.error(&String::from_utf8_lossy(text)),
        Ok(None) => reply.null(),
        Err(_) => {}
    }
    Ok(())
}

pub(super) fn get_ex(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, deadline) = (from.key()?, Deadline::decode(from)?);
    from.end()?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let Some(entry) = entry else {
        reply.null();
        return Ok(());
    };
    reply.bulk(&entry.value);
    let old = entry.deadline;
    drop(entry);
    match deadline {
        Deadline::Never if old.is_none() => {}
        deadline => expiry::change(state, key, deadline)?,
    }
    Ok(())
}

fn encode_append(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::Append as u8).length(r.value_bytes_max).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}

pub(super) fn append(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let bytes_max = from.length()?;
    let (key, tail) = (from.key()?, from.bytes()?);
    from.end()?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let (value, deadline) = match entry {
        Some(entry) if entry.value.len().saturating_add(tail.len()) > bytes_max => {
            reply.error(SET_RANGE_TOO_LONG);
            return Ok(());
        }
        Some(entry) => {
            state.budget.rewrite(&entry)?;
            ([&*entry.value, tail].concat(), entry.deadline)
        }
        None => (tail.to_vec(), None),
    };
    state.put(key, &value, deadline);
    state.event(class::STRING, "append", key);
    reply.count(value.len());
    Ok(())
}

fn encode_getrange(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (start, end) = (r.integer(1)?, r.integer(2)?);
    keyed(Op::GetRange, r, out);
    out.signed(start).signed(end);
    Ok(())
}

pub(super) fn get_range(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, start, end) = (from.key()?, from.signed()?, from.signed()?);
    from.end()?;
    match string(state.store, key, reply) {
        Ok(Some(entry)) => reply.bulk(slice_range(&entry.value, start, end)),
        Ok(None) => reply.bulk(b""),
        Err(_) => {}
    }
    Ok(())
}

/// Returns the bytes at inclusive indexes; negative ones count from the end.
fn slice_range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let place = |at: i64| {
        if at < 0 { at.saturating_add(length).max(0) } else { at }
    };
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let (start, end) = (place(start), place(end).saturating_add(1).min(length));
    let index = |at: i64| usize::try_from(at).unwrap_or(usize::MAX);
    value.get(index(start)..index(end)).unwrap_or(&[])
}

fn encode_setrange(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let Ok(offset) = u64::try_from(r.integer(1)?) else {
        return Err("ERR offset is out of range".into());
    };
    let end = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(r.at(2).len());
    if end > r.value_bytes_max && !r.at(2).is_empty() {
        return Err(SET_RANGE_TOO_LONG.into());
    }
    out.byte(Op::SetRange as u8).count(offset).bytes(r.at(0)).bytes(r.at(2));
    Ok(())
}

pub(super) fn set_range(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let offset = from.length()?;
    let (key, patch) = (from.key()?, from.bytes()?);
    from.end()?;
    let Ok(old) = string(state.store, key, reply) else {
        return Ok(());
    };
    if patch.is_empty() {
        reply.count(old.map_or(0, |entry| entry.value.len()));
        return Ok(());
    }
    let end = offset.checked_add(patch.len()).ok_or(Fault::Malformed)?;
    // The front limits `end` too. This check protects memory from commands of other origin.
    if end > SKIPPED_BYTES_MAX {
        return Err(Fault::Malformed);
    }
    let deadline = old.as_ref().and_then(|entry| entry.deadline);
    let before = old.as_ref().map_or(0, |entry| entry.value.len());
    state.budget.charge_bytes(end.saturating_sub(before))?;
    let mut value = match old {
        Some(entry) => {
            state.budget.rewrite(&entry)?;
            entry.value.to_vec()
        }
        None => Vec::new(),
    };
    value.resize(end.max(before), 0);
    value[offset..end].copy_from_slice(patch);
    state.put(key, &value, deadline);
    state.event(class::STRING, "setrange", key);
    reply.count(value.len());
    Ok(())
}

fn encode_mget(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    encode_list(Op::Mget, r, out)
}

pub(super) fn encode_list(op: Op, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(op as u8).length(r.arguments.len());
    for key in r.arguments.iter() {
        out.bytes(key);
    }
    Ok(())
}

pub(super) fn mget(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let keys = from.keys()?;
    from.end()?;
    let start = reply.0.len();
    reply.array(keys.len());
    for key in keys {
        let entry = state.store.get(key);
        let entry = entry.filter(|entry| entry.kind == Kind::String && !is_lock(&entry.value));
        reply.optional(entry.as_ref().map(|entry| &*entry.value));
        if too_large(reply, start) {
            break;
        }
    }
    Ok(())
}

fn write_mset(nx: bool, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    if !r.arguments.len().is_multiple_of(2) {
        return Err(Refusal::Arity);
    }
    out.byte(Op::Mset as u8).byte(u8::from(nx)).length(r.arguments.len());
    for argument in r.arguments.iter() {
        out.bytes(argument);
    }
    Ok(())
}

fn encode_mset(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_mset(false, r, out)
}

fn encode_msetnx(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_mset(true, r, out)
}

pub(super) fn mset(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let only_new = from.byte()? != 0;
    let pairs = from.pairs()?;
    from.end()?;
    let mut found = pairs;
    if only_new && found.any(|(key, _)| state.store.contains(key)) {
        reply.integer(0);
        return Ok(());
    }
    for (key, value) in pairs {
        state.put(key, value, None);
        state.event(class::STRING, "set", key);
    }
    if only_new {
        reply.integer(1)
    } else {
        reply.ok()
    }
    Ok(())
}
