//! SORT and SORT_RO: client commands and their encoding.

mod order;
mod run;

use self::order::flag;
use crate::{
    command::{Doc, READS, Refusal, Request, SYNTAX, Spec, WRITES},
    commands::family::{Family, Operation},
    encode::Encoder,
    key::Key,
    op::Op,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::Sort, run::sort),
        Operation::write(Op::SortStore, run::store),
    ],
};

const COMPLEXITY: &str = "O(N+M*log(M)), where N is the number of elements of the list or set, and M the number of returned elements. O(N) when the elements aren't sorted.";

const COMMANDS: &[Spec] = &[
    Spec::data(
        "sort",
        -2,
        WRITES,
        (1, 1, 1),
        encode_sort,
        Doc::new(
            "generic",
            "1.0.0",
            COMPLEXITY,
            "Sorts the elements in a list, a set, or a sorted set, optionally storing the result.",
        )
        .with_difference("text is compared by its bytes; bounded"),
    ),
    Spec::data(
        "sort_ro",
        -2,
        READS,
        (1, 1, 1),
        encode_sort_ro,
        Doc::new(
            "generic",
            "7.0.0",
            COMPLEXITY,
            "Returns the sorted elements of a list, a set, or a sorted set.",
        )
        .with_difference("text is compared by its bytes; bounded"),
    ),
];

fn encode_sort(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write(r, true, out)
}

fn encode_sort_ro(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write(r, false, out)
}

fn write(r: &Request<'_>, may_store: bool, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (mut flags, mut limit) = (0, (0, -1));
    let (mut by, mut target, mut gets) = (&b""[..], None, Vec::new());
    let mut at = 1;
    while at < r.arguments.len() {
        let left = r.arguments.len() - at - 1;
        if r.is(at, "asc") {
            flags &= !flag::BACK;
        } else if r.is(at, "desc") {
            flags |= flag::BACK;
        } else if r.is(at, "alpha") {
            flags |= flag::ALPHA;
        } else if r.is(at, "limit") && left >= 2 {
            limit = (r.integer(at + 1)?, r.integer(at + 2)?);
            at += 2;
        } else if r.is(at, "store") && left >= 1 && may_store {
            target = Some(Key::new(r.at(at + 1))?);
            at += 1;
        } else if r.is(at, "by") && left >= 1 {
            flags |= flag::BY;
            by = r.at(at + 1);
            at += 1;
        } else if r.is(at, "get") && left >= 1 {
            gets.push(r.at(at + 1));
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    match target {
        Some(target) => out.byte(Op::SortStore as u8).bytes(target.bytes()),
        None => out.byte(Op::Sort as u8),
    };
    out.bytes(r.at(0)).byte(flags).bytes(by).signed(limit.0).signed(limit.1).length(gets.len());
    for get in gets {
        out.bytes(get);
    }
    Ok(())
}
