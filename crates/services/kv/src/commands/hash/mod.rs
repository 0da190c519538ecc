//! Hashes: client commands and their encoding.

pub mod expiry;
mod forms;
mod run;
mod take;

use self::forms::{how, part};
use crate::{
    command::{Doc, READS, REMOVES, Refusal, Request, Spec, WRITES},
    commands::{
        counters::{Decimal, NOT_A_FLOAT, NOT_FINITE, is_not_finite},
        elements,
        family::{Family, Operation},
    },
    encode::Encoder,
    op::Op,
    store::collection::Kind,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::LockHolder, run::field),
        Operation::read(Op::HMget, run::fields),
        Operation::read(Op::HAll, run::all),
        Operation::read(Op::HStrlen, run::length),
        Operation::read(Op::HRandField, run::random),
        Operation::write(Op::HSet, run::set),
        Operation::write(Op::HDel, run::delete),
        Operation::write(Op::HGetDel, take::take),
        Operation::write(Op::HIncrBy, run::increment),
        Operation::write(Op::HIncrByFloat, run::increment_float),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "hset",
        -4,
        WRITES,
        (1, 1, 1),
        encode_hset,
        Doc::new(
            "hash",
            "2.0.0",
            "O(1) for each field/value pair added",
            "Creates or modifies the value of a field in a hash.",
        ),
    ),
    Spec::data(
        "hmset",
        -4,
        WRITES,
        (1, 1, 1),
        encode_hmset,
        Doc::new(
            "hash",
            "2.0.0",
            "O(N), where N is the number of fields being set",
            "Sets the values of multiple fields.",
        ),
    ),
    Spec::data(
        "hsetnx",
        4,
        WRITES,
        (1, 1, 1),
        encode_hsetnx,
        Doc::new(
            "hash",
            "2.0.0",
            "O(1)",
            "Sets the value of a field in a hash only when the field doesn't exist.",
        ),
    ),
    Spec::data(
        "hget",
        3,
        READS,
        (1, 1, 1),
        encode_hget,
        Doc::new(
            "hash",
            "2.0.0",
            "O(1)",
            "Returns the value of a field in a hash.",
        ),
    ),
    Spec::data(
        "hexists",
        3,
        READS,
        (1, 1, 1),
        encode_hexists,
        Doc::new(
            "hash",
            "2.0.0",
            "O(1)",
            "Determines whether a field exists in a hash.",
        ),
    ),
    Spec::data(
        "hmget",
        -3,
        READS,
        (1, 1, 1),
        encode_hmget,
        Doc::new(
            "hash",
            "2.0.0",
            "O(N), where N is the number of fields being requested",
            "Returns the values of all fields in a hash.",
        ),
    ),
    Spec::data(
        "hdel",
        -3,
        REMOVES,
        (1, 1, 1),
        encode_hdel,
        Doc::new(
            "hash",
            "2.0.0",
            "O(N), where N is the number of fields to be removed",
            "Deletes one or more fields and their values from a hash. Deletes the hash if no fields remain.",
        ),
    ),
    Spec::data(
        "hgetdel",
        -5,
        REMOVES,
        (1, 1, 1),
        encode_hgetdel,
        Doc::new(
            "hash",
            "8.0.0",
            "O(N), where N is the number of specified fields",
            "Returns the values of fields and deletes the fields.",
        ),
    ),
    Spec::data(
        "hlen",
        2,
        READS,
        (1, 1, 1),
        encode_hlen,
        Doc::new(
            "hash",
            "2.0.0",
            "O(1)",
            "Returns the number of fields in a hash.",
        ),
    ),
    Spec::data(
        "hstrlen",
        3,
        READS,
        (1, 1, 1),
        encode_hstrlen,
        Doc::new(
            "hash",
            "3.2.0",
            "O(1)",
            "Returns the length of the value of a field.",
        ),
    ),
    Spec::data(
        "hkeys",
        2,
        READS,
        (1, 1, 1),
        encode_hkeys,
        Doc::new(
            "hash",
            "2.0.0",
            "O(N), where N is the size of the hash",
            "Returns all fields in a hash.",
        ),
    ),
    Spec::data(
        "hvals",
        2,
        READS,
        (1, 1, 1),
        encode_hvals,
        Doc::new(
            "hash",
            "2.0.0",
            "O(N), where N is the size of the hash",
            "Returns all values in a hash.",
        ),
    ),
    Spec::data(
        "hgetall",
        2,
        READS,
        (1, 1, 1),
        encode_hgetall,
        Doc::new(
            "hash",
            "2.0.0",
            "O(N), where N is the size of the hash",
            "Returns all fields and values in a hash.",
        ),
    ),
    Spec::data(
        "hincrby",
        4,
        WRITES,
        (1, 1, 1),
        encode_hincrby,
        Doc::new(
            "hash",
            "2.0.0",
            "O(1)",
            "Increments the integer value of a field in a hash by a number. Uses 0 as initial value if the field doesn't exist.",
        ),
    ),
    Spec::data(
        "hincrbyfloat",
        4,
        WRITES,
        (1, 1, 1),
        encode_hincrbyfloat,
        Doc::new(
            "hash",
            "2.6.0",
            "O(1)",
            "Increments the floating point value of a field by a number. Uses 0 as initial value if the field doesn't exist.",
        ).with_difference("exact decimals instead of binary ones; no infinities"),
    ),
    Spec::data(
        "hrandfield",
        -2,
        READS,
        (1, 1, 1),
        encode_hrandfield,
        Doc::new(
            "hash",
            "6.2.0",
            "O(N), where N is the number of fields returned",
            "Returns one or more random fields from a hash.",
        ).with_difference("nearly uniform"),
    ),
    Spec::data(
        "hscan",
        -3,
        READS,
        (1, 1, 1),
        encode_hscan,
        Doc::new(
            "hash",
            "2.8.0",
            "O(1) for every call, O(N) for a complete iteration",
            "Iterates over fields and values of a hash.",
        ).with_difference("every field that is there throughout comes exactly once"),
    ),
];

