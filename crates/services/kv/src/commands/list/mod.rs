//! Lists: client commands and their encoding.

pub(super) mod end;
pub(super) mod run;

use self::end::End;
use crate::{
    command::{Doc, NOT_AN_INTEGER, READS, REMOVES, Refusal, Request, SYNTAX, Spec, WRITES},
    commands::{
        elements::{self, OUT_OF_LONG},
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
        Operation::read(Op::LIndex, run::index),
        Operation::read(Op::LRange, run::range),
        Operation::read(Op::LPos, run::position),
        Operation::write(Op::LPush, run::push),
        Operation::write(Op::LPop, run::pop),
        Operation::write(Op::LSet, run::set),
        Operation::write(Op::LTrim, run::trim),
        Operation::write(Op::LRem, run::remove),
        Operation::write(Op::LInsert, run::insert),
        Operation::write(Op::LMove, run::transfer),
        Operation::write(Op::LMpop, run::pop_first),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "lpush",
        -3,
        WRITES,
        (1, 1, 1),
        encode_lpush,
        Doc::new(
            "list",
            "1.0.0",
            "O(1) for each element added",
            "Prepends one or more elements to a list. Creates the key if it doesn't exist.",
        ),
    ),
    Spec::data(
        "rpush",
        -3,
        WRITES,
        (1, 1, 1),
        encode_rpush,
        Doc::new(
            "list",
            "1.0.0",
            "O(1) for each element added",
            "Appends one or more elements to a list. Creates the key if it doesn't exist.",
        ),
    ),
    Spec::data(
        "lpushx",
        -3,
        WRITES,
        (1, 1, 1),
        encode_lpushx,
        Doc::new(
            "list",
            "2.2.0",
            "O(1) for each element added",
            "Prepends one or more elements to a list only when the list exists.",
        ),
    ),
    Spec::data(
        "rpushx",
        -3,
        WRITES,
        (1, 1, 1),
        encode_rpushx,
        Doc::new(
            "list",
            "2.2.0",
            "O(1) for each element added",
            "Appends one or more elements to a list only when the list exists.",
        ),
    ),
    Spec::data(
        "lpop",
        -2,
        REMOVES,
        (1, 1, 1),
        encode_lpop,
        Doc::new(
            "list",
            "1.0.0",
            "O(N), where N is the number of elements returned",
            "Returns the first elements in a list after removing them. Deletes the list if the last element was popped.",
        ),
    ),
    Spec::data(
        "rpop",
        -2,
        REMOVES,
        (1, 1, 1),
        encode_rpop,
        Doc::new(
            "list",
            "1.0.0",
            "O(N), where N is the number of elements returned",
            "Returns and removes the last elements of a list. Deletes the list if the last element was popped.",
        ),
    ),
    Spec::data(
        "llen",
        2,
        READS,
        (1, 1, 1),
        encode_llen,
        Doc::new("list", "1.0.0", "O(1)", "Returns the length of a list."),
    ),
    Spec::data(
        "lindex",
        3,
        READS,
        (1, 1, 1),
        encode_lindex,
        Doc::new(
            "list",
            "1.0.0",
            "O(log(N)), where N is the length of the list",
            "Returns an element from a list by its index.",
        ),
    ),
    Spec::data(
        "lrange",
        4,
        READS,
        (1, 1, 1),
        encode_lrange,
        Doc::new(
            "list",
            "1.0.0",
            "O(N), where N is the number of elements returned",
            "Returns a range of elements from a list.",
        ),
    ),
    Spec::data(
        "lpos",
        -3,
        READS,
        (1, 1, 1),
        encode_lpos,
        Doc::new(
            "list",
            "6.0.6",
            "O(N), where N is the number of elements looked at",
            "Returns the index of matching elements in a list.",
        ),
    ),
    Spec::data(
        "lset",
        4,
        WRITES,
        (1, 1, 1),
        encode_lset,
        Doc::new(
            "list",
            "1.0.0",
            "O(log(N)), where N is the length of the list",
            "Sets the value of an element in a list by its index.",
        ),
    ),
    Spec::data(
        "ltrim",
        4,
        REMOVES,
        (1, 1, 1),
        encode_ltrim,
        Doc::new(
            "list",
            "1.0.0",
            "O(N), where N is the number of elements removed, or kept if they are fewer",
            "Removes elements from both ends a list. Deletes the list if all elements were trimmed.",
        ),
    ),
    Spec::data(
        "lrem",
        4,
        REMOVES,
        (1, 1, 1),
        encode_lrem,
        Doc::new(
            "list",
            "1.0.0",
            "O(N), where N is the length of the list",
            "Removes elements from a list. Deletes the list if the last element was removed.",
        ),
    ),
    Spec::data(
        "linsert",
        5,
        WRITES,
        (1, 1, 1),
        encode_linsert,
        Doc::new(
            "list",
            "2.2.0",
            "O(N), where N is the length of the list",
            "Inserts an element before or after another element in a list.",
        ),
    ),
    Spec::data(
        "lmove",
        5,
        REMOVES,
        (1, 2, 1),
        encode_lmove,
        Doc::new(
            "list",
            "6.2.0",
            "O(1)",
            "Returns an element after popping it from one list and pushing it to another. Deletes the list if the last element was moved.",
        ),
    ),
    Spec::data(
        "rpoplpush",
        3,
        REMOVES,
        (1, 2, 1),
        encode_rpoplpush,
        Doc::new(
            "list",
            "1.2.0",
            "O(1)",
            "Returns the last element of a list after removing and pushing it to another list. Deletes the list if the last element was popped.",
        ),
    ),
    Spec::data(
        "lmpop",
        -4,
        REMOVES,
        (0, 0, 0),
        encode_lmpop,
        Doc::new(
            "list",
            "7.0.0",
            "O(N+M), where N is the number of keys and M the number of elements returned",
            "Returns multiple elements from a list after removing them. Deletes the list if the last element was popped.",
        ),
    ),
];

