//! Reads keys with their elements, several at a time.

use quorate_client::{Client, Error, Reply};

use crate::{
    kv,
    output::{Exit, Problem},
    rdb::types::Kind,
};

/// Number of keys that are read together: the client sends 64 commands at once.
const TOGETHER: usize = 32;
/// Number of elements in a page of a collection.
const PAGE: usize = 1000;
/// Number of times that a key is read which changes meanwhile.
const TRIES: u32 = 100;
const STREAM: &str = "streams";
const EXPIRING_FIELDS: &str = "hashes with fields that expire";

/// Elements of a key.
pub(super) enum Elements {
    One(Vec<u8>),
    Many(Vec<Vec<u8>>),
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
pub(super) type Each<'e> = dyn FnMut(&[u8], Collected) -> Result<(), Problem> + 'e;

/// Type and expiry of a key.
type Head = (Kind, Option<u64>);

pub(super) fn unexpected(reply: &Reply) -> Problem {
    let text: String = reply.to_string().chars().take(200).collect();
    Problem::new(
        Exit::Failed,
        "bad_answer",
        format_args!("unexpected reply of the cluster: {text}"),
    )
    .hint("check that the nodes run this version")
}

/// Reads the keys `names` and passes each that exists to `each`.
pub(super) fn collect(
    client: &mut Client,
    names: &[&[u8]],
    each: &mut Each<'_>,
) -> Result<(), Problem> {
    for names in names.chunks(TOGETHER) {
        for name in names {
            prepare(client, &[b"TYPE", name])?;
            prepare(client, &[b"PEXPIRETIME", name])?;
        }
        let mut heads = Vec::new();
        for name in names {
            if let Some(head) = head(client)? {
                heads.push((*name, head));
            }
        }
        for (name, (kind, _)) in &heads {
            first_page(client, name, kind)?;
        }
        let mut firsts = Vec::new();
        for _ in &heads {
            firsts.push(client.receive());
        }
        for ((name, head), first) in heads.into_iter().zip(firsts) {
            if let Some(collected) = whole(client, name, head, first)? {
                each(name, collected)?;
            }
        }
    }
    Ok(())
}

fn prepare(client: &mut Client, words: &[&[u8]]) -> Result<(), Problem> {
    client.prepare_read(words).map_err(|error| kv::client_problem(&error))
}

/// Receives a key's type and expiry, or `None` if the key does not exist.
fn head(client: &mut Client) -> Result<Option<Head>, Problem> {
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
        _ => return Err(unexpected(&kind)),
    };
    let Reply::Integer(expiry) = expiry else { return Err(unexpected(&expiry)) };
    Ok(Some((kind, u64::try_from(expiry).ok())))
}

/// Prepares the read of the first elements of a key.
fn first_page(client: &mut Client, name: &[u8], kind: &Kind) -> Result<(), Problem> {
    match kind {
        Kind::String => prepare(client, &[b"GET", name]),
        Kind::Stream | Kind::Module(_) => prepare(client, &[b"XLEN", name]),
        _ => page(client, name, kind, b"0"),
    }
}

/// Prepares the read of a page of a collection, from a cursor or an index on.
fn page(client: &mut Client, name: &[u8], kind: &Kind, from: &[u8]) -> Result<(), Problem> {
    let count = PAGE.to_string().into_bytes();
    let scan: &[u8] = match kind {
        Kind::Set => b"SSCAN",
        Kind::Hash => b"HSCAN",
        Kind::SortedSet => b"ZSCAN",
        _ => {
            let first = std::str::from_utf8(from).ok().and_then(|text| text.parse::<usize>().ok());
            let last = (first.unwrap_or_default() + PAGE - 1).to_string();
            return prepare(client, &[b"LRANGE", name, from, last.as_bytes()]);
        }
    };
    prepare(client, &[scan, name, from, b"COUNT", &count])
}

/// Reads the rest of a key whose first page has arrived. Begins again if the key became another.
fn whole(
    client: &mut Client,
    name: &[u8],
    mut head: Head,
    mut first: Result<Reply, Error>,
) -> Result<Option<Collected>, Problem> {
    for _ in 0..TRIES {
        match rest(client, name, &head.0, first) {
            Ok(Some(elements)) => {
                let (kind, expires_ms) = head;
                return Ok(Some(Collected::Key { kind, expires_ms, elements }));
            }
            Ok(None) => {}
            Err(Stop::Unsupported(what)) => return Ok(Some(Collected::Unsupported(what))),
            Err(Stop::Problem(problem)) => return Err(problem),
        }
        prepare(client, &[b"TYPE", name])?;
        prepare(client, &[b"PEXPIRETIME", name])?;
        let Some(again) = self::head(client)? else { return Ok(None) };
        head = again;
        first_page(client, name, &head.0)?;
        first = client.receive();
    }
    let what = format_args!("key {} changes too often to be read", crate::naming::shown(name));
    Err(Problem::new(Exit::Failed, "changing", what).hint("try again"))
}

