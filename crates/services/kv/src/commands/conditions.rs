//! Compare-and-set and compare-and-delete: the conditions of SET, DELEX and DELIFEQ, and DIGEST,
//! which replaces a value that is too long to send for a comparison. Compatible with Redis 8.4 and
//! Valkey 9.

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    command::{Doc, READS, REMOVES, Refusal, Request, SYNTAX, Spec},
    commands::family::{Family, Operation},
    commands::state::{ReadContext, WriteContext, string},
    encode::{Decoder, Encoder, Fault, Malformed},
    op::Op,
    resp::reply::Reply,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[Operation::read(Op::ValueDigest, digest), Operation::write(Op::DelIf, del_if)],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "delex",
        -2,
        REMOVES,
        (1, 1, 1),
        encode_delex,
        Doc::new(
            "string",
            "8.4.0",
            "O(1), or O(N) with a digest, where N is the length of the value",
            "Deletes a key if its value or the digest of its value meets a condition.",
        ),
    ),
    Spec::data(
        "delifeq",
        3,
        REMOVES,
        (1, 1, 1),
        encode_delifeq,
        Doc::new(
            "string",
            "9.0.0",
            "O(N), where N is the length of the value",
            "Deletes a key if its value equals the given one.",
        ),
    ),
    Spec::data(
        "digest",
        2,
        READS,
        (1, 1, 1),
        encode_digest,
        Doc::new(
            "string",
            "8.4.0",
            "O(N), where N is the length of the value",
            "Returns the XXH3 digest of a string value.",
        ),
    ),
];

/// Condition on the current value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// The key has exactly this value.
    Equal(&'a [u8]),
    /// The key has a different value or is absent.
    Different(&'a [u8]),
    /// The value of the key has this digest.
    DigestEqual(u64),
    /// The value of the key has a different digest, or the key is absent.
    DigestDifferent(u64),
}

impl<'a> Condition<'a> {
    /// Parses an option with its argument. Returns `None` if the option is not a condition.
    pub(super) fn parse(option: &[u8], argument: &'a [u8]) -> Result<Option<Self>, Refusal> {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let digest = || parse_digest(argument).ok_or(NOT_A_DIGEST);
        Ok(Some(match () {
            () if is("ifeq") => Self::Equal(argument),
            () if is("ifne") => Self::Different(argument),
            () if is("ifdeq") => Self::DigestEqual(digest()?),
            () if is("ifdne") => Self::DigestDifferent(digest()?),
            () => return Ok(None),
        }))
    }

    pub(super) fn encode(self, out: &mut Encoder<'_>) {
        match self {
            Self::Equal(value) => out.byte(0).bytes(value),
            Self::Different(value) => out.byte(1).bytes(value),
            Self::DigestEqual(digest) => out.byte(2).word(digest),
            Self::DigestDifferent(digest) => out.byte(3).word(digest),
        };
    }

    pub(super) fn decode(from: &mut Decoder<'a>) -> Result<Self, Malformed> {
        match from.byte()? {
            0 => Ok(Self::Equal(from.bytes()?)),
            1 => Ok(Self::Different(from.bytes()?)),
            2 => Ok(Self::DigestEqual(from.word()?)),
            3 => Ok(Self::DigestDifferent(from.word()?)),
            _ => Err(Malformed),
        }
    }

    /// Returns whether the condition holds for a value. `None` stands for an absent key.
    pub(super) fn holds(self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Equal(wanted) => value == Some(wanted),
            Self::Different(unwanted) => value != Some(unwanted),
            Self::DigestEqual(wanted) => value.map(xxh3_64) == Some(wanted),
            Self::DigestDifferent(unwanted) => value.map(xxh3_64) != Some(unwanted),
        }
    }
}

const NOT_A_DIGEST: &str = "ERR a digest has exactly 16 hexadecimal characters, as DIGEST says it";

fn parse_digest(text: &[u8]) -> Option<u64> {
    let digits = text.len() == 16 && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    u64::from_str_radix(text, 16).ok()
}

fn encode_delex(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    match r.arguments.len() {
        1 => {
            out.byte(Op::Del as u8).length(1).bytes(r.at(0));
            Ok(())
        }
        3 => match Condition::parse(r.at(1), r.at(2))? {
            Some(condition) => {
                write_del_if(condition, r.at(0), out);
                Ok(())
            }
            None => Err(SYNTAX.into()),
        },
        _ => Err(SYNTAX.into()),
    }
}

fn encode_delifeq(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_del_if(Condition::Equal(r.at(1)), r.at(0), out);
    Ok(())
}

pub(crate) fn write_del_if(condition: Condition<'_>, key: &[u8], out: &mut Encoder<'_>) {
    out.byte(Op::DelIf as u8).bytes(key);
    condition.encode(out);
}

pub(super) fn del_if(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, condition) = (from.key()?, Condition::decode(from)?);
    from.end()?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let value = entry.as_ref().map(|entry| &*entry.value);
    let deleted = value.is_some() && condition.holds(value);
    drop(entry);
    if deleted {
        state.delete(key);
    }
    reply.integer(i64::from(deleted));
    Ok(())
}

fn encode_digest(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::ValueDigest as u8).bytes(r.at(0));
    Ok(())
}

pub(super) fn digest(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    from.end()?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let digest = entry.map(|entry| format!("{:016x}", xxh3_64(&entry.value)));
    reply.optional(digest.as_ref().map(String::as_bytes));
    Ok(())
}