fn write_push(end: End, present: bool, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::LPush as u8).bytes(r.at(0)).byte(end as u8).byte(u8::from(present));
    elements::write_rest(r, 1, out);
}

fn encode_lpush(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_push(End::Left, false, r, out);
    Ok(())
}

fn encode_rpush(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_push(End::Right, false, r, out);
    Ok(())
}

fn encode_lpushx(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_push(End::Left, true, r, out);
    Ok(())
}

fn encode_rpushx(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_push(End::Right, true, r, out);
    Ok(())
}

fn write_pop(end: End, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let count = match r.arguments.len() {
        1 => None,
        2 => Some(parse_integer(r.at(1)).ok_or("ERR value is out of range, must be positive")?),
        _ => return Err(Refusal::Arity),
    };
    out.byte(Op::LPop as u8).bytes(r.at(0)).byte(end as u8);
    match count.map(u64::try_from) {
        None => out.byte(0),
        Some(Ok(count)) => out.byte(1).count(count),
        Some(Err(_)) => return Err("ERR value is out of range, must be positive".into()),
    };
    Ok(())
}

fn encode_lpop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_pop(End::Left, r, out)
}

fn encode_rpop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_pop(End::Right, r, out)
}

fn encode_llen(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    elements::write_count(Kind::List, r, out);
    Ok(())
}

fn encode_lindex(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let index = r.integer(1)?;
    out.byte(Op::LIndex as u8).bytes(r.at(0)).signed(index);
    Ok(())
}

fn write_range(op: Op, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (start, stop) = (r.integer(1)?, r.integer(2)?);
    out.byte(op as u8).bytes(r.at(0)).signed(start).signed(stop);
    Ok(())
}

fn encode_lrange(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(Op::LRange, r, out)
}

fn encode_ltrim(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(Op::LTrim, r, out)
}

fn encode_lpos(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (mut rank, mut count, mut most) = (1, None, 0);
    let mut at = 2;
    while at < r.arguments.len() {
        if at + 1 >= r.arguments.len() {
            return Err(SYNTAX.into());
        }
        if r.is(at, "rank") {
            rank = match r.integer(at + 1)? {
                0 => {
                    return Err(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                         negative to start from the end of the list"
                            .into(),
                    );
                }
                i64::MIN => return Err(OUT_OF_LONG.into()),
                rank => rank,
            };
        } else if r.is(at, "count") {
            let found = parse_integer(r.at(at + 1)).and_then(|count| u64::try_from(count).ok());
            count = Some(found.ok_or("ERR COUNT can't be negative")?);
        } else if r.is(at, "maxlen") {
            let found = parse_integer(r.at(at + 1)).and_then(|most| u64::try_from(most).ok());
            most = found.ok_or("ERR MAXLEN can't be negative")?;
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    out.byte(Op::LPos as u8).bytes(r.at(0)).bytes(r.at(1)).signed(rank).count(most);
    match count {
        None => out.byte(0),
        Some(count) => out.byte(1).count(count),
    };
    Ok(())
}

fn encode_lset(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let index = parse_integer(r.at(1)).ok_or(NOT_AN_INTEGER)?;
    out.byte(Op::LSet as u8).bytes(r.at(0)).signed(index).bytes(r.at(2));
    Ok(())
}

fn encode_lrem(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let count = r.integer(1)?;
    if count == i64::MIN {
        return Err(OUT_OF_LONG.into());
    }
    out.byte(Op::LRem as u8).bytes(r.at(0)).signed(count).bytes(r.at(2));
    Ok(())
}

fn encode_linsert(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let behind = match &*r.at(1).to_ascii_lowercase() {
        b"before" => 0,
        b"after" => 1,
        _ => return Err(SYNTAX.into()),
    };
    out.byte(Op::LInsert as u8).bytes(r.at(0)).byte(behind).bytes(r.at(2)).bytes(r.at(3));
    Ok(())
}

fn write_move(from: End, to: End, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::LMove as u8).bytes(r.at(0)).bytes(r.at(1)).byte(from as u8).byte(to as u8);
}

fn encode_lmove(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_move(End::parse(r.at(2))?, End::parse(r.at(3))?, r, out);
    Ok(())
}

fn encode_rpoplpush(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_move(End::Right, End::Left, r, out);
    Ok(())
}

fn encode_lmpop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (keys, at) = elements::keys(r, 0, "ERR numkeys should be greater than 0")?;
    let end = End::parse(r.at(at))?;
    let count = elements::pop_count(r, at + 1)?;
    out.byte(Op::LMpop as u8).byte(end as u8).count(count);
    out.keys(&keys);
    Ok(())
}
