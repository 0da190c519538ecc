//! Encoding of commands, queries and replies. A request is a byte for its kind followed by a
//! Protobuf message. If auth is enabled, its sender ([`By`](crate::auth::By)) precedes both.
//!
//! Input may be arbitrary bytes. Decoding allocates no more memory than the length of the input.
//! Messages may be nested as deeply as the library allows, which is far deeper than the
//! transactions of etcd's clients.

use bytes::Bytes;
use prost::Message;

use crate::{
    auth::messages::{AuthAsk, AuthChange},
    proto::{
        etcdserverpb::{
            AlarmRequest, CompactionRequest, DeleteRangeRequest, LeaseRevokeRequest,
            LeaseTimeToLiveRequest, PutRequest, RangeRequest, TxnRequest,
        },
        mvccpb::{Event, KeyValue},
    },
    refusal::Refusal,
};

/// A command, which changes the state and is executed in log order.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Put a key.
    Put(PutRequest),
    /// Delete keys.
    Delete(DeleteRangeRequest),
    /// Evaluate comparisons and execute one of two branches.
    Txn(TxnRequest),
    /// Compact history.
    Compact(CompactionRequest),
    /// Remove part of the compacted history.
    Scrub,
    /// Grant a lease.
    Grant(Granted),
    /// Revoke a lease.
    Revoke(LeaseRevokeRequest),
    /// Keep leases alive.
    KeepAlive(KeptAlive),
    /// End expired leases.
    Expire,
    /// Raise or disarm an alarm.
    Alarm(AlarmRequest),
    /// Change auth, users, roles or permissions.
    Auth(AuthChange),
}

/// A query, which reads the state and changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// Read one page of the keys in a range.
    Page(PageRequest),
    /// Execute a read-only transaction.
    Txn(TxnRequest),
    /// Return the revision and size of the state.
    Figures,
    /// Return the events from the requested revision onwards.
    Events(EventsRequest),
    /// Return the remaining time of a lease.
    Lease(LeaseTimeToLiveRequest),
    /// List one page of the leases.
    Leases(LeasesRequest),
    /// List the raised alarms.
    Alarms(AlarmRequest),
    /// Hash one page of all data.
    Hash(HashRequest),
    /// Query users and roles.
    Auth(AuthAsk),
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const TXN: u8 = 3;
const COMPACT: u8 = 4;
const SCRUB: u8 = 5;
const GRANT: u8 = 6;
const REVOKE: u8 = 7;
const KEEP_ALIVE: u8 = 8;
const EXPIRE: u8 = 9;
const ALARM: u8 = 10;
const AUTH: u8 = 11;

const PAGE: u8 = 1;
const READ_TXN: u8 = 2;
const FIGURES: u8 = 3;
const EVENTS: u8 = 4;
const LEASE: u8 = 5;
const LEASES: u8 = 6;
const ALARMS: u8 = 7;
const HASH: u8 = 8;
const AUTH_ASK: u8 = 9;

const DONE: u8 = 0;
const REFUSED: u8 = 1;

fn message<M: Message>(kind: u8, message: &M) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + message.encoded_len());
    bytes.push(kind);
    message.encode_raw(&mut bytes);
    bytes
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}

impl Command {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Put(request) => message(PUT, request),
            Self::Delete(request) => message(DELETE, request),
            Self::Txn(request) => message(TXN, request),
            Self::Compact(request) => message(COMPACT, request),
            Self::Scrub => vec![SCRUB],
            Self::Grant(request) => message(GRANT, request),
            Self::Revoke(request) => message(REVOKE, request),
            Self::KeepAlive(request) => message(KEEP_ALIVE, request),
            Self::Expire => vec![EXPIRE],
            Self::Alarm(request) => message(ALARM, request),
            Self::Auth(change) => message(AUTH, change),
        }
    }

    /// Decodes a command; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            PUT => Self::Put(decode(rest)?),
            DELETE => Self::Delete(decode(rest)?),
            TXN => Self::Txn(decode(rest)?),
            COMPACT => Self::Compact(decode(rest)?),
            SCRUB if rest.is_empty() => Self::Scrub,
            GRANT => Self::Grant(decode(rest)?),
            REVOKE => Self::Revoke(decode(rest)?),
            KEEP_ALIVE => Self::KeepAlive(decode(rest)?),
            EXPIRE if rest.is_empty() => Self::Expire,
            ALARM => Self::Alarm(decode(rest)?),
            AUTH => Self::Auth(decode(rest)?),
            _ => return None,
        })
    }
}

