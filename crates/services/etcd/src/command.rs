//! The bytes of commands, queries and replies: a byte that says what follows, and then a message of the protocol.
//!
//! Any bytes may come in. Decoding allocates no more than they hold, and messages within messages are as deep as the library
//! allows, which the transactions of etcd's clients stay far below.

use bytes::Bytes;
use prost::Message;

use crate::{
    proto::etcdserverpb::{
        CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest,
    },
    refusal::Refusal,
};

/// What changes the state, by its place in the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Puts a key.
    Put(PutRequest),
    /// Deletes keys.
    Delete(DeleteRangeRequest),
    /// Compares, and does one thing or another.
    Txn(TxnRequest),
    /// Gives up history.
    Compact(CompactionRequest),
    /// Removes some of what was given up.
    Scrub,
}

/// What asks for the state and changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// Which keys there are.
    Range(RangeRequest),
    /// A transaction that changes nothing.
    Txn(TxnRequest),
    /// How far it is and how large.
    Figures,
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const TXN: u8 = 3;
const COMPACT: u8 = 4;
const SCRUB: u8 = 5;

const RANGE: u8 = 1;
const READ_TXN: u8 = 2;
const FIGURES: u8 = 3;

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
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Put(request) => message(PUT, request),
            Self::Delete(request) => message(DELETE, request),
            Self::Txn(request) => message(TXN, request),
            Self::Compact(request) => message(COMPACT, request),
            Self::Scrub => vec![SCRUB],
        }
    }

    /// What these bytes are, if they are a command.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            PUT => Self::Put(decode(rest)?),
            DELETE => Self::Delete(decode(rest)?),
            TXN => Self::Txn(decode(rest)?),
            COMPACT => Self::Compact(decode(rest)?),
            SCRUB if rest.is_empty() => Self::Scrub,
            _ => return None,
        })
    }
}

impl Query {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Range(request) => message(RANGE, request),
            Self::Txn(request) => message(READ_TXN, request),
            Self::Figures => vec![FIGURES],
        }
    }

    /// What these bytes are, if they are a query.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            RANGE => Self::Range(decode(rest)?),
            READ_TXN => Self::Txn(decode(rest)?),
            FIGURES if rest.is_empty() => Self::Figures,
            _ => return None,
        })
    }
}

/// How far the state is, and how large.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Figures {
    /// The revision.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// History before it is given up; -1 if none was ever.
    #[prost(int64, tag = "2")]
    pub compacted: i64,
    /// Whether all that was given up is removed.
    #[prost(bool, tag = "3")]
    pub is_scrubbed: bool,
    /// Bytes of keys and values with their history.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
}

/// Appends what a request came to.
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

/// What a reply says. `None`: it makes no sense, as from another version.
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
