//! Ids of entries in requests, commands and replies.

use crate::{
    command::Refusal,
    encode::{Decoder, Encoder, Malformed},
    resp::reply::Reply,
    store::stream::EntryId,
};

const INVALID: &str = "ERR Invalid stream ID specified as stream command argument";

/// Parses digits. Unlike integers elsewhere, an id may have leading zeros, as in Redis.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn parts(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == b'-') {
        Some(dash) => (&text[..dash], Some(&text[dash + 1..])),
        None => (text, None),
    }
}

/// Parses `ms-seq`, or `ms`, for which `seq` completes the id.
pub(super) fn parse(text: &[u8], seq: u64) -> Result<EntryId, Refusal> {
    let (ms, rest) = parts(text);
    let seq = rest.map_or(Some(seq), number);
    let id = number(ms).zip(seq).map(|(ms, seq)| EntryId { ms, seq });
    Ok(id.ok_or(INVALID)?)
}

/// Parses an end of an interval, and whether it excludes the id.
fn parse_end(text: &[u8], seq: u64) -> Result<(EntryId, bool), Refusal> {
    Ok(match text {
        b"-" => (EntryId::MIN, false),
        b"+" => (EntryId::MAX, false),
        [b'(', id @ ..] if !id.is_empty() => (parse(id, seq)?, true),
        id => (parse(id, seq)?, false),
    })
}

/// Parses the start of an interval: `-`, `+`, an id, or `(` and an id, which excludes it. Returns
/// the lowest id in the interval.
pub(super) fn parse_start(text: &[u8]) -> Result<EntryId, Refusal> {
    match parse_end(text, 0)? {
        (id, false) => Ok(id),
        (id, true) => Ok(id.next().ok_or("ERR invalid start ID for the interval")?),
    }
}

/// Parses the end of an interval like [`parse_start`]. Returns the highest id in the interval.
pub(super) fn parse_stop(text: &[u8]) -> Result<EntryId, Refusal> {
    match parse_end(text, u64::MAX)? {
        (id, false) => Ok(id),
        (id, true) => Ok(id.previous().ok_or("ERR invalid end ID for the interval")?),
    }
}

pub(super) fn encode(id: EntryId, out: &mut Encoder<'_>) {
    out.0.extend_from_slice(&id.to_bytes());
}

pub(super) fn decode(from: &mut Decoder<'_>) -> Result<EntryId, Malformed> {
    let (id, rest) = from.0.split_at_checked(EntryId::BYTES).ok_or(Malformed)?;
    from.0 = rest;
    EntryId::from_bytes(id).ok_or(Malformed)
}

pub(super) fn reply_id(id: EntryId, reply: &mut Reply<'_>) {
    reply.bulk(id.to_string().as_bytes());
}

/// Id of an entry to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewId {
    /// The next id, from the time or the last id, whichever is later.
    Auto,
    /// The next id in a given millisecond.
    InMs(u64),
    Exact(EntryId),
}

