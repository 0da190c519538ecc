//! Bit operations on strings: client commands and their encoding.

mod field;
mod run;

use self::{
    field::{Action, Overflow, Step, Width},
    run::BitOperation,
};
use crate::{
    command::{Doc, READS, Refusal, Request, SYNTAX, Spec, WRITES},
    commands::{
        elements,
        family::{Family, Operation},
    },
    encode::Encoder,
    op::Op,
    resp::integer::parse_integer,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::GetBit, run::get),
        Operation::read(Op::BitCount, run::count),
        Operation::read(Op::BitPos, run::position),
        Operation::read(Op::BitFieldRo, field::read),
        Operation::write(Op::SetBit, run::set),
        Operation::write(Op::BitOp, run::combine),
        Operation::write(Op::BitField, field::write),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "setbit",
        4,
        WRITES,
        (1, 1, 1),
        encode_setbit,
        Doc::new(
            "bitmap",
            "2.2.0",
            "O(1)",
            "Sets or clears the bit at offset of the string value. Creates the key if it doesn't exist.",
        ),
    ),
    Spec::data(
        "getbit",
        3,
        READS,
        (1, 1, 1),
        encode_getbit,
        Doc::new("bitmap", "2.2.0", "O(1)", "Returns a bit value by offset."),
    ),
    Spec::data(
        "bitcount",
        -2,
        READS,
        (1, 1, 1),
        encode_bitcount,
        Doc::new(
            "bitmap",
            "2.6.0",
            "O(N)",
            "Counts the number of set bits (population counting) in a string.",
        ),
    ),
    Spec::data(
        "bitpos",
        -3,
        READS,
        (1, 1, 1),
        encode_bitpos,
        Doc::new(
            "bitmap",
            "2.8.7",
            "O(N)",
            "Finds the first set (1) or clear (0) bit in a string.",
        ),
    ),
    Spec::data(
        "bitop",
        -4,
        WRITES,
        (2, -1, 1),
        encode_bitop,
        Doc::new(
            "bitmap",
            "2.6.0",
            "O(N)",
            "Performs bitwise operations on multiple strings, and stores the result.",
        ),
    ),
    Spec::data(
        "bitfield",
        -2,
        WRITES,
        (1, 1, 1),
        encode_bitfield,
        Doc::new(
            "bitmap",
            "3.2.0",
            "O(1) for each subcommand specified",
            "Performs arbitrary bitfield integer operations on strings.",
        ),
    ),
    Spec::data(
        "bitfield_ro",
        -2,
        READS,
        (1, 1, 1),
        encode_bitfield_ro,
        Doc::new(
            "bitmap",
            "6.0.0",
            "O(1) for each subcommand specified",
            "Performs arbitrary read-only bitfield integer operations on strings.",
        ),
    ),
];

const NOT_AN_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const NOT_A_BIT: &str = "ERR bit is not an integer or out of range";

/// Parses a bit offset. Fails if `bits` bits from there on exceed the maximum value size.
fn offset(r: &Request<'_>, text: &[u8], bits: u64) -> Result<u64, Refusal> {
    let offset = parse_integer(text).and_then(|offset| u64::try_from(offset).ok());
    let most = (r.value_bytes_max as u64).saturating_mul(8);
    let offset = offset.filter(|offset| offset.saturating_add(bits) <= most);
    offset.ok_or(NOT_AN_OFFSET.into())
}

fn bit(text: &[u8]) -> Option<u8> {
    match text {
        b"0" => Some(0),
        b"1" => Some(1),
        _ => None,
    }
}

fn encode_setbit(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let offset = offset(r, r.at(1), 1)?;
    let bit = bit(r.at(2)).ok_or(NOT_A_BIT)?;
    out.byte(Op::SetBit as u8).bytes(r.at(0)).count(offset).byte(bit);
    Ok(())
}

fn encode_getbit(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let offset = parse_integer(r.at(1)).and_then(|offset| u64::try_from(offset).ok());
    // Redis refuses offsets past the end of its longest possible string.
    let offset = offset.filter(|offset| *offset < 1 << 32).ok_or(NOT_AN_OFFSET)?;
    out.byte(Op::GetBit as u8).bytes(r.at(0)).count(offset);
    Ok(())
}

