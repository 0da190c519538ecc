//! Encoding of commands, queries and replies: a byte for the kind and a Protobuf message, preceded
//! by the sender ([`Sender`](crate::auth::Sender)) if auth is enabled.
//!
//! Decoders accept arbitrary bytes and allocate no more memory than the input's size. Messages may
//! be nested as deeply as the Protobuf decoder allows, far deeper than transactions of etcd's
//! clients.

use bytes::Bytes;
use prost::Message;

use crate::{
    auth::messages::{AuthChange, AuthQuery},
    proto::{
        etcdserverpb::{
            AlarmRequest, CompactionRequest, DeleteRangeRequest, LeaseRevokeRequest,
            LeaseTimeToLiveRequest, PutRequest, RangeRequest, TxnRequest,
        },
        mvccpb::{Event, KeyValue},
    },
    refusal::Refusal,
};

/// A request that changes the state, executed in log order.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    /// Evaluates comparisons and executes one of two branches.
    Txn(TxnRequest),
    Compact(CompactionRequest),
    /// Removes part of the compacted history.
    Scrub,
    Grant(LeaseGrant),
    Revoke(LeaseRevokeRequest),
    KeepAlive(LeaseKeepAlives),
    /// Ends expired leases.
    Expire,
    /// Raises or disarms an alarm.
    Alarm(AlarmRequest),
    Auth(AuthChange),
}

/// A request that only reads the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// One page of the keys in a range.
    Page(PageRequest),
    /// Read-only transaction.
    Txn(TxnRequest),
    /// Revision and size of the state.
    Figures,
    /// Events from a revision on.
    Events(EventsRequest),
    /// Remaining time of a lease.
    Lease(LeaseTimeToLiveRequest),
    /// One page of the leases.
    Leases(LeasesRequest),
    /// Raised alarms.
    Alarms(AlarmRequest),
    /// Hash of one page of all data.
    Hash(HashRequest),
    Auth(AuthQuery),
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
const AUTH_QUERY: u8 = 9;

const DONE_STATUS: u8 = 0;
const REFUSED_STATUS: u8 = 1;

fn encode_message<M: Message>(kind: u8, message: &M) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + message.encoded_len());
    bytes.push(kind);
    message.encode_raw(&mut bytes);
    bytes
}

fn decode_message<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}

impl Command {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Put(request) => encode_message(PUT, request),
            Self::Delete(request) => encode_message(DELETE, request),
            Self::Txn(request) => encode_message(TXN, request),
            Self::Compact(request) => encode_message(COMPACT, request),
            Self::Scrub => vec![SCRUB],
            Self::Grant(request) => encode_message(GRANT, request),
            Self::Revoke(request) => encode_message(REVOKE, request),
            Self::KeepAlive(request) => encode_message(KEEP_ALIVE, request),
            Self::Expire => vec![EXPIRE],
            Self::Alarm(request) => encode_message(ALARM, request),
            Self::Auth(change) => encode_message(AUTH, change),
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            PUT => Self::Put(decode_message(rest)?),
            DELETE => Self::Delete(decode_message(rest)?),
            TXN => Self::Txn(decode_message(rest)?),
            COMPACT => Self::Compact(decode_message(rest)?),
            SCRUB if rest.is_empty() => Self::Scrub,
            GRANT => Self::Grant(decode_message(rest)?),
            REVOKE => Self::Revoke(decode_message(rest)?),
            KEEP_ALIVE => Self::KeepAlive(decode_message(rest)?),
            EXPIRE if rest.is_empty() => Self::Expire,
            ALARM => Self::Alarm(decode_message(rest)?),
            AUTH => Self::Auth(decode_message(rest)?),
            _ => return None,
        })
    }
}