impl NewId {
    /// Parses `*`, `ms-*`, `ms-seq` or `ms`.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Refusal> {
        if text == b"*" {
            return Ok(Self::Auto);
        }
        match parts(text) {
            (ms, Some(b"*")) => Ok(Self::InMs(number(ms).ok_or(INVALID)?)),
            _ => match parse(text, 0)? {
                EntryId::MIN => Err("ERR The ID specified in XADD must be greater than 0-0".into()),
                id => Ok(Self::Exact(id)),
            },
        }
    }

    pub(super) fn encode(self, now_ms: u64, out: &mut Encoder<'_>) {
        match self {
            Self::Auto => _ = out.byte(0).word(now_ms),
            Self::InMs(ms) => _ = out.byte(1).word(ms),
            Self::Exact(id) => encode(id, out.byte(2)),
        }
    }

    /// Decodes the id and, for an automatic one, the clock of the front that received the command:
    /// the group's time stands still unless a deadline is due ([time-1]).
    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<(Self, u64), Malformed> {
        Ok(match from.byte()? {
            0 => (Self::Auto, from.word()?),
            1 => (Self::InMs(from.word()?), 0),
            2 => (Self::Exact(decode(from)?), 0),
            _ => return Err(Malformed),
        })
    }

    /// Returns the id of an entry added at `now_ms` to a stream whose highest id is `last`, or
    /// Redis' error if there is none above that.
    pub(super) fn after(self, last: EntryId, now_ms: u64) -> Result<EntryId, &'static str> {
        let next = last
            .next()
            .ok_or("ERR The stream has exhausted the last possible ID, unable to add more items")?;
        let id = match self {
            Self::Auto => next.max(EntryId { ms: now_ms, seq: 0 }),
            Self::InMs(ms) if ms == next.ms => next,
            Self::InMs(ms) => EntryId { ms, seq: 0 },
            Self::Exact(id) => id,
        };
        match id > last {
            true => Ok(id),
            false => Err(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: u64 = u64::MAX;

    const fn id(ms: u64, seq: u64) -> EntryId {
        EntryId { ms, seq }
    }

    #[test]
    fn ids_are_read_as_redis_does() {
        let max = format!("{LAST}-{LAST}");
        for (text, expected) in [
            ("1-2", Some(id(1, 2))),
            ("7", Some(id(7, 9))),
            ("007-08", Some(id(7, 8))),
            (&max, Some(EntryId::MAX)),
            ("18446744073709551616-0", None),
            ("0-18446744073709551616", None),
            ("", None),
            ("-", None),
            ("+", None),
            ("-1", None),
            ("1-", None),
            ("1-2-3", None),
            ("1--2", None),
            ("1-*", None),
            ("+1-2", None),
            ("a", None),
            ("1 ", None),
        ] {
            assert_eq!(parse(text.as_bytes(), 9).ok(), expected, "{text}");
        }
    }

    #[test]
    fn intervals_may_exclude_their_ends() {
        let max = format!("({LAST}-{LAST}");
        assert_eq!(parse_start(b"-"), Ok(EntryId::MIN));
        assert_eq!(parse_start(b"5"), Ok(id(5, 0)));
        assert_eq!(parse_start(b"(5"), Ok(id(5, 1)));
        assert_eq!(parse_start(format!("(5-{LAST}").as_bytes()), Ok(id(6, 0)));
        assert!(parse_start(max.as_bytes()).is_err());
        assert_eq!(parse_stop(b"+"), Ok(EntryId::MAX));
        assert_eq!(parse_stop(b"5"), Ok(id(5, LAST)));
        assert_eq!(parse_stop(b"(5-0"), Ok(id(4, LAST)));
        for text in ["(0-0", "(", "(-", "(+", "((1"] {
            assert!(parse_stop(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn new_ids_are_above_all_before() {
        use NewId::{Auto, Exact, InMs};
        for (new, last, now_ms, expected) in [
            (Auto, id(0, 0), 0, Some(id(0, 1))),
            (Auto, id(0, 0), 5, Some(id(5, 0))),
            (Auto, id(5, 0), 5, Some(id(5, 1))),
            (Auto, id(9, 3), 5, Some(id(9, 4))),
            (Auto, id(9, LAST), 5, Some(id(10, 0))),
            (Auto, EntryId::MAX, 5, None),
            (InMs(0), id(0, 0), 5, Some(id(0, 1))),
            (InMs(7), id(5, 3), 0, Some(id(7, 0))),
            (InMs(5), id(5, 3), 0, Some(id(5, 4))),
            (InMs(6), id(5, LAST), 0, Some(id(6, 0))),
            (InMs(5), id(5, LAST), 0, None),
            (InMs(4), id(5, 3), 0, None),
            (InMs(LAST), EntryId::MAX, 0, None),
            (Exact(id(5, 4)), id(5, 3), 0, Some(id(5, 4))),
            (Exact(id(5, 3)), id(5, 3), 0, None),
            (Exact(EntryId::MAX), id(5, 3), 0, Some(EntryId::MAX)),
        ] {
            assert_eq!(new.after(last, now_ms).ok(), expected, "{new:?} after {last:?}");
        }
    }
}
