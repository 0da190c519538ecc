//! XREAD: entries above an id, of several streams.
//!
//! A command executed by the service is a single attempt. Blocking is the front's part: it repeats
//! the attempt when a stream changes.

use super::{entries::collect, id, rows::View};
use crate::{
    command::{NOT_AN_INTEGER, Refusal, Request, SYNTAX},
    commands::{
        state::{Items, ReadContext, TOO_LARGE},
        waiting::WAITING,
    },
    encode::{Decoder, Encoder, Fault, Keys},
    key::Key,
    op::{Op, REPLY_BYTES_MAX},
    resp::{integer::parse_integer, reply::Reply},
    store::stream::EntryId,
};

/// Position of the byte of [`Op::XRead`] that asks for the ids of `$`, after the operation number
/// and the time to block.
const RESOLVE_AT: usize = 1 + 8;

/// Tag byte before each id of an encoded XREAD.
mod kind {
    pub(super) const ID: u8 = 0;
    /// `$`, the last id of the stream.
    pub(super) const LAST: u8 = 1;
}

/// Returns how long an encoded XREAD or XREADGROUP blocks in milliseconds, 0 for no limit; `None`
/// if it does not block.
pub(crate) fn block_ms(command: &[u8]) -> Option<u64> {
    let mut from = Decoder(command);
    let op = from.byte().ok().and_then(Op::from_byte)?;
    if !matches!(op, Op::XRead | Op::XReadGroup) {
        return None;
    }
    from.word().ok()?.checked_sub(1)
}

/// Makes an encoded XREAD of a client that blocks reply with the ids to continue from if there are
/// no entries: [`WAITING`], followed by the command with an id in place of each `$`. No other
/// operation changes.
pub(crate) fn resolve_ids(command: &mut [u8]) {
    if command.first() == Some(&(Op::XRead as u8))
        && let Some(resolve) = command.get_mut(RESOLVE_AT)
    {
        *resolve = 1;
    }
}

/// Options that XREAD and XREADGROUP share.
#[derive(Debug, Default)]
pub(super) struct Options<'a> {
    /// Time to block plus 1; 0 if the command does not block.
    pub(super) block: u64,
    /// Encoded COUNT.
    pub(super) count: u64,
    /// Group and consumer.
    pub(super) group: Option<(&'a [u8], &'a [u8])>,
    pub(super) noack: bool,
    /// Keys, and the index of the first id. There are as many ids.
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) ids: usize,
}

