//! Sets: client commands and their encoding.

mod run;

use self::run::SetOperation;
use crate::{
    command::{Doc, READS, REMOVES, Refusal, Request, SYNTAX, Spec, WRITES},
    commands::{
        elements,
        family::{Family, Operation},
    },
    encode::Encoder,
    op::Op,
    resp::integer::parse_integer,
    store::collection::Kind,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::SIsMember, run::is_member),
        Operation::read(Op::SMembers, run::members),
        Operation::read(Op::SRandMember, run::random),
        Operation::read(Op::SCombine, run::combine),
        Operation::read(Op::SInterCard, run::intersection_size),
        Operation::write(Op::SAdd, run::add),
        Operation::write(Op::SRem, run::remove),
        Operation::write(Op::SMove, run::transfer),
        Operation::write(Op::SPop, run::pop),
        Operation::write(Op::SStore, run::store),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "sadd",
        -3,
        WRITES,
        (1, 1, 1),
        encode_sadd,
        Doc::new(
            "set",
            "1.0.0",
            "O(1) for each member added",
            "Adds one or more members to a set. Creates the key if it doesn't exist.",
        ),
    ),
    Spec::data(
        "srem",
        -3,
        REMOVES,
        (1, 1, 1),
        encode_srem,
        Doc::new(
            "set",
            "1.0.0",
            "O(1) for each member removed",
            "Removes one or more members from a set. Deletes the set if the last member was removed.",
        ),
    ),
    Spec::data(
        "sismember",
        3,
        READS,
        (1, 1, 1),
        encode_sismember,
        Doc::new(
            "set",
            "1.0.0",
            "O(1)",
            "Determines whether a member belongs to a set.",
        ),
    ),
    Spec::data(
        "smismember",
        -3,
        READS,
        (1, 1, 1),
        encode_smismember,
        Doc::new(
            "set",
            "6.2.0",
            "O(N), where N is the number of members asked for",
            "Determines whether multiple members belong to a set.",
        ),
    ),
    Spec::data(
        "scard",
        2,
        READS,
        (1, 1, 1),
        encode_scard,
        Doc::new(
            "set",
            "1.0.0",
            "O(1)",
            "Returns the number of members in a set.",
        ),
    ),
    Spec::data(
        "smembers",
        2,
        READS,
        (1, 1, 1),
        encode_smembers,
        Doc::new(
            "set",
            "1.0.0",
            "O(N), where N is the size of the set",
            "Returns all members of a set.",
        ),
    ),
    Spec::data(
        "smove",
        4,
        REMOVES,
        (1, 2, 1),
        encode_smove,
        Doc::new(
            "set",
            "1.0.0",
            "O(1)",
            "Moves a member from one set to another.",
        ),
    ),
    Spec::data(
        "spop",
        -2,
        REMOVES,
        (1, 1, 1),
        encode_spop,
        Doc::new(
            "set",
            "1.0.0",
            "O(N), where N is the number of members returned",
            "Returns one or more random members from a set after removing them. Deletes the set if the last member was popped.",
        ).with_difference("nearly uniform"),
    ),
    Spec::data(
        "srandmember",
        -2,
        READS,
        (1, 1, 1),
        encode_srandmember,
        Doc::new(
            "set",
            "1.0.0",
            "O(N), where N is the number of members returned",
            "Gets one or multiple random members from a set.",
        ).with_difference("nearly uniform"),
    ),
    Spec::data(
        "sinter",
        -2,
        READS,
        (1, -1, 1),
        encode_sinter,
        Doc::new(
            "set",
            "1.0.0",
            "O(N*M), where N is the size of the smallest set and M the number of sets",
            "Returns the intersect of multiple sets.",
        ),
    ),
    Spec::data(
        "sinterstore",
        -3,
        WRITES,
        (1, -1, 1),
        encode_sinterstore,
        Doc::new(
            "set",
            "1.0.0",
            "O(N*M), where N is the size of the smallest set and M the number of sets",
            "Stores the intersect of multiple sets in a key.",
        ),
    ),
    Spec::data(
        "sintercard",
        -3,
        READS,
        (0, 0, 0),
        encode_sintercard,
        Doc::new(
            "set",
            "7.0.0",
            "O(N*M), where N is the size of the smallest set and M the number of sets",
            "Returns the number of members of the intersect of multiple sets.",
        ),
    ),
    Spec::data(
        "sunion",
        -2,
        READS,
        (1, -1, 1),
        encode_sunion,
        Doc::new(
            "set",
            "1.0.0",
            "O(N), where N is the number of members in all sets",
            "Returns the union of multiple sets.",
        ),
    ),
    Spec::data(
        "sunionstore",
        -3,
        WRITES,
        (1, -1, 1),
        encode_sunionstore,
        Doc::new(
            "set",
            "1.0.0",
            "O(N), where N is the number of members in all sets",
            "Stores the union of multiple sets in a key.",
        ),
    ),
    Spec::data(
        "sdiff",
        -2,
        READS,
        (1, -1, 1),
        encode_sdiff,
        Doc::new(
            "set",
            "1.0.0",
            "O(N*M), where N is the size of the first set and M the number of sets",
            "Returns the difference of multiple sets.",
        ),
    ),
    Spec::data(
        "sdiffstore",
        -3,
        WRITES,
        (1, -1, 1),
        encode_sdiffstore,
        Doc::new(
            "set",
            "1.0.0",
            "O(N*M), where N is the size of the first set and M the number of sets",
            "Stores the difference of multiple sets in a key.",
        ),
    ),
    Spec::data(
        "sscan",
        -3,
        READS,
        (1, 1, 1),
        encode_sscan,
        Doc::new(
            "set",
            "2.8.0",
            "O(1) for every call, O(N) for a complete iteration",
            "Iterates over members of a set.",
        ).with_difference("every member that is there throughout comes exactly once"),
    ),
];

