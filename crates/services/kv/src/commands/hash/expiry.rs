//! Commands for field deadlines: HEXPIRE, HTTL, HPERSIST and others.

use super::run::Hash;
use crate::{
    command::{Doc, READS, REMOVES, Refusal, Request, Spec},
    commands::{
        elements,
        events::class,
        expiry::{Unit, condition, deadline},
        family::{Family, Operation},
        rows::{Change, placed},
        state::{ReadContext, WriteContext},
    },
    encode::{Decoder, Encoder, Fault},
    op::{Deadline, Op},
    resp::{integer::parse_integer, reply::Reply},
    store::collection::Kind,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[Operation::read(Op::HTtl, ttl), Operation::write(Op::HExpire, expire)],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "hexpire",
        -6,
        REMOVES,
        (1, 1, 1),
        encode_hexpire,
        Doc::new(
            "hash",
            "7.4.0",
            "O(N), where N is the number of specified fields",
            "Sets the expiration time of fields of a hash in seconds.",
        ),
    ),
    Spec::data(
        "hpexpire",
        -6,
        REMOVES,
        (1, 1, 1),
        encode_hpexpire,
        Doc::new(
            "hash",
            "7.4.0",
            "O(N), where N is the number of specified fields",
            "Sets the expiration time of fields of a hash in milliseconds.",
        ),
    ),
    Spec::data(
        "hexpireat",
        -6,
        REMOVES,
        (1, 1, 1),
        encode_hexpireat,
        Doc::new(
            "hash",
            "7.4.0",
            "O(N), where N is the number of specified fields",
            "Sets the expiration time of fields of a hash to a Unix timestamp in seconds.",
        ),
    ),
    Spec::data(
        "hpexpireat",
        -6,
        REMOVES,
        (1, 1, 1),
        encode_hpexpireat,
        Doc::new(
            "hash",
            "7.4.0",
            "O(N), where N is the number of specified fields",
            "Sets the expiration time of fields of a hash to a Unix timestamp in milliseconds.",
        ),
    ),
    Spec::data(
        "hpersist",
        -5,
        REMOVES,
        (1, 1, 1),
        encode_hpersist,
        Doc::new(
            "hash",
            "7.4.0",
            "O(N), where N is the number of specified fields",
            "Removes the expiration time of fields of a hash.",
        ),
    ),
    Spec::data(
        "httl",
        -5,
        READS,
        (1, 1, 1),
        encode_httl,
        Doc::new(
            "hash",
            "7.4.0",
            "O(N), where N is the number of specified fields",
            "Returns the seconds until fields of a hash expire.",
        ),
    ),
    Spec::data(
        "hpttl",
        -5,
        READS,
        (1, 1, 1),
        encode_hpttl,
        Doc::new(
            "hash",
            "7.4.0",
            "O(N), where N is the number of specified fields",
            "Returns the milliseconds until fields of a hash expire.",
        ),
    ),
    Spec::data(
        "hexpiretime",
        -5,
        READS,
        (1, 1, 1),
        encode_hexpiretime,
        Doc::new(
            "hash",
            "7.4.0",
            "O(N), where N is the number of specified fields",
            "Returns the expiration time of fields of a hash as Unix timestamps in seconds.",
        ),
    ),
    Spec::data(
        "hpexpiretime",
        -5,
        READS,
        (1, 1, 1),
        encode_hpexpiretime,
        Doc::new(
            "hash",
            "7.4.0",
            "O(N), where N is the number of specified fields",
            "Returns the expiration time of fields of a hash as Unix timestamps in milliseconds.",
        ),
    ),
];

/// Latest possible deadline of a field, as in Redis.
const LATEST_MS: i64 = (1 << 46) - 1;

/// Reply for each field.
mod answer {
    pub(super) const NO_FIELD: i64 = -2;
    /// The field exists but has no deadline.
    pub(super) const NONE: i64 = -1;
    /// The condition for replacing the deadline does not hold.
    pub(super) const REFUSED: i64 = 0;
    pub(super) const DONE: i64 = 1;
    /// The new deadline has already passed, so the field was removed.
    pub(super) const REMOVED: i64 = 2;
}

/// Encodes `FIELDS numfields field …` from argument `at` on.
pub(super) fn write_fields(
    r: &Request<'_>,
    at: usize,
    not_positive: &'static str,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    if !r.is(at, "fields") {
        let text = "ERR Mandatory argument FIELDS is missing or not at the right position";
        return Err(text.into());
    }
    let count = parse_integer(r.at(at + 1)).filter(|&count| count > 0);
    let count = count.ok_or(not_positive)?;
    if usize::try_from(count).ok() != r.arguments.len().checked_sub(at + 2) {
        let text = "ERR The `numfields` parameter must match the number of arguments";
        return Err(text.into());
    }
    elements::write_fields(r, at + 2, out)
}

