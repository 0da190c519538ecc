//! Operations common to the collection types: counting, scanning, drawing and removing elements.

use std::ops::ControlFlow;

use super::{
    chance::{self, DrawnRow, Draws},
    events::class,
    family::{Family, Operation},
    rows::{Change, View, each_stored, lock_record, member_of, placed, view},
    state::{Items, ReadContext, TOO_LARGE, WriteContext, too_large},
    zset::members::{MEMBER, score_text},
};
use crate::{
    command::{NOT_AN_INTEGER, Refusal, Request, SYNTAX},
    encode::{Decoder, Encoder, Fault, List, Malformed},
    glob::Pattern,
    key::Key,
    op::{Op, REPLY_BYTES_MAX},
    resp::{integer::parse_integer, reply::Reply},
    store::{Position, collection::Kind},
};

pub(super) const FAMILY: Family = Family {
    commands: &[],
    operations: &[
        Operation::read(Op::Count, count),
        Operation::read(Op::ScanRows, scan),
        Operation::read(Op::ScanNames, scan_names),
    ],
};

/// Maximum number of elements examined by one HSCAN, SSCAN or ZSCAN, regardless of COUNT.
const SCAN_COUNT_MAX: u64 = 10_000;
/// Number of bytes at which a page of a scan is full.
const SCAN_PAGE_BYTES: usize = 1024 * 1024;

/// Length of the shortest bulk string in a reply.
const ITEM_BYTES: usize = b"$0\r\n\r\n".len();

const OUT_OF_RANGE: &str = "ERR value is out of range";
/// Error for a count that Redis cannot negate, as in HRANDFIELD.
pub(super) const OUT_OF_LONG: &str =
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";

/// Returns the prefix of the row names that are ordered by position, for a type.
pub(super) const fn prefix(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Zset => MEMBER,
        _ => b"",
    }
}

pub(super) fn write_rest(r: &Request<'_>, from: usize, out: &mut Encoder<'_>) {
    let rest = r.arguments.from(from);
    out.length(rest.len());
    for argument in rest.iter() {
        out.bytes(argument);
    }
}

pub(super) fn write_fields(
    r: &Request<'_>,
    from: usize,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    for at in from..r.arguments.len() {
        r.field(at)?;
    }
    write_rest(r, from, out);
    Ok(())
}

pub(super) fn write_count(kind: Kind, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::Count as u8).bytes(r.at(0)).byte(kind as u8);
}

fn kind(from: &mut Decoder<'_>) -> Result<Kind, Malformed> {
    let kind = Kind::from_byte(from.byte()?).filter(|kind| kind.has_rows());
    kind.ok_or(Malformed)
}

fn count(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, kind) = (from.key()?, kind(from)?);
    from.end()?;
    if kind == Kind::Hash && lock_record(state.store, key).is_some() {
        reply.integer(1);
        return Ok(());
    }
    if let Ok(found) = view(state.store, key, kind, reply) {
        let count = found.map_or(0, |found| found.count());
        reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }
    Ok(())
}

pub(super) fn write_scan(
    kind: Kind,
    r: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let cursor = std::str::from_utf8(r.at(1)).ok();
    let cursor = cursor.and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count, mut op) = (&b"*"[..], 10, Op::ScanRows);
    let mut at = 2;
    while at < r.arguments.len() {
        if r.is(at, "novalues") {
            if kind != Kind::Hash {
                return Err("ERR NOVALUES option can only be used in HSCAN".into());
            }
            op = Op::ScanNames;
            at += 1;
            continue;
        }
        if at + 1 >= r.arguments.len() {
            return Err(SYNTAX.into());
        }
        let value = r.at(at + 1);
        if r.is(at, "match") {
            pattern = value;
        } else if r.is(at, "count") {
            count = parse_integer(value).ok_or(NOT_AN_INTEGER)?;
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    let count = u64::try_from(count).ok().filter(|&count| count > 0);
    Pattern::check(pattern)?;
    out.byte(op as u8)
        .bytes(r.at(0))
        .byte(kind as u8)
        .word(cursor)
        .count(count.ok_or(SYNTAX)?)
        .bytes(Key::new(pattern)?.bytes());
    Ok(())
}

/// Replies with a page of elements in order of position. An element that exists throughout the scan
/// is returned exactly once.
fn scan_page(
    values: bool,
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, kind) = (from.key()?, kind(from)?);
    let (cursor, count) = (from.word()?, from.count()?);
    let pattern = Pattern::new(from.key()?.bytes());
    from.end()?;
    if matches!(kind, Kind::List | Kind::Stream) {
        return Err(Fault::Malformed);
    }
    let Ok(found) = view(state.store, key, kind, reply) else {
        return Ok(());
    };
    let (mut page, mut looked_at, mut names) = (Items::default(), 0, 0);
    let (mut last, mut next) = (Position::START, None);
    let is_query = state.wall_ms.is_some();
    if let (Some(view), Some(start)) = (found, Position::from_cursor(cursor)) {
        each_stored(&view, prefix(kind), start, &mut |name, value| {
            let member = member_of(prefix(kind), name);
            let position = Position::of(member);
            let bytes = page.bytes().max(if is_query { names } else { 0 });
            let full = looked_at >= count.min(SCAN_COUNT_MAX) || bytes >= SCAN_PAGE_BYTES;
            if full && position != last {
                next = Some(position);
                return ControlFlow::Break(());
            }
            (looked_at, last) = (looked_at + 1, position);
            names += member.len();
            // Expired elements count too, to bound the time that a page takes.
            if pattern.matches(member) && !(view.has_expired_field() && view.is_expired(name)) {
                page.next().bulk(member);
                match kind {
                    _ if !values => {}
                    Kind::Hash => page.next().bulk(value),
                    Kind::Zset => page.next().bulk(score_text(value).as_bytes()),
                    _ => {}
                }
            }
            ControlFlow::Continue(())
        });
    }
    let start = reply.0.len();
    reply.array(2);
    reply.bulk(next.map_or(0, Position::cursor).to_string().as_bytes());
    page.write(reply, Reply::array);
    too_large(reply, start);
    Ok(())
}