fn encode_sadd(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::SAdd as u8).bytes(r.at(0));
    elements::write_fields(r, 1, out)
}

fn encode_srem(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::SRem as u8).bytes(r.at(0));
    elements::write_fields(r, 1, out)
}

fn write_is_member(many: bool, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::SIsMember as u8).bytes(r.at(0)).byte(u8::from(many));
    elements::write_rest(r, 1, out);
}

fn encode_sismember(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_is_member(false, r, out);
    Ok(())
}

fn encode_smismember(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_is_member(true, r, out);
    Ok(())
}

fn encode_scard(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    elements::write_count(Kind::Set, r, out);
    Ok(())
}

fn encode_smembers(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::SMembers as u8).bytes(r.at(0));
    Ok(())
}

fn encode_smove(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::SMove as u8).bytes(r.at(0)).bytes(r.at(1)).bytes(r.field(2)?);
    Ok(())
}

fn encode_spop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let count = match r.arguments.len() {
        1 => None,
        2 => {
            let count = parse_integer(r.at(1)).and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or("ERR value is out of range, must be positive")?)
        }
        _ => return Err(SYNTAX.into()),
    };
    out.byte(Op::SPop as u8).bytes(r.at(0)).word(r.seed);
    match count {
        None => out.byte(0),
        Some(count) => out.byte(1).count(count),
    };
    Ok(())
}

fn encode_srandmember(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let wanted = elements::Random::parse(r, "")?;
    out.byte(Op::SRandMember as u8).bytes(r.at(0));
    wanted.encode(out);
    Ok(())
}

fn write_combine(how: SetOperation, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::SCombine as u8).byte(how as u8);
    elements::write_rest(r, 0, out);
}

fn encode_sinter(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_combine(SetOperation::Intersection, r, out);
    Ok(())
}

fn encode_sunion(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_combine(SetOperation::Union, r, out);
    Ok(())
}

fn encode_sdiff(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_combine(SetOperation::Difference, r, out);
    Ok(())
}

fn write_store(how: SetOperation, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::SStore as u8).bytes(r.at(0)).byte(how as u8);
    elements::write_rest(r, 1, out);
}

fn encode_sinterstore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_store(SetOperation::Intersection, r, out);
    Ok(())
}

fn encode_sunionstore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_store(SetOperation::Union, r, out);
    Ok(())
}

fn encode_sdiffstore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_store(SetOperation::Difference, r, out);
    Ok(())
}

fn encode_sintercard(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (keys, limit) = elements::card(r)?;
    out.byte(Op::SInterCard as u8).count(limit);
    out.keys(&keys);
    Ok(())
}

fn encode_sscan(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    elements::write_scan(Kind::Set, r, out)
}
