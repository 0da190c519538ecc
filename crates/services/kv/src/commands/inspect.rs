//! OBJECT and MEMORY, which report how a key is stored. The receiving node answers them from its
//! own state, without the log.

use crate::{
    command::{Doc, Local, NOT_AN_INTEGER, Refusal, Request, SYNTAX, Spec},
    commands::{
        family::{Family, Operation},
        lock::is_lock,
        state::ReadContext,
    },
    encode::{Decoder, Encoder, Fault},
    op::Op,
    resp::{integer::parse_integer, reply::Reply},
    store::{
        Entry,
        collection::{Header, Kind},
    },
};

pub const FAMILY: Family =
    Family { commands: COMMANDS, operations: &[Operation::read(Op::Inspect, inspect)] };

const COMMANDS: &[Spec] = &[
    Spec {
        keys: (2, 2, 1),
        ..Spec::local(
            "object",
            -2,
            Local::Object,
            Doc::new("generic", "2.2.3", "O(1)", "A container for object introspection commands.")
                .with_difference(
                    "encodings are guessed; neither frequency nor idle time; not within MULTI",
                ),
        )
    },
    Spec {
        keys: (2, 2, 1),
        ..Spec::local(
            "memory",
            -2,
            Local::Memory,
            Doc::new("server", "4.0.0", "O(1)", "A container for memory diagnostics commands.")
                .with_difference("only `USAGE`, an estimate; not within MULTI"),
        )
    },
];

/// Maximum length of a string that Redis stores together with its header (`embstr`).
const EMBEDDED_BYTES_MAX: usize = 44;
/// Estimated overhead of an entry in the memory store: 25 bytes before the key, about 16 for the
/// allocator, and about 55 for the table (24 bytes per slot, many of them empty).
const ENTRY_BYTES: usize = 96;

/// Estimated memory of a row in the memory store, without name and value.
const ROW_BYTES: u64 = 80;
/// Approximate number of elements up to which Redis stores a collection in compact form.
const SMALL_ELEMENTS: u64 = 128;
const SMALL_BYTES: u64 = 8192;

const NO_IDLE_TIME: &str = "ERR idle time is not tracked: no key is ever evicted here, so the time of its last use \
    is not kept";
const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
    that when switching between policies at runtime LRU and LFU data will take some time to adjust.";

/// Property of a key, as reported by OBJECT or MEMORY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Property {
    Encoding = 0,
    Frequency = 1,
    IdleTime = 2,
    References = 3,
    Memory = 4,
}

impl Property {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Encoding,
            1 => Self::Frequency,
            2 => Self::IdleTime,
            3 => Self::References,
            4 => Self::Memory,
            _ => return None,
        })
    }
}

/// Encodes `OBJECT subcommand key`. The caller has checked the subcommand.
pub fn encode_object(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let what = match &*r.at(0).to_ascii_lowercase() {
        b"encoding" => Property::Encoding,
        b"freq" => Property::Frequency,
        b"idletime" => Property::IdleTime,
        b"refcount" => Property::References,
        _ => return Err(SYNTAX.into()),
    };
    out.byte(Op::Inspect as u8).byte(what as u8).bytes(r.at(1));
    Ok(())
}

/// Encodes `MEMORY USAGE key [SAMPLES count]`. The count has no effect: headers contain the size.
pub fn encode_memory(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    match r.arguments.len() {
        2 => {}
        4 if r.is(2, "samples") => match parse_integer(r.at(3)) {
            Some(0..) => {}
            Some(_) => return Err(SYNTAX.into()),
            None => return Err(NOT_AN_INTEGER.into()),
        },
        _ => return Err(SYNTAX.into()),
    }
    out.byte(Op::Inspect as u8).byte(Property::Memory as u8).bytes(r.at(1));
    Ok(())
}

pub(super) fn inspect(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let what = Property::from_byte(from.byte()?).ok_or(Fault::Malformed)?;
    let key = from.key()?;
    from.end()?;
    let Some(entry) = state.store.get(key) else {
        reply.null();
        return Ok(());
    };
    match what {
        Property::Encoding => reply.bulk(encoding(&entry).as_bytes()),
        Property::Frequency => reply.error(NO_FREQUENCY),
        Property::IdleTime => reply.error(NO_IDLE_TIME),
        Property::References => reply.integer(1),
        Property::Memory => {
            let rows = Header::from_bytes(&entry.value).filter(|_| entry.kind.has_rows());
            let rows = rows.map_or(0, |header| {
                let rows = header.rows(entry.kind).saturating_mul(ROW_BYTES);
                rows.saturating_add(header.bytes)
            });
            let own = ENTRY_BYTES + key.bytes().len() + entry.value.len();
            reply.count(own.saturating_add(usize::try_from(rows).unwrap_or(usize::MAX)));
        }
    }
    Ok(())
}

/// Returns Redis' name for the encoding of a value. For collections it is an approximation: in
/// Redis it also depends on the longest element and on the history.
fn encoding(entry: &Entry<'_>) -> &'static str {
    if let Some(header) = Header::from_bytes(&entry.value).filter(|_| entry.kind.has_rows()) {
        let is_small = header.count <= SMALL_ELEMENTS && header.bytes <= SMALL_BYTES;
        return match (entry.kind, is_small) {
            (Kind::Stream, _) => "stream",
            (_, true) => "listpack",
            (Kind::List, false) => "quicklist",
            (Kind::Zset, false) => "skiplist",
            _ => "hashtable",
        };
    }
    match &*entry.value {
        lock if is_lock(lock) => "listpack",
        number if parse_integer(number).is_some() => "int",
        short if short.len() <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}