fn scan(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    scan_page(true, from, state, reply)
}

/// Executes HSCAN with NOVALUES.
fn scan_names(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    scan_page(false, from, state, reply)
}

/// Arguments of HRANDFIELD, SRANDMEMBER and ZRANDMEMBER.
#[derive(Clone, Copy)]
pub(super) struct Random {
    /// Number of elements to draw. If `None`, the reply is one element instead of an array.
    count: Option<i64>,
    values: bool,
    seed: u64,
}

impl Random {
    /// Parses `key [count [word]]`.
    pub(super) fn parse(r: &Request<'_>, word: &str) -> Result<Self, Refusal> {
        let values = match r.arguments.len() {
            0..=2 => false,
            3 if !word.is_empty() && r.is(2, word) => true,
            _ => return Err(SYNTAX.into()),
        };
        let count = match r.arguments.len() {
            0 | 1 => None,
            _ => Some(r.integer(1)?),
        };
        match count {
            Some(i64::MIN) => return Err(OUT_OF_LONG.into()),
            Some(count) if values && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) => {
                return Err(OUT_OF_RANGE.into());
            }
            _ => {}
        }
        Ok(Self { count, values, seed: r.seed })
    }

    pub(super) const fn has_values(self) -> bool {
        self.values
    }

    pub(super) fn encode(self, out: &mut Encoder<'_>) {
        out.byte(u8::from(self.values)).word(self.seed);
        match self.count {
            None => out.byte(0),
            Some(count) => out.byte(1).signed(count),
        };
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let (values, seed) = (from.byte()? != 0, from.word()?);
        let count = match from.byte()? {
            0 => None,
            1 => Some(from.signed()?),
            _ => return Err(Malformed),
        };
        Ok(Self { count, values, seed })
    }
}