fn write_hset(how: u8, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let pairs = r.arguments.from(1);
    if !pairs.len().is_multiple_of(2) {
        return Err(Refusal::Arity);
    }
    for at in (1..r.arguments.len()).step_by(2) {
        r.field(at)?;
    }
    out.byte(Op::HSet as u8).bytes(r.at(0)).byte(how);
    elements::write_rest(r, 1, out);
    Ok(())
}

fn encode_hset(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_hset(how::COUNT, r, out)
}

fn encode_hmset(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_hset(how::OK, r, out)
}

fn encode_hsetnx(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_hset(how::ABSENT, r, out)
}

fn write_field(value: bool, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::LockHolder as u8).byte(u8::from(value)).bytes(r.at(0)).bytes(r.at(1));
}

fn encode_hget(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_field(true, r, out);
    Ok(())
}

fn encode_hexists(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_field(false, r, out);
    Ok(())
}

fn encode_hmget(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::HMget as u8).bytes(r.at(0));
    elements::write_rest(r, 1, out);
    Ok(())
}

fn encode_hdel(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::HDel as u8).bytes(r.at(0));
    elements::write_fields(r, 1, out)
}

fn encode_hgetdel(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::HGetDel as u8).bytes(r.at(0));
    expiry::write_fields(r, 1, expiry::NOT_POSITIVE, out)
}

fn encode_hlen(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    elements::write_count(Kind::Hash, r, out);
    Ok(())
}

fn encode_hstrlen(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::HStrlen as u8).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}

fn write_all(part: u8, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::HAll as u8).bytes(r.at(0)).byte(part);
}

fn encode_hkeys(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_all(part::FIELDS, r, out);
    Ok(())
}

fn encode_hvals(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_all(part::VALUES, r, out);
    Ok(())
}

fn encode_hgetall(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_all(part::BOTH, r, out);
    Ok(())
}

fn encode_hincrby(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let delta = r.integer(2)?;
    out.byte(Op::HIncrBy as u8).bytes(r.at(0)).bytes(r.field(1)?).signed(delta);
    Ok(())
}

fn encode_hincrbyfloat(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    if is_not_finite(r.at(2)) {
        return Err(NOT_FINITE.into());
    }
    Decimal::parse(r.at(2)).ok_or(NOT_A_FLOAT)?;
    out.byte(Op::HIncrByFloat as u8).bytes(r.at(0)).bytes(r.field(1)?).bytes(r.at(2));
    Ok(())
}

fn encode_hrandfield(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let wanted = elements::Random::parse(r, "withvalues")?;
    out.byte(Op::HRandField as u8).bytes(r.at(0));
    wanted.encode(out);
    Ok(())
}

fn encode_hscan(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    elements::write_scan(Kind::Hash, r, out)
}
