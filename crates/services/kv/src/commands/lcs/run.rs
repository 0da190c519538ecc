//! LCS: execution on every node.

use super::table::{Size, Table};
use crate::{
    commands::{
        state::{Items, ReadContext, TOO_LARGE},
        view::lock_record,
    },
    encode::{Decoder, Fault, Malformed},
    key::Key,
    op::REPLY_BYTES_MAX,
    resp::reply::Reply,
    store::{Bytes, Store, collection::Kind},
};

/// Maximum memory for the comparison. Part of the replicated format: never changes.
const BYTES_MAX: u64 = 16 << 20;
/// Number of words that are computed in the time of a visit.
const WORDS_PER_VISIT: u64 = 16;
/// Number of bytes in which one is looked for in the time of a visit.
const SEARCHED_PER_VISIT: u64 = 128;
/// Number of bytes that are looked at in the time of a visit.
const BYTES_PER_VISIT: u64 = 16;

const NOT_STRINGS: &str = "ERR The specified keys must contain string values";
const TOO_LONG: &str = "TOOBIG not executed: LCS compares strings in at most 16 MiB of memory, one \
    bit for each pair of bytes; use shorter strings";

/// Part of the answer that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text = 0,
    Length = 1,
    /// The ranges that match, from the end of the strings.
    Ranges = 2,
    /// The same, each with its length.
    MeasuredRanges = 3,
}

impl Form {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(match from.byte()? {
            0 => Self::Text,
            1 => Self::Length,
            2 => Self::Ranges,
            3 => Self::MeasuredRanges,
            _ => return Err(Malformed),
        })
    }
}

/// Returns the string at a key, if any, or `Err` if the key has another type.
fn text<'s>(store: &'s dyn Store, key: Key<'_>) -> Result<Option<Bytes<'s>>, ()> {
    match store.get(key) {
        Some(entry) if entry.kind != Kind::String || lock_record(store, key).is_some() => Err(()),
        entry => Ok(entry.map(|entry| entry.value)),
    }
}

pub(super) fn lcs(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (form, least) = (Form::decode(from)?, from.count()?);
    let (one, other) = (from.key()?, from.key()?);
    from.end()?;
    let (Ok(one), Ok(other)) = (text(state.store, one), text(state.store, other)) else {
        reply.error(NOT_STRINGS);
        return Ok(());
    };
    let (one, other) = (one.as_deref().unwrap_or_default(), other.as_deref().unwrap_or_default());
    let meter = state.store.meter();
    if !meter.count_visits((one.len() + other.len()) as u64 / BYTES_PER_VISIT) {
        return Ok(());
    }
    let size = Size::of(one, other);
    if size.bytes() > BYTES_MAX {
        reply.error(TOO_LONG);
        return Ok(());
    }
    let searched = size.distinct.saturating_mul(other.len() as u64);
    if !meter.count_visits(size.table / WORDS_PER_VISIT + searched / SEARCHED_PER_VISIT) {
        return Ok(());
    }
    answer(form, least, one, other, reply);
    Ok(())
}

fn answer(form: Form, least: u64, one: &[u8], other: &[u8], reply: &mut Reply<'_>) {
    let table = Table::of(one, other);
    let mut ranges = Vec::new();
    if form != Form::Length {
        each_range(&table, one, other, |range| ranges.push(range));
    }
    match form {
        Form::Length => reply.count(table.length()),
        Form::Text => {
            let found = ranges
                .iter()
                .rev()
                .filter_map(|range| one.get(range.one..range.one + range.length));
            let found: Vec<u8> = found.flatten().copied().collect();
            match found.len() > REPLY_BYTES_MAX {
                true => reply.error(TOO_LARGE),
                false => reply.bulk(&found),
            }
        }
        Form::Ranges | Form::MeasuredRanges => {
            ranges.retain(|range| range.length as u64 >= least);
            let mut items = Items::default();
            for range in ranges {
                range.write(form == Form::MeasuredRanges, &mut items.next());
                if items.exceed_reply_limit() {
                    break;
                }
            }
            items.write(reply, |reply, count| {
                reply.map(2);
                reply.bulk(b"matches");
                reply.array(count);
            });
            if !items.exceed_reply_limit() {
                reply.bulk(b"len");
                reply.count(table.length());
            }
        }
    }
}

/// Equal parts of the two strings.
struct Match {
    one: usize,
    other: usize,
    length: usize,
}

impl Match {
    fn write(&self, measured: bool, reply: &mut Reply<'_>) {
        reply.array(if measured { 3 } else { 2 });
        for first in [self.one, self.other] {
            reply.array(2);
            reply.count(first);
            reply.count(first + self.length - 1);
        }
        if measured {
            reply.count(self.length);
        }
    }
}

/// Passes the parts of the subsequence that are adjacent in both strings to `each`, from the end.
/// If several subsequences are longest, chooses the same one as Redis.
fn each_range(table: &Table, one: &[u8], other: &[u8], mut each: impl FnMut(Match)) {
    let (mut i, mut j, mut length) = (one.len(), other.len(), 0);
    while i > 0 && j > 0 {
        if one[i - 1] == other[j - 1] {
            (i, j, length) = (i - 1, j - 1, length + 1);
            continue;
        }
        if length > 0 {
            each(Match { one: i, other: j, length });
            length = 0;
        }
        // The last bytes differ, so one of them is not in the subsequence.
        match table.is_longer(i - 1, j - 1) {
            true => i -= 1,
            false => j -= 1,
        }
    }
    if length > 0 {
        each(Match { one: i, other: j, length });
    }
}
