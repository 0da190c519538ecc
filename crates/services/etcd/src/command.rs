//! Encoding of commands, queries and replies: a byte for the kind and then a message of the
//! protocol, preceded by the identity of the sender if auth is enabled ([`By`](crate::auth::By)).
//!
//! Input may be arbitrary bytes. Decoding allocates no more than their length. Messages nest as
//! deeply as the library allows, which is far deeper than the transactions of etcd's clients.

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

/// A command, which changes the state, in log order.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Puts a key.
    Put(PutRequest),
    /// Deletes keys.
    Delete(DeleteRangeRequest),
    /// Compares, and executes one of two branches.
    Txn(TxnRequest),
    /// Compacts history.
    Compact(CompactionRequest),
    /// Removes some of the compacted history.
    Scrub,
    /// Grants a lease.
    Grant(Granted),
    /// Revokes a lease.
    Revoke(LeaseRevokeRequest),
    /// Keeps leases alive.
    KeepAlive(KeptAlive),
    /// Ends expired leases.
    Expire,
    /// Raises or disarms an alarm.
    Alarm(AlarmRequest),
    /// Changes auth, users, roles or permissions.
    Auth(AuthChange),
}

/// A query, which reads the state and changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// A page of the keys in a range.
    Page(PageRequest),
    /// A read-only transaction.
    Txn(TxnRequest),
    /// Revision and size of the state.
    Figures,
    /// Events from a revision on.
    Events(EventsRequest),
    /// Remaining time of a lease.
    Lease(LeaseTimeToLiveRequest),
    /// A page of the leases.
    Leases(LeasesRequest),
    /// The raised alarms.
    Alarms(AlarmRequest),
    /// A page of a hash of all data.
    Hash(HashRequest),
    /// A query about users and roles.
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
    /// Encodes the command.
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

    /// Decodes a command.
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
    /// Encodes the query.
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

    /// Decodes a query.
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
    /// Id of the lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Requested time to live, in seconds.
    #[prost(int64, tag = "2")]
    pub ttl: i64,
    /// Time at the node that accepted the request, in Unix milliseconds ([time-2]).
    #[prost(uint64, tag = "3")]
    pub now_ms: u64,
}

/// Request to keep leases alive.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct KeptAlive {
    /// Ids of the leases.
    #[prost(int64, repeated, tag = "1")]
    pub ids: Vec<i64>,
    /// Time at the node that accepted the requests, in Unix milliseconds ([time-2]).
    #[prost(uint64, tag = "2")]
    pub now_ms: u64,
    /// Auth revision under which that node admitted the requests; 0 if auth was disabled.
    #[prost(uint64, tag = "3")]
    pub auth_revision: u64,
}

/// Remaining times of leases that were kept alive.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Lasting {
    /// Revision of the state.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Times to live in seconds, in the order of the ids; 0 if there is no such lease.
    #[prost(int64, repeated, tag = "2")]
    pub ttls: Vec<i64>,
}

/// Request for a page of leases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct LeasesRequest {
    /// First id, in the order of unsigned numbers.
    #[prost(int64, tag = "1")]
    pub from: i64,
}

/// A page of leases.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct LeasesPage {
    /// Revision of the state.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Ids of the leases.
    #[prost(int64, repeated, tag = "2")]
    pub ids: Vec<i64>,
    /// Start of the next page; `None` if this was the last one.
    #[prost(int64, optional, tag = "3")]
    pub next: Option<i64>,
}

/// Request for a page of a range.
#[derive(Clone, PartialEq, Message)]
pub struct PageRequest {
    /// The range.
    #[prost(message, optional, tag = "1")]
    pub request: Option<RangeRequest>,
    /// Revision of the earlier pages; 0 if there were none.
    #[prost(int64, tag = "2")]
    pub at: i64,
    /// First key of the page; empty for the start of the range.
    #[prost(bytes = "bytes", tag = "3")]
    pub from: Bytes,
    /// Maximum number of keys to return; further keys are only counted.
    #[prost(uint64, tag = "4")]
    pub wanted: u64,
    /// Maximum number of keys to visit.
    #[prost(uint64, tag = "5")]
    pub visits: u64,
}

/// A page of a range.
#[derive(Clone, PartialEq, Message)]
pub struct Page {
    /// Revision of the state.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision of the page.
    #[prost(int64, tag = "2")]
    pub at: i64,
    /// Keys of the page.
    #[prost(message, repeated, tag = "3")]
    pub kvs: Vec<KeyValue>,
    /// Number of keys of the range on this page.
    #[prost(int64, tag = "4")]
    pub count: i64,
    /// First key of the next page; empty if this was the last one.
    #[prost(bytes = "bytes", tag = "5")]
    pub next: Bytes,
}

/// Request for events.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct EventsRequest {
    /// First revision.
    #[prost(int64, tag = "1")]
    pub from: i64,
    /// Include previous key-value pairs.
    #[prost(bool, tag = "2")]
    pub prev_kv: bool,
    /// First key; empty for all keys.
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    /// End of the keys, as for a range.
    #[prost(bytes = "bytes", tag = "4")]
    pub range_end: Bytes,
}

/// Events in order, in complete transactions.
#[derive(Clone, PartialEq, Message)]
pub struct Events {
    /// Revision of the state.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision up to which, exclusively, the events are complete.
    #[prost(int64, tag = "2")]
    pub next: i64,
    /// The events.
    #[prost(message, repeated, tag = "3")]
    pub events: Vec<Event>,
}

/// Request for a page of a hash.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct HashRequest {
    /// Revision to hash at; 0 for the current one.
    #[prost(int64, tag = "1")]
    pub at: i64,
    /// This is not the first page; the remaining fields come from the previous page.
    #[prost(bool, tag = "2")]
    pub is_begun: bool,
    /// Compacted revision.
    #[prost(int64, tag = "3")]
    pub compacted: i64,
    /// Hash of the previous pages.
    #[prost(fixed64, tag = "4")]
    pub hash: u64,
    /// The keys are complete, and changes are next.
    #[prost(bool, tag = "5")]
    pub of_changes: bool,
    /// Start of the page.
    #[prost(bytes = "bytes", tag = "6")]
    pub from: Bytes,
}

/// A page of a hash.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct HashPage {
    /// Revision of the state.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision of the hash.
    #[prost(int64, tag = "2")]
    pub at: i64,
    /// Compacted revision.
    #[prost(int64, tag = "3")]
    pub compacted: i64,
    /// Hash of the pages up to and including this one.
    #[prost(fixed64, tag = "4")]
    pub hash: u64,
    /// The keys are complete, and changes are next.
    #[prost(bool, tag = "5")]
    pub of_changes: bool,
    /// Start of the next page; empty if this was the last one.
    #[prost(bytes = "bytes", tag = "6")]
    pub next: Bytes,
}

impl HashRequest {
    /// Returns the request for the page after this one; `None` if it was the last one.
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
    /// Current revision.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision before which history was compacted; -1 if it never was.
    #[prost(int64, tag = "2")]
    pub compacted: i64,
    /// All compacted history has been removed.
    #[prost(bool, tag = "3")]
    pub is_scrubbed: bool,
    /// Size of keys and values with their history, in bytes.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// Number of leases.
    #[prost(uint64, tag = "5")]
    pub leases: u64,
}

/// Appends the encoded outcome of a request.
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

/// Decodes a reply; `None` if it is malformed, for example from another version.
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
