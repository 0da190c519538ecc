//! HyperLogLogs: client commands and their encoding. The value is a string in Redis' format.

mod dense;
mod estimate;
mod hash;
mod layout;
mod registers;
mod run;
mod sparse;

use crate::{
    command::{Doc, READS, Refusal, Request, Spec, WRITES},
    commands::{
        elements,
        family::{Family, Operation},
    },
    encode::Encoder,
    op::Op,
};

pub(super) use self::{registers::MERGE_VISITS, run::add_visits};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::PfCount, run::count),
        Operation::write(Op::PfAdd, run::add),
        Operation::write(Op::PfMerge, run::merge),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "pfadd",
        -2,
        WRITES,
        (1, 1, 1),
        encode_pfadd,
        Doc::new(
            "hyperloglog",
            "2.8.9",
            "O(1) for each element",
            "Adds elements to a HyperLogLog. Creates the key if it doesn't exist.",
        ),
    ),
    Spec::data(
        "pfcount",
        -2,
        READS,
        (1, -1, 1),
        encode_pfcount,
        Doc::new(
            "hyperloglog",
            "2.8.9",
            "O(N), where N is the number of keys",
            "Returns the approximate number of distinct elements in the union of HyperLogLogs.",
        )
        .with_difference("stores no count in the value"),
    ),
    Spec::data(
        "pfmerge",
        -2,
        WRITES,
        (1, -1, 1),
        encode_pfmerge,
        Doc::new(
            "hyperloglog",
            "2.8.9",
            "O(N), where N is the number of keys",
            "Merges HyperLogLogs into one.",
        ),
    ),
];

fn encode_pfadd(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::PfAdd as u8).bytes(r.at(0));
    elements::write_rest(r, 1, out);
    Ok(())
}

fn encode_pfcount(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::PfCount as u8);
    elements::write_rest(r, 0, out);
    Ok(())
}

fn encode_pfmerge(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::PfMerge as u8);
    elements::write_rest(r, 0, out);
    Ok(())
}