impl Query {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Page(request) => message(PAGE, request),
            Self::Txn(request) => message(READ_TXN, request),
            Self::Figures => vec![FIGURES],
            Self::Events(request) => message(EVENTS, request),
            Self::Lease(request) => message(LEASE, request),
            Self::Leases(request) => message(LEASES, request),
            Self::Alarms(request) => message(ALARMS, request),
            Self::Hash(request) => message(HASH, request),
            Self::Auth(ask) => message(AUTH_ASK, ask),
        }
    }

    /// Decodes a query; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            PAGE => Self::Page(decode(rest)?),
            READ_TXN => Self::Txn(decode(rest)?),
            FIGURES if rest.is_empty() => Self::Figures,
            EVENTS => Self::Events(decode(rest)?),
            LEASE => Self::Lease(decode(rest)?),
            LEASES => Self::Leases(decode(rest)?),
            ALARMS => Self::Alarms(decode(rest)?),
            HASH => Self::Hash(decode(rest)?),
            AUTH_ASK => Self::Auth(decode(rest)?),
            _ => return None,
        })
    }
}

/// Request to grant a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Granted {
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Requested time to live, in seconds.
    #[prost(int64, tag = "2")]
    pub ttl: i64,
    /// Time of acceptance at the accepting node, in Unix milliseconds ([time-2]).
    #[prost(uint64, tag = "3")]
    pub now_ms: u64,
}

/// Request to keep leases alive.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct KeptAlive {
    #[prost(int64, repeated, tag = "1")]
    pub ids: Vec<i64>,
    /// Time of acceptance at the accepting node, in Unix milliseconds ([time-2]).
    #[prost(uint64, tag = "2")]
    pub now_ms: u64,
    /// Auth revision at which the accepting node admitted the requests; 0 if auth was disabled.
    #[prost(uint64, tag = "3")]
    pub auth_revision: u64,
}

/// Times to live of leases that were kept alive.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Lasting {
    /// Revision of the state when the leases were extended.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Times to live in seconds, in the order of the requested ids; 0 for a lease that does not
    /// exist.
    #[prost(int64, repeated, tag = "2")]
    pub ttls: Vec<i64>,
}

/// Request for a page of leases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct LeasesRequest {
    /// First id of the page. Ids are ordered as unsigned numbers.
    #[prost(int64, tag = "1")]
    pub from: i64,
}

/// A page of leases.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct LeasesPage {
    /// Revision of the state when the page was read.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Ids of the leases on this page.
    #[prost(int64, repeated, tag = "2")]
    pub ids: Vec<i64>,
    /// First id of the next page; `None` if this is the last page.
    #[prost(int64, optional, tag = "3")]
    pub next: Option<i64>,
}

/// Request for one page of a range.
#[derive(Clone, PartialEq, Message)]
pub struct PageRequest {
    /// Request for the whole range.
    #[prost(message, optional, tag = "1")]
    pub request: Option<RangeRequest>,
    /// Revision of the earlier pages; 0 if this is the first page.
    #[prost(int64, tag = "2")]
    pub at: i64,
    /// First key of the page; empty to start at the beginning of the range.
    #[prost(bytes = "bytes", tag = "3")]
    pub from: Bytes,
    /// Maximum number of keys to return. Further keys are only counted.
    #[prost(uint64, tag = "4")]
    pub wanted: u64,
    /// Maximum number of keys that the page may visit.
    #[prost(uint64, tag = "5")]
    pub visits: u64,
}

/// One page of a range.
#[derive(Clone, PartialEq, Message)]
pub struct Page {
    /// Revision of the state when the page was read.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision that the page shows.
    #[prost(int64, tag = "2")]
    pub at: i64,
    /// Keys returned on this page.
    #[prost(message, repeated, tag = "3")]
    pub kvs: Vec<KeyValue>,
    /// Number of the range's keys on this page, including keys that are only counted.
    #[prost(int64, tag = "4")]
    pub count: i64,
    /// First key of the next page; empty if this is the last page.
    #[prost(bytes = "bytes", tag = "5")]
    pub next: Bytes,
}

