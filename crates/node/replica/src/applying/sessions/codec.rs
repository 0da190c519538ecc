//! Encoding of sessions, for a persistent service's metadata and for comparing nodes.

use std::fmt;

use quorate_core::node_id::NodeId;

use crate::{fields::Fields, ports::outcome::SessionId};

/// Metadata keys of the table's entries in a persistent service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SessionKey {
    Node(NodeId),
    Client(SessionId),
    Reply(SessionId, u64),
}

/// Error for metadata that is inconsistent or not understood by this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableMetadata {
    pub(crate) key: Vec<u8>,
}

impl fmt::Display for UnreadableMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unreadable session metadata key={:02x?}", self.key)
    }
}

impl std::error::Error for UnreadableMetadata {}

impl SessionKey {
    /// Encodes the key in big-endian order, so that encoded keys sort numerically.
    pub(super) fn encode(self) -> Vec<u8> {
        let mut key = Vec::with_capacity(21);
        match self {
            Self::Node(node) => {
                key.push(b'n');
                key.extend_from_slice(&node.0.to_be_bytes());
            }
            Self::Client(id) => {
                key.push(b'c');
                key.extend_from_slice(&id.slot.to_be_bytes());
                key.extend_from_slice(&id.index.to_be_bytes());
            }
            Self::Reply(id, sequence) => {
                key.push(b'r');
                key.extend_from_slice(&id.slot.to_be_bytes());
                key.extend_from_slice(&id.index.to_be_bytes());
                key.extend_from_slice(&sequence.to_be_bytes());
            }
        }
        key
    }

    pub(super) fn decode(key: &[u8]) -> Option<Self> {
        let (kind, rest) = key.split_first()?;
        let mut rest = Fields(rest);
        let key = match kind {
            b'n' => Self::Node(NodeId(rest.u32()?)),
            b'c' => Self::Client(rest.session()?),
            b'r' => Self::Reply(rest.session()?, rest.u64()?),
            _ => return None,
        };
        rest.0.is_empty().then_some(key)
    }
}

impl Fields<'_> {
    pub(super) fn session(&mut self) -> Option<SessionId> {
        Some(SessionId { slot: self.u64()?, index: self.u32()? })
    }
}

/// Encodes a stored reply, or a marker for a reply that was too large to store.
pub(super) fn encode_reply(reply: Option<&[u8]>) -> Vec<u8> {
    match reply {
        None => vec![0],
        Some(bytes) => [&[1], bytes].concat(),
    }
}

/// Decodes a stored reply; the outer `None` means that it is unreadable.
pub(super) fn decode_reply(value: &[u8]) -> Option<Option<Vec<u8>>> {
    match value.split_first() {
        Some((0, [])) => Some(None),
        Some((1, bytes)) => Some(Some(bytes.to_vec())),
        _ => None,
    }
}