impl<'a> Options<'a> {
    /// Parses the arguments. Errors are Redis'.
    pub(super) fn parse(r: &Request<'a>, has_group: bool) -> Result<Self, Refusal> {
        let (mut options, mut at) = (Self::default(), 0);
        let length = r.arguments.len();
        loop {
            let more = length.saturating_sub(at + 1);
            if r.is(at, "block") && more > 0 {
                at += 1;
                options.block = parse_block(r.at(at), r.wall_ms)?.saturating_add(1);
            } else if r.is(at, "count") && more > 0 {
                at += 1;
                let count = parse_integer(r.at(at)).ok_or(NOT_AN_INTEGER)?;
                options.count = encoded_count(count.max(0));
            } else if r.is(at, "streams") && more > 0 {
                options.streams(r, at + 1, has_group)?;
                break;
            } else if r.is(at, "group") && more > 1 && has_group {
                options.group = Some((r.at(at + 1), r.at(at + 2)));
                at += 2;
            } else if r.is(at, "group") && more > 1 {
                return Err("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.".into());
            } else if r.is(at, "noack") && has_group {
                options.noack = true;
            } else if r.is(at, "noack") {
                return Err("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.".into());
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        Ok(options)
    }

    /// Parses the keys that begin at `first`. As many ids follow.
    fn streams(&mut self, r: &Request<'a>, first: usize, has_group: bool) -> Result<(), Refusal> {
        let words = r.arguments.from(first);
        if !words.len().is_multiple_of(2) {
            let id = if has_group { '>' } else { '$' };
            let text = format!(
                "ERR Unbalanced '{}' list of streams: for each stream key an ID or '{id}' must be specified.",
                r.name
            );
            return Err(Refusal::Text(text.into()));
        }
        let keys = words.iter().take(words.len() / 2).map(|key| Ok(Key::new(key)?.bytes()));
        self.keys = keys.collect::<Result<_, Refusal>>()?;
        self.ids = first + self.keys.len();
        Ok(())
    }
}

/// Encodes a COUNT, if it is a limit.
fn encoded_count(count: i64) -> u64 {
    match count.unsigned_abs() {
        0 => 0,
        count => count + 1,
    }
}

/// Returns the limit in an encoded COUNT.
pub(super) const fn limit(count: u64) -> Option<u64> {
    match count {
        0 | 1 => None,
        count => Some(count - 1),
    }
}

/// Parses a time to block in milliseconds.
fn parse_block(text: &[u8], now_ms: u64) -> Result<u64, Refusal> {
    let ms = parse_integer(text).ok_or("ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    match ms <= i64::MAX.unsigned_abs().saturating_sub(now_ms) {
        true => Ok(ms),
        false => Err("ERR timeout is out of range".into()),
    }
}

pub(super) fn encode(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let options = Options::parse(r, false)?;
    out.byte(Op::XRead as u8).word(options.block).byte(0).count(options.count);
    out.keys(&options.keys);
    for at in options.ids..r.arguments.len() {
        match r.at(at) {
            b"$" => id::encode(EntryId::MIN, out.byte(kind::LAST)),
            b">" => {
                return Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.".into());
            }
            text => id::encode(id::parse(text, 0)?, out.byte(kind::ID)),
        }
    }
    Ok(())
}

/// Arguments of [`Op::XRead`].
struct Reading<'a> {
    block: u64,
    resolve: bool,
    count: u64,
    keys: Keys<'a>,
    /// Encoded ids, one per key.
    ids: &'a [u8],
}

/// Encoded size of an id with its kind.
const ID_BYTES: usize = 1 + EntryId::BYTES;

impl<'a> Reading<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Fault> {
        let (block, resolve, count) = (from.word()?, from.byte()? != 0, from.count()?);
        let (keys, ids) = (from.keys()?, from.0);
        let kinds = ids.chunks(ID_BYTES).filter_map(<[u8]>::first);
        let are_known = kinds.into_iter().all(|kind| matches!(*kind, kind::ID | kind::LAST));
        if keys.len().checked_mul(ID_BYTES) != Some(ids.len()) || !are_known {
            return Err(Fault::Malformed);
        }
        Ok(Self { block, resolve, count, keys, ids })
    }

    /// Returns the keys with their ids; `None` stands for `$`.
    fn streams(&self) -> impl Iterator<Item = (Key<'a>, Option<EntryId>)> + use<'a> {
        let ids = self.ids.chunks(ID_BYTES).map(|chunk| match chunk.split_first() {
            Some((&kind::ID, id)) => EntryId::from_bytes(id),
            _ => None,
        });
        self.keys.zip(ids)
    }

    /// Encodes the command with these ids.
    fn encode_with(&self, ids: &[EntryId], out: &mut Encoder<'_>) {
        out.byte(Op::XRead as u8).word(self.block).byte(1).count(self.count);
        out.length(self.keys.len());
        for key in self.keys {
            out.bytes(key.bytes());
        }
        for id in ids {
            id::encode(*id, out.byte(kind::ID));
        }
    }
}

/// Streams with entries in a reply of XREAD or XREADGROUP.
#[derive(Debug, Default)]
pub(super) struct FoundStreams {
    streams: usize,
    bytes: Vec<u8>,
}

