//! Counters: INCR and related commands for integers and decimal fractions.

use crate::{
    command::{Doc, NOT_AN_INTEGER, Refusal, Request, Spec, WRITES},
    commands::events::class,
    commands::family::{Family, Operation},
    commands::state::{WriteContext, string},
    encode::{Decoder, Encoder, Fault},
    op::Op,
    resp::{integer::parse_integer, reply::Reply},
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::write(Op::IncrBy, incr_by),
        Operation::write(Op::IncrByFloat, incr_by_float),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "incr",
        2,
        WRITES,
        (1, 1, 1),
        encode_incr,
        Doc::new(
            "string",
            "1.0.0",
            "O(1)",
            "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
        ),
    ),
    Spec::data(
        "decr",
        2,
        WRITES,
        (1, 1, 1),
        encode_decr,
        Doc::new(
            "string",
            "1.0.0",
            "O(1)",
            "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist.",
        ),
    ),
    Spec::data(
        "incrby",
        3,
        WRITES,
        (1, 1, 1),
        encode_incrby,
        Doc::new(
            "string",
            "1.0.0",
            "O(1)",
            "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
        ),
    ),
    Spec::data(
        "decrby",
        3,
        WRITES,
        (1, 1, 1),
        encode_decrby,
        Doc::new(
            "string",
            "1.0.0",
            "O(1)",
            "Decrements a number from the integer value of a key. Uses 0 as initial value if the key doesn't exist.",
        ),
    ),
    Spec::data(
        "incrbyfloat",
        3,
        WRITES,
        (1, 1, 1),
        encode_incrbyfloat,
        Doc::new(
            "string",
            "2.6.0",
            "O(1)",
            "Increment the floating point value of a key by a number. Uses 0 as initial value if the key doesn't exist.",
        ).with_difference("exact decimals instead of binary ones; no infinities"),
    ),
];

pub(super) const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub(super) const NOT_FINITE: &str = "ERR value is NaN or Infinity";
pub(super) const TOO_LARGE_SUM: &str = "ERR increment would produce NaN or Infinity";

pub(super) fn is_not_finite(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let text = text.strip_prefix(b"-").unwrap_or(text);
    [&b"inf"[..], b"infinity", b"nan"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn write_incr(delta: i64, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::IncrBy as u8).signed(delta).bytes(r.at(0));
}

fn encode_incr(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_incr(1, r, out);
    Ok(())
}

fn encode_decr(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_incr(-1, r, out);
    Ok(())
}

fn encode_incrby(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_incr(r.integer(1)?, r, out);
    Ok(())
}

fn encode_decrby(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let delta = r.integer(1)?.checked_neg().ok_or("ERR decrement would overflow")?;
    write_incr(delta, r, out);
    Ok(())
}

pub(super) fn incr_by(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (delta, key) = (from.signed()?, from.key()?);
    from.end()?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let (old, deadline) = match entry {
        Some(entry) => (parse_integer(&entry.value), entry.deadline),
        None => (Some(0), None),
    };
    match old.map(|old| old.checked_add(delta)) {
        None => reply.error(NOT_AN_INTEGER),
        Some(None) => reply.error("ERR increment or decrement would overflow"),
        Some(Some(new)) => {
            state.put(key, new.to_string().as_bytes(), deadline);
            state.event(class::STRING, "incrby", key);
            reply.integer(new);
        }
    }
    Ok(())
}

fn encode_incrbyfloat(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    if r.at(1).eq_ignore_ascii_case(b"nan") {
        return Err(NOT_A_FLOAT.into());
    }
    if is_not_finite(r.at(1)) {
        return Err(TOO_LARGE_SUM.into());
    }
    Decimal::parse(r.at(1)).ok_or(NOT_A_FLOAT)?;
    out.byte(Op::IncrByFloat as u8).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}

pub(super) fn incr_by_float(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, delta) = (from.key()?, from.bytes()?);
    from.end()?;
    let delta = Decimal::parse(delta).ok_or(Fault::Malformed)?;
    let Ok(entry) = string(state.store, key, reply) else {
        return Ok(());
    };
    let (old, deadline) = match entry {
        Some(entry) => (Decimal::parse(&entry.value), entry.deadline),
        None => (Some(Decimal::ZERO), None),
    };
    match old.map(|old| old.plus(delta)) {
        None => reply.error(NOT_A_FLOAT),
        Some(None) => reply.error(TOO_LARGE_SUM),
        Some(Some(new)) => {
            let text = new.to_string();
            state.put(key, text.as_bytes(), deadline);
            state.event(class::STRING, "incrbyfloat", key);
            reply.bulk(text.as_bytes());
        }
    }
    Ok(())
}

