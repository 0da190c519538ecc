//! Reads keys with their elements, several at a time. A key's type and expiry are read before and
//! after its elements, and all of it again if they changed.

use quorate_client::{Client, Error, Reply};

use crate::{
    kv,
    output::{Exit, Problem},
    rdb::types::Kind,
};

/// Number of keys that are read together: the client sends 64 commands at once.
const KEYS_PER_ROUND: usize = 32;
/// Number of elements in a page of a collection.
const PAGE_ELEMENTS: usize = 1000;
/// Number of times that a key is read which changes meanwhile.
const READ_ATTEMPTS_MAX: u32 = 100;
const STREAM_REASON: &str = "streams";
const EXPIRING_FIELDS_REASON: &str = "hashes with fields that expire";

/// Elements of a key.
pub(super) enum Elements {
    Single(Vec<u8>),
    List(Vec<Vec<u8>>),
    Pairs(Vec<(Vec<u8>, Vec<u8>)>),
    Scored(Vec<(Vec<u8>, f64)>),
}

/// Outcome of reading a key that exists.
pub(super) enum Collected {
    Key {
        kind: Kind,
        expires_ms: Option<u64>,
        elements: Elements,
    },
    /// Key that the file cannot hold, and why.
    Unsupported(&'static str),
}

/// Receiver of each key with its name.
pub(super) type KeyVisitor<'e> = dyn FnMut(&[u8], Collected) -> Result<(), Problem> + 'e;

/// Type and expiry of a key.
type TypeAndExpiry = (Kind, Option<u64>);

pub(super) fn unexpected_reply(reply: &Reply) -> Problem {
    let text: String = reply.to_string().chars().take(200).collect();
    Problem::new(
        Exit::Failed,
        "bad_answer",
        format_args!("unexpected reply of the cluster: {text}"),
    )
    .with_hint("check that the nodes run this version")
}

/// Elements, or the reason why the file cannot hold them.
type ElementsOrReason = Result<Elements, &'static str>;

/// Reads the keys `names` and passes each that exists to `each`.
pub(super) fn collect_keys(
    client: &mut Client,
    names: &[&[u8]],
    each: &mut KeyVisitor<'_>,
) -> Result<(), Problem> {
    for names in names.chunks(KEYS_PER_ROUND) {
        let heads = read_heads(client, names)?;
        let found: Vec<(&[u8], TypeAndExpiry)> =
            names.iter().zip(heads).filter_map(|(name, head)| Some((*name, head?))).collect();
        for (name, (kind, _)) in &found {
            prepare_first_page(client, name, kind)?;
        }
        let firsts: Vec<_> = found.iter().map(|_| client.receive()).collect();
        let mut short = Vec::new();
        for ((name, head), first) in found.into_iter().zip(firsts) {
            let is_short = !has_more_pages(&first);
            let contents = read_contents(client, name, &head.0, first)?;
            if is_short {
                short.push((name, head, contents));
            } else {
                // A long key is not kept while others are read.
                let after = read_heads(client, &[name])?.pop().flatten();
                pass_key(client, name, (head, after), contents, each)?;
            }
        }
        let names: Vec<&[u8]> = short.iter().map(|(name, ..)| *name).collect();
        let after = read_heads(client, &names)?;
        for ((name, head, contents), after) in short.into_iter().zip(after) {
            pass_key(client, name, (head, after), contents, each)?;
        }
    }
    Ok(())
}

/// Passes a key on, reading it again first if its type or expiry changed meanwhile.
fn pass_key(
    client: &mut Client,
    name: &[u8],
    (before, after): (TypeAndExpiry, Option<TypeAndExpiry>),
    contents: Option<ElementsOrReason>,
    each: &mut KeyVisitor<'_>,
) -> Result<(), Problem> {
    let collected = match (after, contents) {
        (None, _) => None,
        (Some(after), Some(contents)) if after == before => Some(to_collected(after, contents)),
        _ => reread_key(client, name)?,
    };
    collected.map_or(Ok(()), |collected| each(name, collected))
}

fn to_collected((kind, expires_ms): TypeAndExpiry, contents: ElementsOrReason) -> Collected {
    match contents {
        Ok(elements) => Collected::Key { kind, expires_ms, elements },
        Err(what) => Collected::Unsupported(what),
    }
}

/// Reads a key until its type and expiry stay the same. Returns `None` if it is gone. The expiry of
/// a key whose expiry always changes is the last one.
fn reread_key(client: &mut Client, name: &[u8]) -> Result<Option<Collected>, Problem> {
    let mut head = read_heads(client, &[name])?.pop().flatten();
    for tries in 1..=READ_ATTEMPTS_MAX {
        let Some(before) = head else { return Ok(None) };
        prepare_first_page(client, name, &before.0)?;
        let first = client.receive();
        let contents = read_contents(client, name, &before.0, first)?;
        head = read_heads(client, &[name])?.pop().flatten();
        if let (Some(after), Some(contents)) = (&head, contents)
            && after.0 == before.0
            && (after.1 == before.1 || tries == READ_ATTEMPTS_MAX)
        {
            return Ok(Some(to_collected(after.clone(), contents)));
        }
    }
    let what =
        format_args!("key {} changes too often to be read", crate::naming::printable_key(name));
    Err(Problem::new(Exit::Failed, "changing", what).with_hint("try again"))
}

/// Reads the types and expiries of keys.
fn read_heads(client: &mut Client, names: &[&[u8]]) -> Result<Vec<Option<TypeAndExpiry>>, Problem> {
    for name in names {
        prepare_read(client, &[b"TYPE", name])?;
        prepare_read(client, &[b"PEXPIRETIME", name])?;
    }
    names.iter().map(|_| receive_head(client)).collect()
}

fn prepare_read(client: &mut Client, words: &[&[u8]]) -> Result<(), Problem> {
    client.prepare_read(words).map_err(|error| kv::client_problem(&error))
}

/// Receives a key's type and expiry, or `None` if the key does not exist.
fn receive_head(client: &mut Client) -> Result<Option<TypeAndExpiry>, Problem> {
    let mut receive = || client.receive().map_err(|error| kv::client_problem(&error));
    let (kind, expiry) = (receive()?, receive()?);
    let kind = match kind.bytes() {
        Some(b"none") => return Ok(None),
        Some(b"string") => Kind::String,
        Some(b"list") => Kind::List,
        Some(b"set") => Kind::Set,
        Some(b"zset") => Kind::SortedSet,
        Some(b"hash") => Kind::Hash,
        Some(b"stream") => Kind::Stream,
        _ => return Err(unexpected_reply(&kind)),
    };
    let Reply::Integer(expiry) = expiry else { return Err(unexpected_reply(&expiry)) };
    Ok(Some((kind, u64::try_from(expiry).ok())))
}

/// Prepares the read of the first elements of a key.
fn prepare_first_page(client: &mut Client, name: &[u8], kind: &Kind) -> Result<(), Problem> {
    match kind {
        Kind::String => prepare_read(client, &[b"GET", name]),
        Kind::Stream | Kind::Module(_) => prepare_read(client, &[b"XLEN", name]),
        _ => prepare_page(client, name, kind, (b"0", PAGE_ELEMENTS)),
    }
}

/// Prepares the read of a page of a collection, from a cursor or an index on.
fn prepare_page(
    client: &mut Client,
    name: &[u8],
    kind: &Kind,
    (from, size): (&[u8], usize),
) -> Result<(), Problem> {
    let count = size.to_string().into_bytes();
    let scan: &[u8] = match kind {
        Kind::Set => b"SSCAN",
        Kind::Hash => b"HSCAN",
        Kind::SortedSet => b"ZSCAN",
        _ => {
            let first = std::str::from_utf8(from).ok().and_then(|text| text.parse::<usize>().ok());
            let last = (first.unwrap_or_default() + size - 1).to_string();
            return prepare_read(client, &[b"LRANGE", name, from, last.as_bytes()]);
        }
    };
    prepare_read(client, &[scan, name, from, b"COUNT", &count])
}

/// Returns whether a first page is not the last one.
fn has_more_pages(first: &Result<Reply, Error>) -> bool {
    match first {
        Ok(Reply::Array(parts)) => match &**parts {
            [Reply::Bulk(next), Reply::Array(_)] => next != b"0",
            items => items.len() >= PAGE_ELEMENTS,
        },
        Ok(_) => false,
        Err(_) => true,
    }
}

/// Returns the contents of a key whose first page has arrived, or `None` if the key is gone or of
/// another type by now. A page that is too large for a reply is halved.
fn read_contents(
    client: &mut Client,
    name: &[u8],
    kind: &Kind,
    first: Result<Reply, Error>,
) -> Result<Option<ElementsOrReason>, Problem> {
    let mut all = Vec::new();
    let (mut reply, mut from, mut size) = (first, b"0".to_vec(), PAGE_ELEMENTS);
    loop {
        let (next, elements) = match (reply, kind) {
            (Err(Error::Refused(text)), _) if text.starts_with("WRONGTYPE") => return Ok(None),
            (Err(Error::Refused(text)), _) if text.starts_with("TOOBIG") && size > 1 => {
                size /= 2;
                (Some(from), Vec::new())
            }
            (Err(error), _) => return Err(kv::client_problem(&error)),
            (Ok(Reply::Nil), Kind::String) => return Ok(None),
            (Ok(Reply::Bulk(value)), Kind::String) => return Ok(Some(Ok(Elements::Single(value)))),
            (Ok(_), Kind::Stream | Kind::Module(_)) => return Ok(Some(Err(STREAM_REASON))),
            (Ok(Reply::Array(items)), Kind::List) => {
                let at = all.len() + items.len();
                let is_last = items.len() < size;
                ((!is_last).then(|| at.to_string().into_bytes()), items)
            }
            (Ok(Reply::Array(parts)), _) => split_scan_reply(parts)?,
            (Ok(other), _) => return Err(unexpected_reply(&other)),
        };
        if *kind == Kind::Hash {
            let fields: Vec<&[u8]> = elements.iter().step_by(2).filter_map(Reply::bytes).collect();
            match has_expiring_fields(client, name, &fields)? {
                Some(true) => return Ok(Some(Err(EXPIRING_FIELDS_REASON))),
                Some(false) => {}
                None => return Ok(None),
            }
        }
        all.extend(elements.into_iter().filter_map(|element| match element {
            Reply::Bulk(bytes) => Some(bytes),
            _ => None,
        }));
        let Some(next) = next else { break };
        prepare_page(client, name, kind, (&next, size))?;
        (reply, from) = (client.receive(), next);
    }
    Ok(if all.is_empty() { None } else { Some(Ok(to_elements(kind, all)?)) })
}

/// Splits a reply to SCAN of a collection into the next cursor, if any, and the elements.
fn split_scan_reply(parts: Vec<Reply>) -> Result<(Option<Vec<u8>>, Vec<Reply>), Problem> {
    match <[Reply; 2]>::try_from(parts) {
        Ok([Reply::Bulk(next), Reply::Array(items)]) => Ok(((next != b"0").then_some(next), items)),
        Ok([first, _]) => Err(unexpected_reply(&first)),
        Err(parts) => Err(unexpected_reply(&Reply::Array(parts))),
    }
}

/// Returns whether a field of a hash expires, for which the file has no place, or `None` if the key
/// is gone or of another type by now.
fn has_expiring_fields(
    client: &mut Client,
    name: &[u8],
    fields: &[&[u8]],
) -> Result<Option<bool>, Problem> {
    if fields.is_empty() {
        return Ok(Some(false));
    }
    let count = fields.len().to_string().into_bytes();
    let words = [&b"HPEXPIRETIME"[..], name, b"FIELDS", &count];
    let words: Vec<&[u8]> = words.into_iter().chain(fields.iter().copied()).collect();
    match client.read(&words) {
        Ok(Reply::Array(moments)) => {
            Ok(Some(moments.iter().any(|moment| matches!(moment, Reply::Integer(1..)))))
        }
        Ok(_) => Ok(None),
        Err(Error::Refused(text)) if text.starts_with("WRONGTYPE") => Ok(None),
        // Without the command there are no such fields.
        Err(Error::Refused(text))
            if text.starts_with("ERR unknown command") || text.starts_with("LEVEL ") =>
        {
            Ok(Some(false))
        }
        Err(Error::Refused(text)) if text.starts_with("TOOBIG") && fields.len() > 1 => {
            let (left, right) = fields.split_at(fields.len() / 2);
            match has_expiring_fields(client, name, left)? {
                Some(false) => has_expiring_fields(client, name, right),
                other => Ok(other),
            }
        }
        Err(error) => Err(kv::client_problem(&error)),
    }
}

fn to_elements(kind: &Kind, all: Vec<Vec<u8>>) -> Result<Elements, Problem> {
    let mut from = all.into_iter();
    let mut pairs = Vec::new();
    match kind {
        Kind::Hash | Kind::SortedSet => {
            while let (Some(first), Some(second)) = (from.next(), from.next()) {
                pairs.push((first, second));
            }
        }
        _ => return Ok(Elements::List(from.collect())),
    }
    if *kind == Kind::Hash {
        return Ok(Elements::Pairs(pairs));
    }
    let score = |(member, score): (Vec<u8>, Vec<u8>)| {
        let number = std::str::from_utf8(&score).ok().and_then(|text| text.parse::<f64>().ok());
        number.map(|number| (member, number)).ok_or_else(|| unexpected_reply(&Reply::Bulk(score)))
    };
    pairs.into_iter().map(score).collect::<Result<_, _>>().map(Elements::Scored)
}