impl FoundStreams {
    /// Adds the entries of a stream. Returns whether the reply can take more.
    pub(super) fn add(&mut self, key: &[u8], entries: &Items) -> bool {
        self.streams += 1;
        Reply(&mut self.bytes).bulk(key);
        entries.write(&mut Reply(&mut self.bytes), Reply::array);
        self.bytes.len() <= REPLY_BYTES_MAX
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.streams == 0
    }

    /// Writes a map of the streams, or null if there are none.
    pub(super) fn write(&self, reply: &mut Reply<'_>) {
        if self.is_empty() {
            return reply.null_array();
        }
        reply.nested_map(self.streams);
        reply.0.extend_from_slice(&self.bytes);
    }
}

pub(super) fn read(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let reading = Reading::decode(from)?;
    let (mut found, mut ids, mut is_full) = (FoundStreams::default(), Vec::new(), false);
    for (key, after) in reading.streams() {
        let Ok(view) = View::find(state.store, key, reply) else {
            return Ok(());
        };
        let last = view.as_ref().map_or(EntryId::MIN, |view| view.log.last);
        let after = after.unwrap_or(last);
        ids.push(after);
        let Some((view, next)) = view.zip(after.next()).filter(|_| after < last && !is_full) else {
            continue;
        };
        let entries = collect(&view, (next, EntryId::MAX), false, limit(reading.count));
        if entries.count() > 0 {
            is_full = entries.exceed_reply_limit() || !found.add(key.bytes(), &entries);
        }
    }
    if is_full {
        reply.error(TOO_LARGE);
    } else if found.is_empty() && reading.resolve && state.wall_ms.is_some() {
        // Only a front sees this answer: in the log, the command is an attempt like any other.
        reply.0.extend_from_slice(WAITING);
        reading.encode_with(&ids, &mut Encoder(reply.0));
    } else {
        found.write(reply);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::request::Words;

    fn encoded(words: &[&[u8]]) -> Result<Vec<u8>, Refusal> {
        let mut all = Words::default();
        all.set(words);
        let arguments = all.arguments();
        let request = Request {
            name: "xread",
            arguments,
            database: crate::store::Database::ZERO,
            wall_ms: 1000,
            value_bytes_max: 1 << 20,
            seed: 0,
        };
        let mut bytes = Vec::new();
        encode(&request, &mut Encoder(&mut bytes)).map(|()| bytes)
    }

    #[test]
    fn block_time_is_parsed_from_the_command() {
        let command = |ms: &[u8]| encoded(&[b"block", ms, b"streams", b"s", b"$"]);
        assert_eq!(block_ms(&encoded(&[b"streams", b"s", b"0"]).unwrap()), None);
        assert_eq!(block_ms(&command(b"0").unwrap()), Some(0));
        assert_eq!(block_ms(&command(b"250").unwrap()), Some(250));
        let group = [&[Op::XReadGroup as u8], &8_u64.to_le_bytes()[..]].concat();
        assert_eq!(block_ms(&group), Some(7));
        for other in [&[][..], &[Op::XRead as u8], &[Op::Get as u8; 20]] {
            assert_eq!(block_ms(other), None);
        }
        for (ms, text) in [
            (&b"-1"[..], "ERR timeout is negative"),
            (b"x", "ERR timeout is not an integer or out of range"),
            (b"9223372036854775807", "ERR timeout is out of range"),
        ] {
            assert_eq!(command(ms), Err(text.into()));
        }
    }

    #[test]
    fn only_the_byte_of_xread_is_set() {
        let mut command = encoded(&[b"block", b"5", b"streams", b"s", b"$"]).unwrap();
        assert!(!Reading::decode(&mut Decoder(&command[1..])).unwrap().resolve);
        resolve_ids(&mut command);
        let reading = Reading::decode(&mut Decoder(&command[1..])).unwrap();
        assert!(reading.resolve && reading.block == 6 && reading.keys.len() == 1);
        let mut other = [Op::XReadGroup as u8; 20];
        resolve_ids(&mut other);
        resolve_ids(&mut []);
        assert_eq!(other, [Op::XReadGroup as u8; 20]);
    }
}