/// Encodes `[start [end [BYTE | BIT]]]` from argument `at` on. Missing arguments get their
/// defaults.
fn write_range(r: &Request<'_>, at: usize, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let count = r.arguments.len().saturating_sub(at);
    let in_bits = match count {
        0..=2 => false,
        3 if r.is(at + 2, "bit") => true,
        3 if r.is(at + 2, "byte") => false,
        _ => return Err(SYNTAX.into()),
    };
    let start = if count > 0 { r.integer(at)? } else { 0 };
    let end = if count > 1 { r.integer(at + 1)? } else { -1 };
    // For BITPOS, an explicit end differs from a missing one.
    out.byte(u8::from(in_bits) | u8::from(count > 1) << 1).signed(start).signed(end);
    Ok(())
}

fn encode_bitcount(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    if r.arguments.len() == 2 {
        return Err(SYNTAX.into());
    }
    out.byte(Op::BitCount as u8).bytes(r.at(0));
    write_range(r, 1, out)
}

fn encode_bitpos(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    r.integer(1)?;
    let bit = bit(r.at(1)).ok_or("ERR The bit argument must be 1 or 0.")?;
    out.byte(Op::BitPos as u8).bytes(r.at(0)).byte(bit);
    write_range(r, 2, out)
}

fn encode_bitop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let how = match &*r.at(0).to_ascii_lowercase() {
        b"and" => BitOperation::And,
        b"or" => BitOperation::Or,
        b"xor" => BitOperation::Xor,
        b"not" if r.arguments.len() == 3 => BitOperation::Not,
        b"not" => return Err("ERR BITOP NOT must be called with a single source key.".into()),
        _ => return Err(SYNTAX.into()),
    };
    out.byte(Op::BitOp as u8).byte(how as u8);
    elements::write_rest(r, 1, out);
    Ok(())
}

/// Parses any number of the operations `GET type offset`, `SET type offset value`, `INCRBY type
/// offset increment` and `OVERFLOW WRAP | SAT | FAIL`.
fn steps(r: &Request<'_>, only_reads: bool) -> Result<Vec<Step>, Refusal> {
    let (mut steps, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 1);
    while at < r.arguments.len() {
        let rest = r.arguments.len() - at - 1;
        if r.is(at, "overflow") && rest >= 1 {
            overflow = match &*r.at(at + 1).to_ascii_lowercase() {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Saturate,
                b"fail" => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            at += 2;
            continue;
        }
        let (reads, adds) = (r.is(at, "get"), r.is(at, "incrby"));
        let length = if reads { 2 } else { 3 };
        if !(reads || adds || r.is(at, "set")) || rest < length {
            return Err(SYNTAX.into());
        }
        let width = Width::parse(r.at(at + 1)).ok_or(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        )?;
        let bits = u64::from(width.bits());
        let text = r.at(at + 2);
        let offset = match text.strip_prefix(b"#") {
            None => offset(r, text, bits)?,
            Some(number) => {
                let number = parse_integer(number).and_then(|number| u64::try_from(number).ok());
                let place = number.and_then(|number| number.checked_mul(bits));
                offset(r, place.ok_or(NOT_AN_OFFSET)?.to_string().as_bytes(), bits)?
            }
        };
        let action = match (reads, adds) {
            (true, _) => Action::Get,
            (false, true) => Action::Add(r.integer(at + 3)?),
            (false, false) => Action::Set(r.integer(at + 3)?),
        };
        if only_reads && !reads {
            return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
        }
        steps.push(Step { action, overflow, width, offset });
        at += length + 1;
    }
    Ok(steps)
}

fn encode_bitfield(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let steps = steps(r, false)?;
    let reads = steps.iter().all(|step| step.action == Action::Get);
    let op = if reads { Op::BitFieldRo } else { Op::BitField };
    out.byte(op as u8).bytes(r.at(0)).length(steps.len());
    for step in &steps {
        step.encode(out);
    }
    Ok(())
}

fn encode_bitfield_ro(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let steps = steps(r, true)?;
    out.byte(Op::BitFieldRo as u8).bytes(r.at(0)).length(steps.len());
    for step in &steps {
        step.encode(out);
    }
    Ok(())
}