/// Replies with randomly drawn elements. `write` appends the value of an element.
pub(super) fn random(
    view: &View<'_>,
    prefix: &[u8],
    wanted: Random,
    reply: &mut Reply<'_>,
    write: impl Fn(&[u8], &mut Reply<'_>),
) {
    let mut draws = Draws::of(wanted.seed);
    let Some(count) = wanted.count else {
        let drawn = chance::draw_one(view, prefix, &mut draws);
        reply.optional(drawn.as_ref().map(|(member, _)| member.as_slice()));
        return;
    };
    let mut items = Items::default();
    let mut add = |(member, value): &DrawnRow| {
        items.next().bulk(member);
        if wanted.values {
            write(value, &mut items.next());
        }
        !items.exceed_reply_limit()
    };
    let most = count.unsigned_abs();
    if count >= 0 {
        if would_be_too_large(view, most) {
            reply.error(TOO_LARGE);
            return;
        }
        let drawn = chance::several(view, prefix, most, &mut draws);
        let _ = drawn.iter().all(&mut add);
    } else {
        let times = usize::try_from(most).ok();
        let Some(times) = times.filter(|&times| times <= REPLY_BYTES_MAX / ITEM_BYTES) else {
            reply.error(TOO_LARGE);
            return;
        };
        if !view.store.meter().count_visits(most.saturating_mul(4)) {
            return;
        }
        let drawn = chance::repeatedly(view, prefix, times, wanted.values, &mut draws);
        let _ = drawn.iter().all(&mut add);
    }
    write_drawn(&items, wanted, reply);
}

pub(super) fn would_be_too_large(view: &View<'_>, elements: u64) -> bool {
    let elements = u128::from(elements.min(view.count()));
    let each = u128::from(view.header.bytes) / u128::from(view.header.count.max(1));
    elements * each > 2 * REPLY_BYTES_MAX as u128
}

fn write_drawn(items: &Items, wanted: Random, reply: &mut Reply<'_>) {
    items.write(reply, |reply, count| match wanted.values {
        true => reply.pairs(count / 2),
        false => reply.array(count),
    });
}

/// Like [`random`], for a value that has at most one element and no rows.
pub(super) fn random_of_one(one: Option<(&[u8], &[u8])>, wanted: Random, reply: &mut Reply<'_>) {
    let Some(count) = wanted.count else {
        reply.optional(one.map(|(member, _)| member));
        return;
    };
    let mut items = Items::default();
    let times = if count >= 0 { count.min(1) } else { count.saturating_neg() };
    for (member, value) in (0..times).map_while(|_| one) {
        items.next().bulk(member);
        if wanted.values {
            items.next().bulk(value);
        }
        if items.exceed_reply_limit() {
            break;
        }
    }
    write_drawn(&items, wanted, reply);
}

/// Executes HDEL or SREM.
pub(super) fn remove(
    state: &mut WriteContext<'_>,
    key: Key<'_>,
    kind: Kind,
    members: List<'_>,
    reply: &mut Reply<'_>,
) {
    let Ok(found) = Change::find(state, key, kind, reply) else {
        return;
    };
    let mut removed = 0;
    if let Some(mut change) = found {
        for member in members {
            removed += usize::from(change.remove(&placed(b"", member)));
        }
        // A removal without effect keeps the version, so it does not disturb clients that watch the
        // key.
        if removed > 0 {
            match kind {
                Kind::Set => change.event(class::SET, "srem"),
                _ => change.event(class::HASH, "hdel"),
            }
            change.close();
        }
    }
    reply.count(removed);
}

/// Converts inclusive indexes (negative: from the end) to a half-open range; `None` if empty.
pub(super) fn index_range(start: i64, stop: i64, count: u64) -> Option<(u64, u64)> {
    let length = i64::try_from(count).unwrap_or(i64::MAX);
    let place = |at: i64| {
        if at < 0 { at.saturating_add(length) } else { at }
    };
    let (start, stop) = (place(start).max(0), place(stop).min(length - 1));
    if start > stop || start >= length {
        return None;
    }
    let unsigned = |place: i64| u64::try_from(place).unwrap_or(0);
    Some((unsigned(start), unsigned(stop) + 1))
}

/// Parses `numkeys key …`. Returns the keys and the index of the first argument after them.
pub(super) fn keys<'a>(
    r: &Request<'a>,
    from: usize,
    not_positive: &'static str,
) -> Result<(Vec<&'a [u8]>, usize), Refusal> {
    let count = parse_integer(r.at(from)).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|&count| count > 0).ok_or(not_positive)?;
    let behind = from.saturating_add(1).saturating_add(count);
    if behind > r.arguments.len() {
        return Err(SYNTAX.into());
    }
    let keys = (from + 1..behind).map(|at| Ok(Key::new(r.at(at))?.bytes()));
    Ok((keys.collect::<Result<_, Refusal>>()?, behind))
}

/// Parses `numkeys key … [LIMIT n]` of SINTERCARD or ZINTERCARD. A limit of 0 means no limit.
pub(super) fn card<'a>(r: &Request<'a>) -> Result<(Vec<&'a [u8]>, u64), Refusal> {
    let count = parse_integer(r.at(0)).filter(|&count| count > 0);
    let count = count.ok_or("ERR numkeys should be greater than 0")?;
    if usize::try_from(count).map_or(true, |count| count > r.arguments.len() - 1) {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let (keys, mut at) = keys(r, 0, SYNTAX)?;
    let mut limit = 0;
    while at < r.arguments.len() {
        if !r.is(at, "limit") || at + 1 >= r.arguments.len() {
            return Err(SYNTAX.into());
        }
        let found = parse_integer(r.at(at + 1)).and_then(|limit| u64::try_from(limit).ok());
        limit = found.ok_or("ERR LIMIT can't be negative")?;
        at += 2;
    }
    Ok((keys, limit))
}

/// Parses the optional `[COUNT n]` at the end of LMPOP or ZMPOP.
pub(super) fn pop_count(r: &Request<'_>, at: usize) -> Result<u64, Refusal> {
    match r.arguments.len().saturating_sub(at) {
        0 => Ok(1),
        2 if r.is(at, "count") => {
            let count = parse_integer(r.at(at + 1)).and_then(|count| u64::try_from(count).ok());
            let count = count.filter(|&count| count > 0);
            Ok(count.ok_or("ERR count should be greater than 0")?)
        }
        _ => Err(SYNTAX.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::index_range;

    #[test]
    fn indices_are_those_of_redis() {
        assert_eq!(index_range(0, -1, 3), Some((0, 3)));
        assert_eq!(index_range(-100, 100, 3), Some((0, 3)));
        assert_eq!(index_range(1, 1, 3), Some((1, 2)));
        assert_eq!(index_range(-2, -1, 3), Some((1, 3)));
        assert_eq!(index_range(2, 1, 3), None);
        assert_eq!(index_range(3, 5, 3), None);
        assert_eq!(index_range(0, -4, 3), None);
        assert_eq!(index_range(0, 0, 0), None);
        assert_eq!(index_range(i64::MIN, i64::MAX, 1), Some((0, 1)));
    }
}