/// Request for the events of a range of keys.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct EventsRequest {
    /// First revision whose events are requested.
    #[prost(int64, tag = "1")]
    pub from: i64,
    /// Set if events must include the previous key-value pairs.
    #[prost(bool, tag = "2")]
    pub prev_kv: bool,
    /// First key of the requested range; empty for all keys.
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    /// End of the requested range, with the same meaning as in a range request.
    #[prost(bytes = "bytes", tag = "4")]
    pub range_end: Bytes,
}

/// Events in order. Transactions are complete.
#[derive(Clone, PartialEq, Message)]
pub struct Events {
    /// Revision of the state when the events were read.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision before which all requested events are included.
    #[prost(int64, tag = "2")]
    pub next: i64,
    #[prost(message, repeated, tag = "3")]
    pub events: Vec<Event>,
}

/// Request for one page of a hash computation.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct HashRequest {
    /// Revision at which to hash; 0 for the current one.
    #[prost(int64, tag = "1")]
    pub at: i64,
    /// Set if this is not the first page. The remaining fields are then copied from the previous
    /// page.
    #[prost(bool, tag = "2")]
    pub is_begun: bool,
    /// Revision before which history had been compacted when the first page was computed.
    #[prost(int64, tag = "3")]
    pub compacted: i64,
    /// Hash of all previous pages.
    #[prost(fixed64, tag = "4")]
    pub hash: u64,
    /// Set if all keys have been hashed, so that the page continues with the changes.
    #[prost(bool, tag = "5")]
    pub of_changes: bool,
    /// Key or revision at which the page starts.
    #[prost(bytes = "bytes", tag = "6")]
    pub from: Bytes,
}

/// Result of one page of a hash computation.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct HashPage {
    /// Revision of the state when the page was computed.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision at which the hash is computed.
    #[prost(int64, tag = "2")]
    pub at: i64,
    /// Revision before which history is compacted.
    #[prost(int64, tag = "3")]
    pub compacted: i64,
    /// Hash of all pages up to and including this one.
    #[prost(fixed64, tag = "4")]
    pub hash: u64,
    /// Set if all keys have been hashed, so that the next page continues with the changes.
    #[prost(bool, tag = "5")]
    pub of_changes: bool,
    /// Start of the next page; empty if this is the last page.
    #[prost(bytes = "bytes", tag = "6")]
    pub next: Bytes,
}

impl HashRequest {
    /// Returns the request for the page that follows `page`; `None` if it is the last page.
    pub fn behind(page: &HashPage) -> Option<Self> {
        (!page.next.is_empty()).then(|| Self {
            at: page.at,
            is_begun: true,
            compacted: page.compacted,
            hash: page.hash,
            of_changes: page.of_changes,
            from: page.next.clone(),
        })
    }
}

/// Revision and size of the state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Figures {
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision before which history was compacted; -1 if it has never been compacted.
    #[prost(int64, tag = "2")]
    pub compacted: i64,
    /// Set if all compacted history has been removed.
    #[prost(bool, tag = "3")]
    pub is_scrubbed: bool,
    /// Size of all keys and values including their history, in bytes.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// Number of stored leases.
    #[prost(uint64, tag = "5")]
    pub leases: u64,
}

/// Appends the encoded outcome of a request to `reply`.
pub fn reply<M: Message>(outcome: Result<M, Refusal>, reply: &mut Vec<u8>) {
    match outcome {
        Ok(answer) => {
            reply.reserve(1 + answer.encoded_len());
            reply.push(DONE);
            answer.encode_raw(reply);
        }
        Err(refusal) => reply.extend([REFUSED, refusal.to_byte()]),
    }
}

/// Decodes a reply; `None` if it is malformed, for example because another release encoded it.
pub fn read_reply<M: Message + Default>(reply: Vec<u8>) -> Option<Result<M, Refusal>> {
    let mut reply = Bytes::from(reply);
    match *reply.first()? {
        DONE => {
            let _ = reply.split_to(1);
            M::decode(reply).ok().map(Ok)
        }
        REFUSED => Refusal::from_byte(*reply.get(1)?).map(Err),
        _ => None,
    }
}