fn write_expire(unit: Unit, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let time = r.integer(1)?;
    if time < 0 {
        return Err("ERR invalid expire time, must be >= 0".into());
    }
    let deadline = deadline(r, unit, time).filter(|deadline| match deadline {
        Deadline::At(at) => i64::try_from(*at).is_ok_and(|at| at <= LATEST_MS),
        _ => true,
    });
    let deadline = deadline.ok_or_else(|| r.invalid_expire())?;
    let condition = condition::of(r.at(2));
    out.byte(Op::HExpire as u8).byte(condition).bytes(r.at(0));
    deadline.encode(out);
    let not_positive = "ERR Parameter `numFields` should be greater than 0";
    write_fields(r, 2 + usize::from(condition != 0), not_positive, out)
}

fn encode_hexpire(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_expire(Unit::SECONDS, r, out)
}

fn encode_hpexpire(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_expire(Unit::MILLISECONDS, r, out)
}

fn encode_hexpireat(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_expire(Unit::UNIX_SECONDS, r, out)
}

fn encode_hpexpireat(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_expire(Unit::UNIX_MILLISECONDS, r, out)
}

pub(super) const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

fn encode_hpersist(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::HExpire as u8).byte(0).bytes(r.at(0));
    Deadline::Never.encode(out);
    write_fields(r, 1, NOT_POSITIVE, out)
}

/// Executes HEXPIRE and its variants, and HPERSIST.
fn expire(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (flags, key) = (from.byte()?, from.key()?);
    let (new, fields) = (Deadline::decode(from)?, from.fields(0, 1)?);
    from.end()?;
    let Ok(mut found) = Change::find(state, key, Kind::Hash, reply) else {
        return Ok(());
    };
    reply.array(fields.len());
    let mut changed = false;
    for field in fields {
        let answer = match &mut found {
            Some(hash) => expire_one(hash, field, flags, new),
            None => answer::NO_FIELD,
        };
        changed |= answer > answer::REFUSED;
        reply.integer(answer);
    }
    if let Some(mut hash) = found.filter(|_| changed) {
        hash.event(
            class::HASH,
            match new {
                Deadline::Never => "hpersist",
                Deadline::At(_) => "hexpire",
                Deadline::Past => "hdel",
            },
        );
        hash.close();
    }
    Ok(())
}

fn expire_one(hash: &mut Change<'_, '_>, field: &[u8], flags: u8, new: Deadline) -> i64 {
    let name = placed(b"", field);
    if hash.view().row(&name).is_none() {
        return answer::NO_FIELD;
    }
    let old = hash.view().field_deadline(&name);
    if !condition::holds(flags, old, new) {
        return answer::REFUSED;
    }
    match new {
        Deadline::Never if old.is_none() => answer::NONE,
        Deadline::Never => {
            hash.clear_deadline(&name);
            answer::DONE
        }
        Deadline::At(at) => {
            hash.end_at(&name, at);
            answer::DONE
        }
        Deadline::Past => {
            hash.remove(&name);
            answer::REMOVED
        }
    }
}

fn write_ttl(unit: Unit, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    // The command contains the time of the request, for the same reason as in TTL.
    out.byte(Op::HTtl as u8).byte(unit.byte()).word(r.wall_ms).bytes(r.at(0));
    write_fields(r, 1, NOT_POSITIVE, out)
}

fn encode_httl(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_ttl(Unit::SECONDS, r, out)
}

fn encode_hpttl(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_ttl(Unit::MILLISECONDS, r, out)
}

fn encode_hexpiretime(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_ttl(Unit::UNIX_SECONDS, r, out)
}

fn encode_hpexpiretime(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_ttl(Unit::UNIX_MILLISECONDS, r, out)
}

fn ttl(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let unit = Unit::from_byte(from.byte()?);
    let (asked_ms, key) = (from.word()?, from.key()?);
    let fields = from.list()?;
    from.end()?;
    let Ok(hash) = Hash::at(state.store, key, reply) else {
        return Ok(());
    };
    let now_ms = state.wall_ms.unwrap_or(asked_ms);
    reply.array(fields.len());
    for field in fields {
        let there = hash.as_ref().filter(|hash| hash.length(field).is_some());
        reply.integer(match there {
            None => answer::NO_FIELD,
            Some(hash) => match hash.deadline(field) {
                None => answer::NONE,
                // Unlike for keys, a fraction of a second is rounded up.
                Some(deadline) => unit.convert_deadline(deadline, now_ms, 999),
            },
        });
    }
    Ok(())
}