/// Decimal fraction in units of 10^-17, the precision to which Redis prints numbers.
///
/// Sums are exact (0.1 + 0.2 is 0.3). With binary floating point, they would depend on the rounding
/// and formatting of each machine and library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal(i128);

impl Decimal {
    pub(super) const ZERO: Self = Self(0);
    /// Number of digits after the point. Further digits are rounded, halves away from zero.
    const SCALE: i32 = 17;
    /// Maximum magnitude, 10^20.
    const MAX: i128 = 10i128.pow(20 + Self::SCALE.unsigned_abs());
    const TEXT_BYTES_MAX: usize = 64;

    pub(super) fn plus(self, other: Self) -> Option<Self> {
        let sum = self.0 + other.0;
        (sum.abs() <= Self::MAX).then_some(Self(sum))
    }

    /// Parses a decimal number with an optional sign, point and exponent.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text =
            std::str::from_utf8(text).ok().filter(|text| text.len() <= Self::TEXT_BYTES_MAX)?;
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
            None => (text, 0),
        };
        let negative = mantissa.starts_with('-');
        let digits = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = [whole, fraction].concat();
        if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let places = i32::from(exponent) - i32::try_from(fraction.len()).ok()?;
        let units = Self::scaled(all.trim_start_matches('0'), places + Self::SCALE)?;
        (units <= Self::MAX).then_some(Self(if negative { -units } else { units }))
    }

    /// Returns `digits` × 10^`shift`, rounded to a whole number. Supports up to 38 digits.
    fn scaled(digits: &str, shift: i32) -> Option<i128> {
        if digits.is_empty() {
            return Some(0);
        }
        if shift >= 0 {
            let factor = 10i128.checked_pow(shift.unsigned_abs())?;
            return digits.parse::<i128>().ok()?.checked_mul(factor);
        }
        let dropped = usize::try_from(shift.unsigned_abs()).ok()?;
        let Some(kept) = digits.len().checked_sub(dropped) else {
            return Some(0);
        };
        let up = digits.as_bytes()[kept] >= b'5';
        let whole = if kept == 0 { 0 } else { digits[..kept].parse::<i128>().ok()? };
        whole.checked_add(i128::from(up))
    }
}

impl std::fmt::Display for Decimal {
    /// Writes the shortest decimal text of the number.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = 10u128.pow(Self::SCALE.unsigned_abs());
        let (whole, fraction) = (self.0.unsigned_abs() / unit, self.0.unsigned_abs() % unit);
        let sign = if self.0 < 0 { "-" } else { "" };
        if fraction == 0 {
            return write!(f, "{sign}{whole}");
        }
        let digits = format!("{fraction:017}");
        write!(f, "{sign}{whole}.{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::Decimal;

    #[test]
    fn decimals_are_exact() {
        let sum = |a: &str, b: &str| {
            let (a, b) = (Decimal::parse(a.as_bytes())?, Decimal::parse(b.as_bytes())?);
            a.plus(b).map(|sum| sum.to_string())
        };
        let cases = [
            ("0.1", "0.2", Some("0.3")),
            ("10.50", "0.1", Some("10.6")),
            ("5.0e3", "2.0e2", Some("5200")),
            ("-1.5", "1.5", Some("0")),
            ("3", "-5.25", Some("-2.25")),
            (".5", "+1.", Some("1.5")),
            ("1e-17", "0", Some("0.00000000000000001")),
            ("4e-18", "0", Some("0")),
            ("5e-18", "0", Some("0.00000000000000001")),
            ("1e-3000", "1", Some("1")),
            ("1e20", "0", Some("100000000000000000000")),
            ("1e20", "1", None),
            ("1e21", "0", None),
            ("1e3000", "0", None),
            ("", "0", None),
            (".", "0", None),
            ("inf", "0", None),
            ("nan", "0", None),
            ("1 ", "0", None),
            ("1e", "0", None),
            ("--1", "0", None),
        ];
        for (a, b, expected) in cases {
            assert_eq!(sum(a, b).as_deref(), expected, "{a} + {b}");
        }
    }
}