impl Query {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Page(request) => encode_message(PAGE, request),
            Self::Txn(request) => encode_message(READ_TXN, request),
            Self::Figures => vec![FIGURES],
            Self::Events(request) => encode_message(EVENTS, request),
            Self::Lease(request) => encode_message(LEASE, request),
            Self::Leases(request) => encode_message(LEASES, request),
            Self::Alarms(request) => encode_message(ALARMS, request),
            Self::Hash(request) => encode_message(HASH, request),
            Self::Auth(ask) => encode_message(AUTH_QUERY, ask),
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            PAGE => Self::Page(decode_message(rest)?),
            READ_TXN => Self::Txn(decode_message(rest)?),
            FIGURES if rest.is_empty() => Self::Figures,
            EVENTS => Self::Events(decode_message(rest)?),
            LEASE => Self::Lease(decode_message(rest)?),
            LEASES => Self::Leases(decode_message(rest)?),
            ALARMS => Self::Alarms(decode_message(rest)?),
            HASH => Self::Hash(decode_message(rest)?),
            AUTH_QUERY => Self::Auth(decode_message(rest)?),
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct LeaseGrant {
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Requested time to live in seconds.
    #[prost(int64, tag = "2")]
    pub ttl: i64,
    /// Time of acceptance at the accepting node, in Unix milliseconds ([time-2]).
    #[prost(uint64, tag = "3")]
    pub now_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct LeaseKeepAlives {
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
pub struct KeepAliveTtls {
    /// Revision when the leases were extended.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Times to live in seconds, in the order of the requested ids; 0 for a lease that does not
    /// exist.
    #[prost(int64, repeated, tag = "2")]
    pub ttls: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct LeasesRequest {
    /// First id of the page. Ids are ordered as unsigned numbers.
    #[prost(int64, tag = "1")]
    pub from: i64,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct LeasesPage {
    /// Revision when the page was read.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    #[prost(int64, repeated, tag = "2")]
    pub ids: Vec<i64>,
    /// First id of the next page, if any.
    #[prost(int64, optional, tag = "3")]
    pub next: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PageRequest {
    /// Request for the whole range.
    #[prost(message, optional, tag = "1")]
    pub request: Option<RangeRequest>,
    /// Revision of the earlier pages; 0 for the first one.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// First key of the page; empty for the start of the range.
    #[prost(bytes = "bytes", tag = "3")]
    pub from: Bytes,
    /// Number of keys to return. Further keys are only counted.
    #[prost(uint64, tag = "4")]
    pub key_limit: u64,
    /// Maximum number of visited keys.
    #[prost(uint64, tag = "5")]
    pub visit_limit: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Page {
    /// Revision of the state when the page was read.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision that the page shows.
    #[prost(int64, tag = "2")]
    pub shown_revision: i64,
    #[prost(message, repeated, tag = "3")]
    pub kvs: Vec<KeyValue>,
    /// Number of the range's keys on this page, returned or only counted.
    #[prost(int64, tag = "4")]
    pub count: i64,
    /// First key of the next page; empty for the last one.
    #[prost(bytes = "bytes", tag = "5")]
    pub next: Bytes,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct EventsRequest {
    /// First revision whose events are requested.
    #[prost(int64, tag = "1")]
    pub from: i64,
    /// Set if events must include the previous key-value pairs.
    #[prost(bool, tag = "2")]
    pub prev_kv: bool,
    /// First key of the range; empty for all keys.
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    /// End of the range, as in a range request.
    #[prost(bytes = "bytes", tag = "4")]
    pub range_end: Bytes,
}

/// Events in order. Transactions are never split.
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

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct HashRequest {
    /// Revision to hash; 0 for the current one.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Set after the first page. The fields below are then those of the previous page.
    #[prost(bool, tag = "2")]
    pub is_begun: bool,
    /// Compacted revision at the first page.
    #[prost(int64, tag = "3")]
    pub compacted_revision: i64,
    /// Hash of all previous pages.
    #[prost(fixed64, tag = "4")]
    pub hash: u64,
    /// Set once all keys have been hashed, so that this page starts with the changes.
    #[prost(bool, tag = "5")]
    pub covers_changes: bool,
    /// Key or revision at which the page starts.
    #[prost(bytes = "bytes", tag = "6")]
    pub from: Bytes,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct HashPage {
    /// Revision of the state when the page was computed.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Revision that is hashed.
    #[prost(int64, tag = "2")]
    pub hashed_revision: i64,
    /// Compacted revision.
    #[prost(int64, tag = "3")]
    pub compacted_revision: i64,
    /// Hash of all pages up to this one.
    #[prost(fixed64, tag = "4")]
    pub hash: u64,
    /// Set once all keys have been hashed, so that the next page starts with the changes.
    #[prost(bool, tag = "5")]
    pub continues_with_changes: bool,
    /// Start of the next page; empty for the last one.
    #[prost(bytes = "bytes", tag = "6")]
    pub next: Bytes,
}

impl HashRequest {
    /// Returns the request for the page after `page`, or `None` if that was the last one.
    pub fn after_page(page: &HashPage) -> Option<Self> {
        (!page.next.is_empty()).then(|| Self {
            revision: page.hashed_revision,
            is_begun: true,
            compacted_revision: page.compacted_revision,
            hash: page.hash,
            covers_changes: page.continues_with_changes,
            from: page.next.clone(),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Figures {
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Compacted revision; -1 if history has never been compacted.
    #[prost(int64, tag = "2")]
    pub compacted_revision: i64,
    /// Set if all compacted history has been removed.
    #[prost(bool, tag = "3")]
    pub is_scrubbed: bool,
    /// Size of all keys and values with their history.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    #[prost(uint64, tag = "5")]
    pub lease_count: u64,
}

pub fn encode_reply<M: Message>(outcome: Result<M, Refusal>, reply: &mut Vec<u8>) {
    match outcome {
        Ok(answer) => {
            reply.reserve(1 + answer.encoded_len());
            reply.push(DONE_STATUS);
            answer.encode_raw(reply);
        }
        Err(refusal) => reply.extend([REFUSED_STATUS, refusal.to_byte()]),
    }
}

/// Decodes a reply, or returns `None` if it is malformed, e.g. because another release encoded it.
pub fn decode_reply<M: Message + Default>(reply: Vec<u8>) -> Option<Result<M, Refusal>> {
    let mut reply = Bytes::from(reply);
    match *reply.first()? {
        DONE_STATUS => {
            let _ = reply.split_to(1);
            M::decode(reply).ok().map(Ok)
        }
        REFUSED_STATUS => Refusal::from_byte(*reply.get(1)?).map(Err),
        _ => None,
    }
}