enum Stop {
    Unsupported(&'static str),
    Problem(Problem),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Returns all elements, or `None` if the key is gone or of another type by now.
fn rest(
    client: &mut Client,
    name: &[u8],
    kind: &Kind,
    first: Result<Reply, Error>,
) -> Result<Option<Elements>, Stop> {
    let mut all = Vec::new();
    let mut reply = first;
    loop {
        let (next, elements) = match (reply, kind) {
            (Err(Error::Refused(text)), _) if text.starts_with("WRONGTYPE") => return Ok(None),
            (Err(error), _) => return Err(kv::client_problem(&error).into()),
            (Ok(Reply::Nil), Kind::String) => return Ok(None),
            (Ok(Reply::Bulk(value)), Kind::String) => return Ok(Some(Elements::One(value))),
            (Ok(_), Kind::Stream | Kind::Module(_)) => return Err(Stop::Unsupported(STREAM)),
            (Ok(Reply::Array(items)), Kind::List) => {
                let at = all.len() + items.len();
                let is_last = items.len() < PAGE;
                ((!is_last).then(|| at.to_string().into_bytes()), items)
            }
            (Ok(Reply::Array(parts)), _) => scanned(parts)?,
            (Ok(other), _) => return Err(unexpected(&other).into()),
        };
        if *kind == Kind::Hash {
            check_fields(client, name, &elements)?;
        }
        all.extend(elements.into_iter().filter_map(|element| match element {
            Reply::Bulk(bytes) => Some(bytes),
            _ => None,
        }));
        let Some(next) = next else { break };
        page(client, name, kind, &next)?;
        reply = client.receive();
    }
    Ok(if all.is_empty() { None } else { Some(shaped(kind, all)?) })
}

/// Splits a reply to SCAN of a collection into the next cursor, if any, and the elements.
fn scanned(parts: Vec<Reply>) -> Result<(Option<Vec<u8>>, Vec<Reply>), Problem> {
    match <[Reply; 2]>::try_from(parts) {
        Ok([Reply::Bulk(next), Reply::Array(items)]) => Ok(((next != b"0").then_some(next), items)),
        Ok([first, _]) => Err(unexpected(&first)),
        Err(parts) => Err(unexpected(&Reply::Array(parts))),
    }
}

/// Fails if a field of a hash expires, because the file has no place for that.
fn check_fields(client: &mut Client, name: &[u8], elements: &[Reply]) -> Result<(), Stop> {
    let fields: Vec<&[u8]> = elements.iter().step_by(2).filter_map(Reply::bytes).collect();
    if fields.is_empty() {
        return Ok(());
    }
    let count = fields.len().to_string().into_bytes();
    let words: Vec<&[u8]> =
        [&b"HPEXPIRETIME"[..], name, b"FIELDS", &count].into_iter().chain(fields).collect();
    match client.ask(&words) {
        Ok(Reply::Array(moments)) => {
            let is_expiring = |moment: &Reply| matches!(moment, Reply::Integer(1..));
            match moments.iter().any(is_expiring) {
                true => Err(Stop::Unsupported(EXPIRING_FIELDS)),
                false => Ok(()),
            }
        }
        // The hash is gone, or the cluster has no such commands yet.
        Ok(_) | Err(Error::Refused(_)) => Ok(()),
        Err(error) => Err(kv::client_problem(&error).into()),
    }
}

fn shaped(kind: &Kind, all: Vec<Vec<u8>>) -> Result<Elements, Problem> {
    let mut from = all.into_iter();
    let mut pairs = Vec::new();
    match kind {
        Kind::Hash | Kind::SortedSet => {
            while let (Some(first), Some(second)) = (from.next(), from.next()) {
                pairs.push((first, second));
            }
        }
        _ => return Ok(Elements::Many(from.collect())),
    }
    if *kind == Kind::Hash {
        return Ok(Elements::Pairs(pairs));
    }
    let score = |(member, score): (Vec<u8>, Vec<u8>)| {
        let number = std::str::from_utf8(&score).ok().and_then(|text| text.parse::<f64>().ok());
        number.map(|number| (member, number)).ok_or_else(|| unexpected(&Reply::Bulk(score)))
    };
    pairs.into_iter().map(score).collect::<Result<_, _>>().map(Elements::Scored)
}
